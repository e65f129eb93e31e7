//! Changes that were lost with a data directory that was forgotten after an unclean stop. Nobody can list them, so the
//! operator gets a notice, until the mark of the store is removed from the data directories. What is here adds to the
//! mark since when changes may be lost.

use std::fs::{metadata, read_to_string, remove_file, write};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use forebay_admin::{Notice, Severity};
use forebay_store::{CHANGES_LOST_FILE, Forgotten};

use crate::commands::moment;
use crate::config::Config;

/// The index: `docs/on-disk-format.md`. What it has is not lost with a directory.
const SNAPSHOT: &str = "snapshot";

/// What the data directories show before the store is opened, which writes another snapshot and may write the mark.
pub(crate) struct Before {
    /// When the last snapshot was begun, in milliseconds since the Unix epoch.
    snapshot_ms: Option<u64>,
    /// As [`since_ms`].
    marked: Option<Option<u64>>,
}

impl Before {
    pub(crate) fn of(data_dirs: &[PathBuf]) -> Self {
        let snapshots = data_dirs.iter().filter_map(|directory| begun_ms(&directory.join(SNAPSHOT)));
        Self { snapshot_ms: snapshots.max(), marked: since_ms(data_dirs) }
    }
}

fn begun_ms(file: &Path) -> Option<u64> {
    let found = metadata(file).ok()?;
    // A copy of the directory was created later, and may keep the time of the last change.
    let begun = [found.created(), found.modified()].into_iter().flatten().min()?;
    Some(begun.duration_since(UNIX_EPOCH).ok()?.as_millis() as u64)
}

/// To be called when the store is open: the store has marked that changes are lost.
pub(crate) fn note(config: &Config, forgotten: Forgotten, before: &Before) {
    let directories = &config.store.data_dirs;
    // In a cluster, the engine has the records of all changes. Where no directory is forgotten, the mark is of a start
    // that could not forget one, and the directory is back.
    let is_complete = config.cluster.engine.is_some() || forgotten.before + forgotten.now == 0;
    let since_ms = match before.marked {
        Some(earlier) => before.snapshot_ms.zip(earlier).map(|(snapshot, earlier)| snapshot.min(earlier)),
        None => before.snapshot_ms,
    };
    let text = since_ms.map(|since_ms| since_ms.to_string()).unwrap_or_default();
    for directory in directories {
        let mark = directory.join(CHANGES_LOST_FILE);
        let noted = match forgotten.has_lost_changes {
            _ if is_complete => remove_file(&mark),
            true => write(&mark, &text),
            false => Ok(()),
        };
        match noted {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(file = %mark.display(), %error, "could not note since when changes may be lost");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

/// Since when changes may be lost. `None`: none are. `Some(None)`: nobody knows since when.
fn since_ms(data_dirs: &[PathBuf]) -> Option<Option<u64>> {
    let marks = data_dirs.iter().filter_map(|directory| read_to_string(directory.join(CHANGES_LOST_FILE)).ok());
    let times: Vec<Option<u64>> = marks.map(|mark| mark.trim().parse().ok()).collect();
    (!times.is_empty()).then(|| times.into_iter().flatten().min())
}

/// While the mark is there. A file system that does not answer makes this wait.
pub(crate) fn notice(config: &Config, now_ms: u64) -> Option<Notice> {
    let since = match since_ms(&config.store.data_dirs)? {
        Some(since_ms) => format!("since {} UTC ", moment(since_ms)),
        None => String::new(),
    };
    Some(Notice {
        id: CHANGES_LOST_FILE.to_owned(),
        severity: Severity::Critical,
        subject: String::new(),
        title: format!(
            "changes {since}may be lost and can't be listed: a data directory was given up after an unclean stop"
        ),
        cure: format!(
            "Compare what clients wrote and deleted since then with what is here, and write or delete it again: an object may be missing or have an older version, and a deleted one may be back. Then remove the file {CHANGES_LOST_FILE} from all data directories, which ends this notice"
        ),
        since_ms: now_ms,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::time::Duration;

    use super::*;
    use crate::config::Overrides;

    const LOST: Forgotten = Forgotten { before: 0, now: 1, has_lost_changes: true };
    const LATER: Forgotten = Forgotten { before: 1, now: 0, has_lost_changes: false };

    fn config(directory: &Path) -> Config {
        let text = format!("[store]\ndata_dirs = [\"{0}/one\", \"{0}/two\"]\n", directory.display());
        let config = Config::load(Some(("test.toml", &text)), &BTreeMap::new(), &Overrides::default());
        config.expect("a sound configuration")
    }

    #[test]
    fn lost_changes_are_told_with_their_time_until_the_mark_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let config = config(home.path());
        let directories = &config.store.data_dirs;
        directories.iter().for_each(|directory| std::fs::create_dir(directory).unwrap());
        let snapshot = File::create(directories[1].join(SNAPSHOT)).unwrap();
        snapshot.set_modified(UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
        let first = Before::of(directories);
        assert_eq!((first.snapshot_ms, first.marked), (Some(1_700_000_000_000), None));
        let title = || notice(&config, 7).map(|notice| notice.title);
        let mark = || directories.iter().for_each(|directory| write(directory.join(CHANGES_LOST_FILE), "").unwrap());
        assert_eq!(title(), None);
        mark();
        // A start that died here.
        assert!(title().unwrap().starts_with("changes may be lost"));
        note(&config, LATER, &Before::of(directories));
        assert!(title().unwrap().starts_with("changes may be lost"), "that snapshot is of a later start");
        note(&config, LOST, &Before::of(directories));
        assert!(title().unwrap().starts_with("changes may be lost"), "nobody knows since when the first ones are");
        note(&config, LOST, &first);
        assert!(title().unwrap().starts_with("changes since 2023-11-14 22:13:20 UTC may be lost"), "{:?}", title());
        let later = Before { snapshot_ms: Some(1_800_000_000_000), ..Before::of(directories) };
        note(&config, LATER, &later);
        note(&config, LOST, &later);
        assert!(title().unwrap().contains("2023"), "the earlier loss is not dismissed");
        directories.iter().for_each(|directory| remove_file(directory.join(CHANGES_LOST_FILE)).unwrap());
        assert_eq!(title(), None);
        note(&config, LATER, &first);
        assert_eq!(title(), None);
        // Of a start that could not forget the directory, which is back.
        mark();
        note(&config, Forgotten { before: 0, now: 0, has_lost_changes: false }, &first);
        assert_eq!(title(), None);
    }
}
