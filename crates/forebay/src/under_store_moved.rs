//! Whether changes still wait for an under store that the configuration has since replaced by another one. Sent to the
//! new one, a delete or an overwrite would destroy an object that it was never about.

use std::collections::BTreeMap;

use forebay_catalog::records::{self, ObjectRecord, State, UNDER_STORES_KEY};
use forebay_catalog::{Catalog, Error, Transaction};
use forebay_store::ValueWrite;
use forebay_types::{BucketName, Durability};
use serde::{Deserialize, Serialize};

use crate::config::{Config, UnderStoreConfig};
use crate::failure::Failure;
use crate::locations::{endpoint, location};

/// Records that are read in one go.
const SCAN_RECORDS: usize = 1000;

/// Where the buckets are, as the last start had it. JSON in the catalog, without keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct UnderStores {
    root: Option<String>,
    mounts: BTreeMap<BucketName, String>,
}

impl UnderStores {
    fn of(config: &Config) -> Self {
        let shown = |under_store: &UnderStoreConfig| {
            let at = endpoint(&under_store.url, config.inherited_endpoint.as_deref());
            let at = at.map(|endpoint| format!(" at {endpoint}")).unwrap_or_default();
            format!("{}{at}", location(&under_store.url))
        };
        Self {
            root: config.root.as_ref().map(shown),
            mounts: config.mounts.iter().map(|(bucket, mount)| (bucket.clone(), shown(mount))).collect(),
        }
    }

    /// Where a bucket is. In `under_store.url`, each has a place of its own by its name.
    fn of_bucket(&self, bucket: &BucketName) -> Option<(bool, &str)> {
        let mount = self.mounts.get(bucket).map(|mount| (true, mount.as_str()));
        mount.or_else(|| self.root.as_deref().map(|root| (false, root)))
    }
}

/// Compares where the buckets are with the last start. Call it before anything is sent.
///
/// # Errors
/// When changes wait for buckets whose under store is another one than at the last start, and the configuration does
/// not name these buckets in `under_store.moved_buckets`.
pub(crate) async fn check(config: &Config, catalog: &dyn Catalog) -> Result<(), Failure> {
    let present = UnderStores::of(config);
    let Some(before) = noted(catalog).await?.filter(|before| *before != present) else { return Ok(()) };
    let moves = |bucket: &BucketName| {
        // A bucket that has no under store any more is refused elsewhere.
        let places = before.of_bucket(bucket).zip(present.of_bucket(bucket));
        places.is_some_and(|(from, to)| from != to) && !config.moved_buckets.contain(bucket)
    };
    let waiting = waiting(catalog, moves).await.map_err(failed)?;
    match waiting.first_key_value() {
        Some((bucket, changes)) => {
            Err(Failure::Refused(refusal(bucket, *changes, waiting.len() - 1, &before, &present)))
        }
        None => Ok(()),
    }
}

/// Notes where the buckets are, for the next start. Call it when nothing can refuse this start any more, and before a
/// client can write.
///
/// # Errors
/// Those of the catalog.
pub(crate) async fn note(config: &Config, catalog: &dyn Catalog) -> Result<(), Failure> {
    let present = UnderStores::of(config);
    if noted(catalog).await?.as_ref() == Some(&present) {
        return Ok(());
    }
    let writes = vec![ValueWrite { key: UNDER_STORES_KEY.into(), value: Some(records::encode_json(&present)) }];
    let transaction = Transaction { writes, durability: Durability::Fsync, ..Transaction::default() };
    catalog.commit(transaction).await.map_err(failed)?;
    Ok(())
}

async fn noted(catalog: &dyn Catalog) -> Result<Option<UnderStores>, Failure> {
    let noted = catalog.get(UNDER_STORES_KEY).await.map_err(failed)?;
    noted.map(|noted| records::decode_json("under stores", &noted.value)).transpose().map_err(failed)
}

fn failed(error: Error) -> Failure {
    Failure::of("the catalog", &error)
}

fn refusal(
    bucket: &BucketName,
    changes: u64,
    other_buckets: usize,
    before: &UnderStores,
    present: &UnderStores,
) -> String {
    let shown = |place: Option<(bool, &str)>| place.map_or("none".to_owned(), |(_, place)| place.to_owned());
    let (from, to) = (shown(before.of_bucket(bucket)), shown(present.of_bucket(bucket)));
    let setting =
        if present.mounts.contains_key(bucket) { format!("mounts.{bucket}") } else { "under_store.url".to_owned() };
    let changes = if changes == 1 { "1 change waits".to_owned() } else { format!("{changes} changes wait") };
    let more = match other_buckets {
        0 => String::new(),
        1 => ", and those of 1 other bucket".to_owned(),
        others => format!(", and those of {others} other buckets"),
    };
    format!(
        "{setting}: {changes} to be sent for bucket {bucket}{more}, which was in {from} at the last start and is now in {to}: they could replace or delete other objects there. Start with the earlier under store until `forebay status` shows that nothing is dirty. If the new one has the same objects, name the bucket in under_store.moved_buckets"
    )
}

/// How many objects and deletes of these buckets the under store does not have.
async fn waiting(
    catalog: &dyn Catalog,
    is_asked: impl Fn(&BucketName) -> bool,
) -> Result<BTreeMap<BucketName, u64>, Error> {
    let (mut from, to) = records::all_objects_range();
    let mut waiting: BTreeMap<BucketName, u64> = BTreeMap::new();
    loop {
        let found = catalog.scan(&from, &to, SCAN_RECORDS).await?;
        let Some((last, _)) = found.last() else { return Ok(waiting) };
        from = records::successor(last);
        for (key, found) in &found {
            let Some(path) = records::parse_object_key(key).filter(|path| is_asked(&path.bucket)) else { continue };
            if matches!(ObjectRecord::decode(&found.value)?.state, State::Dirty | State::Tombstone) {
                *waiting.entry(path.bucket).or_default() += 1;
            }
        }
    }
}
