//! What every under store must do.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_types::{
    Algorithm, BucketName, ByteRange, Checksum, ChecksumKind, Checksums, ETag, Generation, ObjectInfo, ObjectKey, Tags,
};
use futures::StreamExt;
use md5::{Digest, Md5};

use crate::{BucketRoot, ByteStream, Condition, ErrorKind, ListRequest, UnderStore, Upload, UploadSource};

/// Keys that break code which takes keys for paths, or URLs for keys.
pub const ODD_KEYS: [&str; 18] = [
    "plain",
    "with space",
    "a+b",
    "a%2Fb",
    "a%b",
    "dir/",
    "dir/file",
    "dir-file",
    "dir//file",
    "a",
    "a/b",
    "a/b/c",
    "\u{fc}ml\u{e4}ut/\u{65e5}\u{672c}",
    "\u{1f600}",
    "quote'\"&<>?#=",
    "back\\slash",
    "tilde~*()!$@:;,",
    "..dots..",
];

struct Memory(Bytes);

impl UploadSource for Memory {
    fn stream(&self, range: ByteRange) -> ByteStream {
        let end = (range.end as usize).min(self.0.len());
        let bytes = self.0.slice((range.start as usize).min(end)..end);
        // In uneven pieces, as a real source yields them.
        let pieces: Vec<_> = bytes.chunks(70_001).map(|piece| Ok(bytes.slice_ref(piece))).collect();
        futures::stream::iter(pieces).boxed()
    }
}

/// A source of these bytes.
pub fn source(bytes: Bytes) -> Arc<dyn UploadSource> {
    Arc::new(Memory(bytes))
}

fn key(text: &str) -> ObjectKey {
    ObjectKey::new(text).expect("a valid key")
}

fn bytes(seed: u64, length: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect::<Vec<u8>>().into()
}

fn upload(generation: u64, data: &Bytes, condition: Condition) -> Upload {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, data) as u32;
    let checksum = Checksum { algorithm: Algorithm::Crc32C, value: crc.to_be_bytes().to_vec() };
    let mut info =
        ObjectInfo::new(data.len() as u64, ETag::from_md5(Md5::digest(data).into()), 1_700_000_000_000 + generation);
    info.checksums = Checksums { kind: ChecksumKind::FullObject, values: vec![checksum] };
    info.headers.content_type = Some("text/x-test".to_owned());
    info.headers.cache_control = Some("max-age=5".to_owned());
    info.user.insert("name".to_owned(), format!("value {generation}"));
    Upload { generation: Generation(generation), info: Arc::new(info), source: source(data.clone()), condition }
}

async fn read(store: &dyn UnderStore, name: &str, range: Option<ByteRange>) -> Bytes {
    let mut body = store.get(&key(name), range, None).await.expect("the object is there").stream;
    let mut data = Vec::new();
    while let Some(piece) = body.next().await {
        data.extend_from_slice(&piece.expect("the body arrives"));
    }
    data.into()
}

/// Runs the suite on an empty bucket.
///
/// # Panics
/// When a promise is broken.
pub async fn run(store: &dyn UnderStore) {
    run_with_keys(store, &ODD_KEYS).await;
}

/// Runs the suite with other odd keys: some servers that speak S3 can't hold all of [`ODD_KEYS`].
///
/// # Panics
/// When a promise is broken.
pub async fn run_with_keys(store: &dyn UnderStore, keys: &[&str]) {
    objects_are_read_as_written(store).await;
    conditions_hold(store).await;
    tags_are_replaced(store).await;
    odd_keys_work_and_lists_match_a_model(store, keys).await;
}

