//! What makes workers one cache: a catalog on an engine that all of them share.
//!
//! So far one worker at a time stands on an engine, and is the home of all slots ([`HomeCatalog`]).

mod cluster_settings;
mod generations;
mod home_catalog;
mod layout;
mod lease;
mod ownership;
mod silence;
mod slot_record;
mod stream;
#[cfg(test)]
mod test_engine;
#[cfg(test)]
mod test_ground;
mod worker_record;

pub use cluster_settings::ClusterSettings;
pub use home_catalog::{HomeCatalog, HomeSettings};
pub use layout::WorkerId;
