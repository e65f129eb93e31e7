//! HDFS as an under store, on a real NameNode and DataNode.

mod calls;
mod cluster;
mod faults;
mod proxy;
mod races;
mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_env::Env;
use forebay_types::{ETag, Tags};
use forebay_ufs::hdfs::{HdfsLocation, HdfsRoot, HdfsStore};
use forebay_ufs::{Condition, ErrorKind, ListRequest, UnderStore, conformance};
use hdfs_native::WriteOptions;

use cluster::{Cluster, free_port};
use proxy::{Lost, Proxy};
use support::{files, key, kind, put, read, upload};

/// What HDFS can hold of the suite's keys: no colon, no empty names, and no file that has the name of a directory.
fn keys() -> Vec<&'static str> {
    let fits = |key: &&str| !matches!(*key, "a" | "a/b" | "dir//file" | "tilde~*()!$@:;,");
    conformance::ODD_KEYS.into_iter().filter(fits).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_and_a_root_keep_their_promises() {
    let Some(cluster) = Cluster::start().await else { return };
    conformance::run_with_keys(&cluster.store("/deep/down").await, &keys()).await;
    let root = HdfsRoot::new(Env::real(), cluster.location("/buckets")).expect("a root");
    conformance::run_root(&root).await;
    objects_are_plain_files_and_files_are_objects(&cluster).await;
    keys_that_do_not_fit_are_refused(&cluster).await;
    directories_come_and_go_with_their_objects(&cluster).await;
    long_metadata_fits(&cluster).await;
    a_directory_that_is_gone_is_told_from_objects_that_are(&cluster).await;
    permissions_count(&cluster).await;
    a_nameservice_leads_to_the_node_that_answers(&cluster).await;
    leftovers_are_swept(&cluster).await;
    lost_answers_are_cleared_up(&cluster).await;
    races::a_sweep_removes_no_object_that_was_put_into_place_meanwhile(&cluster).await;
    races::an_object_that_takes_the_name_of_an_empty_directory_stays(&cluster).await;
    races::an_upload_does_not_make_the_directory_of_the_mount_again(&cluster).await;
    calls::are_as_documented(&cluster).await;
}

async fn objects_are_plain_files_and_files_are_objects(cluster: &Cluster) {
    let (store, client) = (cluster.store("/plain").await, cluster.client());
    put(&store, "dir/file", b"hello").await.expect("an upload");
    let file = client.get_file_info("/plain/dir/file").await.expect("a file");
    assert_eq!((file.length, file.modification_time), (5, 1_700_000_000_123));
    assert_eq!(files(&client, "/plain").await, ["/plain/dir", "/plain/dir/file"]);
    let mut theirs = client.create("/plain/dir/theirs", WriteOptions::default()).await.expect("a file");
    theirs.write_bytes("theirs".into()).await.expect("a write");
    theirs.close().await.expect("a file");
    let first = store.head(&key("dir/theirs")).await.expect("an object");
    assert_eq!((first.info.size, &first.stamp, &first.info.etag), (6, &None, &first.remote_etag));
    assert_eq!(read(&store, "dir/theirs").await.expect("its bytes"), b"theirs");
    let tags: Tags = [("a".to_owned(), "b".to_owned())].into();
    store.set_tags(&key("dir/theirs"), &tags).await.expect("tags");
    assert_eq!(store.tags(&key("dir/theirs")).await.expect("tags"), tags);
    assert_eq!(store.head(&key("dir/theirs")).await.expect("an object").remote_etag, first.remote_etag);
    // Renamed: as it was, but no write of ours to this key.
    client.rename("/plain/dir/file", "/plain/dir/renamed", false).await.expect("a rename");
    let renamed = store.head(&key("dir/renamed")).await.expect("an object");
    assert_eq!((&renamed.stamp, &renamed.info.etag), (&None, &ETag::new("tag")));
    client.rename("/plain/dir/renamed", "/plain/dir/file", false).await.expect("a rename");
    assert!(store.head(&key("dir/file")).await.expect("an object").stamp.is_some());
    // Changed in place: nothing that was known of it counts.
    for name in ["dir/file", "dir/theirs"] {
        let before = store.head(&key(name)).await.expect("an object");
        let mut file = client.append(&format!("/plain/{name}")).await.expect("a file");
        file.write_bytes("!".into()).await.expect("a write");
        file.close().await.expect("a file");
        let after = store.head(&key(name)).await.expect("an object");
        assert_ne!(before.remote_etag, after.remote_etag);
        assert_eq!((after.stamp, after.info.size), (None, before.info.size + 1));
        let stale = store.get(&key(name), None, Some(&before.remote_etag)).await;
        assert_eq!(kind(stale), ErrorKind::Precondition);
    }
}

