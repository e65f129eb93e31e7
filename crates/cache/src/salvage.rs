//! Brings out of a store what no under store is known to have. For a cluster whose engine has lost its data: then the
//! bytes are still on the disks, and no record leads to them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use forebay_catalog::records;
use forebay_store::{Object, Store};
use forebay_types::{BucketName, ObjectPath};
use forebay_ufs::{BucketRoot, Condition, Error as UfsError, ErrorKind as UfsKind, UnderStore, Upload};
use futures::StreamExt;

use crate::metadata::decode_info;
use crate::persist::StoreSource;

/// Objects that are written at once.
const WRITES_AT_ONCE: usize = 16;

/// What [`salvage`] has done.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// Objects that were written, and their bytes.
    pub objects: u64,
    pub bytes: u64,
    /// Objects of which the target has this version already, or a newer one: from another worker's store.
    pub present: u64,
    /// Parts of multipart uploads. They are left out: only the catalog knew which of them belong together.
    pub parts: u64,
    /// Objects that could not be written.
    pub failed: u64,
    /// Why the target takes nothing more. Objects may be left.
    pub stopped: Option<UfsError>,
}

/// Writes all objects that the store holds and no under store is known to have: dirty and transient ones, copies of
/// those of other workers, and writes that the engine may have named just before a crash. A delete that was not sent
/// leaves nothing in the store, so nothing is written for it. Calls `refused` for each object that can't be written.
pub async fn salvage(
    store: &Store,
    target: &dyn BucketRoot,
    mut refused: impl FnMut(&ObjectPath, &UfsError),
) -> Salvaged {
    let mut salvage = Salvage { target, buckets: BTreeMap::new(), salvaged: Salvaged::default() };
    let mut prepared: HashMap<Bytes, Object> = HashMap::new();
    for object in store.prepared() {
        let key = Bytes::copy_from_slice(object.key());
        let is_newer = |other: Object| object.generation() > other.generation();
        if store.peek(&key).is_none_or(is_newer) && prepared.get(&key).cloned().is_none_or(is_newer) {
            prepared.insert(key, object);
        }
    }
    for shard in 0..store.shards() {
        let mut keys = Vec::new();
        store.for_each_object_in(shard, &mut |key, _, is_pinned| {
            if is_pinned && !prepared.contains_key(key) {
                keys.push(Bytes::copy_from_slice(key));
            }
        });
        let objects = keys.into_iter().filter_map(|key| store.peek(&key));
        salvage.write_all(objects, &mut refused).await;
    }
    salvage.write_all(prepared.into_values(), &mut refused).await;
    salvage.salvaged
}

struct Salvage<'a> {
    target: &'a dyn BucketRoot,
    buckets: BTreeMap<BucketName, Arc<dyn UnderStore>>,
    salvaged: Salvaged,
}

impl Salvage<'_> {
    async fn write_all(
        &mut self,
        objects: impl Iterator<Item = Object>,
        refused: &mut impl FnMut(&ObjectPath, &UfsError),
    ) {
        if self.salvaged.stopped.is_some() {
            return;
        }
        let mut paths = Vec::new();
        for object in objects {
            match records::parse_object_key(object.key()) {
                Some(path) => paths.push((path, object)),
                None => self.salvaged.parts += u64::from(records::parse_part_key(object.key()).is_some()),
            }
        }
        let mut writes = Vec::new();
        for (path, object) in paths {
            match self.bucket(&path.bucket).await {
                Ok(bucket) => writes.push(async move {
                    let written = write(bucket.as_ref(), &path, object).await;
                    (path, written)
                }),
                Err(error) => self.fail(&path, error, refused),
            }
        }
        let mut writes = futures::stream::iter(writes).buffer_unordered(WRITES_AT_ONCE);
        while self.salvaged.stopped.is_none()
            && let Some((path, written)) = writes.next().await
        {
            match written {
                Ok(Some(bytes)) => {
                    self.salvaged.objects += 1;
                    self.salvaged.bytes += bytes;
                }
                Ok(None) => self.salvaged.present += 1,
                Err(error) => self.fail(&path, error, refused),
            }
        }
    }

    fn fail(&mut self, path: &ObjectPath, error: UfsError, refused: &mut impl FnMut(&ObjectPath, &UfsError)) {
        self.salvaged.failed += 1;
        refused(path, &error);
        // The others would get the same answer.
        let is_for_all = matches!(error.kind, UfsKind::Denied | UfsKind::Unavailable | UfsKind::NoBucket);
        if is_for_all || matches!(error.kind, UfsKind::NoSpace | UfsKind::ReadOnly) {
            self.salvaged.stopped = Some(error);
        }
    }

    async fn bucket(&mut self, name: &BucketName) -> forebay_ufs::Result<Arc<dyn UnderStore>> {
        if let Some(bucket) = self.buckets.get(name) {
            return Ok(Arc::clone(bucket));
        }
        match self.target.create(name).await {
            Err(error) if error.kind != UfsKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let missing = || UfsError::new(UfsKind::AlreadyExists, format!("something else has the name of bucket {name}"));
        let bucket = self.target.open(name).await?.ok_or_else(missing)?;
        self.buckets.insert(name.clone(), Arc::clone(&bucket));
        Ok(bucket)
    }
}

