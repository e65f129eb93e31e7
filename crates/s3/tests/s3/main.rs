//! The S3 protocol over sockets, before a cache in memory.

mod authentication;
mod fairness;
mod fast_path;
mod objects;
mod passing;
mod protocol;
mod support;
