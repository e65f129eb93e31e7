use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use forebay_types::{Generation, ObjectInfo};
use futures::StreamExt;
use parking_lot::Mutex;

use super::own::OWN_DIRECTORY;
use super::*;
use crate::{BucketRoot, conformance};

async fn store() -> (tempfile::TempDir, DirectoryStore) {
    let directory = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(Env::real(), directory.path().to_owned()).await.unwrap();
    (directory, store)
}

fn upload(data: &'static [u8]) -> Upload {
    let info = ObjectInfo::new(data.len() as u64, ETag::new("tag"), 1_700_000_000_000);
    Upload {
        generation: Generation(7),
        info: Arc::new(info),
        source: conformance::source(Bytes::from_static(data)),
        condition: Condition::Always,
    }
}

fn key_data(key: &ObjectKey) -> &'static [u8] {
    &b"as long as the key is"[..key.as_str().len()]
}

async fn put(store: &DirectoryStore, key: &str, data: &'static [u8]) -> Stored {
    store.put(&ObjectKey::new(key).unwrap(), upload(data)).await.unwrap()
}

/// All keys, as pages of this many list them.
async fn listed(store: &DirectoryStore, limit: usize) -> Vec<String> {
    let (mut keys, mut request) = (Vec::new(), ListRequest { limit, ..ListRequest::default() });
    loop {
        let page = store.list(&request).await.expect("a directory is listed");
        keys.extend(page.objects.into_iter().map(|object| object.key));
        if page.next.is_none() {
            return keys;
        }
        request.start_after = page.next;
    }
}

/// What is in a directory beside our own files.
fn left_in(directory: &Path) -> Vec<std::ffi::OsString> {
    let names = std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    names.filter(|name| name != OWN_DIRECTORY).collect()
}

