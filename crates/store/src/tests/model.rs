//! A model of what a store may hold after a crash, key by key.

use std::collections::{BTreeMap, HashSet};

use super::*;
use crate::Annotation;

/// Operations on one key. What is written is identified by its tag.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    /// An object and the value of the same key, in one commit.
    Put { tag: u64, durability: Durability },
    /// Deletes both, in one commit.
    Forget,
    /// From now on, the object may be evicted.
    Clean { tag: u64 },
    /// An object that no commit waits for. It has no value.
    Fill { tag: u64 },
}

/// What is known of a key.
#[derive(Default)]
struct Known {
    /// What the key holds while the store is open.
    live: Option<u64>,
    /// What it may hold after a crash.
    possible: Vec<Option<u64>>,
    /// Tags that may be evicted, in whole or in part, and tags that a prepared object may have dropped.
    clean: HashSet<u64>,
    /// Tags that were written with `Os` durability.
    unsynced: HashSet<u64>,
}

#[derive(Default)]
pub(super) struct Model {
    /// A directory has failed while another continued: snapshots may show what commits left to the operating system in
    /// it.
    pub(super) lost_directory: bool,
    /// The tables were built from segments alone.
    pub(super) rebuilt: bool,
    keys: BTreeMap<String, Known>,
}

/// One in three is large.
pub(super) fn data_of(tag: u64) -> Bytes {
    let size = if tag.is_multiple_of(3) { 600 + tag % 9000 } else { tag % 400 };
    pattern(tag, size as usize)
}

/// Keys of fills begin like this. Fills may be evicted at any time.
pub(super) fn is_fill(key: &str) -> bool {
    key.starts_with('f')
}

pub(super) async fn run(store: &Store, key: &str, op: Op) -> Result<()> {
    let object = |tag: u64, pinned| {
        let annex = Bytes::copy_from_slice(&tag.to_le_bytes());
        NewObject { annex, pinned, ..named(store, key, data_of(tag).len()) }
    };
    let (commit, durability) = match op {
        Op::Put { tag, durability } => {
            let mut staged = stage_as(store, Class::Durable, object(tag, true), &data_of(tag)).await?;
            if is_prepared(tag) {
                staged = store.prepare(staged).await?;
                for _ in 0..tag % 50 {
                    tokio::task::yield_now().await;
                }
            }
            return publish(store, key, staged, tag, durability).await;
        }
        Op::Forget => {
            let (forget, writes) = (vec![Bytes::copy_from_slice(key.as_bytes())], vec![write(key, None)]);
            (Commit { forget, writes, ..Commit::default() }, Durability::Fsync)
        }
        Op::Clean { tag } => {
            let annex = Bytes::copy_from_slice(&tag.to_le_bytes());
            let Some(object) = store.peek(key.as_bytes()).filter(|object| object.annex() == annex) else {
                return Ok(());
            };
            let (key, generation) = (Bytes::copy_from_slice(object.key()), object.generation());
            let annotate = vec![Annotation { key, generation, annex, pinned: false }];
            (Commit { annotate, ..Commit::default() }, Durability::Os)
        }
        Op::Fill { tag } => {
            let staged = stage_as(store, Class::Fill, object(tag, false), &data_of(tag)).await?;
            return store.publish_fill(staged).await;
        }
    };
    store.commit(commit, durability).await.map(drop)
}

/// Two in five objects are prepared: durable before their commit begins.
fn is_prepared(tag: u64) -> bool {
    tag % 5 < 2
}

async fn publish(store: &Store, key: &str, staged: Staged, tag: u64, durability: Durability) -> Result<()> {
    let writes = vec![write(key, Some(&tag.to_string()))];
    store.commit(Commit { publish: vec![staged], writes, ..Commit::default() }, durability).await.map(drop)
}

/// The tag of an object that earlier lives have prepared. Checks all its bytes.
async fn prepared_tag(staged: &Staged) -> u64 {
    let object = staged.object();
    let tag = u64::from_le_bytes(object.annex().try_into().unwrap());
    assert_eq!(read_object(&object).await.unwrap(), data_of(tag), "prepared for {}", staged.key().escape_ascii());
    tag
}

impl Model {
    /// Publishes what earlier lives have prepared, unless there is something newer, or drops it. What was written with
    /// `Os` durability may have lost bytes.
    pub(super) async fn end_prepared(&mut self, store: &Store, publishes: bool) {
        for staged in store.take_prepared() {
            let key = String::from_utf8(staged.key().to_vec()).unwrap();
            let present = store.peek(key.as_bytes()).map(|object| object.generation());
            if !publishes || present >= Some(staged.generation()) {
                continue;
            }
            let tag = prepared_tag(&staged).await;
            let op = Op::Put { tag, durability: Durability::Fsync };
            self.begin(&key, op);
            publish(store, &key, staged, tag, Durability::Fsync).await.unwrap();
            self.acked(&key, op);
        }
    }

