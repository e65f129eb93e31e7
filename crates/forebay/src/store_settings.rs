//! From the `[store]` section to the store's own settings, which want to know the disks.

use std::path::Path;

use forebay_env::Disk;
use forebay_types::ByteSize;

use crate::config::{Capacity, Store};
use crate::failure::Failure;

/// Fewer segments than this in a directory, and the store has no room to move.
const SEGMENTS_MIN: u64 = 8;
/// Of what is free, this share may be planned with: file systems get slow and files have overhead.
const FREE_SHARE_PERCENT: u64 = 95;

/// Sizes of all directories.
///
/// # Errors
/// When a directory is too small for the store.
pub(crate) async fn resolve(
    store: &Store,
    disks: &[std::sync::Arc<dyn Disk>],
) -> Result<forebay_store::Settings, Failure> {
    let mut capacities = Vec::with_capacity(disks.len());
    for disk in disks {
        capacities.push(capacity(store.size, disk.as_ref()).await?);
    }
    let smallest = capacities.iter().copied().min().expect("the configuration refuses an empty list of directories");
    let segment_bytes = segment_bytes(store, smallest);
    check_capacity(smallest, segment_bytes).map_err(|wrong| Failure::Refused(format!("store.size: {wrong}")))?;
    Ok(forebay_store::Settings {
        segment_bytes,
        inline_bytes_max: store.inline_object_max.0.min(inline_bytes_max(segment_bytes)),
        extent_bytes_max: store.extent_size_max.0.min(extent_bytes_max(segment_bytes)),
        snapshot_log_bytes: store.snapshot_log_size.0,
        free_ratio: store.free_ratio,
        write_buffer_bytes_max: store.write_buffer.0,
        forget: store.forget_directories.clone(),
        ..forebay_store::Settings::new(capacities)
    })
}

/// The size of a segment when the smallest directory takes `smallest` bytes.
pub(crate) fn segment_bytes(store: &Store, smallest: u64) -> u64 {
    store.segment_size.map_or_else(|| forebay_store::Settings::new(vec![smallest]).segment_bytes, |size| size.0)
}

pub(crate) fn inline_bytes_max(segment_bytes: u64) -> u64 {
    segment_bytes / 4
}

pub(crate) fn extent_bytes_max(segment_bytes: u64) -> u64 {
    segment_bytes / 2
}

/// # Errors
/// When a directory is too small for the store: the words after the setting.
pub(crate) fn check_capacity(bytes: u64, segment_bytes: u64) -> Result<(), String> {
    if bytes / segment_bytes >= SEGMENTS_MIN {
        return Ok(());
    }
    let [bytes, segment] = [bytes, segment_bytes].map(ByteSize);
    Err(format!("{bytes} in a directory are fewer than {SEGMENTS_MIN} segments of {segment}"))
}

/// A percentage is cut to what the disk can still hold together with what the store has on it.
async fn capacity(size: Capacity, disk: &dyn Disk) -> Result<u64, Failure> {
    let percent = match size {
        Capacity::Bytes(bytes) => return Ok(bytes),
        Capacity::Percent(percent) => percent,
    };
    let label = disk.label();
    let space = disk.space().await.map_err(|e| Failure::of(&label, &e))?;
    let wanted = space.total / 100 * percent;
    let possible = bytes_of_files(Path::new(&label)) + space.free / 100 * FREE_SHARE_PERCENT;
    if possible < wanted {
        let [wanted, possible] = [wanted, possible].map(|bytes| bytes >> 20);
        tracing::warn!(directory = %label, wanted_mib = wanted, possible_mib = possible, "the disk has less room than store.size asks for, and the store is limited to what is possible. For a larger cache, free space and restart");
    }
    Ok(wanted.min(possible))
}

/// Files that come or go meanwhile make no difference that matters.
pub(crate) fn bytes_of_files(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries.filter_map(|entry| entry.ok()?.metadata().ok()).filter(|file| file.is_file()).map(|file| file.len()).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use forebay_env::disk::memory::MemoryDisk;
    use forebay_env::disk::real::RealDisk;

    use super::*;
    use crate::config::{Config, Overrides};

    async fn resolved(text: &str) -> Result<forebay_store::Settings, Failure> {
        let directory = tempfile::tempdir().unwrap();
        let disks: [Arc<dyn Disk>; 1] = [Arc::new(RealDisk::open(directory.path()).unwrap())];
        let config = Config::load(Some(("test.toml", text)), &BTreeMap::new(), &Overrides::default()).unwrap();
        resolve(&config.store, &disks).await
    }

    #[tokio::test]
    async fn defaults_are_those_of_the_store() {
        let settings = resolved("[store]\nsize = \"64 GiB\"").await.unwrap();
        assert_eq!(format!("{settings:?}"), format!("{:?}", forebay_store::Settings::new(vec![64 << 30])));
    }

    #[tokio::test]
    async fn a_percentage_is_never_more_than_the_disk_can_hold() {
        let directory = tempfile::tempdir().unwrap();
        let space = RealDisk::open(directory.path()).unwrap().space().await.unwrap();
        let settings = resolved("[store]\nsize = \"100%\"").await.unwrap();
        // The disk is shared with other processes, so some slack is left.
        assert!(settings.capacity_bytes[0] <= space.free + (1 << 30), "{settings:?} {space:?}");
    }

    #[tokio::test]
    async fn a_directory_of_few_segments_is_refused_with_both_sizes() {
        let config = "[store]\nsize = \"100%\"\nsegment_size = \"16 MiB\"";
        let config = Config::load(Some(("test.toml", config)), &BTreeMap::new(), &Overrides::default()).unwrap();
        let refused = resolve(&config.store, &[Arc::new(MemoryDisk::new(64 << 20))]).await.unwrap_err();
        let Failure::Refused(line) = refused else { panic!("{refused:?}") };
        assert!(line.contains("store.size") && line.contains("16 MiB"), "{line}");
    }
}