/// As another program does.
fn write_outside(directory: &Path, path: &str, data: &str) {
    let path = directory.join(path);
    std::fs::create_dir_all(path.parent().expect("it is below a directory")).expect("a directory is made");
    std::fs::write(path, data).expect("a file is written");
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

/// Spark and Hive make such directories. Forebay would give these keys other names.
#[tokio::test]
async fn a_file_whose_name_no_key_makes_is_the_object_of_that_name() {
    let (directory, store) = store().await;
    let [limit, long, longest] = ["x".repeat(200), "x".repeat(201), "\u{e9}".repeat(127)];
    let mut keys: BTreeSet<String> =
        ["100%", "a%20b.txt", "%%", "%2e", "%2Ea", "q%+", "a$", "a%3A", "a&", "r%+/in", "s%@/in"]
            .map(str::to_owned)
            .into();
    keys.extend([limit, long.clone(), longest, format!("{long}d/in"), format!("{long}d/{long}/{long}")]);
    keys.extend(["ts=2026-01-01 10%3A00%3A00/part-0".to_owned(), "a%b/c/d%e/f%g".to_owned()]);
    for key in &keys {
        write_outside(directory.path(), key, "old");
    }
    // No key can have this name.
    let unreadable = directory.path().join(OsStr::from_bytes(b"\xff"));
    std::fs::write(&unreadable, "").unwrap();
    let expected: Vec<_> = keys.iter().cloned().collect();
    for limit in [1, 2, 100] {
        assert_eq!(listed(&store, limit).await, expected, "{limit}");
    }
    std::fs::remove_file(&unreadable).unwrap();
    for text in &keys {
        let key = ObjectKey::new(text).unwrap();
        assert_eq!(store.head(&key).await.unwrap().info.size, 3, "{text}");
        let absent = Upload { condition: Condition::Absent, ..upload(b"newer") };
        assert_eq!(store.put(&key, absent).await.unwrap_err().kind, ErrorKind::Precondition, "{text}");
        let stored = put(&store, text, b"newer").await;
        assert_eq!(std::fs::read(directory.path().join(text)).unwrap(), b"newer", "{text}");
        assert_eq!(store.head(&key).await.unwrap().remote_etag, stored.remote_etag);
        assert_eq!(listed(&store, 100).await, expected, "{text}");
        store.make_durable(&key).await.unwrap();
    }
    for text in &keys {
        let key = ObjectKey::new(text).unwrap();
        store.delete(&key, Condition::Always).await.unwrap();
        assert_eq!(store.head(&key).await.unwrap_err().kind, ErrorKind::NotFound, "{text}");
        store.make_durable(&key).await.unwrap();
    }
    assert!(left_in(directory.path()).is_empty());
}

/// Until now, a write did not see the file of another program, and made a second one.
#[tokio::test]
async fn of_two_files_for_one_key_ours_counts_and_a_delete_removes_both() {
    let (directory, store) = store().await;
    let long = "x".repeat(201);
    for text in ["a%3A", &long, "d%3A/x", "d%3A/e%3A/f%3A", &format!("{long}/{long}")] {
        put(&store, text, b"ours").await;
        write_outside(directory.path(), text, "theirs, and old");
        let key = ObjectKey::new(text).unwrap();
        assert_eq!(store.head(&key).await.unwrap().info.size, 4, "{text}");
        put(&store, text, b"newer").await;
        let page = store.list(&ListRequest { limit: 10, ..ListRequest::default() }).await.unwrap();
        let found: Vec<_> = page.objects.iter().map(|object| (object.key.as_str(), object.size)).collect();
        assert_eq!(found, [(text, 5)]);
        store.delete(&key, Condition::Always).await.unwrap();
        assert_eq!(store.head(&key).await.unwrap_err().kind, ErrorKind::NotFound, "{text}");
        assert!(left_in(directory.path()).is_empty(), "{text}");
    }
}

#[tokio::test]
async fn two_directories_for_one_component_are_listed_as_one() {
    let (directory, store) = store().await;
    for name in ["d%3A/a", "d%3A/c", "d%3A/e%3A/1"] {
        write_outside(directory.path(), name, "old");
    }
    for name in ["d%3A/b", "d%3A/e%3A/2"] {
        put(&store, name, b"x").await;
    }
    // A name that a key makes stands for that key alone.
    write_outside(directory.path(), "%25", "old");
    let expected = ["%", "d%3A/a", "d%3A/b", "d%3A/c", "d%3A/e%3A/1", "d%3A/e%3A/2"];
    for limit in [1, 2, 100] {
        assert_eq!(listed(&store, limit).await, expected, "{limit}");
    }
    let delimiter = Some("/".to_owned());
    let grouped = ListRequest { limit: 10, delimiter, prefix: "d%3A/".to_owned(), ..ListRequest::default() };
    assert_eq!(store.list(&grouped).await.unwrap().prefixes, ["d%3A/e%3A/"]);
    assert_eq!(store.head(&ObjectKey::new("%25").unwrap()).await.unwrap_err().kind, ErrorKind::NotFound);
    for name in expected {
        store.delete(&ObjectKey::new(name).unwrap(), Condition::Always).await.unwrap();
    }
    assert!(left_in(directory.path()).is_empty());
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

/// As `cp` does it over a file that exists. Tags and other names are no change of the bytes.
#[tokio::test]
async fn a_read_of_a_file_that_is_overwritten_in_place_fails() {
    const MIB: usize = 1 << 20;
    let (directory, store) = store().await;
    let (place, key) = (directory.path().join("key"), ObjectKey::new("key").unwrap());
    std::fs::write(&place, vec![b'a'; 3 * MIB]).unwrap();
    let mut body = store.get(&key, None, None).await.unwrap().stream;
    assert_eq!(body.next().await.unwrap().unwrap().len(), MIB);
    store.set_tags(&key, &[("a".to_owned(), "b".to_owned())].into()).await.unwrap();
    std::fs::hard_link(&place, directory.path().join("link")).unwrap();
    assert_eq!(body.next().await.unwrap().unwrap(), vec![b'a'; MIB]);
    let mut file = std::fs::OpenOptions::new().write(true).open(&place).unwrap();
    file.write_all(&vec![b'b'; 3 * MIB]).unwrap();
    // The clock of the file system may not have moved.
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(body.next().await.unwrap().unwrap_err().kind, ErrorKind::Unavailable);
    assert!(body.next().await.is_none());
}

#[tokio::test]
async fn a_file_that_somebody_renamed_is_no_write_of_ours_to_its_new_key() {
    let (directory, store) = store().await;
    let stored = put(&store, "key", b"hello").await;
    std::fs::rename(directory.path().join("key"), directory.path().join("other")).unwrap();
    let head = store.head(&ObjectKey::new("other").unwrap()).await.unwrap();
    // What describes the bytes stays.
    assert_eq!((&head.stamp, head.info.etag.as_str()), (&None, "tag"));
    assert_ne!(head.remote_etag, stored.remote_etag);
    let page = store.list(&ListRequest { limit: 10, ..ListRequest::default() }).await.unwrap();
    assert_eq!(page.objects[0].remote_etag, head.remote_etag);
}

/// A file of ours without its metadata would count as one of another program.
#[tokio::test]
async fn metadata_that_cannot_be_read_is_not_missing() {
    let (directory, store) = store().await;
    let key = ObjectKey::new("key").unwrap();
    let mut info = ObjectInfo::new(5, ETag::new("tag"), 1_700_000_000_000);
    // Too long for an attribute.
    info.user.insert("name".to_owned(), "v".repeat(4000));
    let described = Upload { info: Arc::new(info), ..upload(b"hello") };
    let condition = Condition::Matches(store.put(&key, described.clone()).await.unwrap().remote_etag);
    let aside = directory.path().join(".forebay/aside");
    let place = std::fs::read_dir(directory.path().join(".forebay/meta")).unwrap().next().unwrap().unwrap().path();
    std::fs::rename(&place, &aside).unwrap();
    // A directory can be opened as a file can, and not be read.
    std::fs::create_dir(&place).unwrap();
    let over = Upload { condition: condition.clone(), ..described };
    let request = ListRequest { limit: 10, ..ListRequest::default() };
    let kinds = [
        store.head(&key).await.unwrap_err().kind,
        store.get(&key, None, None).await.map(drop).unwrap_err().kind,
        store.list(&request).await.unwrap_err().kind,
        store.put(&key, over).await.unwrap_err().kind,
        store.set_tags(&key, &Tags::default()).await.unwrap_err().kind,
        store.delete(&key, condition.clone()).await.unwrap_err().kind,
    ];
    assert_eq!(kinds, [ErrorKind::Unavailable; 6]);
    std::fs::remove_dir(&place).unwrap();
    std::fs::rename(&aside, &place).unwrap();
    assert!(store.head(&key).await.unwrap().stamp.is_some());
    store.delete(&key, condition).await.unwrap();
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
    for key in ["link/secret", "link/deeper/secret", "file", "file/below"] {
        let found = store.head(&ObjectKey::new(key).unwrap()).await;
        assert_eq!(found.unwrap_err().kind, ErrorKind::NotFound, "{key}");
        store.delete(&ObjectKey::new(key).unwrap(), Condition::Always).await.unwrap();
    }
    for key in ["link/secret", "link/deeper/new", "file/below"] {
        let refused = store.put(&ObjectKey::new(key).unwrap(), upload(b"x")).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid, "{key}: {refused}: the other keys can be written");
    }
    assert_eq!(std::fs::read_dir(secret.path()).unwrap().count(), 1);
    assert_eq!(std::fs::read(secret.path().join("secret")).unwrap(), b"secret");
    let page = store.list(&ListRequest { limit: 100, ..ListRequest::default() }).await.unwrap();
    assert!(page.objects.iter().all(|object| !object.key.contains("secret") && object.key != "file"));
}

/// The lock of the names does not keep other programs away.
#[tokio::test]
async fn a_file_that_another_program_creates_just_before_an_upload_ends_is_a_conflict() {
    let (directory, store) = store().await;
    for key in ["key", "dir/key"] {
        let place = directory.path().join(key);
        let theirs = place.clone();
        *store.inner.shared.on_place.lock() = Some(Box::new(move || std::fs::write(&theirs, b"theirs").unwrap()));
        let key = ObjectKey::new(key).unwrap();
        let absent = Upload { condition: Condition::Absent, ..upload(b"ours") };
        assert_eq!(store.put(&key, absent).await.unwrap_err().kind, ErrorKind::Precondition);
        assert_eq!(std::fs::read(&place).unwrap(), b"theirs");
        assert_eq!(std::fs::read_dir(directory.path().join(".forebay/tmp")).unwrap().count(), 0);
        store.put(&key, upload(b"ours")).await.unwrap();
        assert_eq!(std::fs::read(&place).unwrap(), b"ours", "without a condition");
    }
}

/// A directory and a link are no objects.
#[tokio::test]
async fn what_is_no_object_is_no_conflict_just_before_an_upload_ends() {
    let (directory, store) = store().await;
    let key = ObjectKey::new("key").unwrap();
    for is_link in [false, true] {
        let place = directory.path().join("key");
        let theirs = place.clone();
        *store.inner.shared.on_place.lock() = Some(Box::new(move || match is_link {
            true => std::os::unix::fs::symlink("elsewhere", &theirs).unwrap(),
            false => std::fs::create_dir(&theirs).unwrap(),
        }));
        store.put(&key, Upload { condition: Condition::Absent, ..upload(b"ours") }).await.unwrap();
        assert_eq!(store.head(&key).await.unwrap().info.size, 4);
        assert_eq!(place.is_dir(), !is_link);
        store.delete(&key, Condition::Always).await.unwrap();
        if !is_link {
            std::fs::remove_dir(&place).unwrap();
        }
    }
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

/// What does not fit an attribute is in a file of its own.
#[tokio::test]
async fn uploads_that_fail_leave_no_metadata() {
    let (directory, store) = store().await;
    let mut long = upload(b"x");
    let mut info = long.info.as_ref().clone();
    info.user = (0..4).map(|number| (format!("name-{number}"), "x".repeat(1000))).collect();
    (long.info, long.condition) = (Arc::new(info), Condition::Matches(ETag::new("other")));
    let refused = store.put(&ObjectKey::new("key").unwrap(), long).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Precondition);
    let [meta, tmp] = ["meta", "tmp"].map(|name| directory.path().join(OWN_DIRECTORY).join(name));
    let count = |path: &Path| std::fs::read_dir(path).unwrap().count();
    assert_eq!((count(&meta), count(&tmp)), (0, 0));

    // As a crash leaves it.
    let left = std::fs::File::create(tmp.join("left")).unwrap();
    left.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    std::fs::write(meta.join(format!("{:x}", left.metadata().unwrap().ino())), "metadata").unwrap();
    assert_eq!(store.sweep(Duration::from_secs(3600), &|_| true).await.unwrap(), 1);
    assert_eq!((count(&meta), count(&tmp)), (0, 0));
}

#[tokio::test]
async fn a_directory_that_does_not_tell_upper_from_lower_case_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let env = || Env::simulated(1).0;
    // As such a file system does, the other name leads to something.
    let other = format!("{OWN_DIRECTORY}-{}", env().random.hex_id()).to_ascii_uppercase();
    std::fs::create_dir(path.join(&other)).unwrap();
    let of_mount = DirectoryStore::open(env(), path.clone()).await.err().unwrap();
    let of_root = DirectoryRoot::open(env(), path.clone()).await.err().unwrap();
    for error in [of_mount, of_root] {
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    let left: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [other.as_str()]);
    // Of another name nothing is there.
    assert!(DirectoryStore::open(Env::real(), path).await.is_ok());
}

