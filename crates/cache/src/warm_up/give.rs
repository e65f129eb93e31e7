//! The former home's side.

use forebay_store::{Object, Piece};
use forebay_types::{ByteRange, ObjectPath};
use forebay_ufs::UploadSource;
use futures::{StreamExt, TryStreamExt};

use super::{CleanCopy, CleanRange, CleanTerms};
use crate::persist::StoreSource;
use crate::worker::Worker;
use crate::{ByteStream, Error, Result};

impl Worker {
    /// See [`Cache::clean_copy`](crate::Cache::clean_copy).
    pub(crate) async fn clean_copy(&self, path: &ObjectPath, bytes_max: u64) -> Result<Option<CleanCopy>> {
        let Some(object) = self.former_copy(path) else { return Ok(None) };
        // After a restart that is not known any more, and a copy may be of a time before this worker was the home.
        let Some(validated) = self.home.validity.age(object.generation()) else { return Ok(None) };
        let (size, annex) = (object.size(), object.annex().to_vec());
        let metadata = object.metadata().await?.to_vec();
        let is_sent = size <= bytes_max && object.is_whole();
        let body = is_sent.then(|| bytes_of(object, ByteRange::of_size(size)));
        Ok(Some(CleanCopy { terms: CleanTerms { size, metadata, annex, validated }, body }))
    }

    /// See [`Cache::clean_bytes`](crate::Cache::clean_bytes).
    pub(crate) fn clean_bytes(&self, wanted: &CleanRange) -> Option<ByteStream> {
        let object = self.former_copy(&wanted.path)?;
        let is_same =
            object.size() == wanted.size && Self::remote_etag_of(&object).as_ref() == Some(&wanted.remote_etag);
        let is_here = |piece: &Piece| matches!(piece, Piece::Cached(_));
        let has_all = is_same && wanted.range.end <= wanted.size && object.pieces(wanted.range).iter().all(is_here);
        has_all.then(|| bytes_of(object, wanted.range))
    }

    /// The clean copy of an object that is not at home here any more. Nothing changes it but eviction: no lock of the
    /// key is held or given.
    fn former_copy(&self, path: &ObjectPath) -> Option<Object> {
        if self.home.locks.has(path) {
            return None;
        }
        let copy = self.store.peek(&Self::store_key(path)).filter(|object| !object.is_pinned())?;
        Self::remote_etag_of(&copy).is_some().then_some(copy)
    }
}

fn bytes_of(object: Object, range: ByteRange) -> ByteStream {
    StoreSource::new(object).stream(range).map_err(Error::from).boxed()
}
