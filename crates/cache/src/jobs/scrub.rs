//! Reads all local data, so that damage is found before anybody needs the bytes. These reads do not count as reads.

use forebay_catalog::records::{self, State};
use forebay_store::{ErrorKind as StoreErrorKind, Object, Piece};
use forebay_types::{ByteRange, ObjectPath};
use futures::{StreamExt, TryStreamExt, stream};

use super::parts::{Uploads, part_name};
use super::run::{BATCH_OBJECTS, Run};
use super::store_keys::StoreKeys;
use crate::Result;

/// Concurrent objects: enough to keep a drive busy between two checksums.
const CONCURRENCY: usize = 4;

pub(super) async fn run(run: &Run) -> Result<()> {
    let mut keys = StoreKeys::new(run.range_left()?);
    loop {
        let batch = keys.take(&run.worker.store, None, BATCH_OBJECTS).await;
        let Some(last) = batch.last().and_then(|key| records::parse_object_key(key)) else { break };
        let paths = batch.iter().filter_map(|key| Some((key, records::parse_object_key(key)?)));
        let reads = paths.map(|(key, path)| async move {
            // Looked up only when its turn comes, because a held object keeps its segments from being removed.
            match run.worker.store.peek(key) {
                Some(object) => scrub(run, &object, Owner::Object(&path)).await,
                None => Ok(()),
            }
        });
        let mut reads = stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(run.concurrency(CONCURRENCY));
        while reads.try_next().await?.is_some() {}
        run.checkpoint(&format!("/{last}")).await?;
    }
    let mut uploads = Uploads::new(run);
    while let Some(parts) = uploads.next(run).await? {
        for part in parts {
            let key = records::part_key(&part.upload_id, part.number);
            if let Some(object) = run.worker.store.peek(&key) {
                scrub(run, &object, Owner::Part(&part.path, &part.name())).await?;
            }
        }
    }
    // Their homes alone know the buckets that they belong to.
    if run.scope.bucket.is_none() { scrub_copies_of_parts(run).await } else { Ok(()) }
}

/// Reads copies of parts of uploads that are at home at other workers.
async fn scrub_copies_of_parts(run: &Run) -> Result<()> {
    let mut keys = StoreKeys::new(records::all_parts_range());
    let is_elsewhere =
        |key: &[u8]| matches!(records::scope(key), records::Scope::Path(hash) if !run.worker.is_home_of(hash));
    loop {
        let batch = keys.take(&run.worker.store, None, BATCH_OBJECTS).await;
        if batch.is_empty() {
            return Ok(());
        }
        for key in &batch {
            let part = records::parse_part_upload(key).zip(records::parse_part_key(key));
            let Some((upload_id, number)) = part.filter(|_| is_elsewhere(key)) else { continue };
            if let Some(object) = run.worker.store.peek(key) {
                scrub(run, &object, Owner::CopyOfPart(&part_name(upload_id, number))).await?;
            }
        }
    }
}

/// What an object of the store belongs to.
#[derive(Clone, Copy)]
enum Owner<'a> {
    Object(&'a ObjectPath),
    /// A part, with its name.
    Part(&'a ObjectPath, &'a str),
    /// A part of an upload that is at home at another worker. This one does not know the path.
    CopyOfPart(&'a str),
}

/// The damaged part of an object.
enum Damage {
    Description,
    Bytes(ByteRange),
}

async fn scrub(run: &Run, object: &Object, owner: Owner<'_>) -> Result<()> {
    run.count(|progress| progress.objects_seen += 1);
    if run.request.dry_run {
        run.count(|progress| {
            progress.objects_done += 1;
            progress.bytes_done += object.cached_bytes();
        });
        return Ok(());
    }
    if let Err(error) = object.metadata().await
        && !is_gone(&error)
    {
        run.count(|progress| progress.objects_failed += 1);
        // Without it, nothing of the object can be served.
        return report(run, object, owner, Damage::Description, &error).await;
    }
    let mut is_sound = true;
    for piece in object.pieces(ByteRange::of_size(object.size())) {
        let Piece::Cached(range) = piece else { continue };
        run.rate.take(range.len()).await;
        match object.read(range).await {
            Ok(_) => run.count(|progress| progress.bytes_done += range.len()),
            Err(error) if is_gone(&error) => break,
            Err(error) => {
                is_sound = false;
                report(run, object, owner, Damage::Bytes(range), &error).await?;
            }
        }
    }
    run.count(|progress| if is_sound { progress.objects_done += 1 } else { progress.objects_failed += 1 });
    Ok(())
}

/// The object was overwritten, deleted or evicted since it was looked up.
fn is_gone(error: &forebay_store::Error) -> bool {
    error.kind == StoreErrorKind::Gone
}

async fn report(
    run: &Run,
    object: &Object,
    owner: Owner<'_>,
    damage: Damage,
    error: &forebay_store::Error,
) -> Result<()> {
    let what = match damage {
        Damage::Description => "the description".to_owned(),
        Damage::Bytes(range) => format!("bytes {} to {}", range.start, range.end),
    };
    let shown = match owner {
        Owner::Object(path) | Owner::Part(path, _) => format!("/{path}"),
        Owner::CopyOfPart(_) => "/".to_owned(),
    };
    if error.kind != StoreErrorKind::Corrupt {
        run.find(shown, "failed", format!("{what} could not be read: {error}"));
        return Ok(());
    }
    let state = match owner {
        Owner::Object(path) => state_of(run, object, path).await?.to_owned(),
        Owner::Part(_, part) => part.to_owned(),
        Owner::CopyOfPart(part) => format!("{part}, which is at home at another worker"),
    };
    let fate = fate_of(run, object, owner).await;
    run.find(shown, "corrupt", format!("{state}: {what} damaged, {fate} ({error})"));
    Ok(())
}

/// What happens to damaged bytes.
async fn fate_of(run: &Run, object: &Object, owner: Owner<'_>) -> String {
    if !object.is_pinned() {
        return "dropped, and fetched again when it is read".to_owned();
    }
    let path = match owner {
        Owner::Object(path) | Owner::Part(path, _) => path,
        Owner::CopyOfPart(_) => {
            run.worker.note_damaged_copy(object);
            return "counted as no copy: the home of its upload sends another one when it counts its copies".to_owned();
        }
    };
    if !run.worker.is_at_home(path) {
        return match run.worker.replace_damaged_copy(path, object).await {
            Ok(()) => "replaced with the bytes of another worker".to_owned(),
            Err(problem) => format!("counted as no copy, and kept, as no other worker has given its bytes: {problem}"),
        };
    }
    if run.worker.note_damaged(path, object).await {
        return "fetched from another worker, if one has the bytes".to_owned();
    }
    match run.worker.store.peek(object.key()) {
        Some(present) if present.is_same(object) => {
            "kept for examination, since the under store does not have it; reads of it fail".to_owned()
        }
        Some(_) | None => "replaced meanwhile".to_owned(),
    }
}

async fn state_of(run: &Run, object: &Object, path: &ObjectPath) -> Result<&'static str> {
    if !run.worker.is_at_home(path) {
        return Ok("of a key that is at home at another worker");
    }
    let record = run.worker.current(path).await?.record;
    let of_this = record.filter(|record| record.generation == object.generation());
    Ok(match of_this.map(|record| record.state) {
        Some(State::Dirty) => "dirty",
        Some(State::Transient) => "transient",
        Some(State::Conflict) => "in conflict",
        Some(State::Tombstone) | None if object.is_pinned() => "an older version",
        Some(State::Tombstone) | None => "clean",
    })
}
