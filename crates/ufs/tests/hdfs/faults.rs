//! What fails behind the store, for minutes: run with everything else that takes long.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_env::Env;
use forebay_types::ByteRange;
use forebay_ufs::hdfs::HdfsStore;
use forebay_ufs::{ByteStream, Condition, ErrorKind, UnderStore, Upload, UploadSource};
use futures::{StreamExt, stream};

use super::cluster::Cluster;
use super::support::{files, key, kind, put, read, upload};

/// Longest wait for a change that the servers notice in their own time.
const NOTICED: Duration = Duration::from_secs(60);

fn is_wanted() -> bool {
    let is_wanted = std::env::var("FOREBAY_TEST_EVERYTHING").is_ok_and(|text| !text.is_empty());
    if !is_wanted {
        println!("skipped: FOREBAY_TEST_EVERYTHING asks for it");
    }
    is_wanted
}

/// Tries an upload until its outcome is as expected.
async fn until(store: &HdfsStore, name: &str, is_expected: impl Fn(Option<ErrorKind>) -> bool) {
    let env = Env::real();
    let end = env.clock.monotonic() + NOTICED;
    loop {
        let outcome = put(store, name, b"tried").await.err();
        if is_expected(outcome.as_ref().map(|error| error.kind)) {
            return;
        }
        assert!(env.clock.monotonic() < end, "{name}: {outcome:?}");
        env.clock.sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_stop_lose_nothing() {
    if !is_wanted() {
        return;
    }
    let Some(mut cluster) = Cluster::start().await else { return };
    let store = cluster.store("/faults").await;
    put(&store, "before", b"before").await.expect("an upload");

    cluster.stop_name_node();
    assert_eq!(kind(store.head(&key("before")).await), ErrorKind::Unavailable);
    assert!(kind(put(&store, "during", b"").await) == ErrorKind::Unavailable);
    cluster.start_name_node();
    cluster.wait().await;
    assert_eq!(read(&store, "before").await.expect("its bytes"), b"before");
    put(&store, "after", b"after").await.expect("an upload");

    cluster.stop_data_node();
    until(&store, "no-data-node", |outcome| outcome == Some(ErrorKind::Unavailable)).await;
    assert_eq!(kind(read(&store, "before").await), ErrorKind::Unavailable);
    store.head(&key("before")).await.expect("the NameNode knows it");
    cluster.start_data_node();
    cluster.wait().await;
    until(&store, "no-data-node", |outcome| outcome.is_none()).await;
    assert_eq!(read(&store, "after").await.expect("its bytes"), b"after");

    cluster.administrate(&["-safemode", "enter"]);
    assert_eq!(kind(put(&store, "safe", b"").await), ErrorKind::Unavailable);
    assert_eq!(read(&store, "before").await.expect("its bytes"), b"before");
    cluster.administrate(&["-safemode", "leave"]);
    put(&store, "safe", b"").await.expect("an upload");

    cluster.administrate(&["-setSpaceQuota", "1m", "/faults"]);
    assert_eq!(kind(put(&store, "large", &vec![7; 3 << 20]).await), ErrorKind::Unavailable);
    cluster.administrate(&["-clrSpaceQuota", "/faults"]);
    put(&store, "large", &vec![7; 3 << 20]).await.expect("an upload");
    cluster.administrate(&["-setQuota", "1", "/faults"]);
    assert_eq!(kind(put(&store, "one-more", b"").await), ErrorKind::Unavailable);
    cluster.administrate(&["-clrQuota", "/faults"]);

    let expected = ["after", "before", "large", "no-data-node", "safe"].map(|name| format!("/faults/{name}"));
    let left = |names: &Vec<String>| names.iter().any(|name| name.contains(".forebay-"));
    if left(&files(&cluster.client(), "/faults").await) {
        // Those that could not be removed at once.
        store.sweep(Duration::ZERO, &|_| true).await.expect("a sweep");
    }
    assert_eq!(files(&cluster.client(), "/faults").await, expected);
}

/// A source that gives a byte each second.
struct Slow(u64);

impl UploadSource for Slow {
    fn stream(&self, _range: ByteRange) -> ByteStream {
        let bytes = stream::iter(0..self.0).then(|_| async {
            Env::real().clock.sleep(Duration::from_secs(1)).await;
            Ok(Bytes::from_static(b"x"))
        });
        bytes.boxed()
    }
}

/// HDFS sets no time on a file that is written.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_of_another_worker_leaves_an_upload_that_takes_long() {
    if !is_wanted() {
        return;
    }
    let Some(cluster) = Cluster::start().await else { return };
    let (store, other) = (cluster.store("/long").await, cluster.store("/long").await);
    let upload = Upload { source: Arc::new(Slow(20)), ..upload(&[b'x'; 20], Condition::Always) };
    let long = forebay_env::spawn(async move { store.put(&key("long"), upload).await });
    while !long.is_finished() {
        Env::real().clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(other.sweep(Duration::from_secs(8), &|_| true).await.expect("a sweep"), 0);
    }
    long.join().await.expect("the upload");
    assert_eq!(read(&other, "long").await.expect("its bytes"), [b'x'; 20]);
}

/// Its connections stay open, or nothing ever answers: as when a machine has lost its power.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_node_that_is_silent_is_left_for_the_next_one() {
    if !is_wanted() {
        return;
    }
    let Some(cluster) = Cluster::start().await else { return };
    cluster.store("/silent").await;
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let location = cluster.location_of_nameservice("/silent", port);
    let store = HdfsStore::new(Env::real(), location).expect("a store");
    // An answer of a first node may have been lost after it did what was asked.
    until(&store, "first", |outcome| outcome.is_none()).await;
    let began = Env::real().clock.monotonic();
    put(&store, "second", b"at once").await.expect("an upload");
    assert_eq!(read(&store, "second").await.expect("its bytes"), b"at once");
    assert!(Env::real().clock.monotonic() < began + Duration::from_secs(5), "the next node is asked first");
}
