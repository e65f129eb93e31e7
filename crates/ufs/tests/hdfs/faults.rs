//! What fails behind the store, for minutes: run with everything else that takes long.

use std::time::Duration;

use forebay_env::Env;
use forebay_ufs::hdfs::HdfsStore;
use forebay_ufs::{ErrorKind, UnderStore};

use super::cluster::Cluster;
use super::support::{files, key, kind, put, read};

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
        store.sweep(Duration::ZERO).await.expect("a sweep");
    }
    assert_eq!(files(&cluster.client(), "/faults").await, expected);
}
