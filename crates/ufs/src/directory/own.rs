//! Where files are kept that are not objects.

use std::io;
use std::path::{Path, PathBuf};

use super::tree::Tree;

/// Holds files that are being written, and metadata that does not fit an attribute.
pub const OWN_DIRECTORY: &str = ".forebay";

/// The path of something that is not an object.
pub(super) fn own(name: &str) -> PathBuf {
    Path::new(OWN_DIRECTORY).join(name)
}

/// Makes a directory for files that are not objects, if it does not exist.
pub(super) fn make_own(tree: &Tree, name: &str) -> io::Result<()> {
    for path in [Path::new(OWN_DIRECTORY), &own(name)] {
        match tree.create_directory(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}
