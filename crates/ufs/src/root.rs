//! Where buckets come from.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_types::BucketName;

use crate::{Result, UnderStore};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketInfo {
    pub name: BucketName,
    pub created_ms: u64,
}

/// The buckets of `--under-store`: directories of a directory or of an S3 prefix, or the buckets of an S3 endpoint.
#[async_trait]
pub trait BucketRoot: Send + Sync + 'static {
    /// Sorted by name.
    async fn list(&self) -> Result<Vec<BucketInfo>>;
    /// `AlreadyExists` when it does.
    async fn create(&self, name: &BucketName) -> Result<()>;
    /// `NotEmpty` when it holds objects, `NotFound` when it is absent.
    async fn delete(&self, name: &BucketName) -> Result<()>;
    /// `None` when the bucket is absent.
    async fn open(&self, name: &BucketName) -> Result<Option<Arc<dyn UnderStore>>>;
    /// The place of a bucket that is known to exist. Sends no request: the under store may be out of reach.
    fn assume(&self, name: &BucketName) -> Arc<dyn UnderStore>;
    /// A name for logs and metrics, without secrets.
    fn label(&self) -> String;
}