/// Returns the size of an object that was written. `None`: the target has it.
async fn write(bucket: &dyn UnderStore, path: &ObjectPath, object: Object) -> forebay_ufs::Result<Option<u64>> {
    bucket.check_key(&path.key)?;
    let generation = object.generation();
    let condition = match bucket.head(&path.key).await {
        Err(error) if error.kind == UfsKind::NotFound => Condition::Absent,
        Err(error) => return Err(error),
        Ok(found) => match found.stamp {
            Some(stamp) if stamp.generation >= generation => return Ok(None),
            Some(_) => Condition::Matches(found.remote_etag),
            None => {
                let problem = "an object that Forebay has not written is in its place";
                return Err(UfsError::new(UfsKind::AlreadyExists, problem));
            }
        },
    };
    let unread = |error: String| UfsError::new(UfsKind::Corrupt, error);
    let metadata = object.metadata().await.map_err(|error| unread(error.to_string()))?;
    let info = Arc::new(decode_info(&metadata).map_err(|error| unread(error.to_string()))?);
    let size = info.size;
    let source = Arc::new(StoreSource::new(object));
    bucket.put(&path.key, Upload { generation, info, source, condition }).await?;
    Ok(Some(size))
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;
    use forebay_env::disk::memory::MemoryDisk;
    use forebay_store::{Class, Commit, NewObject, Settings, Staged};
    use forebay_types::{Durability, ETag, Generation, ObjectInfo, PathPolicy};
    use forebay_ufs::memory::{MemoryRoot, Mood};

    use super::*;
    use crate::metadata::new_object;

    const BUCKET: &str = "lake";

    fn path(key: &str) -> ObjectPath {
        ObjectPath::parse(BUCKET, key).unwrap()
    }

    async fn open(disk: &MemoryDisk) -> Store {
        Store::open(Env::simulated(1).0, vec![Arc::new(disk.clone())], Settings::new(vec![64 << 20]), None)
            .await
            .unwrap()
    }

    async fn stage(store: &Store, key: &str, generation: u64, is_pinned: bool) -> Staged {
        let body = body_of(key, generation);
        let info = ObjectInfo::new(body.len() as u64, ETag::new("tag"), 0);
        let object = new_object(&path(key), &PathPolicy::default(), Generation(generation), &info, is_pinned);
        let mut writer = store.writer(Class::Durable, info.size).await.unwrap();
        writer.append(body).await.unwrap();
        writer.finish(object).await.unwrap()
    }

    fn body_of(key: &str, generation: u64) -> Bytes {
        format!("{key} {generation}").repeat(1 + generation as usize * 100).into()
    }

    /// Publishes what is not prepared, and ends the process.
    async fn crash(disk: &MemoryDisk, store: Store, publish: Vec<Staged>) -> Store {
        store.commit(Commit { publish, ..Commit::default() }, Durability::Fsync).await.unwrap();
        disk.power_loss(1);
        open(disk).await
    }

    async fn salvaged(store: &Store, root: &MemoryRoot) -> (Salvaged, Vec<(String, UfsKind)>) {
        let mut refused = Vec::new();
        let salvaged = salvage(store, root, |path, error| refused.push((path.to_string(), error.kind))).await;
        (salvaged, refused)
    }

    #[tokio::test]
    async fn what_no_under_store_is_known_to_have_is_written_in_its_newest_version() {
        let disk = MemoryDisk::default();
        let store = open(&disk).await;
        let mut publish = Vec::new();
        for (key, generation, is_pinned) in
            [("dirty", 1, true), ("clean", 2, false), ("older", 3, true), ("newer", 9, true)]
        {
            publish.push(stage(&store, key, generation, is_pinned).await);
        }
        publish.push(stage_part(&store).await);
        // The engine may have named these.
        let mut prepared = Vec::new();
        for (key, generation) in [("older", 4), ("newer", 8), ("prepared", 5), ("prepared", 6)] {
            prepared.push(store.prepare(stage(&store, key, generation, true).await).await.unwrap());
        }
        let store = crash(&disk, store, publish).await;
        drop(prepared);
        let root = MemoryRoot::default();
        let (done, refused) = salvaged(&store, &root).await;
        assert_eq!((done.objects, done.present, done.parts, done.failed), (4, 0, 1, 0), "{refused:?}");
        let expected = [("dirty", 1), ("newer", 9), ("older", 4), ("prepared", 6)];
        let expected = expected.map(|(key, generation)| (key.to_owned(), body_of(key, generation)));
        assert_eq!(root.bucket(&path("x").bucket).unwrap().contents(), expected.into());
        let (again, _) = salvaged(&store, &root).await;
        assert_eq!((again.objects, again.present), (0, 4));
        // A later start finds what it would have found.
        store.close().await.unwrap();
        disk.power_loss(2);
        let store = open(&disk).await;
        assert_eq!(store.take_prepared().len(), 4);
        assert!(store.peek(&records::object_key(&path("dirty"))).is_some_and(|object| object.is_pinned()));
    }

    async fn stage_part(store: &Store) -> Staged {
        let info = ObjectInfo::new(4, ETag::new("tag"), 0);
        let object = new_object(&path("unused"), &PathPolicy::default(), Generation(7), &info, true);
        let mut writer = store.writer(Class::Durable, info.size).await.unwrap();
        writer.append(Bytes::from_static(b"part")).await.unwrap();
        writer.finish(NewObject { key: records::part_key("upload", 1), ..object }).await.unwrap()
    }

    #[tokio::test]
    async fn of_two_workers_the_newer_version_stays_and_foreign_objects_are_not_replaced() {
        let root = MemoryRoot::default();
        let mut stores = Vec::new();
        for (own, other) in [(1, 4), (3, 2)] {
            let disk = MemoryDisk::default();
            let store = open(&disk).await;
            let publish = vec![
                stage(&store, "a", own, true).await,
                stage(&store, "b", other, true).await,
                stage(&store, "foreign", own, true).await,
            ];
            store.commit(Commit { publish, ..Commit::default() }, Durability::Fsync).await.unwrap();
            stores.push(store);
        }
        root.create(&path("x").bucket).await.unwrap();
        let bucket = root.bucket(&path("x").bucket).unwrap();
        bucket.put_outside("foreign", Bytes::from_static(b"of somebody"));
        for (store, counts) in stores.iter().zip([(2, 0, 1), (1, 1, 1)]) {
            let (done, refused) = salvaged(store, &root).await;
            assert_eq!((done.objects, done.present, done.failed), counts);
            assert_eq!(refused, [("lake/foreign".to_owned(), UfsKind::AlreadyExists)]);
            assert!(done.stopped.is_none());
        }
        let expected =
            [("a", body_of("a", 3)), ("b", body_of("b", 4)), ("foreign", Bytes::from_static(b"of somebody"))];
        assert_eq!(bucket.contents(), expected.map(|(key, body)| (key.to_owned(), body)).into());
        bucket.set_mood(Mood::Refuse(UfsKind::Denied));
        let (done, _) = salvaged(&stores[0], &root).await;
        assert!(done.failed > 0 && done.stopped.is_some_and(|error| error.kind == UfsKind::Denied));
    }
}
