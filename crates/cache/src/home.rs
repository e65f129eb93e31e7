//! State that is valid only at a key's home, the one worker that may change the key. It is built when keys are gained,
//! and dropped when they are lost. A single worker is the home of all keys, from its start to its stop.

mod gained;
pub(crate) mod lost;

use std::collections::HashSet;
use std::sync::Arc;

use forebay_catalog::records::{self, ObjectRecord, State, path_hash};
use forebay_catalog::{Catalog, Generations};
use forebay_env::sync::atomic::AtomicU64;
use forebay_env::{Env, HashState};
use forebay_store::Store;
use forebay_types::{BucketName, ObjectPath};

use crate::copies::{DamagedCopies, SentCopies, WantedCopies};
use crate::list::pages::Pages;
use crate::list::positions::Positions;
use crate::locks::{KeyLocks, WriteFence};
use crate::metrics::Metrics;
use crate::missing::Missing;
use crate::multipart::Activity;
use crate::persist::backlog::Backlog;
use crate::persist::refusals::Refusals;
use crate::persist::settle::Settle;
use crate::persist::{Backoff, ConditionalWrites, OddEtags, PersistEvents, Queue};
use crate::read::last_answers::LastAnswers;
use crate::read::negative_cache::NegativeCache;
use crate::read::silent_buckets::SilentBuckets;
use crate::read::single_flight::SingleFlight;
use crate::read::stale_records::StaleRecords;
use crate::read::validity::Validity;
use crate::read_leases::GrantedLeases;
use crate::warm_up::{GainedSlots, HandOvers};
use crate::write::write_times::WriteTimes;
use crate::{Result, Settings};

pub(crate) struct Home {
    /// Held while the catalog's record of a key is changed.
    pub(crate) locks: Arc<KeyLocks>,
    /// Held while a request for a key to the under store is in flight. Taken before `locks`.
    pub(crate) upload_locks: Arc<KeyLocks>,
    /// Held while a part of a multipart upload is committed.
    pub(crate) part_locks: Arc<KeyLocks>,
    /// Taken before the upload lock by persists that are not part of a client's request. Closed first, so that clients
    /// are served while long uploads end.
    pub(crate) persist_locks: Arc<KeyLocks>,
    pub(crate) fence: WriteFence,
    /// Reads that ask the under store for a key without a copy.
    pub(crate) lookups: Arc<SingleFlight<ObjectPath, ()>>,
    pub(crate) validity: Validity,
    pub(crate) last_answers: LastAnswers,
    pub(crate) silent_buckets: SilentBuckets,
    /// Keys that the under store does not have.
    pub(crate) negative_cache: NegativeCache,
    /// Slots whose objects are taken over from the homes before.
    pub(crate) gained: GainedSlots,
    /// Of those, slots of workers that are leaving.
    pub(crate) hand_overs: HandOvers,
    pub(crate) positions: Positions,
    /// Pages of under stores' listings.
    pub(crate) pages: Pages,
    pub(crate) write_times: WriteTimes,
    pub(crate) activity: Activity,
    pub(crate) queue: Queue,
    pub(crate) backlog: Backlog,
    pub(crate) settle: Settle,
    pub(crate) refusals: Refusals,
    pub(crate) persist_events: PersistEvents,
    pub(crate) odd_etags: OddEtags,
    pub(crate) conditional_writes: ConditionalWrites,
    pub(crate) stale_records: StaleRecords,
    pub(crate) missing: Missing,
    /// Bytes of keys at home here that are still at other workers.
    pub(crate) copies: WantedCopies,
    /// Of these, bytes that are here and damaged.
    pub(crate) damaged: DamagedCopies,
    /// What other workers may read without asking.
    pub(crate) granted: GrantedLeases,
    /// Copies of writes at other workers.
    pub(crate) sent: Arc<SentCopies>,
    /// How often slots were lost.
    pub(crate) losses: AtomicU64,
    /// How often copies were freed.
    pub(crate) frees: AtomicU64,
}

