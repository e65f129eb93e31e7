//! Opens the file of an object.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

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
    for path in paths::candidates(key) {
        match tree.open(&path) {
            Ok(file) => {
                let stat = file.metadata().map_err(|error| failed("look at a file", error))?;
                if stat.is_file() {
                    let meta = meta::read(tree, key, &file, &stat)?;
                    let object = meta::object(&stat, meta.as_ref());
                    return Ok(Some(Opened { file, path, object, identity: meta::identity(&stat), meta }));
                }
            }
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(failed("open a file", error)),
        }
    }
    Ok(None)
}
