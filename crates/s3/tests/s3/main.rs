//! The S3 protocol over sockets, before a cache in memory.

mod authentication;
mod fairness;
mod objects;
mod protocol;
mod short_path;
mod support;