#[tokio::test]
async fn a_bucket_that_is_a_link_is_none() {
    let (directory, secret) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(secret.path().join("secret"), b"secret").unwrap();
    std::os::unix::fs::symlink(secret.path(), directory.path().join("linked")).unwrap();
    let root = DirectoryRoot::open(Env::real(), directory.path().to_owned()).await.unwrap();
    let name = forebay_types::BucketName::new("linked").unwrap();
    assert!(root.list().await.unwrap().is_empty());
    assert!(root.open(&name).await.unwrap().is_none());
    assert_eq!(root.delete(&name).await.unwrap_err().kind, ErrorKind::NotFound);
    let (store, key) = (root.assume(&name), ObjectKey::new("secret").unwrap());
    let request = ListRequest { limit: 10, ..ListRequest::default() };
    assert_eq!(store.head(&key).await.unwrap_err().kind, ErrorKind::NoBucket);
    assert_eq!(store.list(&request).await.unwrap_err().kind, ErrorKind::NoBucket);
    assert_eq!(store.delete(&key, Condition::Always).await.unwrap_err().kind, ErrorKind::NoBucket);
    assert_eq!(store.put(&key, upload(b"x")).await.unwrap_err().kind, ErrorKind::NoBucket);
    assert_eq!(std::fs::read_dir(secret.path()).unwrap().count(), 1);
    assert_eq!(std::fs::read(secret.path().join("secret")).unwrap(), b"secret");
}

