//! The file systems of the data directories: their kind, their space, their disks.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::report::{Report, Unit};
use crate::config::{Capacity, Config, Problem};
use crate::store_settings;
use crate::watch::device_of;

/// Of what is free, the server plans with this share.
const FREE_SHARE: f64 = 0.95;

/// Kinds of file systems that do not keep what they should, by the numbers of statfs(2) and `linux/magic.h`.
const IN_MEMORY: [(u64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];
const OVERLAY: [(u64, &str); 2] = [(0x794c_7630, "overlay"), (0x6173_7566, "aufs")];
const NETWORK: [(u64, &str); 8] = [
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x517b, "smb"),
    (0x6573_5546, "fuse"),
    (0x00c3_6400, "ceph"),
    (0x0bd0_0bd0, "lustre"),
    (0x0102_1997, "9p"),
];

pub(super) fn examine(config: &Config, report: &mut Report) {
    let mut devices = HashMap::new();
    for directory in &config.store.data_dirs {
        let name = directory.display().to_string();
        let found = match present(directory) {
            Ok(found) => found,
            Err(problem) => {
                report.find("directory-unusable", &name, problem.0);
                continue;
            }
        };
        if let Err(error) = rustix::fs::access(&found, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK) {
            report.find("directory-unusable", &name, format!("{}: {error}", found.display()));
            continue;
        }
        kind(&name, &found, report);
        space(config, &name, directory, &found, report);
        let Some(device) = disk_of(&found) else { continue };
        if let Some(other) = devices.insert(device, name.clone()) {
            report.find("directories-share-a-disk", &name, format!("{other} is on the same"));
        }
    }
}

/// A number that directories of one disk share; by file system where the disk is not to be found.
fn disk_of(directory: &Path) -> Option<(u32, u32)> {
    match device_of(directory, Path::new("/")) {
        Some(device) => Some((device.major, device.minor)),
        None => {
            let number = directory.metadata().ok()?.dev();
            Some((rustix::fs::major(number), rustix::fs::minor(number)))
        }
    }
}

fn kind(name: &str, directory: &Path, report: &mut Report) {
    let Ok(found) = rustix::fs::statfs(directory) else { return };
    // The type of the number differs between machines; its values fit into 32 bits on all.
    let number = u64::from(found.f_type as u32);
    for (id, kinds) in [
        ("filesystem-in-memory", &IN_MEMORY[..]),
        ("filesystem-overlay", &OVERLAY[..]),
        ("filesystem-network", &NETWORK[..]),
    ] {
        if let Some((_, kind)) = kinds.iter().find(|(magic, _)| *magic == number) {
            report.find(id, name, (*kind).to_owned());
        }
    }
}

/// What the directory may grow to: what is free, and what the store has in it already.
fn possible_bytes(directory: &Path, found: &Path) -> Option<(u64, u64)> {
    let space = rustix::fs::statvfs(found).ok()?;
    let free = (space.f_bavail * space.f_frsize) as f64 * FREE_SHARE;
    let own = store_settings::bytes_of_files(directory);
    Some((space.f_blocks * space.f_frsize, own + free as u64))
}

fn space(config: &Config, name: &str, directory: &Path, found: &Path, report: &mut Report) {
    let Some((total, possible)) = possible_bytes(directory, found) else { return };
    let shown = |bytes: u64| Unit::Bytes.show(bytes as f64);
    let wanted = match config.store.size {
        Capacity::Bytes(bytes) => bytes,
        Capacity::Percent(percent) => total / 100 * percent,
    };
    report.measured("space", name, possible as f64, Unit::Bytes);
    let is_percent = matches!(config.store.size, Capacity::Percent(_));
    if possible < wanted {
        let id = if is_percent { "space-less-than-asked" } else { "space-missing" };
        report.find(id, name, format!("{} of {}", shown(possible), shown(wanted)));
    }
    let capacity = wanted.min(possible);
    let segment = store_settings::segment_bytes(&config.store, capacity);
    if let Err(wrong) = store_settings::check_capacity(capacity, segment)
        && is_percent
    {
        report.find("space-too-small", name, wrong);
    }
}

/// Bytes of all directories together, as the server would plan them.
pub(super) fn capacity_bytes(config: &Config) -> u64 {
    let of = |directory: &std::path::PathBuf| {
        let percent = match config.store.size {
            Capacity::Bytes(bytes) => return bytes,
            Capacity::Percent(percent) => percent,
        };
        let found = present(directory).ok().and_then(|found| possible_bytes(directory, &found));
        found.map_or(0, |(total, possible)| (total / 100 * percent).min(possible))
    };
    config.store.data_dirs.iter().map(of).sum()
}

/// The directory itself, or what it will be made in.
pub(super) fn present(directory: &Path) -> Result<PathBuf, Problem> {
    let whole = std::path::absolute(directory).map_err(|e| Problem(format!("the working directory: {e}")))?;
    let found = whole.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"));
    Ok(found.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report;

    fn found(text: &str) -> Vec<&'static str> {
        report::found(text, examine)
    }

    #[test]
    fn memory_is_no_disk() {
        // On Linux this is a tmpfs wherever it exists.
        if Path::new("/dev/shm").is_dir() {
            let ids = found("[store]\ndata_dirs = [\"/dev/shm/forebay-doctor\"]\nsize = \"64 MiB\"");
            assert!(ids.contains(&"filesystem-in-memory"), "{ids:?}");
        }
    }

    #[test]
    fn two_directories_on_one_disk_are_found_and_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display();
        let shared = format!("[store]\ndata_dirs = [\"{path}/a\", \"{path}/b\"]\nsize = \"64 MiB\"");
        assert!(found(&shared).contains(&"directories-share-a-disk"));
        let alone = format!("[store]\ndata_dirs = [\"{path}/a\"]\nsize = \"64 MiB\"");
        assert!(!found(&alone).contains(&"directories-share-a-disk"));
    }

    #[test]
    fn a_size_beyond_the_disk_is_critical_and_a_percentage_is_cut() {
        let directory = tempfile::tempdir().unwrap();
        let of = |size| format!("[store]\ndata_dirs = [\"{}\"]\nsize = \"{size}\"", directory.path().display());
        assert!(found(&of("8000 TiB")).contains(&"space-missing"));
        assert!(found(&of("100%")).contains(&"space-less-than-asked"));
        assert!(!found(&of("64 MiB")).contains(&"space-missing"));
    }
}
