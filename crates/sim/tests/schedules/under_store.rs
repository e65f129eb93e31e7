//! An under store that looks whether requests for a key overlap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_env::sync::Mutex;
use forebay_types::{ByteRange, ETag, Generation, ObjectKey, Tags};
use forebay_ufs::memory::{Applied, MemoryUnderStore};
use forebay_ufs::{
    Condition, IsOurs, ListPage, ListRequest, RemoteBody, RemoteObject, Result, Stored, UnderStore, Upload,
};

#[derive(Default)]
struct Seen {
    /// Writes under way, by key.
    writing: BTreeMap<String, usize>,
    gets: usize,
}

/// Clones share everything.
#[derive(Clone, Default)]
pub(crate) struct Watched {
    pub(crate) inner: MemoryUnderStore,
    seen: Arc<Mutex<Seen>>,
}

impl Watched {
    /// GETs that have arrived.
    pub(crate) fn gets(&self) -> usize {
        self.seen.lock().gets
    }

    /// What was written, in the order in which it was done; `None` is a delete.
    pub(crate) fn applied(&self) -> Vec<Option<Generation>> {
        let generation = |applied| match applied {
            Applied::Put { generation, .. } => Some(generation),
            Applied::Delete { .. } => None,
        };
        self.inner.applied().into_iter().map(generation).collect()
    }

    /// # Panics
    /// When another write of the key is under way.
    async fn alone<T>(&self, key: &ObjectKey, write: impl Future<Output = T>) -> T {
        let under_way = |change: &dyn Fn(&mut usize)| {
            let mut seen = self.seen.lock();
            let writing = seen.writing.entry(key.as_str().to_owned()).or_default();
            change(writing);
            *writing
        };
        assert_eq!(under_way(&|writing| *writing += 1), 1, "one request for a key at a time");
        let answer = write.await;
        under_way(&|writing| *writing -= 1);
        answer
    }
}

#[async_trait]
impl UnderStore for Watched {
    async fn head(&self, key: &ObjectKey) -> Result<RemoteObject> {
        self.inner.head(key).await
    }

    async fn get(&self, key: &ObjectKey, range: Option<ByteRange>, if_match: Option<&ETag>) -> Result<RemoteBody> {
        self.seen.lock().gets += 1;
        self.inner.get(key, range, if_match).await
    }

    async fn put(&self, key: &ObjectKey, upload: Upload) -> Result<Stored> {
        self.alone(key, self.inner.put(key, upload)).await
    }

    async fn delete(&self, key: &ObjectKey, condition: Condition) -> Result<()> {
        self.alone(key, self.inner.delete(key, condition)).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        self.inner.list(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        self.inner.tags(key).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: &Tags) -> Result<()> {
        self.inner.set_tags(key, tags).await
    }

    async fn sweep(&self, age: Duration, is_ours: IsOurs<'_>) -> Result<u64> {
        self.inner.sweep(age, is_ours).await
    }

    fn label(&self) -> String {
        self.inner.label()
    }
}