    pub(super) fn live(&self, key: &str) -> Option<u64> {
        self.keys.get(key)?.live
    }

    /// An operation is in flight: a crash may leave its effect.
    pub(super) fn begin(&mut self, key: &str, op: Op) {
        let known =
            self.keys.entry(key.to_owned()).or_insert_with(|| Known { possible: vec![None], ..Known::default() });
        match op {
            Op::Put { tag, durability } => {
                let is_evictable = known.live.is_none_or(|live| known.clean.contains(&live));
                if is_prepared(tag) && is_evictable {
                    // See `Store::prepare`. Older tags are possible if the live one was written with `Os` durability.
                    known.clean.extend(known.possible.iter().flatten());
                }
                known.possible.push(Some(tag));
                if durability == Durability::Os {
                    known.unsynced.insert(tag);
                }
            }
            Op::Forget => known.possible.push(None),
            Op::Clean { tag } => drop(known.clean.insert(tag)),
            Op::Fill { tag } => {
                known.clean.insert(tag);
                known.possible.push(Some(tag));
            }
        }
    }

    /// An operation was acknowledged.
    pub(super) fn acked(&mut self, key: &str, op: Op) {
        let known = self.keys.get_mut(key).expect("it has begun");
        match op {
            Op::Put { tag, durability } => {
                known.live = Some(tag);
                if durability == Durability::Fsync {
                    known.possible = vec![Some(tag)];
                }
            }
            Op::Forget => (known.live, known.possible) = (None, vec![None]),
            Op::Clean { .. } => {}
            Op::Fill { tag } => known.live = Some(tag),
        }
    }

    /// Compares the contents of a store that was just opened. They are known from now on.
    pub(super) async fn check_opened(&mut self, store: &Store) {
        let mut keys = std::mem::take(&mut self.keys);
        for (key, known) in &mut keys {
            let found = self.check_key(store, key, known).await;
            assert!(
                known.possible.contains(&found),
                "{key} holds {found:?}, and only {:?} is possible",
                known.possible
            );
            known.live = found;
            // A fill that has not come back yet may still come back from the disk.
            if !is_fill(key) {
                known.possible = vec![found];
            }
        }
        self.keys = keys;
        let mut unknown = Vec::new();
        store.for_each_object(&mut |key, _, _| unknown.push(String::from_utf8(key.to_vec()).unwrap()));
        unknown.retain(|key| !self.keys.contains_key(key));
        assert_eq!(unknown, Vec::<String>::new(), "nobody wrote these");
    }

    /// Compares the contents of an open store, while nothing is in flight.
    pub(super) async fn check_live(&mut self, store: &Store) {
        super::counts::check_counts(store);
        for (key, known) in &self.keys {
            let found = self.check_key(store, key, known).await;
            let evicted = is_fill(key) && found.is_none();
            assert!(evicted || found == known.live, "{key} holds {found:?}, not {:?}", known.live);
        }
    }

    /// The tag that a key holds. Checks everything that belongs to the key.
    async fn check_key(&self, store: &Store, key: &str, known: &Known) -> Option<u64> {
        let object = store.peek(key.as_bytes());
        let annexed = object.as_ref().map(|object| u64::from_le_bytes(object.annex()[..].try_into().unwrap()));
        let tag = if is_fill(key) { annexed } else { value(store, key).map(|value| value.parse().unwrap()) };
        let may_lack = tag.is_some_and(|tag| known.clean.contains(&tag));
        let Some(object) = object else {
            assert!(tag.is_none() || may_lack, "{key}: {tag:?} has lost its object");
            return tag;
        };
        if self.rebuilt && may_lack && annexed != tag {
            // The object was evicted, and what it had replaced is still in a segment.
            return tag;
        }
        assert_eq!(annexed, tag, "{key}: object and value were written together");
        let (data, clean) = (data_of(annexed.unwrap()), !object.is_pinned());
        assert!(!clean || may_lack, "{key}: nobody made it clean");
        let may_fail = clean || (self.lost_directory && tag.is_some_and(|tag| known.unsynced.contains(&tag)));
        assert_eq!(object.size(), data.len() as u64, "{key}");
        for piece in object.pieces(ByteRange::of_size(object.size())) {
            match piece {
                Piece::Cached(range) => match object.read(range).await {
                    Ok(found) => assert_eq!(found, data.slice(range.start as usize..range.end as usize), "{key}"),
                    Err(error) => assert!(may_fail && error.kind == ErrorKind::Corrupt, "{key}: {error}"),
                },
                Piece::Missing(range) => assert!(clean, "{key}: {range:?} of pinned bytes is missing"),
            }
        }
        if let Err(error) = object.metadata().await {
            assert!(may_fail && error.kind == ErrorKind::Corrupt, "{key}: {error}");
        }
        tag
    }
}