/// Files that are being written do not go elsewhere, either.
#[tokio::test]
async fn own_files_go_through_no_link() {
    let (directory, store) = store().await;
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), directory.path().join(OWN_DIRECTORY)).unwrap();
    let refused = store.put(&ObjectKey::new("key").unwrap(), upload(b"x")).await;
    assert!(refused.is_err());
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

/// NFS would rename a file that is open, instead of removing or replacing it.
#[tokio::test]
async fn a_file_is_closed_before_it_is_replaced_or_removed() {
    let (directory, store) = store().await;
    let (place, key) = (directory.path().canonicalize().unwrap().join("dir/key"), ObjectKey::new("dir/key").unwrap());
    put(&store, "dir/key", b"old").await;
    let (looks, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let look = || {
        let (place, looks, open) = (place.clone(), Arc::clone(&looks), Arc::clone(&open));
        move || {
            let files = std::fs::read_dir("/proc/self/fd").unwrap();
            // Others are closed meanwhile.
            let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
            open.fetch_add(targets.filter(|target| *target == place).count(), Ordering::SeqCst);
            looks.fetch_add(1, Ordering::SeqCst);
        }
    };
    *store.inner.shared.on_place.lock() = Some(Box::new(look()));
    *store.inner.shared.on_remove.lock() = Some(Box::new(look()));
    put(&store, "dir/key", b"new").await;
    store.delete(&key, Condition::Always).await.unwrap();
    assert_eq!((looks.load(Ordering::SeqCst), open.load(Ordering::SeqCst)), (2, 0));
}

/// By then, another file may have the number of a removed one.
#[tokio::test]
async fn metadata_goes_with_its_own_file_only() {
    let (directory, store) = store().await;
    let key = ObjectKey::new("key").unwrap();
    let mut info = ObjectInfo::new(5, ETag::new("tag"), 1_700_000_000_000);
    // Too long for an attribute.
    info.user.insert("name".to_owned(), "v".repeat(4000));
    let described = Upload { info: Arc::new(info), ..upload(b"hello") };
    let count = || std::fs::read_dir(directory.path().join(".forebay/meta")).unwrap().count();
    for _ in 0..2 {
        store.put(&key, described.clone()).await.unwrap();
        assert_eq!(count(), 1);
    }
    let opened = store.inner.must_open("key").unwrap();
    let older = crate::file_meta::FileIdentity { modified_ns: 1, ..opened.identity };
    meta::forget_closed(&store.inner.tree().unwrap(), older);
    assert!(store.head(&key).await.unwrap().stamp.is_some());
    drop(opened);
    store.delete(&key, Condition::Always).await.unwrap();
    assert_eq!(count(), 0);
}

#[tokio::test]
async fn open_files_that_were_removed_are_no_objects() {
    let (directory, store) = store().await;
    let removed = [format!(".nfs{}", "0a".repeat(12)), format!(".fuse_hidden{}", "0a".repeat(8))];
    for name in removed.iter().map(String::as_str).chain([".nfs", ".nfs-notes"]) {
        std::fs::write(directory.path().join(name), "").unwrap();
    }
    let page = store.list(&ListRequest { limit: 10, ..ListRequest::default() }).await.unwrap();
    let keys: Vec<_> = page.objects.iter().map(|object| object.key.as_str()).collect();
    assert_eq!(keys, [".nfs", ".nfs-notes"]);
    for name in &removed {
        let refused = store.check_key(&ObjectKey::new(&format!("dir/{name}")).unwrap());
        assert_eq!(refused.unwrap_err().kind, ErrorKind::Invalid, "it would not be listed");
    }
}

/// As when it makes a directory of the same name for another key.
#[tokio::test]
async fn a_file_that_another_worker_moves_does_not_outlive_its_deletion() {
    let (directory, store) = store().await;
    let [plain, beside] = ["a", "a%@"].map(|name| directory.path().join(name));
    let key = ObjectKey::new("a").unwrap();
    for is_conditional in [false, true] {
        let stored = put(&store, "a", b"1").await;
        let condition = if is_conditional { Condition::Matches(stored.remote_etag) } else { Condition::Always };
        let (from, to) = (plain.clone(), beside.clone());
        *store.inner.shared.on_remove.lock() = Some(Box::new(move || {
            // Once.
            let _ = std::fs::rename(&from, &to);
        }));
        store.delete(&key, condition).await.unwrap();
        assert!(!plain.exists() && !beside.exists());
        assert_eq!(store.head(&key).await.unwrap_err().kind, ErrorKind::NotFound);
    }
    // A newer one was written before the directory was made.
    *store.inner.shared.on_remove.lock() = None;
    put(&store, "c", b"2").await;
    std::fs::write(directory.path().join("c%@"), "1").unwrap();
    let key = ObjectKey::new("c").unwrap();
    store.delete(&key, Condition::Always).await.unwrap();
    assert_eq!(store.head(&key).await.unwrap_err().kind, ErrorKind::NotFound);
}

/// An older one was left behind, and is removed first.
#[tokio::test]
async fn a_version_that_is_written_during_a_deletion_of_another_one_stays() {
    let (directory, store) = store().await;
    let [plain, beside] = ["a", "a%@"].map(|name| directory.path().join(name));
    let stored = put(&store, "a", b"1").await;
    std::fs::write(&beside, "0").unwrap();
    let (file, leftover) = (plain.clone(), beside.clone());
    *store.inner.shared.on_remove.lock() = Some(Box::new(move || {
        if !leftover.exists() {
            std::fs::remove_file(&file).unwrap();
            std::fs::write(&leftover, "newer").unwrap();
        }
    }));
    let refused = store.delete(&ObjectKey::new("a").unwrap(), Condition::Matches(stored.remote_etag)).await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Precondition);
    assert_eq!(std::fs::read(&beside).unwrap(), b"newer");
}

