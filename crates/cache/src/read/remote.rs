//! What is known of an object of the under store, and a version of it to read pages of.

use std::sync::Arc;

use bytes::Bytes;
use forebay_store::Object;
use forebay_types::{ETag, Generation, ObjectPath, PathPolicy, WriteMode};
use forebay_ufs::{ByteStream, RemoteObject, UnderStore};

use crate::worker::Worker;
use crate::{Error, ErrorKind, Mount, Result};

/// What the under store has of a key.
pub(crate) enum RemoteState {
    /// What the clean copy is of, which is here whole or in part.
    Cached(Object),
    NotCached(Box<RemoteObject>),
    Absent,
}

/// A whole object as the under store sends it.
pub(crate) enum WholeBody {
    /// All of it, sound.
    Here(Bytes),
    OnItsWay(ByteStream),
}

/// What an object is looked up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    /// To have it on disk: nobody has asked for it yet, so that it has no place in memory.
    Load,
}

/// A version of an object of the under store, to read pages of.
#[derive(Clone)]
pub(crate) struct Version {
    pub(crate) path: ObjectPath,
    /// Of the longest policy rule that holds: reads are counted by it.
    pub(crate) rule: Arc<str>,
    /// What was here when the reader came: it stays readable when the key has been written anew in the meantime.
    pub(crate) opened: Object,
    pub(crate) generation: Generation,
    pub(crate) size: u64,
    /// What clients see.
    pub(crate) etag: ETag,
    pub(crate) remote_etag: ETag,
    pub(crate) under_store: Arc<dyn UnderStore>,
}

impl Version {
    /// The version that a clean copy is of.
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
            opened: copy,
            etag: annex.etag.unwrap_or_else(|| remote_etag.clone()),
            remote_etag,
            under_store: Arc::clone(&mount.foreground),
        })
    }
}

/// Whether what is read under a policy stays here.
pub(crate) fn keeps_reads(policy: &PathPolicy) -> bool {
    policy.cache_reads && policy.write_mode != WriteMode::NoCache
}
