use std::sync::Arc;

use bytes::Bytes;
use forebay_types::{Generation, ObjectInfo};

use super::*;
use crate::conformance;

async fn store() -> (tempfile::TempDir, DirectoryStore) {
    let directory = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(Env::real(), directory.path().to_owned()).await.unwrap();
    (directory, store)
}

async fn put(store: &DirectoryStore, key: &str, data: &'static [u8]) -> Stored {
    let info = ObjectInfo::new(data.len() as u64, ETag::new("tag"), 1_700_000_000_000);
    let upload = Upload {
        generation: Generation(7),
        info: Arc::new(info),
        source: conformance::source(Bytes::from_static(data)),
        condition: Condition::Always,
    };
    store.put(&ObjectKey::new(key).unwrap(), upload).await.unwrap()
}

#[tokio::test]
async fn keeps_the_promises_of_an_under_store() {
    let (_directory, store) = store().await;
    conformance::run(&store).await;
}

#[tokio::test]
async fn a_root_keeps_its_promises() {
    let directory = tempfile::tempdir().unwrap();
    let root = DirectoryRoot::open(Env::real(), directory.path().join("new")).await.unwrap();
    conformance::run_root(&root).await;
}

#[tokio::test]
async fn objects_are_plain_files_and_files_are_objects() {
    let (directory, store) = store().await;
    put(&store, "dir/file.txt", b"hello").await;
    assert_eq!(std::fs::read(directory.path().join("dir/file.txt")).unwrap(), b"hello");
    std::fs::write(directory.path().join("dir/theirs"), b"foreign").unwrap();
    let theirs = ObjectKey::new("dir/theirs").unwrap();
    let head = store.head(&theirs).await.unwrap();
    assert_eq!((head.info.size, head.stamp), (7, None));
    store.set_tags(&theirs, &[("a".to_owned(), "b".to_owned())].into()).await.unwrap();
    assert_eq!(store.tags(&theirs).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_change_in_place_of_the_same_length_is_noticed() {
    let (directory, store) = store().await;
    let stored = put(&store, "key", b"hello").await;
    let key = ObjectKey::new("key").unwrap();
    assert_eq!(store.head(&key).await.unwrap().remote_etag, stored.remote_etag);
    std::fs::write(directory.path().join("key"), b"HELLO").unwrap();
    let head = store.head(&key).await.unwrap();
    assert_ne!(head.remote_etag, stored.remote_etag);
    assert_eq!(head.stamp, None);
}

#[tokio::test]
async fn no_key_and_no_link_leads_out_of_the_directory() {
    let (directory, store) = store().await;
    let outside = directory.path().parent().unwrap().join("outside-of-the-mount");
    for key in [
        "../outside-of-the-mount",
        "a/../../outside-of-the-mount",
        "/../outside-of-the-mount",
        "..%2Foutside-of-the-mount",
    ] {
        put(&store, key, b"x").await;
        assert!(!outside.exists(), "{key}");
    }
    let secret = tempfile::tempdir().unwrap();
    std::fs::write(secret.path().join("secret"), b"secret").unwrap();
    std::os::unix::fs::symlink(secret.path(), directory.path().join("link")).unwrap();
    std::os::unix::fs::symlink(secret.path().join("secret"), directory.path().join("file")).unwrap();
    for key in ["link/secret", "file"] {
        let found = store.head(&ObjectKey::new(key).unwrap()).await;
        assert_eq!(found.unwrap_err().kind, ErrorKind::NotFound, "{key}");
    }
    let page = store.list(&ListRequest { limit: 100, ..ListRequest::default() }).await.unwrap();
    assert!(page.objects.iter().all(|object| !object.key.contains("secret") && object.key != "file"));
}

#[tokio::test]
async fn a_failed_upload_leaves_nothing() {
    let (directory, store) = store().await;
    let info = ObjectInfo::new(3 << 20, ETag::new("tag"), 0);
    // Long enough that a file has been begun.
    let source = conformance::source(Bytes::from(vec![b'a'; 2 << 20]));
    let upload = Upload { generation: Generation(1), info: Arc::new(info), source, condition: Condition::Always };
    let error = store.put(&ObjectKey::new("key").unwrap(), upload).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(!directory.path().join("key").exists());
    assert_eq!(std::fs::read_dir(directory.path().join(".forebay/tmp")).unwrap().count(), 0);
}
