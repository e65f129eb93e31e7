//! What makes workers one cache: a catalog on an engine that all of them share.
//!
//! So far one worker stands on an engine, and is the home of all keys ([`HomeCatalog`]).

mod generations;
mod home_catalog;
mod stream;
#[cfg(test)]
mod test_engine;

pub use home_catalog::{HomeCatalog, HomeSettings};
