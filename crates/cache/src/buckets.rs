//! Buckets: where they are, and which exist.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::records::{self, ObjectRecord, State};
use forebay_env::Env;
use forebay_types::BucketName;
use forebay_ufs::{S3Target, UnderStore};
use parking_lot::Mutex;

use crate::worker::Worker;
use crate::{BucketSummary, Error, ErrorKind, Mount, Mounts, Result};

/// How long the existence of a bucket is believed. Creation and deletion through this worker are seen at once.
const BUCKET_TTL: Duration = Duration::from_secs(60);

/// Resolves buckets, and remembers those that exist.
pub(crate) struct Buckets {
    env: Env,
    mounts: Mounts,
    known: Mutex<HashMap<BucketName, (Duration, Mount)>>,
}

impl Buckets {
    pub(crate) fn new(env: Env, mounts: Mounts) -> Self {
        Self { env, mounts, known: Mutex::default() }
    }

    /// # Errors
    /// `NoSuchBucket`, or what the under store answers.
    pub(crate) async fn mount(&self, bucket: &BucketName) -> Result<Mount> {
        self.find(bucket).await?.ok_or_else(|| no_such_bucket(bucket))
    }

    async fn find(&self, bucket: &BucketName) -> Result<Option<Mount>> {
        if let Some(mount) = self.mounts.mounts.get(bucket) {
            return Ok(Some(mount.clone()));
        }
        let Some(root) = &self.mounts.root else { return Ok(None) };
        let now = self.env.clock.monotonic();
        let remembered = self.known.lock().get(bucket).cloned();
        let stale = match remembered {
            Some((until, mount)) if now < until => return Ok(Some(mount)),
            Some((_, mount)) => Some(mount),
            None => None,
        };
        match root.open(bucket).await {
            Ok(Some(foreground)) => Ok(Some(self.remember(bucket, foreground, now).await?)),
            Ok(None) => {
                self.known.lock().remove(bucket);
                Ok(None)
            }
            // A bucket that has existed goes on to take writes while the under store is out of reach.
            Err(error) if error.kind.is_transient() && stale.is_some() => Ok(stale),
            Err(error) => Err(error.into()),
        }
    }

    async fn remember(&self, bucket: &BucketName, foreground: Arc<dyn UnderStore>, now: Duration) -> Result<Mount> {
        let background = match &self.mounts.background_root {
            Some(root) => root.open(bucket).await?.unwrap_or_else(|| Arc::clone(&foreground)),
            None => Arc::clone(&foreground),
        };
        let mount = Mount { foreground, background };
        self.known.lock().insert(bucket.clone(), (now + BUCKET_TTL, mount.clone()));
        Ok(mount)
    }

    fn forget(&self, bucket: &BucketName) {
        self.known.lock().remove(bucket);
    }
}

fn no_such_bucket(bucket: &BucketName) -> Error {
    Error::new(ErrorKind::NoSuchBucket, format!("the bucket {bucket} does not exist"))
}

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
                ErrorKind::NotImplemented,
                "no under store takes new buckets: only mounts are configured",
            ));
        };
        root.create(bucket).await?;
        self.buckets.forget(bucket);
        Ok(())
    }

    /// Deletes an empty bucket; tombstones in it are brought to the under store first.
    pub(crate) async fn delete_bucket(&self, bucket: &BucketName) -> Result<()> {
        if self.buckets.mounts.mounts.contains_key(bucket) {
            return Err(Error::new(
                ErrorKind::AccessDenied,
                format!("the bucket {bucket} is a mount of the configuration"),
            ));
        }
        let Some(root) = &self.buckets.mounts.root else { return Err(no_such_bucket(bucket)) };
        if !self.bucket_exists(bucket).await? {
            return Err(no_such_bucket(bucket));
        }
        self.persist(&format!("/{bucket}/")).await?;
        let (from, to) = records::object_prefix_range(bucket, "");
        for (_, versioned) in self.engine.scan(&from, &to, 1).await? {
            let record = ObjectRecord::decode(&versioned.value)?;
            if record.state != State::Tombstone {
                return Err(Error::new(ErrorKind::BucketNotEmpty, format!("the bucket {bucket} is not empty")));
            }
        }
        root.delete(bucket).await?;
        self.buckets.forget(bucket);
        Ok(())
    }

    pub(crate) async fn pass_through(&self, bucket: &BucketName) -> Result<Option<S3Target>> {
        Ok(self.buckets.mount(bucket).await?.foreground.s3())
    }
}