/// As a deletion of another worker does, which has no part in the lock.
#[tokio::test]
async fn a_directory_that_is_removed_just_before_an_upload_ends_is_made_again() {
    let (directory, store) = store().await;
    let key = ObjectKey::new("d/x").unwrap();
    for times in [1, usize::MAX] {
        let (place, seen) = (directory.path().join("d"), AtomicUsize::new(0));
        *store.inner.shared.on_place.lock() = Some(Box::new(move || {
            if seen.fetch_add(1, Ordering::SeqCst) < times {
                std::fs::remove_dir(&place).unwrap();
            }
        }));
        let stored = store.put(&key, upload(b"x")).await;
        match times {
            1 => assert_eq!(store.head(&key).await.unwrap().remote_etag, stored.unwrap().remote_etag),
            _ => assert_eq!(stored.unwrap_err().kind, ErrorKind::Unavailable, "the object is not missing"),
        }
        store.delete(&key, Condition::Always).await.unwrap();
    }
}

#[tokio::test]
async fn a_directory_that_takes_the_place_of_a_file_is_made_durable() {
    let (directory, store) = store().await;
    put(&store, "a", b"1").await;
    let (place, synced) = (directory.path().join("a"), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&synced);
    *store.inner.shared.durable.on_sync.lock() = Some(Box::new(move || {
        seen.fetch_add(usize::from(place.is_dir()), Ordering::SeqCst);
    }));
    put(&store, "a/b", b"2").await;
    assert_eq!(synced.load(Ordering::SeqCst), 1);
}

/// Programs that change into each directory can make such a tree.
#[tokio::test]
async fn directories_too_deep_for_a_path_hide_no_objects() {
    let (directory, store) = store().await;
    put(&store, "key", b"x").await;
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::from_raw_mode(0o755);
    let mut deepest = rustix::fs::open(directory.path(), flags, mode).unwrap();
    let name = "d".repeat(100);
    for _ in 0..50 {
        rustix::fs::mkdirat(&deepest, name.as_str(), mode).unwrap();
        deepest = rustix::fs::openat(&deepest, name.as_str(), flags, mode).unwrap();
    }
    let page = store.list(&ListRequest { limit: 10, ..ListRequest::default() }).await.unwrap();
    assert_eq!(page.objects.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), ["key"]);
}

#[tokio::test]
async fn a_socket_is_no_object_and_no_outage() {
    let (directory, store) = store().await;
    let _socket = std::os::unix::net::UnixListener::bind(directory.path().join("key")).unwrap();
    let key = ObjectKey::new("key").unwrap();
    assert_eq!(store.head(&key).await.unwrap_err().kind, ErrorKind::NotFound);
    put(&store, "key", b"x").await;
    assert_eq!(store.head(&key).await.unwrap().info.size, 1);
}