/// The hash of the path that a part belongs to. Part locks use the upload ID and the part number, like the keys of part
/// records.
fn part_hash(part: &ObjectPath) -> u64 {
    let upload_id = part.key.as_str().split('/').next().unwrap_or_default();
    records::upload_hash(upload_id)
}

/// Whether a version waits for the under store.
fn waits(record: Option<&ObjectRecord>) -> bool {
    record.is_some_and(|record| matches!(record.state, State::Dirty | State::Tombstone))
}

/// The components of which a home is built.
pub(crate) struct Ground<'a> {
    pub(crate) env: &'a Env,
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) catalog: &'a Arc<dyn Catalog>,
    pub(crate) generations: &'a dyn Generations,
    pub(crate) metrics: &'a Metrics,
    pub(crate) hasher: &'a HashState,
    /// Buckets with their own under store.
    pub(crate) mounted: HashSet<BucketName>,
}

impl Home {
    /// In the order in which they are taken. They are closed in this order, so that a task with the first lock gets the
    /// others, too.
    pub(crate) fn all_locks(&self) -> [&Arc<KeyLocks>; 4] {
        [&self.persist_locks, &self.part_locks, &self.upload_locks, &self.locks]
    }

    /// Creates a home without keys: see `Worker::gain`.
    ///
    /// # Errors
    /// Whatever the catalog answers.
    pub(crate) async fn load(ground: Ground<'_>) -> Result<Self> {
        let Ground { env, settings, store, catalog, generations, metrics, hasher, mounted } = ground;
        let backoff = Backoff { min: settings.persist_backoff_min.0, max: settings.persist_backoff_max.0 };
        let start = generations.next();
        Ok(Self {
            locks: KeyLocks::new(hasher.clone(), path_hash),
            upload_locks: KeyLocks::new(hasher.clone(), path_hash),
            part_locks: KeyLocks::new(hasher.clone(), part_hash),
            persist_locks: KeyLocks::new(hasher.clone(), path_hash),
            fence: WriteFence::new(hasher.clone()),
            lookups: SingleFlight::new(),
            validity: Validity::load(env.clone(), hasher, catalog.as_ref(), start, store.was_closed()).await?,
            last_answers: LastAnswers::default(),
            silent_buckets: SilentBuckets::default(),
            negative_cache: NegativeCache::new(hasher.clone()),
            gained: GainedSlots::new(Arc::clone(&env.clock)),
            hand_overs: HandOvers::default(),
            positions: Positions::new(env.clone()),
            pages: Pages::new(hasher.clone()),
            settle: Settle::load(env.clone(), settings.settle_time.0, catalog.as_ref(), start).await?,
            write_times: WriteTimes::load(env, catalog).await?,
            activity: Activity::new(env.clone()),
            queue: Queue::new(env.clone(), backoff, settings.persist_delay.0, settings.persist_concurrency, mounted),
            backlog: Backlog::default(),
            refusals: Refusals::new(metrics.undeliverable.clone()),
            persist_events: PersistEvents::default(),
            odd_etags: OddEtags::default(),
            conditional_writes: ConditionalWrites::new(start),
            stale_records: StaleRecords::load(catalog.as_ref(), store, generations).await?,
            missing: Missing::default(),
            copies: WantedCopies::new(env.clone()),
            damaged: DamagedCopies::default(),
            granted: GrantedLeases::new(env.clone(), catalog.follows_crash()),
            sent: SentCopies::new(env.clone()),
            losses: AtomicU64::new(0),
            frees: AtomicU64::new(0),
        })
    }

    /// Called after each commit that changes the record of a key, while its lock is held.
    pub(crate) fn changed(
        &self,
        path: &ObjectPath,
        before: Option<&ObjectRecord>,
        after: Option<&ObjectRecord>,
        metrics: &Metrics,
    ) {
        self.backlog.replace(before, after, metrics);
        self.missing.remove(path);
        self.damaged.changed(path, after);
        self.refusals.changed(path, after);
        if waits(before) && !waits(after) {
            self.settle.answered(path);
            self.settle.recorded(path);
        }
    }
}
