//! What a file itself cannot say about an object: stored beside it, in JSON.

use forebay_types::{ETag, Generation, ObjectInfo};
use serde::{Deserialize, Serialize};

use crate::{RemoteObject, Stamp};

/// What tells one version of a file from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    /// The number that the file system gave it.
    pub(crate) number: u64,
    pub(crate) modified_ns: i128,
    pub(crate) size: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileMeta {
    version: u32,
    /// Zero for a file that somebody else wrote and that was tagged here.
    pub(crate) generation: Generation,
    pub(crate) info: ObjectInfo,
    /// The file that the metadata belongs to. A file that was changed in place is somebody else's.
    inode: u64,
    modified_ns: i128,
}

impl FileMeta {
    pub(crate) fn new(generation: Generation, info: ObjectInfo, file: FileIdentity) -> Self {
        Self { version: 1, generation, info, inode: file.number, modified_ns: file.modified_ns }
    }

    /// For a file that somebody else wrote.
    pub(crate) fn foreign(file: FileIdentity, object: &RemoteObject) -> Self {
        Self::new(Generation(0), object.info.clone(), file)
    }

    /// `None` when it is damaged, or belongs to another version of the file.
    pub(crate) fn decode(bytes: &[u8], file: FileIdentity) -> Option<Self> {
        let meta: Self = serde_json::from_slice(bytes).ok()?;
        let same_file = meta.inode == file.number && meta.modified_ns == file.modified_ns;
        (same_file && meta.info.size == file.size && meta.version == 1).then_some(meta)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("memory takes every record")
    }

    /// The generation of a file that Forebay wrote.
    pub(crate) fn ours(&self) -> Option<Generation> {
        Some(self.generation).filter(|generation| generation.0 != 0)
    }
}

/// The object as clients see it.
pub(crate) fn object(file: FileIdentity, remote_etag: ETag, meta: Option<&FileMeta>) -> RemoteObject {
    let stamp = meta.and_then(FileMeta::ours).map(|generation| Stamp { generation });
    let info = match meta {
        Some(meta) => meta.info.clone(),
        None => {
            let modified_ms = (file.modified_ns / 1_000_000).max(0) as u64;
            ObjectInfo::new(file.size, remote_etag.clone(), modified_ms)
        }
    };
    RemoteObject { info, remote_etag, stamp }
}
