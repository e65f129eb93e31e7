//! Persists pending changes, and waits until earlier requests have settled. A request in flight is never dropped,
//! because nobody would know its outcome.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_catalog::records::{self, ObjectRecord, State};
use forebay_env::sync::Mutex;
use forebay_types::ObjectPath;
use futures::{FutureExt, StreamExt, stream};

use super::JobProgress;
use super::run::{ANSWER_USUAL, Run};
use crate::Result;
use crate::persist::{LargeUploads, PersistError};

/// How often an object is sent again that was overwritten while it was sent.
const REPLACED_MAX: u32 = 10;

/// Uploads are usually faster than this.
const BYTES_PER_SECOND_USUAL: u64 = 1 << 20;

/// The job handles what is pending when it begins, so that it ends under a steady load.
pub(super) async fn run(run: &Run) -> Result<()> {
    let mut waiting = look_at_records(run).await?;
    waiting.extend(run.worker.home.queue.waiting(&run.scope).into_iter().filter(|path| run.is_about(path)));
    // A restart counts from the beginning: what was persisted is no longer pending.
    let before = run.progress_before();
    run.count(|progress| {
        let objects_total = Some(before.objects_total.unwrap_or(0) + waiting.len() as u64);
        *progress = JobProgress { objects_total, ..before };
    });
    let concurrency = run.concurrency(run.worker.settings.persist_concurrency as usize);
    let (first_error, large) = (Mutex::new(None), LargeUploads::new());
    // Created one by one: there may be millions.
    let tries = waiting.into_iter().map(|path| {
        let (first_error, large) = (&first_error, &large);
        async move {
            if let Err(error) = persist(run, path, large).await {
                first_error.lock().get_or_insert(error);
            }
        }
        .boxed()
    });
    let mut tries = stream::iter(tries).buffer_unordered(concurrency);
    while tries.next().await.is_some() {}
    drop(tries);
    first_error.into_inner().map_or(Ok(()), Err)
}

/// The pending changes. Those of slots that have just been gained may not be in the queue yet. What came into conflict
/// before does not wait any more, and is not in the under store either: it is reported.
async fn look_at_records(run: &Run) -> Result<BTreeSet<ObjectPath>> {
    let mut pending = BTreeSet::new();
    let mut range = match &run.scope.bucket {
        Some(bucket) => records::object_prefix_range(bucket, &run.scope.prefix),
        None => records::all_objects_range(),
    };
    while let Some(found) = run.worker.next_records(&mut range).await? {
        for (key, versioned) in &found {
            let Some(path) = records::parse_object_key(key).filter(|path| run.is_about(path)) else { continue };
            match ObjectRecord::decode(&versioned.value)?.state {
                State::Conflict => tell_conflict(run, &path, OURS_STAYS),
                State::Dirty | State::Tombstone => drop(pending.insert(path)),
                State::Transient => {}
            }
        }
    }
    Ok(pending)
}

/// What a finding says of a version, or of a delete, that has come into conflict.
const OURS_STAYS: &str = "ours stays here";
const DELETE_ABANDONED: &str = "it stays there, and our delete is abandoned";

fn tell_conflict(run: &Run, path: &ObjectPath, what: &str) {
    run.find(format!("/{path}"), "conflict", format!("somebody else has changed it in the under store; {what}"));
}

async fn persist(run: &Run, path: ObjectPath, large: &LargeUploads) -> Result<()> {
    if run.must_stop() {
        return Ok(());
    }
    run.count(|progress| progress.objects_seen += 1);
    match try_to_persist(run, &path, large).await {
        // Its next home persists it.
        Err(_) if !run.is_about(&path) => {
            run.count(|progress| progress.objects_skipped += 1);
            Ok(())
        }
        Err(error) => {
            run.count(|progress| progress.objects_failed += 1);
            run.find(format!("/{path}"), "failed", error.to_string());
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

async fn try_to_persist(run: &Run, path: &ObjectPath, large: &LargeUploads) -> Result<()> {
    let current = run.worker.current(path).await?;
    let bytes = current.record.as_ref().map_or(0, |record| record.size);
    let mut is_there = true;
    if !run.request.dry_run {
        let _permit = large.permit(&current).await;
        let Some(persisted) = persist_when_settled(run, path, bytes).await? else { return Ok(()) };
        is_there = persisted;
    }
    match run.worker.current(path).await?.record {
        Some(now) if now.state == State::Conflict => tell_conflict(run, path, OURS_STAYS),
        // Only a delete leaves no record behind.
        None if !is_there => tell_conflict(run, path, DELETE_ABANDONED),
        Some(_) | None => {}
    }
    run.count(|progress| {
        progress.objects_done += 1;
        progress.bytes_done += bytes;
    });
    Ok(())
}

/// Whether the under store has the change: not after a conflict. `None` when the job had to stop first. The object then
/// continues to wait as before.
async fn persist_when_settled(run: &Run, path: &ObjectPath, bytes: u64) -> Result<Option<bool>> {
    let usual = ANSWER_USUAL + Duration::from_secs(bytes / BYTES_PER_SECOND_USUAL);
    let mut replaced = 0;
    while !run.must_stop() {
        // An upload that is in flight already holds the locks.
        let (own, upload) = run.answered(usual, run.worker.lock_to_persist(path)).await?;
        let result = run.answered(usual, run.worker.persist_object(path, &upload, true)).await;
        drop((upload, own));
        match result {
            Ok(is_there) => {
                run.worker.home.queue.hurry(path);
                return Ok(Some(is_there));
            }
            // What has replaced it is sent.
            Err(PersistError::Replaced) if replaced < REPLACED_MAX => replaced += 1,
            Err(PersistError::Unsettled(pause)) => {
                let seconds = pause.as_secs_f64().ceil();
                let why =
                    format!("{seconds} s (settle_time), as an earlier request to the under store may be in flight");
                let _waiting = run.wait(&why);
                tokio::select! {
                    biased;
                    () = run.stopped() => {}
                    () = run.worker.env.clock.sleep(pause) => {}
                }
            }
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(None)
}
