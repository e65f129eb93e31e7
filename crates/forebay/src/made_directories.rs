//! The data directories that a start makes. One that is refused takes them back: with a mistake in the configuration,
//! or without its disk, it would leave an empty directory where none was.

use std::fs::{File, read_dir, remove_dir, remove_file};
use std::io;
use std::path::{Path, PathBuf};

use forebay_env::disk::real::LOCK_FILE;
use rustix::fs::FlockOperation;

/// Data directories that did not exist before the start, and those above them. Deeper ones come first.
pub(crate) struct MadeDirectories(Vec<PathBuf>);

impl MadeDirectories {
    /// To be called before the directories are opened.
    pub(crate) fn of(data_dirs: &[PathBuf]) -> Self {
        let absent = |directory: &PathBuf| {
            let absent = directory.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
            absent.map(Path::to_owned).collect::<Vec<_>>()
        };
        let mut made: Vec<_> = data_dirs.iter().flat_map(absent).collect();
        made.sort_unstable_by(|one, other| other.cmp(one));
        made.dedup();
        Self(made)
    }

    /// Removes those that hold nothing but a lock. What else a start has written stays, for the next one. To be called
    /// when the directories are closed.
    pub(crate) fn remove(&self) {
        for directory in &self.0 {
            if let Err(error) = remove_if_blank(directory) {
                tracing::debug!(directory = %directory.display(), %error, "a directory that this start may have made stays");
            }
        }
    }
}

fn remove_if_blank(directory: &Path) -> io::Result<()> {
    for entry in read_dir(directory)? {
        if entry?.file_name() != LOCK_FILE {
            return Ok(());
        }
    }
    let path = directory.join(LOCK_FILE);
    // Held until the end: another process may have made the directory meanwhile, and be about to use it.
    let _lock = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        opened => {
            let lock = opened?;
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            remove_file(&path)?;
            Some(lock)
        }
    };
    remove_dir(directory)
}

#[cfg(test)]
mod tests {
    use forebay_env::disk::real::RealDisk;

    use super::*;

    #[test]
    fn a_refused_start_leaves_no_directory_that_it_has_made() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let present = path("present");
        std::fs::create_dir(&present).unwrap();
        let all = [path("above/one"), path("above/two"), present.clone(), path("kept")];
        let made = MadeDirectories::of(&all);
        let disks: Vec<_> = all.iter().map(|directory| RealDisk::open(directory).unwrap()).collect();
        std::fs::write(path("kept/identity"), "a store").unwrap();
        made.remove();
        let has_lock = |name: &str| path(name).join(LOCK_FILE).exists();
        assert!(has_lock("above/one") && has_lock("above/two"), "they may be in use by another process");
        drop(disks);
        made.remove();
        assert!(!path("above").exists());
        assert!(has_lock("present") && path("kept/identity").exists() && has_lock("kept"));
    }
}
