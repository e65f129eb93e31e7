//! Compares the under store's listing with the catalog and the store. Changes nothing.
//!
//! The listing, the catalog and the store are read in sequence while clients write, so a difference is at first only a
//! suspicion. It is checked again with the key's locks held, when no client writes the key here and no request for it
//! is in flight. It is reported only if it is still there.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_catalog::records::{self, ObjectRecord, PartRecord, State};
use forebay_store::Object;
use forebay_types::{BucketName, ETag, ObjectKey, ObjectPath};
use forebay_ufs::{ErrorKind as UfsKind, ListRequest};
use futures::{StreamExt, TryStreamExt, stream};

use super::parts::Uploads;
use super::run::Run;
use super::store_keys::StoreKeys;
use crate::copies::Awaited;
use crate::worker::Worker;
use crate::{Mount, Result};

/// Objects that are compared concurrently.
const CONCURRENCY: usize = 16;

/// Attempts for an object whose under store does not answer. The job waits for an answer between them.
const TRIES: u32 = 3;

/// The most objects of the under store, records and copies, each, that one step compares.
const PAGE: usize = 1000;

/// What the under store has under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Remote {
    size: u64,
    remote_etag: ETag,
}

/// A difference, as it is reported.
#[derive(Debug, PartialEq, Eq)]
struct Difference {
    kind: &'static str,
    detail: String,
}

pub(super) async fn run(run: &Run) -> Result<()> {
    let after = run.after_path()?;
    let mut keys = StoreKeys::new(run.range_left()?);
    for bucket in run.buckets_and_lost_ones().await? {
        let start_after = match &after {
            Some(after) if bucket < after.bucket => continue,
            Some(after) if bucket == after.bucket => Some(after.key.as_str().to_owned()),
            Some(_) | None => None,
        };
        let result = compare_bucket(run, &bucket, start_after, &mut keys).await;
        run.bucket_ended(&bucket, result)?;
    }
    let mut uploads = Uploads::new(run);
    while let Some(parts) = uploads.next(run).await? {
        for part in parts.into_iter().filter(|part| run.is_about(&part.path)) {
            run.count(|progress| progress.objects_seen += 1);
            let key = records::part_key(&part.upload_id, part.number);
            if is_awaited(run, &part.path, &key, Some(&part.name())) {
                continue;
            }
            let is_here = |object: &Object| object.generation() == part.record.generation;
            if run.worker.store.peek(&key).as_ref().is_some_and(is_here) {
                continue;
            }
            // A completion or an abort removes record and bytes together, and a new part with this number replaces
            // both.
            let now = run.worker.catalog.get(&key).await?.map(|found| PartRecord::decode(&found.value)).transpose()?;
            if now.as_ref() == Some(&part.record) {
                run.find(format!("/{}", part.path), "missing-bytes", format!("{} has no bytes here", part.name()));
            }
        }
    }
    Ok(())
}

