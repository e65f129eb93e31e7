//! Opens the file of an object.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::errors::{failed, is_absent};
use super::tree::Tree;
use super::{meta, paths};
use crate::file_meta::{FileIdentity, FileMeta};
use crate::{RemoteObject, Result};

/// An open object.
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) object: RemoteObject,
    /// As it was when the object was looked at.
    pub(crate) identity: FileIdentity,
    pub(crate) meta: Option<FileMeta>,
}

/// The file of an object, closed. On NFS and FUSE, a file that is removed or replaced while it is open gets another
/// name in its directory, which then cannot be removed.
pub(crate) struct Present {
    pub(crate) path: PathBuf,
    pub(crate) identity: FileIdentity,
}

impl Opened {
    pub(crate) fn close(self) -> Present {
        Present { path: self.path, identity: self.identity }
    }
}

/// The object of a key, if there is one.
///
/// # Errors
/// Those of the file system: what can't be read is not missing.
pub(crate) fn open_object(tree: &Tree, key: &str) -> Result<Option<Opened>> {
    loop {
        let opened = try_open(tree, key)?;
        match &opened {
            // It was replaced after it was opened, and its metadata may have been removed with it.
            Some(Opened { file, meta: None, .. }) if is_removed(file)? => {}
            _ => return Ok(opened),
        }
    }
}

fn is_removed(file: &File) -> Result<bool> {
    Ok(file.metadata().map_err(|error| failed("look at a file", error))?.nlink() == 0)
}

fn try_open(tree: &Tree, key: &str) -> Result<Option<Opened>> {
    for path in paths::candidates(tree, key).map_err(|error| failed("look at a directory", error))? {
        match tree.open(&path) {
            Ok(file) => {
                let stat = file.metadata().map_err(|error| failed("look at a file", error))?;
                if stat.is_file() {
                    let meta = meta::read(tree, key, &file, &stat)?;
                    let object = meta::object(&stat, meta.as_ref());
                    return Ok(Some(Opened { file, path, object, identity: meta::identity(&stat), meta }));
                }
            }
            Err(error) if is_absent(&error) || is_special(tree, &path, &error) => {}
            Err(error) => return Err(failed("open a file", error)),
        }
    }
    Ok(None)
}

/// Whether what could not be opened is no file: a socket, or a device that is not there.
fn is_special(tree: &Tree, path: &Path, error: &io::Error) -> bool {
    let is_told = matches!(Errno::from_io_error(error), Some(Errno::NXIO | Errno::NODEV));
    is_told && tree.metadata(path).is_ok_and(|stat| !stat.is_file())
}
