//! What the under store does not have yet: dirty objects, tombstones, transient objects, multipart uploads,
//! policies. A [`Catalog`] is what the cache uses; that of a cluster stands on an [`Engine`], which all workers share.

mod catalog;
pub mod conformance;
mod embedded;
mod engine;
mod error;
mod generations;
mod key_locks;
mod memory;
pub mod records;
mod slots;
mod watchers;

pub use catalog::{Catalog, Check, LocalChange, Transaction, Versioned, Watch};
pub use embedded::{EmbeddedCatalog, keys_of, verify};
pub use engine::Engine;
pub use error::{Error, ErrorKind, Result};
pub use generations::{Generations, first_generation};
pub use key_locks::{KeyGuard, KeyLocks};
pub use memory::MemoryEngine;
pub use slots::{Slot, SlotCount, SlotSet};
pub use watchers::Watchers;
