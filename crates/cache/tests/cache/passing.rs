//! What requests that pass through ask the cache: where to, and whether the under store has the object as clients know
//! it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_cache::ErrorKind;
use forebay_env::Env;
use forebay_types::{BucketName, Period, WriteMode};
use forebay_ufs::s3::{S3Credentials, S3Settings, S3Store, connect};
use forebay_ufs::{BucketInfo, BucketRoot, OpenOptions, Result, UnderStore};
use futures::FutureExt;
use futures::future::join;

use crate::support::gate::Way;
use crate::support::{BUCKET, Bench, Setup, kind, others_go_on, path, rule};

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

#[tokio::test]
async fn what_passes_through_and_changes_an_object_leaves_nothing_old_in_the_cache() {
    let mut setup = Setup::new(WriteMode::WriteBack);
    setup = setup.policy(|policy| policy.metadata_ttl = Some(Period(Duration::from_secs(3600))));
    let bench = setup.open().await;
    for (body, after) in [("current", Some("earlier version")), ("current again", None)] {
        bench.put("key", body).await.unwrap();
        bench.drain().await;
        assert_eq!(bench.get("key").await.unwrap(), body);
        let change = bench.cache.begin_passing_change(&path("key")).await.unwrap().expect("the object is clean");
        match after {
            Some(earlier) => bench.under.put_outside("key", earlier.into()),
            None => bench.under.delete_outside("key"),
        }
        change.end().await;
        match after {
            Some(earlier) => assert_eq!(bench.get("key").await.unwrap(), earlier),
            None => assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound)),
        }
    }
    bench.put("key", "next").await.unwrap();
    bench.drain().await;
    assert_eq!((bench.under("key").unwrap(), bench.cache.status().conflicts), ("next".into(), 0));
}

#[tokio::test]
async fn a_change_that_passes_through_waits_for_writes_and_writes_wait_for_it() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("key", "dirty").await.unwrap();
    assert!(bench.cache.begin_passing_change(&path("key")).await.unwrap().is_none());
    bench.background.set(Way::Open);
    bench.drain().await;
    let change = bench.cache.begin_passing_change(&path("key")).await.unwrap().expect("the object is clean");
    let put = bench.put("key", "next");
    let end = async {
        others_go_on().await;
        let is_dirty = bench.cache.is_dirty(&path("key")).await.unwrap();
        change.end().await;
        is_dirty
    };
    let (written, was_dirty) = join(put, end).await;
    written.unwrap();
    assert!(!was_dirty, "a write came in between");
    bench.drain().await;
    assert_eq!(bench.under("key").unwrap(), "next");
}

/// The under store has answered, so nothing of it can land later.
#[tokio::test]
async fn a_change_whose_client_goes_while_its_end_is_noted_is_settled() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.put("key", "first").await.unwrap();
    let change = bench.cache.begin_passing_change(&path("key")).await.unwrap().expect("the object is clean");
    assert!(change.end().now_or_never().is_none(), "it is not noted yet");
    bench.put("key", "second").await.unwrap();
    assert_eq!(bench.get("key").await.unwrap(), "second");
}

/// Its answer is lost, or its client has gone.
#[tokio::test]
async fn a_change_without_an_answer_may_still_be_carried_out() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.put("key", "first").await.unwrap();
    drop(bench.cache.begin_passing_change(&path("key")).await.unwrap().expect("the object is clean"));
    assert_eq!(kind(bench.put("key", "second").await), Some(ErrorKind::SlowDown));
    bench.under.put_outside("key", "late".into());
    assert_eq!(bench.get("key").await.unwrap(), "late");
    bench.clock.advance(bench.setup.settings.settle_time.0 + Duration::from_secs(1));
    bench.put("key", "second").await.unwrap();
    assert_eq!(bench.get("key").await.unwrap(), "second");
}