async fn keys_that_do_not_fit_are_refused(cluster: &Cluster) {
    let (store, client) = (cluster.store("/keys").await, cluster.client());
    let long = "x".repeat(256);
    for name in ["a//b", "/a", "a/../b", "..", "a/./b", "a:b", &long, ".forebay-directory", ".snapshot/a"] {
        assert_eq!(kind(store.check_key(&key(name))), ErrorKind::Invalid, "{name}");
        assert_eq!(kind(put(&store, name, b"").await), ErrorKind::InvalidName, "{name}");
        assert_eq!(kind(store.head(&key(name)).await), ErrorKind::NotFound, "{name}");
        store.delete(&key(name), Condition::Always).await.expect("it is absent");
    }
    assert!(files(&client, "/keys").await.is_empty());
    // A file and a directory cannot share a name.
    put(&store, "file", b"1").await.expect("an upload");
    put(&store, "dir/file", b"2").await.expect("an upload");
    assert_eq!(kind(put(&store, "file/below", b"").await), ErrorKind::InvalidName);
    assert_eq!(kind(put(&store, "dir", b"").await), ErrorKind::InvalidName);
    for name in ["dir", "file/below", "file/", "file/far/below"] {
        assert_eq!(kind(store.head(&key(name)).await), ErrorKind::NotFound, "{name}");
        store.delete(&key(name), Condition::Always).await.expect("it is absent");
    }
    let below = ListRequest { prefix: "file/".to_owned(), limit: 10, ..ListRequest::default() };
    assert!(support::keys(&store, below).await.is_empty());
    assert_eq!(files(&client, "/keys").await, ["/keys/dir", "/keys/dir/file", "/keys/file"]);
}

async fn directories_come_and_go_with_their_objects(cluster: &Cluster) {
    let (store, client) = (cluster.store("/come").await, cluster.client());
    client.mkdirs("/come/theirs/empty", 0o755, true).await.expect("a directory");
    put(&store, "a/b/c", b"1").await.expect("an upload");
    put(&store, "a/", b"").await.expect("an upload");
    assert_eq!(support::keys(&store, ListRequest { limit: 1, ..ListRequest::default() }).await, ["a/", "a/b/c"]);
    store.delete(&key("a/b/c"), Condition::Always).await.expect("a deletion");
    store.delete(&key("a/"), Condition::Always).await.expect("a deletion");
    put(&store, "a", b"1").await.expect("no directory is in the way");
    // What is empty and not ours stays.
    store.delete(&key("theirs/empty"), Condition::Always).await.expect("no object has this key");
    assert_eq!(files(&client, "/come").await, ["/come/a", "/come/theirs", "/come/theirs/empty"]);
    // An object takes its place.
    put(&store, "theirs/empty", b"1").await.expect("the directory is empty");
    assert_eq!(read(&store, "theirs/empty").await.expect("its bytes"), b"1");
}

/// More than one attribute holds.
async fn long_metadata_fits(cluster: &Cluster) {
    let store = cluster.store("/long").await;
    let mut long = upload(b"data", Condition::Always);
    let mut info = long.info.as_ref().clone();
    info.user = (0..40).map(|number| (format!("name-{number}"), "x".repeat(1000))).collect();
    long.info = std::sync::Arc::new(info);
    store.put(&key("long"), long.clone()).await.expect("an upload");
    assert_eq!(store.head(&key("long")).await.expect("an object").info, *long.info);
}

async fn a_directory_that_is_gone_is_told_from_objects_that_are(cluster: &Cluster) {
    let store = HdfsStore::new(Env::real(), cluster.location("/nowhere")).expect("a store");
    assert_eq!(kind(store.head(&key("a")).await), ErrorKind::NoBucket);
    assert_eq!(kind(put(&store, "a", b"").await), ErrorKind::NoBucket);
    assert_eq!(kind(store.list(&ListRequest { limit: 1, ..ListRequest::default() }).await), ErrorKind::NoBucket);
    assert_eq!(kind(store.probe("").await), ErrorKind::NoBucket);
    assert!(cluster.client().get_file_info("/nowhere").await.is_err());
}

