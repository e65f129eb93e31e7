//! What a file itself cannot say about an object.

use std::fs::{File, Metadata};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use forebay_types::{ETag, Generation, ObjectInfo};
use md5::{Digest, Md5};
use rustix::fs::XattrFlags;
use serde::{Deserialize, Serialize};

use super::errors::failed;
use super::own::{make_own, own};
use super::tree::Tree;
use crate::{RemoteObject, Result, Stamp};

/// The name of the extended attribute.
const ATTRIBUTE: &str = "user.forebay";

/// Larger metadata goes into a file: ext4 keeps all attributes of a file in one block of 4 KiB.
const ATTRIBUTE_BYTES_MAX: usize = 2048;

/// The value of the attribute when the metadata is in a file.
const IN_FILE: &[u8] = b"file";

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
    pub(crate) fn new(generation: Generation, info: ObjectInfo, stat: &Metadata) -> Self {
        Self { version: 1, generation, info, inode: stat.ino(), modified_ns: modified_ns(stat) }
    }

    pub(crate) fn foreign(stat: &Metadata, object: &RemoteObject) -> Self {
        Self::new(Generation(0), object.info.clone(), stat)
    }

    fn fits(&self, stat: &Metadata) -> bool {
        let same_file = self.inode == stat.ino() && self.modified_ns == modified_ns(stat);
        same_file && self.info.size == stat.len() && self.version == 1
    }
}

fn file_of(stat: &Metadata) -> PathBuf {
    own("meta").join(format!("{:x}", stat.ino()))
}

/// The metadata, if there is any that fits the file.
pub(crate) fn read(tree: &Tree, file: &File, stat: &Metadata) -> Option<FileMeta> {
    let mut bytes = vec![0; ATTRIBUTE_BYTES_MAX];
    let length = rustix::fs::fgetxattr(file, ATTRIBUTE, &mut bytes).ok();
    bytes.truncate(length.unwrap_or(0));
    if bytes == IN_FILE || length.is_none() {
        bytes.clear();
        tree.open(&file_of(stat)).ok()?.read_to_end(&mut bytes).ok()?;
    }
    let meta: FileMeta = serde_json::from_slice(&bytes).ok()?;
    meta.fits(stat).then_some(meta)
}

/// Stores the metadata of a file that is not in its place yet, or whose tags change.
pub(crate) fn write(tree: &Tree, file: &File, stat: &Metadata, meta: &FileMeta) -> Result<()> {
    let bytes = serde_json::to_vec(meta).expect("memory takes every record");
    let fits = bytes.len() <= ATTRIBUTE_BYTES_MAX;
    if fits && rustix::fs::fsetxattr(file, ATTRIBUTE, &bytes, XattrFlags::empty()).is_ok() {
        return Ok(());
    }
    let path = file_of(stat);
    let write = || -> std::io::Result<()> {
        let temporary = path.with_extension("new");
        make_own(tree, "meta")?;
        // One may be left over, half written.
        let _none_most_of_the_time = tree.remove_file(&temporary);
        let mut file = tree.create(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        tree.rename(&temporary, &path)?;
        tree.sync(&own("meta"))
    };
    write().map_err(|error| failed("write metadata", error))?;
    // Where attributes are not available at all, the inode number alone leads to the metadata.
    let _ = rustix::fs::fsetxattr(file, ATTRIBUTE, IN_FILE, XattrFlags::empty());
    Ok(())
}

/// Removes the metadata of a file that is gone. Metadata that stays by accident never fits another file.
pub(crate) fn forget(tree: &Tree, file: &File) {
    if let Ok(stat) = file.metadata() {
        let _ = tree.remove_file(&file_of(&stat));
    }
}

/// The ETag of a file. It changes whenever the bytes do. It never depends on size and time alone, which a copy can
/// preserve.
pub(crate) fn remote_etag(stat: &Metadata, meta: Option<&FileMeta>) -> ETag {
    let ours = meta.map(|meta| meta.generation).filter(|generation| generation.0 != 0);
    // Setting attributes moves the change time, so that time only shows changes of foreign files.
    let changed = match (ours, meta) {
        (Some(generation), _) => format!("g{generation}"),
        (None, Some(_)) => "tagged".to_owned(),
        (None, None) => format!("c{}.{}", stat.ctime(), stat.ctime_nsec()),
    };
    let identity = format!("{}:{}:{}:{changed}", stat.ino(), modified_ns(stat), stat.len());
    // This is no MD5 of the bytes, so it is written in a form that no client takes for one.
    ETag::from_parts(Md5::digest(identity.as_bytes()).into(), 0)
}

/// The object as clients see it.
pub(crate) fn object(stat: &Metadata, meta: Option<&FileMeta>) -> RemoteObject {
    let remote_etag = remote_etag(stat, meta);
    let stamp =
        meta.map(|meta| meta.generation).filter(|generation| generation.0 != 0).map(|generation| Stamp { generation });
    let modified_ms = (modified_ns(stat) / 1_000_000).max(0) as u64;
    let info = match meta {
        Some(meta) => meta.info.clone(),
        None => ObjectInfo::new(stat.len(), remote_etag.clone(), modified_ms),
    };
    RemoteObject { info, remote_etag, stamp }
}

/// The modification time, in nanoseconds since the Unix epoch.
fn modified_ns(stat: &std::fs::Metadata) -> i128 {
    i128::from(stat.mtime()) * 1_000_000_000 + i128::from(stat.mtime_nsec())
}
