//! The bytes that uploads read from the store.

use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::Catalog;
use forebay_store::{ErrorKind as StoreErrorKind, Object, Piece};
use forebay_types::ByteRange;
use forebay_ufs::{ErrorKind as UfsKind, UploadSource};
use futures::StreamExt;

use crate::write::permits::lease_ended;

/// The bytes of an object in the store, for an upload. Each read verifies them, so damaged bytes never leave.
pub(crate) struct StoreSource {
    object: Object,
}

impl StoreSource {
    pub(crate) fn new(object: Object) -> Self {
        Self { object }
    }
}

impl UploadSource for StoreSource {
    fn stream(&self, range: ByteRange) -> forebay_ufs::ByteStream {
        let object = self.object.clone();
        let pieces = if range.is_empty() { Vec::new() } else { object.pieces(range) };
        let read = move |piece| {
            let object = object.clone();
            async move {
                match piece {
                    Piece::Cached(range) => object.read(range).await.map_err(unread),
                    Piece::Missing(range) => Err(damaged(&format!("bytes {}..{} are missing", range.start, range.end))),
                }
            }
        };
        futures::stream::iter(pieces).then(read).boxed()
    }
}

/// The bytes of an object for as long as this worker is the home of its keys. The connection to the under store may ask
/// for them in a task of its own, which outlives the request: see `permits.rs`.
pub(super) struct LeasedSource {
    pub(super) source: StoreSource,
    pub(super) catalog: Arc<dyn Catalog>,
}

impl UploadSource for LeasedSource {
    fn stream(&self, range: ByteRange) -> forebay_ufs::ByteStream {
        let catalog = Arc::clone(&self.catalog);
        let while_leased = move |piece| match catalog.lease() {
            Some(Duration::ZERO) => Err(lease_ended(UfsKind::Ambiguous)),
            Some(_) | None => piece,
        };
        self.source.stream(range).map(while_leased).boxed()
    }
}

fn unread(error: forebay_store::Error) -> forebay_ufs::Error {
    match error.kind {
        StoreErrorKind::Gone => {
            forebay_ufs::Error::new(UfsKind::Conflict, "the object was overwritten or deleted meanwhile")
        }
        _ => damaged(&error.to_string()),
    }
}

fn damaged(problem: &str) -> forebay_ufs::Error {
    forebay_ufs::Error::new(UfsKind::Corrupt, format!("the local copy: {problem}"))
}

/// Whether description and bytes of an object are what was written.
pub(super) async fn is_sound(object: &Object) -> bool {
    if object.metadata().await.is_err_and(|error| error.kind == StoreErrorKind::Corrupt) {
        return false;
    }
    let mut bytes = StoreSource::new(object.clone()).stream(ByteRange::of_size(object.size()));
    while let Some(data) = bytes.next().await {
        if let Err(error) = data {
            // Whatever else goes wrong says nothing about the bytes.
            return error.kind != UfsKind::Corrupt;
        }
    }
    true
}
