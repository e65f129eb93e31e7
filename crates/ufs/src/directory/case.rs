//! Whether a directory tells upper from lower case.

use std::path::Path;

use forebay_env::Random;

use super::own::OWN_DIRECTORY;
use super::tree::Tree;
use crate::{Error, ErrorKind, Result};

/// Makes a directory for a moment and looks for it by another name. An empty directory is neither an object nor a
/// bucket.
///
/// # Errors
/// `Invalid` when `A` and `a` are one file: of two keys, one would replace the other.
pub(super) fn check(tree: &Tree, directory: &Path, random: &dyn Random) -> Result<()> {
    let name = format!("{OWN_DIRECTORY}-{}", random.hex_id());
    // Where nothing can be made, nothing is replaced.
    if tree.create_directory(Path::new(&name)).is_err() {
        return Ok(());
    }
    let is_ignored = tree.metadata(Path::new(&name.to_ascii_uppercase())).is_ok();
    // What stays is empty, and has no other use.
    let _ = tree.remove_directory(Path::new(&name));
    if !is_ignored {
        return Ok(());
    }
    let problem = format!(
        "the file system of {} does not tell upper from lower case, so one of the keys A and a would replace the other: use a directory on another file system",
        directory.display()
    );
    Err(Error::new(ErrorKind::Invalid, problem))
}
