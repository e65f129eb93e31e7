//! What the under store does not have yet: dirty objects, tombstones, transient objects, multipart uploads,
//! policies. A [`Catalog`] is what the cache uses; that of a cluster stands on an [`Engine`], which all workers share.

mod catalog;
mod commit_locks;
pub mod conformance;
mod embedded;
mod engine;
mod error;
mod generations;
mod memory;
pub mod records;
mod slots;
mod watchers;

pub use catalog::{Catalog, Check, LocalChange, TRANSACTION_BYTES_MAX, TRANSACTION_MAX, Transaction, Versioned, Watch};
pub use commit_locks::{CommitGuard, CommitLocks};
pub use embedded::{EmbeddedCatalog, keys_of, verify};
pub use engine::Engine;
pub use error::{Error, ErrorKind, Result};
pub use generations::{Generations, first_generation};
pub use memory::MemoryEngine;
pub use slots::{Slot, SlotCount, SlotSet};
pub use watchers::Watchers;
