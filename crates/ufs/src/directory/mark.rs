//! The mark of the directory of a bucket: a file with a random id. Without it, a mount point whose disk is not mounted
//! looks like the bucket.

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use forebay_env::Random;

use super::errors::is_absent;
use super::own::{OWN_DIRECTORY, make_own, own};
use super::tree::Tree;

/// The file, from the directory of the bucket.
pub const MARK_FILE: &str = ".forebay/bucket";

/// More than an id has.
const BYTES_MAX: u64 = 64;

/// It is no secret, and other users may run other workers.
const MODE: u32 = 0o644;

/// The id of a directory, if it has one.
pub(super) fn read(tree: &Tree) -> io::Result<Option<String>> {
    let file = match tree.open(Path::new(MARK_FILE)) {
        Err(error) if is_absent(&error) => return Ok(None),
        opened => opened?,
    };
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    let id = text.trim();
    Ok((!id.is_empty()).then(|| id.to_owned()))
}

/// The id of a directory, which gets one if it has none.
pub(super) fn make(tree: &Tree, random: &dyn Random) -> io::Result<String> {
    if read(tree)?.is_none() {
        create(tree, random)?;
    }
    // Also when another worker, or an earlier try, has made it: its name may not be on stable storage yet.
    tree.sync(Path::new(OWN_DIRECTORY))?;
    tree.sync(Path::new(""))?;
    read(tree)?.ok_or_else(|| io::Error::other(format!("the file {MARK_FILE} is empty: remove it")))
}

/// Makes the file as a whole, unless another worker is quicker.
fn create(tree: &Tree, random: &dyn Random) -> io::Result<()> {
    make_own(tree, "tmp")?;
    let (temporary, target) = (own("tmp").join(random.hex_id()), Path::new(MARK_FILE));
    let made = write(tree, &temporary, &random.hex_id()).and_then(|()| match tree.link(&temporary, target) {
        // Some file systems know no second names.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => tree.rename_to_new(&temporary, target),
        linked => linked,
    });
    // After a rename it is gone. What stays is removed by a sweep.
    let _ = tree.remove_file(&temporary);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn write(tree: &Tree, path: &Path, id: &str) -> io::Result<()> {
    let mut file = tree.create(path)?;
    // Some file systems have no permissions.
    let _ = file.set_permissions(Permissions::from_mode(MODE));
    file.write_all(id.as_bytes())?;
    file.sync_all()
}
