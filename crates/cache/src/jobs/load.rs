//! Loads data that the under store has and the local disks lack, page by page, as reads do: one verified fetch of a
//! page for all that want it. Loaded data does not go into memory, and loading does not count as reading.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_env::sync::Mutex;
use forebay_store::{Object, Piece};
use forebay_types::{BucketName, ByteRange, ObjectKey, ObjectPath, PathPolicy, WriteMode};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};

use super::run::{ANSWER_USUAL, BATCH_OBJECTS, Run};
use crate::read::pages::pages_of;
use crate::read::remote::{Purpose, RemoteState, Version};
use crate::worker::{Located, Worker};
use crate::{Error, ErrorKind, ListObjects, Mount, Result};

/// Concurrent objects. With [`PAGES`] they use a quarter of all fetches that are possible at once. The rest is for
/// clients.
const CONCURRENCY: usize = 8;

/// Concurrent pages of one object.
const PAGES: usize = 2;

/// How often an object is looked up again that changes while it is loaded, or for which there is no room.
const TRIES: usize = 3;

/// Pause before each retry. In the meantime reclaim makes room, or a write of the key ends.
const TRY_PAUSE: Duration = Duration::from_secs(1);

/// State that a load keeps between objects.
struct Load<'a> {
    run: &'a Run,
    /// Rules under which nothing is cached, or no large object. Each is reported once, not for each object.
    told: Mutex<HashSet<Arc<str>>>,
    wanted: Mutex<Wanted>,
}

/// Bytes of the objects that should be here, whether loaded now or earlier.
#[derive(Default)]
struct Wanted {
    all: u64,
    /// Those under a quota, by the path of its rule, with the quota.
    under_quotas: BTreeMap<String, (u64, u64)>,
}

/// The bytes of one object, and the quotas that it counts for: the path of each rule, and bytes.
struct Kept {
    bytes: u64,
    quotas: Vec<(String, u64)>,
}

pub(super) async fn run(run: &Run) -> Result<()> {
    let load = Load { run, told: Mutex::default(), wanted: Mutex::default() };
    let after = run.after_path()?;
    for bucket in run.buckets().await? {
        let start_after = match &after {
            Some(after) if bucket < after.bucket => continue,
            Some(after) if bucket == after.bucket => Some(after.key.as_str().to_owned()),
            Some(_) | None => None,
        };
        let result = load.load_bucket(&bucket, start_after).await;
        run.bucket_ended(&bucket, result)?;
    }
    load.tell_if_too_much();
    Ok(())
}

/// The outcome of an attempt to load an object.
enum Step {
    Done,
    Skipped,
    /// The object has changed in the meantime.
    Again,
}