/// Keys that make, remove and block the same directories: each ends as its own writer left it.
#[tokio::test]
async fn keys_come_and_go_beside_each_other() {
    const KEYS: [&str; 6] = ["d", "d/e", "d/e/f", "d/e/f/g", "d/e/x", "y/z"];
    let (directory, store) = store().await;
    // Each call has a thread of its own.
    let writers = KEYS.map(async |key| {
        let key = ObjectKey::new(key).unwrap();
        for round in 0..60 {
            store.put(&key, upload(key_data(&key))).await.unwrap();
            assert_eq!(store.head(&key).await.unwrap().info.size, key.as_str().len() as u64);
            if round % 2 == 0 {
                store.delete(&key, Condition::Always).await.unwrap();
                assert_eq!(store.head(&key).await.unwrap_err().kind, ErrorKind::NotFound);
            }
        }
    });
    futures::future::join_all(writers).await;
    let page = store.list(&ListRequest { limit: 100, ..ListRequest::default() }).await.unwrap();
    assert_eq!(page.objects.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), KEYS);
    for key in KEYS {
        store.delete(&ObjectKey::new(key).unwrap(), Condition::Always).await.unwrap();
    }
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [OWN_DIRECTORY]);
}

/// As when a client writes through while objects below its key are uploaded in the background.
#[tokio::test]
async fn the_stores_of_a_bucket_change_its_names_one_after_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let root = DirectoryRoot::open(Env::real(), directory.path().to_owned()).await.unwrap();
    let [bucket, other] = ["bucket", "other"].map(|name| forebay_types::BucketName::new(name).unwrap());
    let (foreground, background) = (root.store(&bucket), root.store(&bucket));
    {
        let _names = foreground.inner.shared.names.lock();
        assert!(background.inner.shared.names.try_lock().is_none());
        assert!(root.store(&other).inner.shared.names.try_lock().is_some());
    }
    root.create(&bucket).await.unwrap();
    put(&foreground, "a/key", b"x").await;
    let removals = background.inner.shared.durable.removals();
    foreground.delete(&ObjectKey::new("a/key").unwrap(), Condition::Always).await.unwrap();
    assert_eq!(background.inner.shared.durable.removals(), removals + 1, "it knows that a directory is gone");
}

/// The removal may not be synced yet.
#[tokio::test]
async fn in_the_place_of_a_directory_that_has_gone_the_one_is_synced_that_it_was_in() {
    let (_directory, store) = store().await;
    put(&store, "a/b/c/key", b"x").await;
    let tree = store.inner.tree().unwrap();
    let synced = |path: &'static str| sync_directory(&tree, Some(Path::new(path))).unwrap().to_str().unwrap();
    assert_eq!(synced("a/b/c"), "a/b/c");
    assert_eq!(synced("a/b/gone"), "a/b");
    assert_eq!(synced("a/gone/b/c"), "a");
    assert_eq!(synced("gone"), "");
}

/// While somebody holds the lock of the names, directories are made and synced. Only putting the file into place waits.
#[test]
fn a_deep_key_holds_up_nobody() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (directory, store) = runtime.block_on(store());
    let names = store.inner.shared.names.lock();
    let syncs = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&syncs);
    *store.inner.shared.durable.on_sync.lock() = Some(Box::new(move || {
        seen.fetch_add(1, Ordering::SeqCst);
    }));
    let (writer, deep) = (store.clone(), "d/".repeat(LEVELS_MAX - 1));
    let key = ObjectKey::new(&format!("{deep}file")).unwrap();
    let put = runtime.spawn(async move { writer.put(&key, upload(b"deep")).await });
    while syncs.load(Ordering::SeqCst) < LEVELS_MAX - 1 {
        assert!(!put.is_finished());
        std::thread::yield_now();
    }
    let (place, key) = (directory.path().join(deep), ObjectKey::new("key").unwrap());
    assert!(place.is_dir() && !place.join("file").exists());
    drop(names);
    runtime.block_on(async {
        put.await.unwrap().unwrap();
        store.put(&key, upload(b"x")).await.unwrap();
    });
    assert!(place.join("file").is_file());
}

#[tokio::test]
async fn a_deep_key_is_an_object_as_others() {
    let (directory, store) = store().await;
    let deep = "d/".repeat(LEVELS_MAX - 1) + "file";
    // Nobody waits for the syncs of others.
    let (inner, syncs) = (Arc::downgrade(&store.inner), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&syncs);
    *store.inner.shared.durable.on_sync.lock() = Some(Box::new(move || {
        assert!(inner.upgrade().is_some_and(|inner| inner.shared.names.try_lock().is_some()), "the names are held");
        seen.fetch_add(1, Ordering::SeqCst);
    }));
    for _ in 0..2 {
        put(&store, &deep, b"deep").await;
    }
    assert_eq!(syncs.load(Ordering::SeqCst), LEVELS_MAX - 1, "each level once");
    *store.inner.shared.durable.on_sync.lock() = None;
    assert!(store.check_key(&ObjectKey::new(&deep).unwrap()).is_ok());
    let deeper = store.check_key(&ObjectKey::new(&format!("d/{deep}")).unwrap());
    assert_eq!(deeper.unwrap_err().kind, ErrorKind::Invalid);
    let key = ObjectKey::new(&deep).unwrap();
    assert_eq!(store.head(&key).await.unwrap().info.size, 4);
    let page = store.list(&ListRequest { limit: 10, ..ListRequest::default() }).await.unwrap();
    assert_eq!(page.objects.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), [deep.as_str()]);
    store.delete(&key, Condition::Always).await.unwrap();
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [OWN_DIRECTORY]);
}

