//! How many calls of the NameNode an operation takes: the table of docs/rfcs/hdfs.md.

use forebay_env::Env;
use forebay_types::{ETag, Tags};
use forebay_ufs::hdfs::{HdfsLocation, HdfsStore};
use forebay_ufs::{Condition, ListRequest, UnderStore};

use super::cluster::Cluster;
use super::proxy::Proxy;
use super::support::{key, put, read, upload};

pub(crate) async fn are_as_documented(cluster: &Cluster) {
    cluster.store("/calls").await;
    let proxy = Proxy::start(cluster.port).await;
    let authority = format!("127.0.0.1:{}", proxy.port);
    let store = HdfsStore::new(Env::real(), HdfsLocation { authority, ..cluster.location("/calls") }).expect("a store");
    // What is asked once: the defaults of the server.
    put(&store, "dir/first", b"1").await.expect("an upload");
    let check = |operation: &str, expected: &[(&str, usize)]| {
        let expected = expected.iter().map(|(method, times)| ((*method).to_owned(), *times)).collect();
        let mut calls = proxy.calls();
        // Repeated until the DataNode has reported the block.
        calls.entry("complete".to_owned()).and_modify(|times| *times = 1);
        assert_eq!(calls, expected, "{operation}");
    };
    proxy.calls();
    put(&store, "dir/object", b"1").await.expect("an upload");
    let written = [("create", 1), ("addBlock", 1), ("complete", 1), ("setTimes", 1), ("setXAttr", 1), ("rename2", 1)];
    check("PUT", &written);
    put(&store, "new/object", b"1").await.expect("an upload");
    check("PUT in a new directory", &[&written[..], &[("create", 2), ("getFileInfo", 1)]].concat());
    store.put(&key("dir/new"), upload(b"1", Condition::Absent)).await.expect("an upload");
    check("PUT if absent", &[&written[..], &[("getFileInfo", 1)]].concat());
    let head = store.head(&key("dir/object")).await.expect("an object");
    check("HEAD", &[("getFileInfo", 1), ("getXAttrs", 1)]);
    store.put(&key("dir/object"), upload(b"2", Condition::Matches(head.remote_etag))).await.expect("an upload");
    check("PUT if unchanged", &[&written[..], &[("getFileInfo", 2)]].concat());
    read(&store, "dir/object").await.expect("its bytes");
    check("GET", &[("getFileInfo", 1), ("getXAttrs", 1), ("getBlockLocations", 1)]);
    assert!(store.head(&key("dir/none")).await.is_err());
    check("HEAD of what is absent", &[("getFileInfo", 2)]);
    store.tags(&key("dir/object")).await.expect("tags");
    check("tags", &[("getFileInfo", 1), ("getXAttrs", 1)]);
    store.set_tags(&key("dir/object"), &Tags::new()).await.expect("tags");
    check("tags set", &[("getFileInfo", 1), ("setXAttr", 1)]);
    let prefix = ListRequest { prefix: "dir/".to_owned(), limit: 1000, ..ListRequest::default() };
    store.list(&prefix).await.expect("a list");
    check("list of a directory", &[("getListing", 1)]);
    store.delete(&key("dir/object"), Condition::Always).await.expect("a deletion");
    check("DELETE", &[("getFileInfo", 2), ("delete", 2)]);
    store.make_durable(&key("dir/new")).await.expect("a sync");
    check("make durable", &[("getFileInfo", 1), ("setTimes", 1)]);
    let never = Condition::Matches(ETag::new("other"));
    assert!(store.delete(&key("dir/new"), never).await.is_err());
    check("DELETE of another version", &[("getFileInfo", 1)]);
}