impl Load<'_> {
    /// Reports if more is wanted than is free or can be evicted, or than a quota allows.
    fn tell_if_too_much(&self) {
        let run = self.run;
        let usage = run.worker.store.usage();
        let room = usage.free_bytes + usage.evictable_bytes;
        let wanted = self.wanted.lock();
        let mut to_load = 0;
        run.count(|progress| to_load = progress.bytes_done);
        let (bytes, what) =
            if run.request.dry_run { (to_load, "to be loaded") } else { (wanted.all, "under the path") };
        if bytes > room {
            let detail = format!("{bytes} bytes are {what}, and {room} bytes of the cache are free or may be evicted");
            run.find(run.request.path.clone(), "exceeds-cache", detail);
        }
        for (rule, (quota, bytes)) in wanted.under_quotas.iter().filter(|(_, (quota, bytes))| bytes > quota) {
            let more = if run.request.dry_run { "would leave" } else { "has left" };
            let detail = format!(
                "{bytes} bytes are under the path, and the cacheQuota of this rule keeps {quota}: the rest {more} the cache again"
            );
            run.find(rule.clone(), "exceeds-quota", detail);
        }
    }

    fn count_wanted(&self, kept: Kept) {
        let mut wanted = self.wanted.lock();
        wanted.all += kept.bytes;
        for (rule, quota) in kept.quotas {
            let under = wanted.under_quotas.entry(rule).or_insert((quota, 0));
            under.1 += kept.bytes;
        }
    }

    async fn load_bucket(&self, bucket: &BucketName, mut start_after: Option<String>) -> Result<()> {
        let run = self.run;
        loop {
            if run.has_nothing_left() {
                return Ok(());
            }
            let prefix = run.scope.prefix.clone();
            let request =
                ListObjects { prefix, start_after, limit: BATCH_OBJECTS, revalidates: true, ..ListObjects::default() };
            let page = run.with_retries(|| run.worker.list(bucket, &request)).await?;
            let last = page.objects.last().and_then(|object| ObjectKey::new(&object.key).ok());
            let keys = page.objects.into_iter().filter_map(|object| ObjectKey::new(&object.key).ok());
            let paths = keys.map(|key| ObjectPath::new(bucket.clone(), key)).filter(|path| run.is_about(path));
            let loads = paths.map(|path| async move { self.load(path).await });
            let mut loads = stream::iter(loads.collect::<Vec<_>>()).buffer_unordered(run.concurrency(CONCURRENCY));
            while loads.next().await.is_some() {}
            // A restart cannot continue after a name that is not a valid key.
            if let Some(last) = last {
                run.checkpoint(&format!("/{bucket}/{last}")).await?;
            }
            match page.next {
                Some(next) => start_after = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn load(&self, path: ObjectPath) {
        self.run.turn().await;
        self.run.count(|progress| progress.objects_seen += 1);
        let (mut result, mut kept) = (Ok(Step::Again), None);
        for number in 0..TRIES {
            if number > 0 {
                self.run.worker.env.clock.sleep(TRY_PAUSE).await;
            }
            result = self.try_load(&path, &mut kept).await;
            match &result {
                Ok(Step::Again) => {}
                // A temporary outage is no reason to fail all objects during it.
                Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Moved) => {
                    if self.run.until_answered(&path.bucket).await.is_err() {
                        break;
                    }
                }
                Ok(_) | Err(_) => break,
            }
        }
        if let Some(kept) = kept.filter(|_| result.is_ok()) {
            self.count_wanted(kept);
        }
        let problem = match result {
            Ok(Step::Done) => return self.run.count(|progress| progress.objects_done += 1),
            Ok(Step::Skipped) => return self.run.count(|progress| progress.objects_skipped += 1),
            Ok(Step::Again) => "it keeps changing, or could not be kept".to_owned(),
            // Its next home loads it.
            Err(_) if !self.run.is_about(&path) => {
                return self.run.count(|progress| progress.objects_skipped += 1);
            }
            Err(error) => error.to_string(),
        };
        self.run.count(|progress| progress.objects_failed += 1);
        self.run.find(format!("/{path}"), "failed", problem);
    }

    async fn try_load(&self, path: &ObjectPath, kept: &mut Option<Kept>) -> Result<Step> {
        let worker = &self.run.worker;
        let copy = match worker.look_at(path).await? {
            // All of the object is here.
            Located::Here { .. } | Located::Deleted => return Ok(Step::Skipped),
            Located::Elsewhere { copy } => copy,
        };
        let policy = worker.policies.resolve(path);
        if !self.may_be_kept(&policy) {
            return Ok(Step::Skipped);
        }
        let mount = worker.buckets.mount(&path.bucket).await?;
        if self.run.request.dry_run {
            return self.count_missing(path, &policy, &mount, copy, kept).await;
        }
        let asked = worker.remote_state(path, &policy, &mount, copy, Purpose::Load);
        let known = self.run.answered(ANSWER_USUAL, asked).await?;
        let object = match known {
            RemoteState::Cached(object) => object,
            RemoteState::Absent => return Ok(Step::Skipped),
            RemoteState::NotCached(remote)
                if !self.is_kept(&policy, remote.info.size) || !self.fits(path, remote.info.size) =>
            {
                return Ok(Step::Skipped);
            }
            // A write of the key was in flight, or there was no room.
            RemoteState::NotCached(_) => return Ok(Step::Again),
        };
        let is_whole = object.cached_bytes() == object.size();
        if !is_whole && !self.is_kept(&policy, object.size()) || !self.fits(path, object.size()) {
            return Ok(Step::Skipped);
        }
        *kept = Some(Kept { bytes: object.size(), quotas: self.quotas(path) });
        if is_whole {
            return Ok(Step::Skipped);
        }
        self.fetch(path, &policy, &mount, object).await
    }

    fn may_be_kept(&self, policy: &PathPolicy) -> bool {
        let why = match (policy.write_mode, policy.cache_reads) {
            (WriteMode::NoCache, _) => "the mode is NO_CACHE",
            (_, false) => "cacheReads is false",
            (_, true) => return true,
        };
        self.tell_not_kept(policy, format!("nothing under this rule is kept: {why}"));
        false
    }

    fn tell_not_kept(&self, policy: &PathPolicy, detail: String) {
        if self.told.lock().insert(Arc::clone(&policy.rule)) {
            self.run.find(policy.rule.as_ref(), "not-cached", detail);
        }
    }

    /// Whether the policy keeps objects of this size. `size` is in bytes.
    fn is_kept(&self, policy: &PathPolicy, size: u64) -> bool {
        let Some(max) = policy.read_cache_max_size.filter(|max| size > max.0) else { return true };
        self.tell_not_kept(policy, format!("objects of more than {max} under this rule are skipped: readCacheMaxSize"));
        false
    }

    fn quotas(&self, path: &ObjectPath) -> Vec<(String, u64)> {
        let (rules, _) = self.run.worker.policies.present();
        rules.cache_quotas(path).map(|(rule, quota)| (rule.to_owned(), quota.0)).collect()
    }

    fn fits(&self, path: &ObjectPath, size: u64) -> bool {
        let usage = self.run.worker.store.usage();
        let room = usage.capacity_bytes.saturating_sub(usage.pinned_bytes);
        let quota = self.quotas(path).into_iter().map(|(_, quota)| quota).min().unwrap_or(u64::MAX);
        let fits = size <= room.min(quota);
        if !fits {
            let detail = format!("{size} bytes are more than the {} that it may take here", room.min(quota));
            self.run.find(format!("/{path}"), "too-large", detail);
        }
        fits
    }

    async fn count_missing(
        &self,
        path: &ObjectPath,
        policy: &PathPolicy,
        mount: &Mount,
        copy: Option<Object>,
        kept: &mut Option<Kept>,
    ) -> Result<Step> {
        let remote = match self.run.answered(ANSWER_USUAL, mount.foreground.head(&path.key)).await {
            Ok(remote) => remote,
            Err(error) if error.kind == forebay_ufs::ErrorKind::NotFound => return Ok(Step::Skipped),
            Err(error) => return Err(error.into()),
        };
        let same = copy.filter(|object| Worker::remote_etag_of(object).as_ref() == Some(&remote.remote_etag));
        let missing = remote.info.size - same.as_ref().map_or(0, Object::cached_bytes).min(remote.info.size);
        let is_whole = missing == 0 && same.is_some();
        if !is_whole && !self.is_kept(policy, remote.info.size) || !self.fits(path, remote.info.size) {
            return Ok(Step::Skipped);
        }
        *kept = Some(Kept { bytes: remote.info.size, quotas: self.quotas(path) });
        if is_whole {
            return Ok(Step::Skipped);
        }
        self.run.count(|progress| progress.bytes_done += missing);
        Ok(Step::Done)
    }

    async fn fetch(&self, path: &ObjectPath, policy: &PathPolicy, mount: &Mount, object: Object) -> Result<Step> {
        let worker = &self.run.worker;
        let version = Version::of(path, policy, mount, object.clone())?;
        let whole = ByteRange::of_size(object.size());
        let windows = pages_of(whole, worker.settings.page_size.0);
        let is_missing = |window: &ByteRange| object.pieces(*window).iter().any(|p| matches!(p, Piece::Missing(_)));
        let missing: Vec<ByteRange> = windows.filter(is_missing).collect();
        let fetches = missing.into_iter().map(|window| {
            let version = version.clone();
            async move {
                self.run.rate.take(window.len()).await;
                let fetched = self.run.answered(ANSWER_USUAL, worker.fetch_page(version, window)).await;
                fetched.map_err(|error| error.shared())?;
                self.run.count(|progress| progress.bytes_done += window.len());
                Ok(())
            }
            .boxed()
        });
        let mut fetches = stream::iter(fetches).buffer_unordered(PAGES);
        loop {
            match fetches.try_next().await {
                Ok(Some(())) => {}
                Ok(None) => break,
                Err(Error { kind: ErrorKind::PreconditionFailed | ErrorKind::NotFound, .. }) => return Ok(Step::Again),
                Err(error) => return Err(error),
            }
        }
        let present = worker.store.peek(&Worker::store_key(path));
        let is_whole = present.is_some_and(|object| object.cached_bytes() == object.size());
        Ok(if is_whole { Step::Done } else { Step::Again })
    }
}
