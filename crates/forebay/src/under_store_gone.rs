//! Whether a directory under store is the one that the store has been used with. A disk that is not mounted leaves a
//! missing or empty directory, which looks like a new under store: all buckets, or all objects of one, would be gone,
//! and what is written would go to another disk.

use std::path::Path;

use forebay_cache::Mounts;
use forebay_catalog::records::{self, Base, ObjectRecord, State};
use forebay_catalog::{Catalog, Error};
use forebay_store::Store;
use forebay_types::BucketName;
use forebay_ufs::directory::OWN_DIRECTORY;

use crate::config::{Config, UnderStoreConfig};
use crate::failure::Failure;

/// What every directory has that was part of a store before: `docs/on-disk-format.md`.
pub(crate) const IDENTITY: &str = "identity";

/// Records that are looked at in one go.
const SCAN_RECORDS: usize = 1000;

/// Whether none of the data directories was part of a store before.
pub(crate) fn is_store_new(config: &Config) -> bool {
    !config.store.data_dirs.iter().any(|directory| directory.join(IDENTITY).exists())
}

/// Before the directory is made: only a first start may do that.
///
/// # Errors
/// What to do about it.
pub(crate) fn check_present(config: &Config, directory: &Path) -> Result<(), String> {
    if directory.exists() || is_store_new(config) {
        return Ok(());
    }
    let shown = directory.display();
    let cure = cure("make one bucket in it", &directory.join("BUCKET"));
    Err(format!("the directory {shown} is missing, and this store has been used before: {cure}"))
}

/// When the catalog can be read, and before anything is served.
///
/// # Errors
/// What to do about it.
pub(crate) async fn check_buckets(
    config: &Config,
    mounts: &Mounts,
    catalog: &dyn Catalog,
    store: &Store,
) -> Result<(), Failure> {
    for (bucket, mount) in &config.mounts {
        if let Some(directory) = mount.directory().filter(|_| !config.moved_buckets.contain(bucket)) {
            check_mount(bucket, directory, catalog, store).await?;
        }
    }
    let directory = config.root.as_ref().and_then(UnderStoreConfig::directory);
    let (Some(directory), Some(root)) = (directory, &mounts.root) else { return Ok(()) };
    // The probe reports a directory that can't be read.
    let Ok(found) = root.list().await else { return Ok(()) };
    let is_there = |bucket: &BucketName| !mounts.mounts.contains_key(bucket);
    if !found.is_empty() {
        let is_asked = |bucket: &BucketName| is_there(bucket) && !config.moved_buckets.contain(bucket);
        let buckets = found.into_iter().map(|bucket| bucket.name).filter(is_asked);
        let empty: Vec<_> = buckets.filter(|bucket| is_empty(&directory.join(bucket.as_str()))).collect();
        return check_empty(directory, &empty, catalog).await;
    }
    let known = known_bucket(catalog, is_there).await.map_err(|error| Failure::of("the catalog", &error))?;
    let Some(bucket) = known else { return Ok(()) };
    let (shown, cure) = (directory.display(), cure("make one bucket in it", &directory.join(bucket.as_str())));
    Err(Failure::Failed(format!(
        "under_store.url: the directory {shown} has no buckets, and this store knows the bucket {bucket} there: {cure}"
    )))
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

/// # Errors
/// When changes wait for objects that one of these buckets in `under_store.url` had, and its directory is empty:
/// another disk may be mounted at the directory of a whole bucket. Without it, these changes would count as done.
async fn check_empty(root: &Path, empty: &[BucketName], catalog: &dyn Catalog) -> Result<(), Failure> {
    for bucket in empty {
        let had_it = |record: &ObjectRecord| matches!(record.base, Base::Present(_));
        let waits = has_waiting_change(catalog, bucket, had_it).await;
        if waits.map_err(|error| Failure::of("the catalog", &error))? {
            let directory = root.join(bucket.as_str());
            let (shown, cure) = (directory.display(), cure("make a directory in it", &directory.join(OWN_DIRECTORY)));
            return Err(Failure::Failed(format!(
                "under_store.url: the directory {shown} of the bucket {bucket} is empty, and changes of objects in it wait: {cure}"
            )));
        }
    }
    Ok(())
}

/// # Errors
/// When the directory of one bucket is empty, and was not.
async fn check_mount(
    bucket: &BucketName,
    directory: &Path,
    catalog: &dyn Catalog,
    store: &Store,
) -> Result<(), Failure> {
    // The probe reports a directory that can't be read.
    if !is_empty(directory) {
        return Ok(());
    }
    let known = known_bucket(catalog, |known| known == bucket).await;
    let known = known.map_err(|error| Failure::of("the catalog", &error))?;
    let mut is_known = known.is_some();
    store.for_each_object(&mut |key, _, _| {
        is_known |= records::parse_object_key(key).is_some_and(|path| path.bucket == *bucket);
    });
    if !is_known {
        return Ok(());
    }
    let (shown, cure) = (directory.display(), cure("make a directory in it", &directory.join(OWN_DIRECTORY)));
    Err(Failure::Failed(format!(
        "mounts.{bucket}: the directory {shown} is empty, and this store knows objects of this bucket: {cure}"
    )))
}

fn cure(doing: &str, made: &Path) -> String {
    format!(
        "its disk is probably not mounted. Mount it and start again; if a new, empty under store is meant, {doing} first (mkdir -p {})",
        made.display()
    )
}

/// One of these buckets that has been seen, or has objects that wait here.
async fn known_bucket(
    catalog: &dyn Catalog,
    is_asked: impl Fn(&BucketName) -> bool,
) -> Result<Option<BucketName>, Error> {
    let ranges = [records::all_buckets_range(), records::all_objects_range()];
    for (mut from, to) in ranges {
        loop {
            let found = catalog.scan(&from, &to, SCAN_RECORDS).await?;
            let Some((last, _)) = found.last() else { break };
            from = records::successor(last);
            let bucket_of = |key: &[u8]| {
                records::parse_bucket_key(key).or_else(|| records::parse_object_key(key).map(|path| path.bucket))
            };
            if let Some(bucket) = found.iter().filter_map(|(key, _)| bucket_of(key)).find(&is_asked) {
                return Ok(Some(bucket));
            }
        }
    }
    Ok(None)
}

/// Whether such a delete or new version of an object waits in a bucket.
pub(crate) async fn has_waiting_change(
    catalog: &dyn Catalog,
    bucket: &BucketName,
    is_asked: impl Fn(&ObjectRecord) -> bool,
) -> Result<bool, Error> {
    let (mut from, to) = records::object_prefix_range(bucket, "");
    loop {
        let found = catalog.scan(&from, &to, SCAN_RECORDS).await?;
        let Some((last, _)) = found.last() else { return Ok(false) };
        from = records::successor(last);
        for (_, found) in &found {
            let record = ObjectRecord::decode(&found.value)?;
            let waits = matches!(record.state, State::Dirty | State::Tombstone);
            if waits && is_asked(&record) {
                return Ok(true);
            }
        }
    }
}
