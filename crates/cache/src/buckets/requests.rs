//! Clients' requests for buckets: listing, creation and deletion.

use forebay_types::BucketName;

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
        root.create(bucket).await?;
        // It may have existed before, and others may have deleted it.
        self.forget_listings_of(bucket);
        if self.buckets.note(root, bucket, before).await?.is_none() {
            self.buckets.find(bucket).await?;
        }
        Ok(())
    }
}
