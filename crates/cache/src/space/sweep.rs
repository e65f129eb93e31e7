//! Finds and removes orphans: stale multipart uploads, bytes without a record, and leftovers of interrupted uploads in
//! the under stores.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::records::{self, PartRecord, Scope, UploadRecord};
use forebay_catalog::{Check, LocalChange, Transaction};
use forebay_store::ValueWrite;
use forebay_types::{BucketName, Durability, Generation, ObjectKey, ObjectPath};

use crate::list::positions::Change;
use crate::space::upload_record_bytes;
use crate::worker::Worker;
use crate::{ErrorKind, Result, UploadRef};

impl Worker {
    pub(crate) async fn sweep_loop(self: Arc<Self>) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.env.clock.sleep(self.settings.leftover_interval.0) => {}
            }
            if let Err(error) = self.sweep().await {
                tracing::warn!(%error, "the sweep of orphans has failed; it runs again after cache.leftover_interval");
            }
        }
    }

    /// Removes everything that is stale by now.
    pub(crate) async fn sweep(&self) -> Result<()> {
        // Listings that began earlier may still be running.
        self.home.settle.sweep(|path| self.home.positions.changed(path, || Change::Unknown));
        self.drop_old_pages();
        if self.home.settle.is_earlier_over() {
            self.home.stale_records.note(self.catalog.as_ref()).await?;
        }
        self.sweep_requests().await?;
        let removed = self.sweep_uploads().await?;
        self.metrics.leftovers_removed.inc_by(removed);
        let mut result = self.sweep_held().await;
        // A worker may have lost its disks, and be back so soon that nobody has noticed.
        self.home.sent.recount();
        for bucket in self.list_buckets().await? {
            // A failure in one bucket does not keep the others from being swept.
            result = result.and(self.sweep_bucket(&bucket.name).await);
        }
        result
    }

    async fn sweep_bucket(&self, bucket: &BucketName) -> Result<()> {
        let mount = self.buckets.mount(bucket).await?;
        let is_ours = |key: &ObjectKey| self.home.locks.has(&ObjectPath::new(bucket.clone(), key.clone()));
        let removed = mount.background.sweep(self.settings.leftover_timeout.0, &is_ours).await?;
        self.metrics.leftovers_removed.inc_by(removed);
        Ok(())
    }

    /// Ends write intents without an answer once they are settled, unless another request for the key is in flight.
    async fn sweep_requests(&self) -> Result<()> {
        let mut range = records::all_requests_range();
        while let Some(found) = self.next_records(&mut range).await? {
            for path in found.iter().filter_map(|(key, _)| records::parse_request_key(key)) {
                let Some(_no_request) = self.home.upload_locks.try_lock(&path) else { continue };
                let Some(_no_write) = self.home.locks.try_lock(&path) else { continue };
                if self.home.settle.wait(&path).is_zero() {
                    self.end_request(&path).await;
                }
            }
        }
        Ok(())
    }

    /// Removes uploads without any activity during the whole timeout: for open ones, no part; for completed ones, whose
    /// record only serves a retried completion, nothing at all.
    async fn sweep_uploads(&self) -> Result<u64> {
        let mut range = records::all_uploads_range();
        let mut removed = 0;
        let mut kept = HashSet::new();
        while let Some(found) = self.next_records(&mut range).await? {
            for (key, versioned) in &found {
                let Some((path, upload_id)) = records::parse_upload_key(key) else { continue };
                let upload = UploadRef { path, upload_id };
                let record = UploadRecord::decode(&versioned.value)?;
                // Usually its completion has left nothing.
                if record.completed.is_some()
                    && let Err(error) = self.drop_ended(&upload).await
                {
                    tracing::warn!(path = %upload.path, %error, "parts of a completed upload could not be removed");
                }
                if self.home.activity.idle_for(&upload.upload_id) <= self.settings.leftover_timeout.0 {
                    kept.insert(upload.upload_id);
                    continue;
                }
                self.remove_upload(&upload, key, versioned.version, &record).await?;
                removed += 1;
            }
        }
        self.home.activity.retain(&kept);
        Ok(removed)
    }

    async fn remove_upload(&self, upload: &UploadRef, key: &Bytes, version: u64, record: &UploadRecord) -> Result<()> {
        if record.completed.is_none() {
            tracing::info!(path = %upload.path, upload_id = upload.upload_id, "a stale multipart upload is removed");
            return match self.abort_upload(upload).await {
                Err(error) if error.kind == ErrorKind::NoSuchUpload => Ok(()),
                result => result,
            };
        }
        let transaction = Transaction {
            checks: vec![Check { key: key.clone(), version: Some(version) }],
            writes: vec![ValueWrite { key: key.clone(), value: None }],
            durability: Durability::Os,
            ..Transaction::default()
        };
        self.catalog.commit(transaction).await?;
        Ok(())
    }

    /// Runs once for each key, when it is gained. Parts of uploads that have ended, and pinned bytes that no record
    /// names, are orphans. `is_gained` gets the hash of a path.
    pub(crate) async fn sweep_orphans(&self, is_gained: impl Fn(u64) -> bool) -> Result<()> {
        let is_gained = |key: &[u8]| matches!(records::scope(key), Scope::Path(hash) if is_gained(hash));
        self.count_uploads(is_gained).await?;
        self.sweep_parts(is_gained).await?;
        let mut pinned = Vec::new();
        self.store.for_each_object(&mut |key, generation, is_pinned| {
            if is_pinned && is_gained(key) {
                pinned.push((Bytes::copy_from_slice(key), generation));
            }
        });
        pinned.sort_unstable();
        for (key, generation) in pinned {
            if self.wanted_generation(&key).await? != Some(generation) {
                tracing::info!(key = %String::from_utf8_lossy(&key), "orphan removed: no catalog record names these bytes");
                let local = LocalChange { forget: vec![key], ..LocalChange::default() };
                self.catalog.commit(Transaction { local, ..Transaction::default() }).await?;
            }
        }
        Ok(())
    }

    /// The records of all open uploads count from here on.
    async fn count_uploads(&self, is_gained: impl Fn(&[u8]) -> bool) -> Result<()> {
        let mut range = records::all_uploads_range();
        while let Some(found) = self.next_records(&mut range).await? {
            for (key, versioned) in found.iter().filter(|(key, _)| is_gained(key)) {
                let Some((path, upload_id)) = records::parse_upload_key(key) else { continue };
                if UploadRecord::decode(&versioned.value)?.completed.is_none() {
                    self.space.restore_upload(&upload_id, &path.bucket, upload_record_bytes(key, &versioned.value));
                }
            }
        }
        Ok(())
    }

    /// A crash right after the end of an upload leaves the parts that arrived while it ended. All other parts count
    /// from here on.
    async fn sweep_parts(&self, is_gained: impl Fn(&[u8]) -> bool) -> Result<()> {
        let open = self.open_uploads().await?;
        let mut lost: HashMap<String, BTreeSet<u32>> = HashMap::new();
        let mut range = records::all_parts_range();
        while let Some(found) = self.next_records(&mut range).await? {
            let mut left = Vec::new();
            for (key, versioned) in found.into_iter().filter(|(key, _)| is_gained(key)) {
                let Some(upload_id) = records::parse_part_upload(&key) else { continue };
                match open.get(upload_id) {
                    Some(path) => {
                        let record = PartRecord::decode(&versioned.value)?;
                        self.space.add_part(upload_id, &path.bucket, record.size);
                        let number = records::parse_part_key(&key);
                        let Some(number) = number.filter(|number| self.is_lost(upload_id, *number, &record)) else {
                            continue;
                        };
                        if self.may_be_elsewhere(&record.holders) {
                            self.home.copies.add(key, path);
                        } else {
                            lost.entry(upload_id.to_owned()).or_default().insert(number);
                        }
                    }
                    None => left.push(key),
                }
            }
            if !left.is_empty() {
                tracing::info!(parts = left.len(), "orphans removed: parts of multipart uploads that have ended");
                self.drop_records(left).await?;
            }
        }
        self.tell_lost(lost, &open);
        Ok(())
    }

    /// Records the parts whose bytes are lost.
    fn tell_lost(&self, lost: HashMap<String, BTreeSet<u32>>, open: &HashMap<String, ObjectPath>) {
        let (uploads, parts) = (lost.len(), lost.values().map(BTreeSet::len).sum::<usize>());
        for (upload_id, numbers) in lost {
            let shown = ranges(&numbers);
            let path = open.get(&upload_id).map(ObjectPath::to_string).unwrap_or_default();
            tracing::error!(
                path,
                upload_id,
                parts = shown,
                "parts of an open multipart upload are lost: its client must upload them again"
            );
            self.home.missing.add_parts(upload_id, numbers);
        }
        if parts > 0 {
            tracing::error!(parts, uploads, "parts of open multipart uploads are lost");
        }
    }

    /// The IDs of uploads that accept parts, and their paths.
    pub(crate) async fn open_uploads(&self) -> Result<HashMap<String, ObjectPath>> {
        let mut range = records::all_uploads_range();
        let mut open = HashMap::new();
        while let Some(found) = self.next_records(&mut range).await? {
            for (key, versioned) in &found {
                let Some((path, upload_id)) = records::parse_upload_key(key) else { continue };
                if UploadRecord::decode(&versioned.value)?.completed.is_none() {
                    open.insert(upload_id, path);
                }
            }
        }
        Ok(open)
    }

    /// The generation whose bytes the record under this key names.
    pub(crate) async fn wanted_generation(&self, key: &[u8]) -> Result<Option<Generation>> {
        let Some(found) = self.catalog.get(key).await? else { return Ok(None) };
        Ok(records::wanted_bytes(key, &found.value)?.map(|wanted| wanted.generation))
    }
}

/// Formats part numbers for people: `1-3, 7`.
fn ranges(numbers: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            Some(_) | None => runs.push((number, number)),
        }
    }
    let shown = |(first, last): &(u32, u32)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    runs.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_are_one_range() {
        assert_eq!(ranges(&BTreeSet::from([1, 2, 3, 7, 9, 10])), "1-3, 7, 9-10");
        assert_eq!(ranges(&BTreeSet::new()), "");
    }
}
