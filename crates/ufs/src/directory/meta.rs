//! Where the metadata of a file is: in an extended attribute, or in a file of its own.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use forebay_types::ETag;
use md5::{Digest, Md5};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::errors::{failed, is_absent};
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

fn file_of(inode: u64) -> PathBuf {
    own("meta").join(format!("{inode:x}"))
}

/// The metadata, if there is any that fits the file.
///
/// # Errors
/// When it can't be read. Without its metadata, a file of ours would look like one of another program.
pub(crate) fn read(tree: &Tree, key: &str, file: &File, stat: &Metadata) -> Result<Option<FileMeta>> {
    let find = || -> io::Result<Option<Vec<u8>>> {
        match attribute(file)? {
            Some(bytes) if bytes != IN_FILE => Ok(Some(bytes)),
            Some(_) | None => from_file(tree, stat.ino()),
        }
    };
    let bytes = find().map_err(|error| failed("read metadata", error))?;
    Ok(bytes.and_then(|bytes| FileMeta::decode(&bytes, key, identity(stat))))
}

/// The attribute of a file. `None` when it has none, or one that is too long to be ours.
fn attribute(file: &File) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; ATTRIBUTE_BYTES_MAX];
    match rustix::fs::fgetxattr(file, ATTRIBUTE, &mut bytes) {
        Ok(length) => {
            bytes.truncate(length);
            Ok(Some(bytes))
        }
        Err(Errno::NODATA | Errno::RANGE) => Ok(None),
        // Some file systems have no attributes, and some sandboxes do not know the call.
        Err(Errno::NOTSUP | Errno::NOSYS | Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn from_file(tree: &Tree, inode: u64) -> io::Result<Option<Vec<u8>>> {
    let mut file = match tree.open(&file_of(inode)) {
        Err(error) if is_absent(&error) => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Stores the metadata of a file that is not in its place yet, or whose tags change.
pub(crate) fn write(tree: &Tree, file: &File, stat: &Metadata, meta: &FileMeta) -> Result<()> {
    let bytes = meta.encode();
    let fits = bytes.len() <= ATTRIBUTE_BYTES_MAX;
    if fits && rustix::fs::fsetxattr(file, ATTRIBUTE, &bytes, XattrFlags::empty()).is_ok() {
        return Ok(());
    }
    let path = file_of(stat.ino());
    let write = || -> io::Result<()> {
        let temporary = path.with_extension("new");
        make_own(tree, "meta")?;
        // One may be left over, half written.
        let _none_most_of_the_time = tree.remove_file(&temporary);
        let mut file = tree.create(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        {
            let _nothing_is_forgotten = tree.metadata_files.lock();
            tree.rename(&temporary, &path)?;
        }
        tree.sync(&own("meta"))
    };
    let writing = |error| failed("write metadata", error);
    write().map_err(writing)?;
    // Where attributes are not available at all, the inode number alone leads to the metadata. An older attribute would
    // hide it.
    if let Err(error) = rustix::fs::fsetxattr(file, ATTRIBUTE, IN_FILE, XattrFlags::empty())
        && attribute(file).map_err(writing)?.is_some_and(|present| present != IN_FILE)
    {
        return Err(writing(error.into()));
    }
    Ok(())
}

/// Removes the metadata of a file that is gone, and still open here. Metadata that stays by accident never fits another
/// file.
pub(crate) fn forget(tree: &Tree, file: &File) {
    if let Ok(stat) = file.metadata() {
        let _ = tree.remove_file(&file_of(stat.ino()));
    }
}

/// The same for a file that was closed before it went. By now, its number may be that of another file.
pub(crate) fn forget_closed(tree: &Tree, gone: FileIdentity) {
    let is_of_it = || {
        let bytes = from_file(tree, gone.number).ok().flatten();
        bytes.is_some_and(|bytes| FileMeta::decode(&bytes, "", gone).is_some())
    };
    // Most files have their metadata in an attribute, and do not wait for others.
    if !is_of_it() {
        return;
    }
    let _none_is_written = tree.metadata_files.lock();
    if is_of_it() {
        let _ = tree.remove_file(&file_of(gone.number));
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
