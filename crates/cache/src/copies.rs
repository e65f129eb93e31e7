//! Bytes of one key at several workers. A write may have copies at others before it is acknowledged. A key may also get
//! a new home before the under store has what was written to it: the new home fetches the bytes from a worker that has
//! them; until then, reads wait or get a retryable error.

mod append;
mod damaged;
mod fetch;
mod held;
mod hold;
mod renew;
mod repair;
mod send;
mod sent;
mod wanted;

use bytes::Bytes;
use forebay_catalog::records::{self, Scope};
use forebay_store::Object;
use forebay_types::Generation;

pub(crate) use damaged::DamagedCopies;
pub(crate) use held::HeldCopies;
pub(crate) use send::Replicated;
pub(crate) use sent::SentCopies;
pub(crate) use wanted::{Awaited, FETCHES_MAX, WantedCopies};

/// A generation of a key: what one worker has a copy of, and another one may have, too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CopyId {
    /// Of the record that names the generation.
    pub key: Bytes,
    pub generation: Generation,
}

impl CopyId {
    pub(crate) fn of(object: &Object) -> Self {
        Self { key: Bytes::copy_from_slice(object.key()), generation: object.generation() }
    }

    /// Of the path that the key belongs to.
    fn hash(&self) -> Option<u64> {
        match records::scope(&self.key) {
            Scope::Path(hash) => Some(hash),
            Scope::Worker | Scope::Cluster => None,
        }
    }
}
