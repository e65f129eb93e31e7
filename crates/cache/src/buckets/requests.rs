//! Clients' requests for buckets: listing, creation and deletion.

use forebay_catalog::records::{self, ObjectRecord, State};
use forebay_env::sync::atomic::Ordering;
use forebay_types::BucketName;

use super::no_such_bucket;
use crate::home::lost::not_all_at_home;
use crate::worker::Worker;
use crate::{BucketSummary, Error, ErrorKind, Result};

impl Worker {
    pub(crate) async fn list_buckets(&self) -> Result<Vec<BucketSummary>> {
        let mounts = &self.buckets.mounts;
        let mut found: Vec<BucketSummary> = match &mounts.root {
            Some(root) => {
                let listed = root.list().await?;
                listed.into_iter().map(|b| BucketSummary { name: b.name, created_ms: b.created_ms }).collect()
            }
            None => Vec::new(),
        };
        found.retain(|bucket| !mounts.mounts.contains_key(&bucket.name));
        let mounted = mounts.mounts.keys().map(|name| BucketSummary { name: name.clone(), created_ms: 0 });
        found.extend(mounted);
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    pub(crate) async fn bucket_exists(&self, bucket: &BucketName) -> Result<bool> {
        Ok(self.buckets.find(bucket).await?.is_some())
    }

    pub(crate) async fn create_bucket(&self, bucket: &BucketName) -> Result<()> {
        let mounts = &self.buckets.mounts;
        if mounts.mounts.contains_key(bucket) {
            return Err(Error::new(ErrorKind::BucketAlreadyExists, format!("the bucket {bucket} is a mount")));
        }
        let Some(root) = &mounts.root else {
            return Err(Error::new(
                ErrorKind::AccessDenied,
                "only the buckets that the cache's configuration mounts exist here, and no under store takes new ones (under_store.url)",
            ));
        };
        let deletions = self.buckets.deletions.load(Ordering::SeqCst);
        root.create(bucket).await?;
        if self.buckets.note(root, bucket, deletions).await?.is_none() {
            self.buckets.find(bucket).await?;
        }
        Ok(())
    }

    /// Deletes an empty bucket. Pending deletes in it are persisted first.
    pub(crate) async fn delete_bucket(&self, bucket: &BucketName) -> Result<()> {
        if self.buckets.mounts.mounts.contains_key(bucket) {
            return Err(Error::new(
                ErrorKind::AccessDenied,
                format!("the bucket {bucket} is a mount of the configuration"),
            ));
        }
        let Some(root) = &self.buckets.mounts.root else { return Err(no_such_bucket(bucket)) };
        let moves = self.all_at_home()?;
        if !self.bucket_exists(bucket).await? {
            return Err(no_such_bucket(bucket));
        }
        // Most pending deletes are persisted here, before any write has to wait for them.
        self.persist_deletes(bucket).await?;
        let gate = self.buckets.gate(bucket);
        let Ok(nobody_writes) = gate.try_write() else {
            return Err(Error::new(ErrorKind::BucketBusy, format!("objects of the bucket {bucket} are being written")));
        };
        self.persist_deletes(bucket).await?;
        let uploads = self.uploads_of(bucket).await?;
        if self.all_at_home()? != moves {
            return Err(not_all_at_home());
        }
        self.buckets.delete(root, bucket).await?;
        self.home.positions.forget(bucket);
        drop(nobody_writes);
        if let Err(error) = self.abort_all(uploads).await {
            tracing::warn!(%bucket, %error, "the bucket is deleted, and parts of its uploads stay until they are swept");
        }
        Ok(())
    }

    /// Persists the pending deletes in a bucket without objects.
    ///
    /// # Errors
    /// `BucketNotEmpty`, before anything is sent.
    async fn persist_deletes(&self, bucket: &BucketName) -> Result<()> {
        let mut range = records::object_prefix_range(bucket, "");
        while let Some(found) = self.next_records(&mut range).await? {
            for (_, versioned) in &found {
                if ObjectRecord::decode(&versioned.value)?.state != State::Tombstone {
                    return Err(Error::new(ErrorKind::BucketNotEmpty, format!("the bucket {bucket} is not empty")));
                }
            }
        }
        self.persist(&format!("/{bucket}/")).await
    }
}