async fn objects_are_read_as_written(store: &dyn UnderStore) {
    for (generation, length) in [(1, 0), (2, 1), (3, 10_240), (4, 3 << 20)] {
        let data = bytes(generation, length);
        let upload = upload(generation, &data, Condition::Always);
        let stored = store.put(&key("object"), upload.clone()).await.expect("an under store takes objects");
        let head = store.head(&key("object")).await.expect("the object is there");
        assert_eq!(head.remote_etag, stored.remote_etag);
        assert_eq!(head.stamp.map(|stamp| stamp.generation), Some(Generation(generation)));
        assert_eq!((head.info.size, &head.info.etag), (length as u64, &upload.info.etag));
        assert_eq!(head.info.last_modified_ms, upload.info.last_modified_ms);
        assert_eq!((&head.info.headers, &head.info.user), (&upload.info.headers, &upload.info.user));
        assert_eq!(head.info.checksums, upload.info.checksums);
        assert_eq!(read(store, "object", None).await, data);
        if length > 100 {
            let range = ByteRange::new(17, length as u64 - 5);
            assert_eq!(read(store, "object", Some(range)).await, data[17..length - 5]);
            let beyond = ByteRange::new(length as u64 - 5, length as u64 + 100);
            assert_eq!(read(store, "object", Some(beyond)).await, data[length - 5..]);
        }
    }
    store.delete(&key("object"), Condition::Always).await.expect("an under store deletes");
    store.delete(&key("object"), Condition::Always).await.expect("what is absent is deleted already");
    let absent = store.head(&key("object")).await.expect_err("it is deleted");
    assert_eq!(absent.kind, ErrorKind::NotFound);
    let absent = store.get(&key("object"), None, None).await.err().expect("it is deleted");
    assert_eq!(absent.kind, ErrorKind::NotFound);
}

async fn conditions_hold(store: &dyn UnderStore) {
    let name = key("conditions");
    let (a, b) = (bytes(1, 100), bytes(2, 100));
    let kind = |result: crate::Result<crate::Stored>| result.expect_err("the condition does not hold").kind;
    let never = Condition::Matches(ETag::new("00000000000000000000000000000000"));
    assert_eq!(kind(store.put(&name, upload(1, &a, never.clone())).await), ErrorKind::Precondition, "it is absent");
    let first = store.put(&name, upload(1, &a, Condition::Absent)).await.expect("it is absent");
    assert_eq!(kind(store.put(&name, upload(2, &b, Condition::Absent)).await), ErrorKind::Precondition);
    assert_eq!(kind(store.put(&name, upload(2, &b, never)).await), ErrorKind::Precondition);
    assert_eq!(read(store, "conditions", None).await, a);
    let second =
        store.put(&name, upload(2, &b, Condition::Matches(first.remote_etag.clone()))).await.expect("it matches");
    assert_ne!(first.remote_etag, second.remote_etag);
    let stale = store.get(&name, None, Some(&first.remote_etag)).await.err().expect("it has changed");
    assert_eq!(stale.kind, ErrorKind::Precondition);
    store.get(&name, None, Some(&second.remote_etag)).await.expect("it has not changed");
    store.delete(&name, Condition::Matches(second.remote_etag)).await.expect("it matches");
}

async fn tags_are_replaced(store: &dyn UnderStore) {
    let name = key("tagged");
    let mut tagged = upload(1, &bytes(1, 10), Condition::Always);
    let tags: Tags = [("colour".to_owned(), "red + blue".to_owned())].into();
    tagged.info = Arc::new(ObjectInfo { tags: tags.clone(), ..tagged.info.as_ref().clone() });
    store.put(&name, tagged).await.expect("an under store takes tags");
    assert_eq!(store.tags(&name).await.expect("tags are read"), tags);
    let other: Tags = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), String::new())].into();
    store.set_tags(&name, &other).await.expect("tags are replaced");
    assert_eq!(store.tags(&name).await.expect("tags are read"), other);
    store.set_tags(&name, &Tags::new()).await.expect("tags are removed");
    assert_eq!(store.tags(&name).await.expect("tags are read"), Tags::new());
    store.delete(&name, Condition::Always).await.expect("an under store deletes");
}