#[tokio::test]
async fn what_is_relied_on_is_made_durable() {
    let (directory, store) = store().await;
    put(&store, "a/b/key", b"x").await;
    for key in ["a/b/key", "a/b/absent", "absent/key", "key"] {
        store.make_durable(&ObjectKey::new(key).unwrap()).await.unwrap();
    }
    std::fs::remove_dir_all(directory.path()).unwrap();
    let gone = store.make_durable(&ObjectKey::new("a/b/key").unwrap()).await;
    assert_eq!(gone.unwrap_err().kind, ErrorKind::Unavailable);
}

/// As when a volume is mounted over it.
#[tokio::test]
async fn an_upload_does_not_end_in_a_directory_that_was_replaced() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let store = DirectoryStore::open(Env::real(), root.clone()).await.unwrap();
    let temporary = Temporary::create(store.inner.tree().unwrap(), &*store.inner.env.random).unwrap();
    std::fs::rename(&root, base.path().join("old")).unwrap();
    std::fs::create_dir(&root).unwrap();
    let placed = store.inner.place("key", temporary, &Condition::Always, ETag::new("tag"));
    assert_eq!(placed.unwrap_err().kind, ErrorKind::Unavailable);
    assert!(!base.path().join("old/key").exists());
}

/// A disk that is not mounted any more leaves an empty directory, or none.
#[tokio::test]
async fn nothing_is_written_to_or_missing_in_a_directory_that_takes_the_place_of_another_one() {
    let (base, key) = (tempfile::tempdir().unwrap(), ObjectKey::new("key").unwrap());
    let [root, old] = ["root", "old"].map(|name| base.path().join(name));
    std::fs::create_dir_all(root.join("bucket")).unwrap();
    let name = forebay_types::BucketName::new("bucket").unwrap();
    let buckets = DirectoryRoot::open(Env::real(), root.clone()).await.unwrap();
    let stores: [Arc<dyn UnderStore>; 2] = [
        buckets.open(&name).await.unwrap().unwrap(),
        Arc::new(DirectoryStore::open(Env::real(), root.clone()).await.unwrap()),
    ];
    for store in &stores {
        store.put(&key, upload(b"x")).await.unwrap();
    }
    std::fs::rename(&root, &old).unwrap();
    let request = ListRequest { limit: 10, ..ListRequest::default() };
    for is_there in [false, true] {
        if is_there {
            std::fs::create_dir_all(root.join("bucket")).unwrap();
        }
        for store in &stores {
            let kinds = [
                store.put(&key, upload(b"x")).await.unwrap_err().kind,
                store.head(&key).await.unwrap_err().kind,
                store.list(&request).await.unwrap_err().kind,
                store.delete(&key, Condition::Always).await.unwrap_err().kind,
                store.probe("").await.unwrap_err().kind,
            ];
            assert_eq!(kinds, [ErrorKind::Unavailable; 5], "{is_there}");
        }
        assert_eq!(buckets.list().await.unwrap_err().kind, ErrorKind::Unavailable);
        assert_eq!(buckets.create(&name).await.unwrap_err().kind, ErrorKind::Unavailable);
        assert_eq!(buckets.open(&name).await.err().unwrap().kind, ErrorKind::Unavailable);
    }
    std::fs::remove_dir_all(&root).unwrap();
    std::fs::rename(&old, &root).unwrap();
    for store in &stores {
        assert!(store.head(&key).await.is_ok());
    }
}

/// Another disk may be mounted at the directory of a bucket, and be unmounted.
#[tokio::test]
async fn an_empty_directory_that_takes_the_place_of_a_bucket_is_not_used() {
    let (base, key) = (tempfile::tempdir().unwrap(), ObjectKey::new("key").unwrap());
    let [root, away] = ["root", "away"].map(|name| base.path().join(name));
    let place = root.join("lake");
    let [lake, other] = ["lake", "other"].map(|name| forebay_types::BucketName::new(name).unwrap());
    let buckets = DirectoryRoot::open(Env::real(), root).await.unwrap();
    buckets.create(&lake).await.unwrap();
    buckets.create(&other).await.unwrap();
    let [store, beside] = [buckets.store(&lake), buckets.store(&other)];
    // As at a start: no request has been for the bucket yet.
    buckets.list().await.unwrap();
    std::fs::rename(&place, &away).unwrap();
    std::fs::create_dir(&place).unwrap();
    let kinds = [
        store.put(&key, upload(b"x")).await.unwrap_err().kind,
        store.head(&key).await.unwrap_err().kind,
        store.list(&ListRequest { limit: 10, ..ListRequest::default() }).await.unwrap_err().kind,
        store.delete(&key, Condition::Always).await.unwrap_err().kind,
        store.probe("").await.unwrap_err().kind,
        buckets.open(&lake).await.err().unwrap().kind,
        buckets.delete(&lake).await.unwrap_err().kind,
    ];
    assert_eq!(kinds, [ErrorKind::Unavailable; 7]);
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
    put(&beside, "key", b"x").await;
    std::fs::rename(&away, &place).unwrap();
    put(&store, "key", b"x").await;
}

