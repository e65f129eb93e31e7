//! The state of an object in the under store, and a version of it whose pages can be read.

use std::sync::Arc;

use bytes::Bytes;
use forebay_store::Object;
use forebay_types::{ETag, Generation, ObjectPath, PathPolicy, WriteMode};
use forebay_ufs::{ByteStream, RemoteObject, UnderStore};

use crate::worker::Worker;
use crate::{Error, ErrorKind, Mount, Result};

/// What the under store has of a key.
pub(crate) enum RemoteState {
    /// The version of the clean copy, which is complete or partial.
    Cached(Object),
    NotCached(Box<RemoteObject>),
    Absent,
}

/// The bytes of a whole object from the under store.
pub(crate) enum WholeBody {
    /// All of them, verified.
    Here(Bytes),
    OnItsWay(ByteStream),
}

/// The purpose of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    /// To have the object on disk. Nobody has read it yet, so it does not go into the memory tier.
    Load,
}

/// A version of an object in the under store, for reading its pages.
#[derive(Clone)]
pub(crate) struct Version {
    pub(crate) path: ObjectPath,
    /// The longest matching policy rule, by which reads are counted.
    pub(crate) rule: Arc<str>,
    /// The copy when the read began. It stays readable when the key is overwritten.
    pub(crate) opened: Object,
    pub(crate) generation: Generation,
    pub(crate) size: u64,
    /// The ETag that clients see.
    pub(crate) etag: ETag,
    pub(crate) remote_etag: ETag,
    /// Whether the policy keeps what is read of it.
    pub(crate) is_kept: bool,
    pub(crate) under_store: Arc<dyn UnderStore>,
}

impl Version {
    /// The version of a clean copy.
    ///
    /// # Errors
    /// `Internal` when the copy has no tag of the under store.
    pub(crate) fn of(path: &ObjectPath, policy: &PathPolicy, mount: &Mount, copy: Object) -> Result<Self> {
        let annex = Worker::annex_of(&copy);
        let Some(remote_etag) = annex.remote_etag else {
            return Err(Error::new(ErrorKind::Internal, format!("a copy of {path} has no tag")));
        };
        Ok(Self {
            path: path.clone(),
            rule: Arc::clone(&policy.rule),
            generation: copy.generation(),
            size: copy.size(),
            is_kept: keeps_reads_of(policy, copy.size()),
            opened: copy,
            etag: annex.etag.unwrap_or_else(|| remote_etag.clone()),
            remote_etag,
            under_store: Arc::clone(&mount.foreground),
        })
    }

    /// Whether the copy had all bytes when the read began.
    pub(crate) fn is_whole(&self) -> bool {
        self.opened.cached_bytes() == self.size
    }
}

/// Whether reads under a policy fill the cache, with objects that are small enough for it.
pub(crate) fn keeps_reads(policy: &PathPolicy) -> bool {
    policy.cache_reads && policy.write_mode != WriteMode::NoCache
}

/// Whether reads of an object of `size` bytes fill the cache, whatever they read of it.
pub(crate) fn keeps_reads_of(policy: &PathPolicy, size: u64) -> bool {
    keeps_reads(policy) && !policy.is_too_large_to_keep(size)
}