async fn permissions_count(cluster: &Cluster) {
    let (store, client) = (cluster.store("/permissions").await, cluster.client());
    put(&store, "ours", b"1").await.expect("an upload");
    put(&store, "secret", b"1").await.expect("an upload");
    client.set_permission("/permissions/secret", 0o600).await.expect("a permission");
    let location = HdfsLocation { user: Some("stranger".to_owned()), ..cluster.location("/permissions") };
    let strange = HdfsStore::new(Env::real(), location).expect("a store");
    assert_eq!(read(&strange, "ours").await.expect("everybody may read it"), b"1");
    assert_eq!(kind(read(&strange, "secret").await), ErrorKind::Denied);
    assert_eq!(kind(put(&strange, "theirs", b"").await), ErrorKind::Denied);
    assert_eq!(kind(strange.delete(&key("ours"), Condition::Always).await), ErrorKind::Denied);
    client.set_owner("/permissions", Some("stranger"), None).await.expect("an owner");
    put(&strange, "theirs", b"").await.expect("it owns the directory");
    assert_eq!(client.get_file_info("/permissions/theirs").await.expect("a file").owner, "stranger");
    a_sweep_passes_over_what_it_may_not_read_or_remove(cluster, &strange).await;
}

async fn a_sweep_passes_over_what_it_may_not_read_or_remove(cluster: &Cluster, strange: &HdfsStore) {
    let (superuser, stranger) = (cluster.client(), cluster.client_of("stranger"));
    superuser.mkdirs("/permissions/z", 0o700, true).await.expect("a directory");
    // A sweep begins with the last directory.
    let left = [(&superuser, "/permissions/y/.forebay-1.tmp"), (&stranger, "/permissions/x/.forebay-2.tmp")];
    for (client, path) in left {
        let mut file = client.create(path, WriteOptions::default()).await.expect("a file");
        file.close().await.expect("a file");
        client.set_times(path, 1_700_000_000_000, 1_700_000_000_000).await.expect("a time");
    }
    assert_eq!(strange.sweep(Duration::from_secs(3600), &|_| true).await.expect("a sweep"), 1);
    assert!(superuser.get_file_info("/permissions/x").await.is_err(), "it is empty");
    assert!(superuser.get_file_info("/permissions/y/.forebay-1.tmp").await.is_ok());
}

async fn a_nameservice_leads_to_the_node_that_answers(cluster: &Cluster) {
    cluster.store("/service").await;
    let location = cluster.location_of_nameservice("/service", free_port());
    let store = HdfsStore::new(Env::real(), location.clone()).expect("a store");
    put(&store, "object", b"1").await.expect("an upload");
    assert_eq!(read(&store, "object").await.expect("its bytes"), b"1");
    let unknown = HdfsLocation { authority: "unknown".to_owned(), ..location };
    assert_eq!(kind(HdfsStore::new(Env::real(), unknown)), ErrorKind::Invalid);
}

/// A writer that ended in the middle has left an open file with a lease.
async fn leftovers_are_swept(cluster: &Cluster) {
    let (store, client) = (cluster.store("/left").await, cluster.client());
    put(&store, "deep/object", b"1").await.expect("an upload");
    let mut left = Vec::new();
    for path in ["/left/.forebay-1.tmp", "/left/deep/.forebay-2.tmp", "/left/new/dir/.forebay-3.tmp"] {
        let mut file = client.create(path, WriteOptions::default()).await.expect("a file");
        file.write_bytes("half".into()).await.expect("a write");
        file.hsync().await.expect("a sync");
        left.push(file);
    }
    let all = ListRequest { limit: 100, ..ListRequest::default() };
    assert_eq!(support::keys(&store, all).await, ["deep/object"]);
    assert_eq!(store.sweep(Duration::from_secs(3600), &|_| true).await.expect("a sweep"), 0);
    Env::real().clock.sleep(Duration::from_millis(5)).await;
    assert_eq!(store.sweep(Duration::ZERO, &|_| true).await.expect("a sweep"), 3);
    assert_eq!(files(&client, "/left").await, ["/left/deep", "/left/deep/object"]);
    // A file that another program has synced and not closed is not cut short.
    let mut open = client.create("/left/open", WriteOptions::default()).await.expect("a file");
    open.write_bytes("half".into()).await.expect("a write");
    open.hsync().await.expect("a sync");
    assert_eq!(store.head(&key("open")).await.expect("an object").info.size, 4);
    assert_eq!(kind(store.get(&key("open"), None, None).await), ErrorKind::Unavailable);
    open.close().await.expect("a file");
    assert_eq!(read(&store, "open").await.expect("its bytes"), b"half");
    // Its writer cannot put it back.
    assert!(left[0].close().await.is_err());
}

