//! What others do between two calls of a store: a proxy holds the second one back.

use std::sync::Arc;
use std::time::Duration;

use forebay_env::{Env, Task};
use forebay_ufs::hdfs::{HdfsLocation, HdfsStore};
use forebay_ufs::{Condition, ErrorKind, Result, Stored, UnderStore};

use super::cluster::Cluster;
use super::proxy::Proxy;
use super::support::{key, kind, put, read, upload};

/// The objects of the tests are older.
const AGE: Duration = Duration::from_secs(3600);

/// A store whose calls go through a proxy.
async fn through_proxy(cluster: &Cluster, path: &str) -> (Arc<HdfsStore>, Proxy) {
    let proxy = Proxy::start(cluster.port).await;
    let authority = format!("127.0.0.1:{}", proxy.port);
    let location = HdfsLocation { authority, ..cluster.location(path) };
    (Arc::new(HdfsStore::new(Env::real(), location).expect("a store")), proxy)
}

fn begin_put(store: &Arc<HdfsStore>, name: &'static str) -> Task<Result<Stored>> {
    let store = Arc::clone(store);
    forebay_env::spawn(async move { put(&*store, name, name.as_bytes()).await })
}

/// A file has the time of the client's write, so an upload that waited for long looks like a leftover.
pub(crate) async fn a_sweep_removes_no_object_that_was_put_into_place_meanwhile(cluster: &Cluster) {
    let store = cluster.store("/swept").await;
    let (writer, writes) = through_proxy(cluster, "/swept").await;
    let (sweeper, sweeps) = through_proxy(cluster, "/swept").await;

    // The sweep finds the temporary file. The rename comes before its deletion.
    let (mut rename, mut deletion) = (writes.hold("rename2", 0), sweeps.hold("delete", 0));
    let written = begin_put(&writer, "first");
    rename.arrived().await;
    let swept = forebay_env::spawn(async move { sweeper.sweep(AGE, &|_| true).await });
    deletion.arrived().await;
    rename.release();
    written.join().await.expect("an upload");
    deletion.release();
    assert_eq!(swept.join().await.expect("a sweep"), 0);
    assert_eq!(read(&store, "first").await.expect("its bytes"), b"first");

    // The deletion comes first: the upload is tried again.
    let mut rename = writes.hold("rename2", 0);
    let written = begin_put(&writer, "second");
    rename.arrived().await;
    assert_eq!(store.sweep(AGE, &|_| true).await.expect("a sweep"), 1);
    rename.release();
    assert_eq!(kind(written.join().await), ErrorKind::Unavailable);
    put(&*writer, "second", b"second").await.expect("an upload");
    assert_eq!(read(&store, "second").await.expect("its bytes"), b"second");
}

pub(crate) async fn an_object_that_takes_the_name_of_an_empty_directory_stays(cluster: &Cluster) {
    let store = cluster.store("/emptied").await;
    let (deleter, deletes) = through_proxy(cluster, "/emptied").await;
    put(&store, "a/b", b"1").await.expect("an upload");
    put(&store, "a/c", b"2").await.expect("an upload");
    // The first call deletes the file, the second one its directory.
    let mut deletion = deletes.hold("delete", 1);
    let deleted = forebay_env::spawn(async move { deleter.delete(&key("a/b"), Condition::Always).await });
    deletion.arrived().await;
    store.delete(&key("a/c"), Condition::Always).await.expect("a deletion");
    put(&store, "a", b"3").await.expect("no directory is in the way");
    deletion.release();
    deleted.join().await.expect("a deletion");
    assert_eq!(read(&store, "a").await.expect("its bytes"), b"3");
}

/// An object that is absent in a new, empty one would count as deleted.
pub(crate) async fn an_upload_does_not_make_the_directory_of_the_mount_again(cluster: &Cluster) {
    let (store, client) = (cluster.store("/lake").await, cluster.client());
    let stored = put(&store, "dir/object", b"1").await.expect("an upload");
    client.rename("/lake", "/lake.old", false).await.expect("a rename");
    for name in ["object", "dir/object", "new/object"] {
        assert_eq!(kind(put(&store, name, b"2").await), ErrorKind::NoBucket, "{name}");
    }
    let if_unchanged = upload(b"2", Condition::Matches(stored.remote_etag));
    assert_eq!(kind(store.put(&key("dir/object"), if_unchanged).await), ErrorKind::NoBucket);
    assert!(client.get_file_info("/lake").await.is_err());
    client.rename("/lake.old", "/lake", false).await.expect("a rename");
    put(&store, "new/object", b"2").await.expect("an upload");
    assert_eq!(read(&store, "dir/object").await.expect("its bytes"), b"1");
}
