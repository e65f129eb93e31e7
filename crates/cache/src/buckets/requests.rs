//! Clients' requests for buckets: listing, creation and deletion.

use std::sync::Arc;

use forebay_catalog::records::{self, ObjectRecord, State};
use forebay_types::BucketName;
use forebay_ufs::BucketRoot;

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
        let before = self.buckets.before();
        self.forget_removed(root, bucket).await?;
        root.create(bucket).await?;
        // It may have existed before, and others may have deleted it.
        self.forget_listings_of(bucket);
        if self.buckets.note(root, bucket, before).await?.is_none() {
            self.buckets.find(bucket).await?;
        }
        Ok(())
    }

    /// Forgets the mark of a bucket that was removed without Forebay. Before the new one is made: a retry would find
    /// that one, and the mark would stay.
    ///
    /// # Errors
    /// `Unavailable` when changes may wait for the bucket: its disk may not be mounted, and they would count as done in
    /// the new one.
    async fn forget_removed(&self, root: &Arc<dyn BucketRoot>, bucket: &BucketName) -> Result<()> {
        let is_removed = self.buckets.has_mark(bucket).await? && root.open(bucket).await?.is_none();
        if !is_removed {
            return Ok(());
        }
        if self.may_have_waiting_changes(bucket).await? {
            return Err(Error::new(ErrorKind::Unavailable, not_made(bucket)));
        }
        self.buckets.forget_mark(bucket).await
    }

    /// In a cluster, other workers may acknowledge some at any time.
    async fn may_have_waiting_changes(&self, bucket: &BucketName) -> Result<bool> {
        if self.catalog.slots().is_some() {
            return Ok(true);
        }
        let mut range = records::object_prefix_range(bucket, "");
        while let Some(found) = self.next_records(&mut range).await? {
            for (_, versioned) in &found {
                if matches!(ObjectRecord::decode(&versioned.value)?.state, State::Dirty | State::Tombstone) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

fn not_made(bucket: &BucketName) -> String {
    format!(
        "the directory of the bucket {bucket} is missing, and changes wait for it or may come, so it is not made: its disk is probably not mounted. Mount it; if the bucket was removed on purpose, restart the server with the bucket in under_store.moved_buckets, and create it then"
    )
}