async fn lost_answers_are_cleared_up(cluster: &Cluster) {
    cluster.store("/lost").await;
    let proxy = Proxy::start(cluster.port).await;
    let authority = format!("127.0.0.1:{}", proxy.port);
    let store = HdfsStore::new(Env::real(), HdfsLocation { authority, ..cluster.location("/lost") }).expect("a store");
    put(&store, "object", b"1").await.expect("an upload");
    proxy.calls();
    proxy.lose("rename2", Lost::Answer);
    let stored = put(&store, "object", b"2").await.expect("it has taken place");
    let calls = proxy.calls();
    assert_eq!((calls["getFileInfo"], calls["setTimes"]), (1, 2), "the last one brings the rename to disk: {calls:?}");
    assert_eq!(store.head(&key("object")).await.expect("an object").remote_etag, stored.remote_etag);
    proxy.lose("rename2", Lost::Request);
    assert_eq!(kind(put(&store, "object", b"3").await), ErrorKind::Unavailable);
    assert_eq!(read(&store, "object").await.expect("its bytes"), b"2");
    for method in ["create", "complete", "setXAttr", "setTimes"] {
        proxy.lose(method, Lost::Answer);
        assert_eq!(kind(put(&store, "object", b"4").await), ErrorKind::Unavailable, "{method}");
        assert_eq!(files(&cluster.client(), "/lost").await, ["/lost/object"], "{method}: {:?}", proxy.calls());
    }
    assert_eq!(read(&store, "object").await.expect("its bytes"), b"2");
    // The NameNode may have lost the rename again, when another one has taken over.
    proxy.lose("rename2", Lost::Answer);
    proxy.lose("setTimes", Lost::Request);
    assert_eq!(kind(put(&store, "object", b"5").await), ErrorKind::Ambiguous);
    // The directories that were made for an upload go with it.
    proxy.lose("complete", Lost::Answer);
    assert_eq!(kind(put(&store, "new/dir/object", b"6").await), ErrorKind::Unavailable);
    assert_eq!(files(&cluster.client(), "/lost").await, ["/lost/object"]);
    put(&store, "new", b"6").await.expect("no directory is in the way");
    proxy.lose("delete", Lost::Answer);
    let deleted = store.delete(&key("object"), Condition::Always).await;
    assert_eq!(kind(deleted), ErrorKind::Ambiguous);
    assert_eq!(kind(store.head(&key("object")).await), ErrorKind::NotFound);
}

/// Names that a NameNode has in another order than S3, more of them than come in one page.
#[tokio::test(flavor = "multi_thread")]
async fn lists_of_large_directories_have_no_gaps() {
    let Some(cluster) = Cluster::start().await else { return };
    let client = cluster.client();
    let mut model = BTreeSet::new();
    for directory in ["ascii", "mixed"] {
        let mut names: Vec<String> = (0..60).map(|number| format!("n{number:02}")).collect();
        for name in ["n", "n0", "n1", "n1-", "n10-a", "n1.b", "n2", "n3-", "n59-z"] {
            names.push(format!("{name}/x"));
        }
        names.extend(["!", "~", "n1--", "n10!", "n.", "zz"].map(str::to_owned));
        if directory == "mixed" {
            names.extend(["\u{e9}", "n\u{e9}", "n1\u{e9}", "n59\u{e9}", "zz\u{e9}", "\u{1f600}/x"].map(str::to_owned));
        }
        for name in names.iter().filter(|name| !names.contains(&format!("{name}/x"))) {
            let path = format!("/lists/{directory}/{name}");
            client.create(&path, WriteOptions::default()).await.expect("a file").close().await.expect("a file");
            model.insert(format!("{directory}/{name}"));
        }
    }
    let store = HdfsStore::new(Env::real(), cluster.location("/lists")).expect("a store");
    for prefix in ["", "ascii/", "mixed/", "ascii/n1", "mixed/n1", "mixed/n\u{e9}"] {
        for delimiter in ["", "/", "-", "1"] {
            for limit in [1, 7, 1000] {
                let request = ListRequest {
                    prefix: prefix.to_owned(),
                    delimiter: Some(delimiter.to_owned()),
                    limit,
                    ..ListRequest::default()
                };
                let shown = |name: &String| match name[prefix.len()..].find(delimiter).filter(|_| !delimiter.is_empty())
                {
                    Some(at) => name[..prefix.len() + at + delimiter.len()].to_owned(),
                    None => name.clone(),
                };
                let expected: BTreeSet<String> =
                    model.iter().filter(|name| name.starts_with(prefix)).map(shown).collect();
                let found = support::keys(&store, request.clone()).await;
                assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{request:?}");
            }
        }
    }
}
