//! Where the metadata of a file is: in an extended attribute, or in a file of its own.

use std::fs::{File, Metadata};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use forebay_types::ETag;
use md5::{Digest, Md5};
use rustix::fs::XattrFlags;

use super::errors::failed;
use super::own::{make_own, own};
use super::tree::Tree;
use crate::file_meta::{self, FileIdentity, FileMeta};
use crate::{RemoteObject, Result};

/// The name of the extended attribute.
const ATTRIBUTE: &str = "user.forebay";

/// Larger metadata goes into a file: ext4 keeps all attributes of a file in one block of 4 KiB.
const ATTRIBUTE_BYTES_MAX: usize = 2048;

/// The value of the attribute when the metadata is in a file.
const IN_FILE: &[u8] = b"file";

/// What tells this file from others.
pub(crate) fn identity(stat: &Metadata) -> FileIdentity {
    FileIdentity { number: stat.ino(), modified_ns: modified_ns(stat), size: stat.len() }
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
    FileMeta::decode(&bytes, identity(stat))
}

/// Stores the metadata of a file that is not in its place yet, or whose tags change.
pub(crate) fn write(tree: &Tree, file: &File, stat: &Metadata, meta: &FileMeta) -> Result<()> {
    let bytes = meta.encode();
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
    let ours = meta.and_then(FileMeta::ours);
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
    file_meta::object(identity(stat), remote_etag(stat, meta), meta)
}

/// The modification time, in nanoseconds since the Unix epoch.
fn modified_ns(stat: &std::fs::Metadata) -> i128 {
    i128::from(stat.mtime()) * 1_000_000_000 + i128::from(stat.mtime_nsec())
}
