//! An under store with one bucket that takes no writes: everything in these tests is transient. It notes for whom it is
//! asked.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_env::Requester;
use forebay_types::{BucketName, ByteRange, ETag, ObjectInfo, ObjectKey, Tags};
use forebay_ufs::{
    BucketInfo, BucketRoot, Condition, Error, ErrorKind, IsOurs, ListPage, ListRequest, RemoteBody, RemoteObject,
    Result, S3Target, Stored, UnderStore, Upload,
};
use futures::StreamExt;
use futures::stream;
use parking_lot::Mutex;

/// Keys that begin with this are objects, so large that they are read while they are sent.
pub(crate) const THEIRS: &str = "shared/theirs-";
pub(crate) const THEIRS_BYTES: u64 = 64 << 20;

/// When it is asked for keys that begin with this, it does not answer.
pub(crate) const SILENT: &str = "silent-";

/// For whom the under store was asked, since somebody looked.
pub(crate) type Asked = Arc<Mutex<Vec<Requester>>>;

/// `behind` gets what passes through.
pub(crate) fn root(bucket: &str, asked: Asked, behind: Option<S3Target>) -> Arc<dyn BucketRoot> {
    Arc::new(Root { bucket: BucketName::new(bucket).expect("bucket"), asked, behind })
}

struct Root {
    bucket: BucketName,
    asked: Asked,
    behind: Option<S3Target>,
}

#[async_trait]
impl BucketRoot for Root {
    async fn list(&self) -> Result<Vec<BucketInfo>> {
        Ok(vec![BucketInfo { name: self.bucket.clone(), created_ms: 1_577_836_800_000 }])
    }

    async fn create(&self, name: &BucketName) -> Result<()> {
        let kind = if *name == self.bucket { ErrorKind::AlreadyExists } else { ErrorKind::Denied };
        Err(Error::new(kind, "this root has one bucket"))
    }

    async fn delete(&self, _name: &BucketName) -> Result<()> {
        Err(Error::new(ErrorKind::Denied, "this root keeps its bucket"))
    }

    async fn open(&self, name: &BucketName) -> Result<Option<Arc<dyn UnderStore>>> {
        Ok((*name == self.bucket).then(|| self.assume(name)))
    }

    fn assume(&self, _name: &BucketName) -> Arc<dyn UnderStore> {
        Arc::new(Bucket { asked: Arc::clone(&self.asked), behind: self.behind.clone() })
    }

    fn label(&self) -> String {
        "one bucket".to_owned()
    }
}

struct Bucket {
    asked: Asked,
    behind: Option<S3Target>,
}

fn theirs() -> RemoteObject {
    let etag = ETag::new("theirs");
    let info = ObjectInfo::new(THEIRS_BYTES, etag.clone(), 1_577_836_800_000);
    RemoteObject { info, remote_etag: etag, stamp: None }
}

impl Bucket {
    fn note(&self) {
        self.asked.lock().push(Requester::present());
    }
}

fn absent<T>() -> Result<T> {
    Err(Error::new(ErrorKind::NotFound, "no such object"))
}

#[async_trait]
impl UnderStore for Bucket {
    async fn head(&self, key: &ObjectKey) -> Result<RemoteObject> {
        self.note();
        if key.as_str().starts_with(SILENT) {
            std::future::pending::<()>().await;
        }
        if key.as_str().starts_with(THEIRS) { Ok(theirs()) } else { absent() }
    }

    async fn get(&self, key: &ObjectKey, range: Option<ByteRange>, _if_match: Option<&ETag>) -> Result<RemoteBody> {
        self.note();
        if key.as_str().starts_with(SILENT) {
            std::future::pending::<()>().await;
        }
        if !key.as_str().starts_with(THEIRS) {
            return absent();
        }
        let range = range.unwrap_or(ByteRange::of_size(THEIRS_BYTES));
        let data = Bytes::from(vec![7; range.len() as usize]);
        Ok(RemoteBody { object: theirs(), range, stream: stream::iter([Ok(data)]).boxed() })
    }

    async fn put(&self, _key: &ObjectKey, _upload: Upload) -> Result<Stored> {
        Err(Error::new(ErrorKind::Denied, "the bucket takes no writes"))
    }

    async fn delete(&self, _key: &ObjectKey, _condition: Condition) -> Result<()> {
        Ok(())
    }

    async fn list(&self, _request: &ListRequest) -> Result<ListPage> {
        self.note();
        Ok(ListPage::default())
    }

    async fn tags(&self, _key: &ObjectKey) -> Result<Tags> {
        absent()
    }

    async fn set_tags(&self, _key: &ObjectKey, _tags: &Tags) -> Result<()> {
        absent()
    }

    async fn sweep(&self, _age: Duration, _is_ours: IsOurs<'_>) -> Result<u64> {
        Ok(0)
    }

    /// Asked for requests that pass through.
    fn s3(&self) -> Option<S3Target> {
        self.note();
        self.behind.clone()
    }

    fn label(&self) -> String {
        "bucket".to_owned()
    }
}
