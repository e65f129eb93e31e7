//! A directory as an under store: keys as paths.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use forebay_env::Env;
use forebay_types::{ByteRange, ETag, Generation, ObjectInfo, ObjectKey};
use forebay_ufs::directory::DirectoryStore;
use forebay_ufs::{ByteStream, Condition, ListRequest, UnderStore, Upload, UploadSource};
use futures::{StreamExt, TryStreamExt};
use tokio::runtime::{Builder, Runtime};

/// Most keys of one input.
const KEYS_MAX: usize = 4;

/// A directory of this process.
struct Sandbox {
    runtime: Runtime,
    /// Holds the root and one file beside it.
    outside: PathBuf,
}

fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| {
        let outside = std::env::temp_dir().join(format!("keys-{}", std::process::id()));
        std::fs::create_dir_all(&outside).expect("a directory for temporary files");
        std::fs::write(outside.join("beside"), "untouched").expect("a directory for temporary files");
        Sandbox { runtime: Builder::new_current_thread().enable_all().build().expect("a runtime"), outside }
    })
}

struct Source(Bytes);

impl UploadSource for Source {
    fn stream(&self, range: ByteRange) -> ByteStream {
        let piece = self.0.slice(range.start as usize..range.end as usize);
        futures::stream::once(async { Ok(piece) }).boxed()
    }
}

/// Each of some keys has its own bytes and attributes, all are listed in order, and nothing outside of the root changes.
pub(crate) fn keys(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let keys: Vec<_> = text.split('\0').filter_map(|key| ObjectKey::new(key).ok()).take(KEYS_MAX).collect();
    let sandbox = sandbox();
    let root = sandbox.outside.join("root");
    std::fs::create_dir(&root).expect("the last input left nothing");
    sandbox.runtime.block_on(round_trip(root.clone(), &keys));
    std::fs::remove_dir_all(&root).expect("its own directory");
    let mut names: Vec<_> = std::fs::read_dir(&sandbox.outside).expect("its own directory").collect();
    assert_eq!(names.len(), 1, "something is left outside of the root");
    assert_eq!(names.remove(0).expect("its own directory").file_name(), "beside");
    assert_eq!(std::fs::read(sandbox.outside.join("beside")).expect("its own file"), b"untouched");
}

async fn round_trip(root: PathBuf, keys: &[ObjectKey]) {
    let store = DirectoryStore::open(Env::real(), root).await.expect("a directory that exists");
    let mut expected = BTreeMap::new();
    for (index, key) in keys.iter().enumerate() {
        let content = Bytes::from(format!("{index} {key}"));
        let mut info = ObjectInfo::new(content.len() as u64, ETag::new("tag"), index as u64);
        info.user.insert("key".to_owned(), key.to_string());
        let info = Arc::new(info);
        let upload = Upload {
            generation: Generation(index as u64 + 1),
            info: Arc::clone(&info),
            source: Arc::new(Source(content.clone())),
            condition: Condition::Always,
        };
        store.put(key, upload).await.expect("any key can be written");
        expected.insert(key.to_string(), (content, info));
    }
    for key in keys {
        let (content, info) = &expected[key.as_str()];
        let body = store.get(key, None, None).await.expect("just written");
        assert_eq!(body.object.info, **info);
        let bytes: Vec<Bytes> = body.stream.try_collect().await.expect("just written");
        assert_eq!(bytes.concat(), *content);
    }
    let page = store.list(&ListRequest { limit: KEYS_MAX + 1, ..ListRequest::default() }).await.expect("a directory");
    let listed: Vec<_> = page.objects.into_iter().map(|object| object.key).collect();
    assert_eq!(listed, expected.keys().cloned().collect::<Vec<_>>());
    for key in expected.keys() {
        let key = ObjectKey::new(key).expect("it was one before");
        store.delete(&key, Condition::Always).await.expect("just written");
    }
    let page = store.list(&ListRequest { limit: 1, ..ListRequest::default() }).await.expect("a directory");
    assert!(page.objects.is_empty());
}