#[tokio::test]
async fn a_bucket_that_is_removed_and_made_again_is_used() {
    let (base, key) = (tempfile::tempdir().unwrap(), ObjectKey::new("key").unwrap());
    let place = base.path().join("root/lake");
    let name = forebay_types::BucketName::new("lake").unwrap();
    let buckets = DirectoryRoot::open(Env::real(), base.path().join("root")).await.unwrap();
    buckets.create(&name).await.unwrap();
    let store = buckets.store(&name);
    put(&store, "key", b"x").await;
    store.delete(&key, Condition::Always).await.unwrap();
    // As long as it is open, no other directory gets its number.
    let _held = std::fs::File::open(&place).unwrap();
    buckets.delete(&name).await.unwrap();
    buckets.create(&name).await.unwrap();
    put(&store, "key", b"x").await;
    // By another worker.
    std::fs::rename(&place, base.path().join("first")).unwrap();
    std::fs::create_dir_all(place.join(OWN_DIRECTORY)).unwrap();
    put(&store, "key", b"x").await;
    // By another program, after it was missed.
    std::fs::rename(&place, base.path().join("second")).unwrap();
    assert_eq!(store.head(&key).await.unwrap_err().kind, ErrorKind::NoBucket);
    std::fs::create_dir(&place).unwrap();
    put(&store, "key", b"x").await;
}

#[tokio::test]
async fn a_bucket_has_one_mark_for_all_workers_until_it_is_deleted() {
    let base = tempfile::tempdir().unwrap();
    let name = forebay_types::BucketName::new("lake").unwrap();
    let first = DirectoryRoot::open(Env::real(), base.path().to_owned()).await.unwrap();
    let second = DirectoryRoot::open(Env::real(), base.path().to_owned()).await.unwrap();
    first.create(&name).await.unwrap();
    let stores = [first.store(&name), second.store(&name)];
    for store in &stores {
        assert_eq!((store.mark().await.unwrap(), store.known_mark()), (Mark::None, None));
    }
    let (one, other) = futures::join!(stores[0].make_mark(), stores[1].make_mark());
    let mark = one.unwrap();
    assert!(matches!(&mark, Mark::Id(id) if id.len() == 32) && other.unwrap() == mark, "{mark:?}");

    let temporary = base.path().join("lake").join(OWN_DIRECTORY).join("tmp");
    assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0);
    stores[0].sweep(Duration::ZERO, &|_| true).await.unwrap();
    let page = stores[0].list(&ListRequest { limit: 10, ..ListRequest::default() }).await.unwrap();
    assert!(page.objects.is_empty() && page.prefixes.is_empty());
    for store in &stores {
        assert_eq!(store.known_mark().as_ref(), Some(&mark));
        assert_eq!((store.mark().await.unwrap(), store.make_mark().await.unwrap()), (mark.clone(), mark.clone()));
    }

    first.delete(&name).await.unwrap();
    first.create(&name).await.unwrap();
    assert_eq!((stores[0].known_mark(), stores[0].mark().await.unwrap()), (None, Mark::None));
    assert!(![mark, Mark::None].contains(&stores[0].make_mark().await.unwrap()));
}

#[tokio::test]
async fn the_mark_of_a_directory_is_not_known_of_the_next_one() {
    let base = tempfile::tempdir().unwrap();
    let (root, away) = (base.path().join("root"), base.path().join("away"));
    let (name, place) = (forebay_types::BucketName::new("lake").unwrap(), root.join("lake"));
    let buckets = DirectoryRoot::open(Env::real(), root).await.unwrap();
    buckets.create(&name).await.unwrap();
    let store = buckets.store(&name);
    let mark = store.make_mark().await.unwrap();
    // By another worker.
    std::fs::rename(&place, &away).unwrap();
    std::fs::create_dir_all(place.join(OWN_DIRECTORY)).unwrap();
    store.probe("").await.unwrap();
    assert_eq!((store.known_mark(), store.mark().await.unwrap()), (None, Mark::None));
    // A copy of a disk is the same bucket.
    let of_mount = DirectoryStore::open(Env::real(), away).await.unwrap();
    assert_eq!((of_mount.known_mark(), of_mount.mark().await.unwrap()), (None, mark.clone()));
    assert_eq!(of_mount.known_mark(), Some(mark));
}

/// A listing would: of a directory with a million names it reads all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_probe_is_no_listing() {
    let (directory, store) = store().await;
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    // All listings that there may be wait.
    let listings = (0..100).map(|_| {
        let (calls, held) = (store.inner.calls.clone(), Arc::clone(&held));
        forebay_env::spawn(async move {
            let wait = move || Ok(held.lock().recv().is_err());
            calls.list(wait).await
        })
    });
    let listings: Vec<_> = listings.collect();
    store.probe("some/prefix").await.unwrap();
    std::fs::remove_dir(directory.path()).unwrap();
    assert_eq!(store.probe("").await.unwrap_err().kind, ErrorKind::Unavailable);
    drop(release);
    for listing in listings {
        assert!(listing.join().await.unwrap());
    }
}
