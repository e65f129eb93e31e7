//! A root whose buckets are behind one governor.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_types::BucketName;

use super::{Caller, Governed, Governor, Lane, Work};
use crate::{BucketInfo, BucketRoot, Result, UnderStore};

/// The buckets of an endpoint, which share its governor.
pub struct GovernedRoot {
    inner: Arc<dyn BucketRoot>,
    governor: Arc<Governor>,
    lane: Lane,
}

impl GovernedRoot {
    pub fn new(inner: Arc<dyn BucketRoot>, governor: Arc<Governor>, lane: Lane) -> Self {
        Self { inner, governor, lane }
    }
}

#[async_trait]
impl BucketRoot for GovernedRoot {
    async fn list(&self) -> Result<Vec<BucketInfo>> {
        self.governor.run(self.caller(""), Work::Read, "list_buckets", self.inner.list()).await
    }

    async fn create(&self, name: &BucketName) -> Result<()> {
        self.governor.run(self.caller(name.as_str()), Work::Write, "create_bucket", self.inner.create(name)).await
    }

    async fn delete(&self, name: &BucketName) -> Result<()> {
        self.governor.run(self.caller(name.as_str()), Work::Write, "delete_bucket", self.inner.delete(name)).await
    }

    async fn open(&self, name: &BucketName) -> Result<Option<Arc<dyn UnderStore>>> {
        let found =
            self.governor.run(self.caller(name.as_str()), Work::Read, "head_bucket", self.inner.open(name)).await?;
        Ok(found.map(|store| self.govern(store, name)))
    }

    fn assume(&self, name: &BucketName) -> Arc<dyn UnderStore> {
        self.govern(self.inner.assume(name), name)
    }

    fn label(&self) -> String {
        self.inner.label()
    }
}

impl GovernedRoot {
    fn govern(&self, store: Arc<dyn UnderStore>, name: &BucketName) -> Arc<dyn UnderStore> {
        Arc::new(Governed::new(store, Arc::clone(&self.governor), self.lane).bucket(name.as_str()))
    }

    fn caller<'a>(&self, bucket: &'a str) -> Caller<'a> {
        Caller { lane: self.lane, bucket }
    }
}
