//! What the under store does not have yet: dirty objects, tombstones, transient objects, multipart uploads,
//! policies. Held by an [`Engine`], a small transactional key-value store.

pub mod conformance;
mod embedded;
mod engine;
mod error;
mod key_locks;
mod memory;
pub mod records;
mod watchers;

pub use embedded::EmbeddedEngine;
pub use engine::{Check, Engine, LocalChange, Transaction, Versioned, Watch};
pub use error::{Error, ErrorKind, Result};
pub use memory::MemoryEngine;
