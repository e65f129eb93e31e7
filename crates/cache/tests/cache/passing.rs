//! What requests that pass through ask the cache: where to, and whether the under store has the object as clients know it.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_env::Env;
use forebay_types::{BucketName, WriteMode};
use forebay_ufs::s3::{S3Credentials, S3Settings, S3Store, connect};
use forebay_ufs::{BucketInfo, BucketRoot, OpenOptions, Result, UnderStore};

use crate::support::gate::Way;
use crate::support::{BUCKET, Bench, Setup, path, rule};

/// An endpoint where every bucket is, and that nobody asks for anything.
struct Endpoint {
    bucket: S3Store,
}

#[async_trait]
impl BucketRoot for Endpoint {
    async fn list(&self) -> Result<Vec<BucketInfo>> {
        Ok(Vec::new())
    }

    async fn create(&self, _name: &BucketName) -> Result<()> {
        Ok(())
    }

    async fn delete(&self, _name: &BucketName) -> Result<()> {
        Ok(())
    }

    async fn open(&self, name: &BucketName) -> Result<Option<Arc<dyn UnderStore>>> {
        Ok(Some(self.assume(name)))
    }

    fn assume(&self, _name: &BucketName) -> Arc<dyn UnderStore> {
        Arc::new(self.bucket.clone())
    }

    fn label(&self) -> String {
        "endpoint".to_owned()
    }
}

#[tokio::test]
async fn requests_pass_through_to_s3_where_a_bucket_is_on_s3() {
    let (access_key, secret_key) = ("key".to_owned(), "secret".to_owned());
    let credentials = Some(S3Credentials { access_key, secret_key, session_token: None });
    let options = OpenOptions { credentials, ..OpenOptions::default() };
    let client = connect(Some("http://127.0.0.1:9"), Some("us-east-1"), &options).await.unwrap();
    let (env, _) = Env::simulated(1);
    let bucket = S3Store::new(env, client, "there", "in", S3Settings::default());
    let mut setup = Setup::new(WriteMode::WriteBack);
    setup.root = Some(Arc::new(Endpoint { bucket }));
    let bench = setup.open().await;
    let target = async |bucket| bench.cache.pass_through(&BucketName::new(bucket).unwrap()).await.unwrap();
    let found = target("elsewhere").await.expect("it is on S3");
    assert_eq!((found.bucket.as_str(), found.prefix.as_str()), ("there", "in/"));
    assert!(target(BUCKET).await.is_none(), "this one is in memory");
}

#[tokio::test]
async fn an_object_is_dirty_as_long_as_the_under_store_has_another_state_of_it() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let is_dirty = async || bench.cache.is_dirty(&path("key")).await.unwrap();
    assert!(!is_dirty().await);
    bench.background.set(Way::Closed);
    bench.put("key", "value").await.unwrap();
    assert!(is_dirty().await);
    bench.background.set(Way::Open);
    bench.drain().await;
    assert!(!is_dirty().await);
    bench.background.set(Way::Closed);
    bench.delete("key").await.unwrap();
    assert!(is_dirty().await, "it is there still");
    bench.background.set(Way::Open);
    bench.drain().await;
    assert!(!is_dirty().await);
    bench.cache.set_policies(vec![rule("/", WriteMode::Transient)], None, "test", "edit").await.unwrap();
    bench.put("key", "never goes there").await.unwrap();
    assert!(is_dirty().await);
}
