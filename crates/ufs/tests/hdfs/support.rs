//! What the tests do with a store.

use std::sync::Arc;

use bytes::Bytes;
use forebay_types::{ETag, Generation, ObjectInfo, ObjectKey};
use forebay_ufs::{Condition, ErrorKind, ListPage, ListRequest, Result, Stored, UnderStore, Upload, conformance};
use futures::TryStreamExt;

pub(crate) fn key(text: &str) -> ObjectKey {
    ObjectKey::new(text).expect("a key")
}

pub(crate) fn upload(data: &[u8], condition: Condition) -> Upload {
    let info = ObjectInfo::new(data.len() as u64, ETag::new("tag"), 1_700_000_000_123);
    let source = conformance::source(Bytes::copy_from_slice(data));
    Upload { generation: Generation(7), info: Arc::new(info), source, condition }
}

pub(crate) async fn put(store: &dyn UnderStore, name: &str, data: &[u8]) -> Result<Stored> {
    store.put(&key(name), upload(data, Condition::Always)).await
}

pub(crate) async fn read(store: &dyn UnderStore, name: &str) -> Result<Vec<u8>> {
    let body = store.get(&key(name), None, None).await?;
    Ok(body.stream.try_collect::<Vec<Bytes>>().await?.concat())
}

pub(crate) fn kind<T>(result: Result<T>) -> ErrorKind {
    result.err().expect("an error").kind
}

/// All pages of a list.
pub(crate) async fn keys(store: &dyn UnderStore, mut request: ListRequest) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        let ListPage { objects, prefixes, next, .. } = store.list(&request).await.expect("a list");
        let mut names: Vec<_> = objects.into_iter().map(|object| object.key).chain(prefixes).collect();
        names.sort();
        found.extend(names);
        let Some(next) = next else { return found };
        request.start_after = Some(next);
    }
}

/// Files that somebody else would see in a directory.
pub(crate) async fn files(client: &hdfs_native::Client, directory: &str) -> Vec<String> {
    let mut names: Vec<_> =
        client.list_status(directory, true).await.expect("a list").into_iter().map(|status| status.path).collect();
    names.sort();
    names
}
