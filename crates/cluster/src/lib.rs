//! What makes workers one cache: a catalog on an engine that all of them share.
//!
//! Each worker has a [`HomeCatalog`]: it is the home of some slots, and [`Placement`] says of which.

mod cluster_settings;
mod copy_floors;
mod engine_note;
mod failure_detector;
mod generations;
mod home_catalog;
mod identity;
mod incarnations;
mod layout;
mod lease;
mod leaving;
mod leaving_record;
mod member_record;
mod new_key;
mod ownership;
mod placement;
mod retry;
mod shared_revision;
mod slot_record;
mod slots_seen;
mod stream;
#[cfg(test)]
mod test_engine;
#[cfg(test)]
mod test_ground;
mod under_stores;
mod view;
mod worker_record;

pub use cluster_settings::ClusterSettings;
pub use engine_note::{OlderEngine, accept_older_engine, older_engine};
pub use home_catalog::{HomeCatalog, HomeSettings};
pub use identity::{ClusterIdentity, check_alone, has_joined};
pub use layout::{UNDER_STORES_KEY, WorkerId, parse_path_record_key, path_records_range};
pub use leaving::{LeavingError, LeavingResult};
pub use member_record::Addresses;
pub use new_key::{KeyReplacement, Reseal, replace_key};
pub use ownership::addresses_told;
pub use placement::Placement;
pub use under_stores::{OtherUnderStores, other_under_stores};
pub use view::{Homes, Member, MemberState, Moves, View};
