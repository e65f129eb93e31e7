//! Finds and removes what nobody will come back for: stale multipart uploads, bytes without a record, and what
//! interrupted uploads left in the under stores.

use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::records::{self, ObjectRecord, PartRecord, State, UploadRecord};
use forebay_catalog::{Check, LocalChange, Transaction};
use forebay_store::ValueWrite;
use forebay_types::{Durability, Generation};

use crate::worker::Worker;
use crate::{ErrorKind, Result, UploadRef};

/// Uploads looked at in one go.
const SCAN_RECORDS: usize = 1000;

impl Worker {
    pub(crate) async fn sweep_loop(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.env.clock.sleep(self.settings.leftover_interval.0) => {}
                () = self.stop.cancelled() => return,
            }
            if let Err(error) = self.sweep().await {
                tracing::warn!(%error, "leftovers could not be removed");
            }
        }
    }

    /// Removes what is stale by now.
    pub(crate) async fn sweep(&self) -> Result<()> {
        self.settle.sweep();
        let removed = self.sweep_uploads().await?;
        self.metrics.leftovers_removed.inc_by(removed);
        for bucket in self.list_buckets().await? {
            let mount = self.buckets.mount(&bucket.name).await?;
            let removed = mount.background.sweep(self.settings.leftover_timeout.0).await?;
            self.metrics.leftovers_removed.inc_by(removed);
        }
        Ok(())
    }

    async fn sweep_uploads(&self) -> Result<u64> {
        let (mut from, to) = records::all_uploads_range();
        let mut removed = 0;
        loop {
            let found = self.engine.scan(&from, &to, SCAN_RECORDS).await?;
            let Some((last, _)) = found.last() else { return Ok(removed) };
            from = records::successor(last);
            for (key, versioned) in &found {
                let Some((path, upload_id)) = records::parse_upload_key(key) else { continue };
                let upload = UploadRef { path, upload_id };
                let record = UploadRecord::decode(&versioned.value)?;
                if self.is_stale(&upload, &record).await? {
                    self.remove_upload(&upload, key, versioned.version, &record).await?;
                    removed += 1;
                }
            }
        }
    }

    /// No part came, and no completion, for the whole timeout.
    async fn is_stale(&self, upload: &UploadRef, record: &UploadRecord) -> Result<bool> {
        let now_ms = self.env.clock.unix_ms();
        let timeout_ms = self.settings.leftover_timeout.0.as_millis() as u64;
        let is_old = |then_ms: u64| now_ms.saturating_sub(then_ms) > timeout_ms;
        if !is_old(record.completed.as_ref().map_or(record.created_ms, |completed| completed.completed_ms)) {
            return Ok(false);
        }
        let parts = self.parts_of(upload, 0, usize::MAX).await?;
        Ok(parts.iter().all(|(_, part)| is_old(part.last_modified_ms)))
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
            local: LocalChange::default(),
            durability: Durability::Os,
        };
        self.engine.commit(transaction).await?;
        Ok(())
    }

    /// Once, at start: pinned bytes that no record names belong to nobody.
    pub(crate) async fn sweep_orphans(&self) -> Result<()> {
        let mut pinned = Vec::new();
        self.store.for_each_object(&mut |key, generation, is_pinned| {
            if is_pinned {
                pinned.push((key.clone(), generation));
            }
        });
        for (key, generation) in pinned {
            if self.recorded_generation(&key).await? != Some(generation) {
                tracing::warn!(key = %String::from_utf8_lossy(&key), "bytes without a record are removed");
                let local = LocalChange { forget: vec![key], ..LocalChange::default() };
                self.engine.commit(Transaction { local, ..Transaction::default() }).await?;
            }
        }
        Ok(())
    }

    /// The generation whose bytes the catalog wants under a key of the store.
    async fn recorded_generation(&self, key: &[u8]) -> Result<Option<Generation>> {
        let Some(found) = self.engine.get(key).await? else { return Ok(None) };
        if records::parse_object_key(key).is_none() {
            return Ok(Some(PartRecord::decode(&found.value)?.generation));
        }
        let record = ObjectRecord::decode(&found.value)?;
        Ok((record.state != State::Tombstone).then_some(record.generation))
    }
}