async fn odd_keys_work_and_lists_match_a_model(store: &dyn UnderStore, keys: &[&str]) {
    let mut model = BTreeMap::new();
    for (index, name) in keys.iter().enumerate() {
        let data = bytes(index as u64, 50 + index);
        store
            .put(&key(name), upload(index as u64 + 1, &data, Condition::Always))
            .await
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        model.insert((*name).to_owned(), data);
    }
    for (name, data) in &model {
        assert_eq!(read(store, name, None).await, data, "{name}");
    }
    for delimiter in [None, Some("/"), Some("i")] {
        for prefix in ["", "a", "a/", "dir", "dir/", "zzz"] {
            for limit in [1, 2, 3, 100] {
                check_list(store, &model, prefix, delimiter, limit).await;
            }
        }
    }
    for name in model.keys() {
        store.delete(&key(name), Condition::Always).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let empty = ListRequest { limit: 10, ..ListRequest::default() };
    assert!(store.list(&empty).await.expect("an under store lists").objects.is_empty());
}

async fn check_list(
    store: &dyn UnderStore,
    model: &BTreeMap<String, Bytes>,
    prefix: &str,
    delimiter: Option<&str>,
    limit: usize,
) {
    let mut expected: Vec<String> = Vec::new();
    for name in model.keys().filter(|name| name.starts_with(prefix)) {
        let shown = shown_as(name, prefix, delimiter);
        if expected.last() != Some(&shown) {
            expected.push(shown);
        }
    }
    let (prefix, delimiter) = (prefix.to_owned(), delimiter.map(str::to_owned));
    let first = ListRequest { prefix, delimiter, limit, ..ListRequest::default() };
    // Continued by name, by the under store's own token, and by the token of a page that begins before the place.
    for by in [By::Name, By::Token, By::EarlierToken] {
        assert_eq!(walk(store, model, &first, by).await, expected, "{first:?}, by {by:?}");
    }
    // A page that begins at a name inside a common prefix shows that prefix if it has more keys after the name. One
    // page each.
    let ListRequest { prefix, delimiter, .. } = &first;
    let is_inside = |name: &str| limit == 100 && delimiter.as_ref().is_some_and(|delimiter| !name.ends_with(delimiter));
    for after in model.keys().filter(|name| name.starts_with(prefix) && is_inside(name)) {
        let behind = model.keys().filter(|name| name.starts_with(prefix) && *name > after);
        let mut expected: Vec<String> = behind.map(|name| shown_as(name, prefix, delimiter.as_deref())).collect();
        expected.dedup();
        let request = ListRequest { start_after: Some(after.clone()), ..first.clone() };
        assert_eq!(walk(store, model, &request, By::Name).await, expected, "{request:?}");
    }
}

/// The name itself, or the common prefix that it is below.
fn shown_as(name: &str, prefix: &str, delimiter: Option<&str>) -> String {
    let end = delimiter.and_then(|d| name[prefix.len()..].find(d).map(|at| prefix.len() + at + d.len()));
    name[..end.unwrap_or(name.len())].to_owned()
}

/// How a listing continues after a page.
#[derive(Debug, Clone, Copy)]
enum By {
    Name,
    Token,
    EarlierToken,
}

/// The names of all pages.
async fn walk(store: &dyn UnderStore, model: &BTreeMap<String, Bytes>, first: &ListRequest, by: By) -> Vec<String> {
    let (mut found, mut request) = (Vec::new(), first.clone());
    let mut earlier = None;
    loop {
        let page = store.list(&request).await.expect("an under store lists");
        assert!(page.objects.len() + page.prefixes.len() <= request.limit);
        for object in &page.objects {
            assert_eq!(object.size, model[&object.key].len() as u64, "{}", object.key);
        }
        let mut names: Vec<_> = page.objects.into_iter().map(|object| object.key).chain(page.prefixes).collect();
        names.sort();
        found.extend(names);
        let Some(next) = page.next else { return found };
        request.start_after = Some(next);
        request.token = match by {
            By::Name => None,
            By::Token => page.token,
            By::EarlierToken => earlier.replace(page.token).flatten(),
        };
    }
}

/// Runs the suite on an empty root.
///
/// # Panics
/// When a promise is broken.
pub async fn run_root(root: &dyn BucketRoot) {
    let name = BucketName::new("conformance-bucket").expect("a valid name");
    assert!(root.open(&name).await.expect("a root looks").is_none());
    root.create(&name).await.expect("a root creates");
    assert_eq!(root.create(&name).await.expect_err("it exists").kind, ErrorKind::AlreadyExists);
    assert!(root.list().await.expect("a root lists").iter().any(|bucket| bucket.name == name));
    let store = root.open(&name).await.expect("a root looks").expect("the bucket exists");
    store.put(&key("object"), upload(1, &bytes(1, 10), Condition::Always)).await.expect("a bucket takes objects");
    assert_eq!(root.delete(&name).await.expect_err("it holds an object").kind, ErrorKind::NotEmpty);
    store.delete(&key("object"), Condition::Always).await.expect("an under store deletes");
    root.delete(&name).await.expect("it is empty");
    assert_eq!(root.delete(&name).await.expect_err("it is gone").kind, ErrorKind::NotFound);
    assert!(root.open(&name).await.expect("a root looks").is_none());
}