/// Compares a bucket in steps. Each step covers one page of the under store's listing, or the limit of records or
/// copies.
async fn compare_bucket(run: &Run, bucket: &BucketName, mut after: Option<String>, keys: &mut StoreKeys) -> Result<()> {
    let mount = run.worker.buckets.mount(bucket).await?;
    let (first, last) = records::object_prefix_range(bucket, &run.scope.prefix);
    let (prefix, start_after) = (run.scope.prefix.clone(), after.clone());
    let mut request = ListRequest { prefix, start_after, limit: PAGE, ..ListRequest::default() };
    loop {
        if run.has_nothing_left() {
            return Ok(());
        }
        let from = match &after {
            Some(after) => first.clone().max(records::successor(&key_of(bucket, after))),
            None => first.clone(),
        };
        let page = run.with_retries(|| async { Ok(mount.background.list(&request).await?) }).await?;
        let page_end = page.next.as_ref().map_or(last.clone(), |next| records::successor(&key_of(bucket, next)));
        let mut end = page_end.clone();
        let found = run.worker.catalog.scan(&from, &end, PAGE).await?;
        if let (Some((key, _)), PAGE) = (found.last(), found.len()) {
            end = records::successor(key);
        }
        keys.skip_to(&from);
        let copies = keys.take(&run.worker.store, Some(&end), PAGE).await;
        if let (Some(key), PAGE) = (copies.last(), copies.len()) {
            end = records::successor(key);
        }
        let mut candidates: BTreeMap<Bytes, Option<Remote>> = BTreeMap::new();
        candidates
            .extend(found.into_iter().map(|(key, _)| (key, None)).chain(copies.into_iter().map(|key| (key, None))));
        for object in page.objects {
            let remote = Remote { size: object.size, remote_etag: object.remote_etag };
            candidates.insert(key_of(bucket, &object.key), Some(remote));
        }
        let inside = candidates.into_iter().skip_while(|(key, _)| *key < from).take_while(|(key, _)| *key < end);
        let paths = inside.filter_map(|(key, remote)| Some((records::parse_object_key(&key)?, remote)));
        let paths = paths.filter(|(path, _)| run.is_about(path));
        let compares = paths.map(|(path, remote)| compare(run, &mount, path, remote)).collect::<Vec<_>>();
        let mut compares = stream::iter(compares).buffer_unordered(run.concurrency(CONCURRENCY));
        while compares.try_next().await?.is_some() {}
        if end >= last {
            return Ok(());
        }
        // The names after the step's end in the catalog or the copies are on the same page.
        let is_whole = end == page_end;
        let seen = key_before(bucket, &end.max(from));
        // A restart cannot continue after a name that is not a valid key.
        if ObjectKey::new(&seen).is_ok() {
            run.checkpoint(&format!("/{bucket}/{seen}")).await?;
        }
        if is_whole || !mount.background.lists_by_token() {
            (request.start_after, request.token) = (Some(seen.clone()), page.token.filter(|_| is_whole));
        }
        after = Some(seen);
    }
}

fn key_of(bucket: &BucketName, key: &str) -> Bytes {
    match ObjectKey::new(key) {
        Ok(key) => records::object_key(&ObjectPath::new(bucket.clone(), key)),
        // A name that another client gave. It sorts correctly, and stands for no object.
        Err(_) => records::object_prefix_range(bucket, key).0,
    }
}

/// The key that `end` is the successor of.
fn key_before(bucket: &BucketName, end: &Bytes) -> String {
    let bucket_bytes = records::object_prefix_range(bucket, "").0.len();
    String::from_utf8_lossy(&end[bucket_bytes..end.len() - 1]).into_owned()
}

async fn compare(run: &Run, mount: &Mount, path: ObjectPath, listed: Option<Remote>) -> Result<()> {
    run.turn().await;
    run.count(|progress| progress.objects_seen += 1);
    let mut tries = 1;
    loop {
        let compared = match compare_once(run, mount, &path, listed.as_ref(), tries == 1).await {
            // Its next home compares it.
            Err(_) if !run.is_about(&path) => return Ok(()),
            compared => compared?,
        };
        match compared {
            Ok(()) => return Ok(()),
            // Without a lock: writers of the key must not wait for this.
            Err(error) if error.kind.is_transient() && tries < TRIES => run.until_answered(&path.bucket).await?,
            Err(error) => {
                run.count(|progress| progress.objects_failed += 1);
                run.find(format!("/{path}"), "failed", format!("the under store did not say what it has: {error}"));
                return Ok(());
            }
        }
        tries += 1;
    }
}

/// The inner error is the under store's: it was asked, and did not say what it has.
async fn compare_once(
    run: &Run,
    mount: &Mount,
    path: &ObjectPath,
    listed: Option<&Remote>,
    is_first: bool,
) -> Result<Result<(), forebay_ufs::Error>> {
    let worker = &run.worker;
    let (record, object) = look(worker, path).await?;
    if run.request.dry_run || (record.is_none() && object.is_none()) {
        return Ok(Ok(()));
    }
    if is_awaited(run, path, &Worker::store_key(path), None) {
        return Ok(Ok(()));
    }
    if is_first {
        run.count(|progress| {
            progress.objects_done += 1;
            progress.bytes_done += object.as_ref().map_or(0, Object::cached_bytes);
        });
    }
    if difference(record.as_ref(), object.as_ref(), listed).is_none() {
        return Ok(Ok(()));
    }
    let _no_request = worker.home.upload_locks.lock(path).await?;
    let fence = worker.home.fence.read(path);
    // In the foreground, like a client's request, and without the lock of writes, which must not be held for as long as
    // an under store takes.
    let answer = mount.foreground.head(&path.key).await.inspect(|_| worker.home.negative_cache.end(path));
    let remote = match answer {
        Ok(remote) => Some(Remote { size: remote.info.size, remote_etag: remote.remote_etag }),
        Err(error) if error.kind == UfsKind::NotFound => None,
        Err(error) => return Ok(Err(error)),
    };
    let _no_write = worker.lock_key(path).await?;
    if worker.home.fence.read(path) != fence {
        return Ok(Ok(()));
    }
    let (record, object) = look(worker, path).await?;
    // A request without an answer may change the under store at any time.
    let is_settled = worker.home.settle.wait(path).is_zero();
    match difference(record.as_ref(), object.as_ref(), remote.as_ref()) {
        Some(difference) if is_settled || record.is_some() => {
            run.find(format!("/{path}"), difference.kind, difference.detail);
        }
        Some(_) | None => {}
    }
    Ok(Ok(()))
}

