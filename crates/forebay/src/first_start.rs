//! Whether a store has ever been ready. A new one is reported until then: its first start may have failed after it had
//! written to the data directories.

use std::fs::{File, OpenOptions, remove_file};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::config::Config;
use crate::failure::Failure;
use crate::under_store_gone::is_store_new;

/// In the first data directory, from before its store begins until the server is ready: `docs/on-disk-format.md`.
const FIRST_START: &str = "first-start";

/// Whether the store is new. To be called before the store is opened, and when its directories are there.
///
/// # Errors
/// When that could not be noted.
pub(crate) fn begin(config: &Config) -> Result<bool, Failure> {
    let directories = &config.store.data_dirs;
    if directories.iter().any(|directory| directory.join(FIRST_START).exists()) {
        return Ok(true);
    }
    let Some(directory) = directories.first().filter(|_| is_store_new(config)) else { return Ok(false) };
    note(directory).map_err(|e| Failure::of(&format!("store.data_dirs: {}", directory.display()), &e))?;
    Ok(true)
}

fn note(directory: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(directory.join(FIRST_START))?;
    File::open(directory)?.sync_all()
}

/// To be called when the server is ready.
pub(crate) fn end(config: &Config) {
    for directory in &config.store.data_dirs {
        match remove_file(directory.join(FIRST_START)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(directory = %directory.display(), %error, "the file {FIRST_START} could not be removed: the next start will report a new store once more");
            }
            Ok(()) | Err(_) => {}
        }
    }
}
