//! The admin listener over a real worker in memory, spoken to over a socket.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as the tests do")]

mod access;
mod content;
mod jobs;
mod pages;
mod persist;
mod policies;
mod samples;
mod sessions;
mod support;
