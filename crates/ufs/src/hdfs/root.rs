//! A directory in HDFS whose subdirectories are buckets.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_env::Env;
use forebay_types::BucketName;

use super::connect::connect;
use super::remote::Remote;
use super::settings::HdfsLocation;
use super::{HdfsStore, Work, label, paths};
use crate::{BucketInfo, BucketRoot, Error, ErrorKind, Result, UnderStore};

/// A directory of buckets. It is made with the first of them.
pub struct HdfsRoot {
    env: Env,
    location: HdfsLocation,
    remote: Arc<Remote>,
    work: Arc<Work>,
}

impl HdfsRoot {
    /// # Errors
    /// As [`HdfsStore::new`].
    pub fn new(env: Env, location: HdfsLocation) -> Result<Self> {
        let remote = Arc::new(connect(&env, &location)?);
        Ok(Self { env, location, remote, work: Arc::new(Work::new()) })
    }

    fn base(&self) -> &str {
        if self.location.path.is_empty() { "/" } else { &self.location.path }
    }

    fn path(&self, name: &BucketName) -> String {
        paths::join(self.base(), name.as_str())
    }

    async fn exists(&self, name: &BucketName) -> Result<bool> {
        Ok(self.remote.status(&self.path(name)).await?.is_some_and(|status| status.is_directory))
    }

    fn store(&self, name: &BucketName) -> HdfsStore {
        let location = HdfsLocation { path: self.path(name), ..self.location.clone() };
        HdfsStore::assume(self.env.clone(), location, Arc::clone(&self.remote), Arc::clone(&self.work))
    }
}

#[async_trait]
impl BucketRoot for HdfsRoot {
    async fn list(&self) -> Result<Vec<BucketInfo>> {
        let (mut buckets, mut after) = (Vec::new(), Vec::new());
        while let Some(page) = self.remote.page(self.base(), &after).await? {
            after = page.entries.last().map(|last| last.name.clone().into_bytes()).unwrap_or_default();
            for entry in page.entries.iter().filter(|entry| entry.is_directory) {
                // HDFS keeps the time of the last change only.
                let created_ms = (entry.identity.modified_ns / 1_000_000).max(0) as u64;
                buckets.extend(BucketName::new(&entry.name).map(|name| BucketInfo { name, created_ms }));
            }
            if page.is_last || after.is_empty() {
                break;
            }
        }
        buckets.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(buckets)
    }

    async fn create(&self, name: &BucketName) -> Result<()> {
        if self.exists(name).await? {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("the bucket {name} exists")));
        }
        self.remote.make_directory(&self.path(name)).await
    }

    async fn delete(&self, name: &BucketName) -> Result<()> {
        if !self.exists(name).await? {
            return Err(Error::new(ErrorKind::NotFound, format!("the bucket {name} does not exist")));
        }
        // HDFS itself refuses when something is in it.
        match self.remote.delete(&self.path(name)).await {
            Err(error) if error.kind == ErrorKind::NotEmpty => {
                Err(Error { context: format!("the bucket {name} is not empty"), ..error })
            }
            deleted => deleted.map(drop),
        }
    }

    async fn open(&self, name: &BucketName) -> Result<Option<Arc<dyn UnderStore>>> {
        Ok(self.exists(name).await?.then(|| self.assume(name)))
    }

    fn assume(&self, name: &BucketName) -> Arc<dyn UnderStore> {
        Arc::new(self.store(name))
    }

    fn label(&self) -> String {
        label(&self.location)
    }
}
