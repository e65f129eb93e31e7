//! What a file itself cannot say about an object: stored beside it, in JSON.

use forebay_types::{ETag, Generation, ObjectInfo};
use serde::{Deserialize, Serialize};

use crate::stamp::key_hash;
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
    /// The [`key_hash`] of the key that Forebay wrote the file under. Older releases wrote none, and skip it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl FileMeta {
    pub(crate) fn new(key: &str, generation: Generation, info: ObjectInfo, file: FileIdentity) -> Self {
        let key = Some(key_hash(key));
        Self { version: 1, generation, info, inode: file.number, modified_ns: file.modified_ns, key }
    }

    /// For a file that somebody else wrote.
    pub(crate) fn foreign(key: &str, file: FileIdentity, object: &RemoteObject) -> Self {
        Self::new(key, Generation(0), object.info.clone(), file)
    }

    /// `None` when it is damaged, or belongs to another version of the file.
    pub(crate) fn decode(bytes: &[u8], key: &str, file: FileIdentity) -> Option<Self> {
        let mut meta: Self = serde_json::from_slice(bytes).ok()?;
        // Somebody has renamed the file. It is as it was, but it is no write of ours to this key.
        if meta.key.as_ref().is_some_and(|written| *written != key_hash(key)) {
            meta.generation = Generation(0);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileIdentity = FileIdentity { number: 5, modified_ns: 1_700_000_000_000_000_000, size: 3 };

    fn written() -> FileMeta {
        FileMeta::new("a", Generation(7), ObjectInfo::new(3, ETag::new("e"), 1_700_000_000_000), FILE)
    }

    #[test]
    fn a_file_that_was_renamed_is_no_write_of_ours_to_its_new_key() {
        let bytes = written().encode();
        assert_eq!(FileMeta::decode(&bytes, "a", FILE), Some(written()));
        let renamed = FileMeta::decode(&bytes, "b", FILE).unwrap();
        assert_eq!((renamed.ours(), &renamed.info), (None, &written().info));
    }

    #[test]
    fn metadata_of_an_older_release_counts_under_any_key() {
        let older = FileMeta { key: None, ..written() };
        let bytes = older.encode();
        assert!(!String::from_utf8_lossy(&bytes).contains("\"key\""));
        assert_eq!(FileMeta::decode(&bytes, "b", FILE), Some(older));
    }
}
