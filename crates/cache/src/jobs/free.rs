//! Frees clean copies, and drops pages of listings. Data that the under store does not have stays. Only the store
//! itself knows what is clean, generation by generation.

use bytes::Bytes;
use forebay_catalog::records::{self, State};
use forebay_env::sync::atomic::Ordering;
use forebay_types::ObjectPath;

use super::parts::Uploads;
use super::run::{BATCH_OBJECTS, Run};
use super::store_keys::StoreKeys;
use crate::Result;
use crate::worker::Worker;

pub(super) async fn run(run: &Run) -> Result<()> {
    if !run.request.dry_run {
        // The next reads are fresh.
        run.worker.stop_warm_up(&run.scope);
        // Before the copies are looked through: what answers in flight have added by then is found.
        run.worker.home.frees.fetch_add(1, Ordering::SeqCst);
        run.worker.drop_pages_in(&run.scope);
    }
    let mut keys = StoreKeys::new(run.range_left()?);
    loop {
        let batch = keys.take(&run.worker.store, None, BATCH_OBJECTS).await;
        let Some(last) = batch.last().and_then(|key| records::parse_object_key(key)) else { break };
        for (key, path) in batch.iter().filter_map(|key| Some((key, records::parse_object_key(key)?))) {
            free(run, key, &path).await?;
        }
        run.checkpoint(&format!("/{last}")).await?;
        // Nothing above awaits anything.
        tokio::task::yield_now().await;
    }
    if !run.request.dry_run {
        run.worker.end_leases_in(&run.scope).await;
    }
    let mut uploads = Uploads::new(run);
    while let Some(parts) = uploads.next(run).await? {
        for part in parts {
            run.count(|progress| {
                progress.objects_seen += 1;
                progress.objects_skipped += 1;
            });
            run.find(format!("/{}", part.path), "pinned", format!("{} is of an open upload", part.name()));
        }
    }
    Ok(())
}

async fn free(run: &Run, key: &Bytes, path: &ObjectPath) -> Result<()> {
    let worker = &run.worker;
    let Some(object) = worker.store.peek(key) else { return Ok(()) };
    if object.cached_bytes() == 0 && object.size() > 0 && !object.is_pinned() {
        // All its bytes were evicted, and only the entry is left: that frees nothing, so it does not count.
        if !run.request.dry_run {
            worker.store.evict(key, object.generation());
        }
        return Ok(());
    }
    run.count(|progress| progress.objects_seen += 1);
    let is_freed = !object.is_pinned() && (run.request.dry_run || worker.store.evict(key, object.generation()));
    if is_freed {
        if !run.request.dry_run {
            worker.memory.remove(&worker.policies.resolve(path), object.generation());
            worker.metrics.evicted_bytes.inc_by(object.cached_bytes());
        }
        run.count(|progress| {
            progress.objects_done += 1;
            progress.bytes_done += object.cached_bytes();
        });
        return Ok(());
    }
    run.count(|progress| progress.objects_skipped += 1);
    if let Some(why) = why_pinned(worker, path).await? {
        run.find(format!("/{path}"), "pinned", why);
    }
    Ok(())
}

/// `None`: it is no longer pinned, or has been overwritten since.
async fn why_pinned(worker: &Worker, path: &ObjectPath) -> Result<Option<&'static str>> {
    if !worker.is_at_home(path) {
        // A copy of a write, or bytes that the new home fetches.
        return Ok(None);
    }
    let record = worker.current(path).await?.record;
    Ok(record.and_then(|record| match record.state {
        State::Dirty => Some("dirty: the under store does not have it yet"),
        State::Transient => Some("transient: it never goes to the under store"),
        State::Conflict => Some("in conflict: the under store has somebody else's"),
        State::Tombstone => None,
    }))
}

impl Run {
    /// Keys of objects in the scope, after those of an earlier run.
    pub(super) fn range_left(&self) -> Result<(Bytes, Bytes)> {
        let (from, to) = self.scope.range();
        let from = match self.after_path()? {
            Some(path) => from.max(records::successor(&records::object_key(&path))),
            None => from,
        };
        Ok((from, to))
    }
}
