//! Whether the directory of each bucket carries the mark that Forebay gave it. A mount point whose disk is not mounted
//! does not, whatever is in it: changes that wait would count as done there, and be gone after the next mount.

use std::sync::Arc;

use bytes::Bytes;
use forebay_admin::{Notice, Notices, Severity};
use forebay_cache::Mounts;
use forebay_catalog::records::{self, MarkRecord};
use forebay_catalog::{Catalog, Transaction};
use forebay_store::ValueWrite;
use forebay_types::{BucketName, Durability};
use forebay_ufs::directory::MARK_FILE;
use forebay_ufs::{Mark, UnderStore};

use crate::config::Config;
use crate::failure::Failure;
use crate::under_store_gone::has_waiting_change;
use crate::watch;

/// What is found where a bucket was when it got its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// The same place, or one that this is not known of: the bucket is elsewhere by now, or can't be read.
    Marked,
    Other,
    Nothing,
}

/// Buckets whose marks are out of date: the start takes what is there instead. Call [`Outdated::forget`] when nothing
/// can refuse this start any more, and before anything is sent.
pub(crate) struct Outdated(Vec<BucketName>);

/// # Errors
/// When another directory has the place of a bucket that changes wait for, and the configuration does not name the
/// bucket in `under_store.moved_buckets`. In a cluster also when none wait: other workers may acknowledge some at any
/// time.
pub(crate) async fn check(config: &Config, mounts: &Mounts, catalog: &dyn Catalog) -> Result<Outdated, Failure> {
    let (from, to) = records::all_marks_range();
    let marks = catalog.scan(&from, &to, usize::MAX).await.map_err(|error| Failure::of("the catalog", &error))?;
    let mut outdated = Vec::new();
    for (key, found) in marks {
        let Some(bucket) = records::parse_mark_key(&key) else { continue };
        let record = MarkRecord::decode(&found.value).map_err(|error| Failure::of("the catalog", &error))?;
        let found = find(mounts, &bucket, &record).await;
        if found == Found::Marked {
            continue;
        }
        let is_taken = config.moved_buckets.contain(&bucket);
        let may_forget = is_taken || (found == Found::Other && !is_in_use(catalog, &bucket).await?);
        match (may_forget, found) {
            (true, _) => outdated.push(bucket),
            (false, Found::Other) => return Err(Failure::Failed(refusal(config, &bucket, &record))),
            // Without the mark, what appears there later would be taken for the bucket.
            (false, Found::Nothing | Found::Marked) => {}
        }
    }
    Ok(Outdated(outdated))
}

async fn is_in_use(catalog: &dyn Catalog, bucket: &BucketName) -> Result<bool, Failure> {
    if catalog.slots().is_some() {
        return Ok(true);
    }
    let waits = has_waiting_change(catalog, bucket, |_| true).await;
    waits.map_err(|error| Failure::of("the catalog", &error))
}

async fn find(mounts: &Mounts, bucket: &BucketName, record: &MarkRecord) -> Found {
    let under_store: Arc<dyn UnderStore> = match (mounts.mounts.get(bucket), &mounts.root) {
        (Some(mount), _) => Arc::clone(&mount.foreground),
        (None, Some(root)) if root.assume(bucket).label() == record.place => match root.open(bucket).await {
            Ok(Some(under_store)) => under_store,
            Ok(None) => return Found::Nothing,
            // The probe reports that.
            Err(_) => return Found::Marked,
        },
        (None, _) => return Found::Marked,
    };
    if under_store.label() != record.place {
        return Found::Marked;
    }
    match under_store.mark().await {
        Ok(Mark::Id(mark)) if mark == record.mark => Found::Marked,
        Ok(Mark::Id(_) | Mark::None) => Found::Other,
        Ok(Mark::NotNeeded) | Err(_) => Found::Marked,
    }
}

fn refusal(config: &Config, bucket: &BucketName, record: &MarkRecord) -> String {
    let directory = record.place.strip_prefix("file://").unwrap_or(&record.place);
    let setting = match config.mounts.contains_key(bucket) {
        true => format!("mounts.{bucket}"),
        false => "under_store.url".to_owned(),
    };
    format!(
        "{setting}: the directory {directory} of the bucket {bucket} is not the one that its changes were sent to, because its mark {MARK_FILE} is missing or another one, and more changes wait or may come: its disk is probably not mounted. Mount it and start again; if the directory was replaced on purpose, start once with the bucket in under_store.moved_buckets"
    )
}

impl Outdated {
    /// Raises a notice for each bucket that no setting names.
    pub(crate) fn tell(&self, config: &Config, now_ms: u64, notices: &Notices) {
        for bucket in self.0.iter().filter(|bucket| !config.moved_buckets.contain(bucket)) {
            let notice = Notice {
                id: "bucket-directory-replaced".to_owned(),
                severity: Severity::Warning,
                subject: bucket.to_string(),
                title: "the directory of the bucket is not the one that its changes were sent to before, and was taken for the bucket because none waited".to_owned(),
                cure: "Nothing to do if the directory was replaced on purpose; the notice ends with the next start. Otherwise its disk is probably not mounted: stop the clients, run `forebay persist /` until it ends with exit code 0, stop the server, mount the disk, copy what was written meanwhile from the directory beneath the mount point, and start again".to_owned(),
                since_ms: now_ms,
            };
            watch::raise(notices, notice);
        }
    }

    /// Returns whether that is because of `under_store.moved_buckets`.
    ///
    /// # Errors
    /// Those of the catalog.
    pub(crate) async fn forget(self, config: &Config, catalog: &dyn Catalog) -> Result<bool, Failure> {
        let is_meant = self.0.iter().any(|bucket| config.moved_buckets.contain(bucket));
        if !self.0.is_empty() {
            // Copies are compared with what is there: the same file in another directory has another ETag.
            let known = ValueWrite { key: Bytes::from_static(records::KNOWN_COPIES_KEY), value: None };
            let transaction =
                Transaction { writes: vec![known], durability: Durability::Fsync, ..Transaction::default() };
            catalog.commit(transaction).await.map_err(|error| Failure::of("the catalog", &error))?;
        }
        for bucket in self.0 {
            tracing::warn!(%bucket, "the directory of the bucket is missing, or not the one that its changes were sent to before: what is found there from now on is taken for the bucket");
            let writes = vec![ValueWrite { key: records::mark_key(&bucket), value: None }];
            let transaction = Transaction { writes, durability: Durability::Fsync, ..Transaction::default() };
            catalog.commit(transaction).await.map_err(|error| Failure::of("the catalog", &error))?;
        }
        Ok(is_meant)
    }
}
