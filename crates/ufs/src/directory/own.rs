//! Where files are kept that are not objects.

use std::io;
use std::path::{Path, PathBuf};

use super::tree::Tree;

/// Holds files that are being written, metadata that does not fit an attribute, and the mark of the bucket.
pub const OWN_DIRECTORY: &str = ".forebay";

/// Whether a name is that of a file that was removed while somebody had it open: NFS and FUSE keep such a file in its
/// directory, under a name of this form, until it is closed.
pub(super) fn is_of_removed(name: &str) -> bool {
    let are_digits = |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_prefix(".nfs").is_some_and(|digits| are_digits(digits, 24))
        || name.strip_prefix(".fuse_hidden").is_some_and(|digits| are_digits(digits, 16))
}

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
