//! The former home's side.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_catalog::{SlotSet, records};
use forebay_store::{Object, Piece};
use forebay_types::{ByteRange, ObjectPath};
use forebay_ufs::UploadSource;
use futures::{StreamExt, TryStreamExt};

use super::hand_over::joined;
use super::{CleanCopy, CleanRange, CleanTerms, HotObject};
use crate::persist::StoreSource;
use crate::worker::Worker;
use crate::{ByteStream, Error, Result};

/// Objects that are named to one worker: a few megabytes.
const HOT_OBJECTS_MAX: usize = 20_000;

/// Ranges of all of them together. The rest of their bytes is read when somebody wants it.
const HOT_RANGES_MAX: usize = 100_000;

/// Objects that are looked at before others get the processor.
const LOOKED_AT_ONCE: usize = 500;

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

    /// See [`Cache::hot_objects`](crate::Cache::hot_objects).
    pub(crate) async fn hot_objects(&self, slots: &SlotSet) -> Vec<HotObject> {
        // Those that were read most, with the least of them on top.
        let mut most = BinaryHeap::new();
        for shard in 0..self.store.shards() {
            let mut paths = Vec::new();
            self.store.for_each_object_in(shard, &mut |key, _, is_pinned| {
                let path = if is_pinned { None } else { records::parse_object_key(key) };
                paths.extend(path.filter(|path| slots.has_path(path)));
            });
            for some in paths.chunks(LOOKED_AT_ONCE) {
                for path in some {
                    let Some(heat) = self.former_copy(path).and_then(|object| self.heat(&object)) else { continue };
                    most.push(Reverse((heat, path.clone())));
                    if most.len() > HOT_OBJECTS_MAX {
                        most.pop();
                    }
                }
                // Requests can run meanwhile.
                tokio::task::yield_now().await;
            }
        }
        let (mut hot, mut ranges_left) = (Vec::new(), HOT_RANGES_MAX);
        for some in most.into_sorted_vec().chunks(LOOKED_AT_ONCE) {
            for Reverse((_, path)) in some {
                let Some(object) = self.former_copy(path) else { continue };
                let pieces = object.pieces(ByteRange::of_size(object.size())).into_iter();
                let cached = pieces.filter(|piece| matches!(piece, Piece::Cached(_))).map(|piece| piece.range());
                let cached: Vec<_> = joined(cached).into_iter().take(ranges_left).collect();
                ranges_left -= cached.len();
                hot.push(HotObject { path: path.clone(), cached });
            }
            tokio::task::yield_now().await;
        }
        hot
    }

    /// How much an object is read, for comparison. `None`: not again since it was written, or nothing is known of its
    /// validity, and so it is not given.
    fn heat(&self, object: &Object) -> Option<(u8, u32)> {
        let access = object.access();
        // Reclaim carries an object forward that was read, and resets its count of reads.
        let reads = access.reads.max(u8::from(access.carried));
        (reads > 0 && self.home.validity.age(object.generation()).is_some()).then(|| (reads, object.last_read()))
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