/// Whether another worker has the bytes. If they are out of reach, that is found.
fn is_awaited(run: &Run, path: &ObjectPath, key: &[u8], part: Option<&str>) -> bool {
    let awaited = run.worker.home.copies.awaited(key);
    if awaited == Some(Awaited::OutOfReach) {
        let what = part.map_or_else(String::new, |part| format!("{part}: "));
        let detail = format!("{what}its bytes are at a worker that does not answer; `forebay cluster status` names it");
        run.find(format!("/{path}"), "unavailable", detail);
    }
    awaited.is_some()
}

async fn look(worker: &Worker, path: &ObjectPath) -> Result<(Option<ObjectRecord>, Option<Object>)> {
    Ok((worker.current(path).await?.record, worker.store.peek(&Worker::store_key(path))))
}

fn difference(record: Option<&ObjectRecord>, object: Option<&Object>, remote: Option<&Remote>) -> Option<Difference> {
    let tell = |kind, detail: String| Some(Difference { kind, detail });
    match (record, object) {
        (None, None) => None,
        (None, Some(object)) if object.is_pinned() => {
            tell("pinned-without-record", format!("{} bytes are pinned, and nothing names them", object.size()))
        }
        (None, Some(object)) => different_copy(object, remote),
        (Some(record), object) => match record.state {
            State::Tombstone => None,
            State::Dirty | State::Transient => different_only_copy(record, object),
            State::Conflict => different_only_copy(record, object).or_else(|| {
                tell("conflict", "somebody else has changed it in the under store; ours is kept and served".to_owned())
            }),
        },
    }
}

/// Compares a clean copy with the under store.
fn different_copy(object: &Object, remote: Option<&Remote>) -> Option<Difference> {
    let Some(remote) = remote else {
        let detail = "deleted in the under store; reads notice it when metadataTtl is over".to_owned();
        return Some(Difference { kind: "missing-in-under-store", detail });
    };
    let etag = Worker::remote_etag_of(object);
    if etag.as_ref() == Some(&remote.remote_etag) && object.size() == remote.size {
        return None;
    }
    let detail = format!(
        "changed in the under store: {} bytes with the tag {}, here {} bytes with the tag {}; reads notice it when metadataTtl is over",
        remote.size,
        remote.remote_etag.as_str(),
        object.size(),
        etag.as_ref().map_or("(none)", ETag::as_str),
    );
    Some(Difference { kind: "stale-copy", detail })
}

/// Data that the under store does not have must be here, complete and pinned.
fn different_only_copy(record: &ObjectRecord, object: Option<&Object>) -> Option<Difference> {
    let (kind, detail) = match object {
        None => ("missing-bytes", format!("generation {} is recorded, and its bytes are not here", record.generation)),
        Some(object) if object.generation() != record.generation => {
            let detail = format!("generation {} is recorded, and {} is here", record.generation, object.generation());
            ("missing-bytes", detail)
        }
        Some(object) if object.size() != record.size => {
            ("dirty-size", format!("{} bytes are recorded, and {} are here", record.size, object.size()))
        }
        Some(object) if object.cached_bytes() != object.size() => {
            ("missing-bytes", format!("{} of {} bytes are here", object.cached_bytes(), object.size()))
        }
        Some(object) if !object.is_pinned() => ("not-pinned", "the only copy is not pinned".to_owned()),
        Some(_) => return None,
    };
    Some(Difference { kind, detail })
}
