//! The read cache: what the under store has, looked up, kept page by page, and believed for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_env::sync::Mutex;
use forebay_env::{Env, HashState};
use forebay_store::Object;
use forebay_types::{ETag, Generation, ObjectPath, PathPolicy, WriteMode};
use forebay_ufs::{ByteStream, RemoteObject, UnderStore};
use futures::future::{BoxFuture, Shared};
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::fair_share::{Tenant, TenantPlace, TenantPlaces, TenantShares};
use crate::{Error, Result};

/// Objects whose last validation is remembered; about 32 bytes each.
const VALIDATIONS_MAX: usize = 1 << 20;

/// Sequential readers that are followed from request to request.
const READERS_MAX: usize = 16_384;

/// Pages of one bucket on their way from under stores at once, and less than twice as many of all: with pages of 1 MiB they take 120 MiB of
/// memory at most.
const PAGES_MAX: u64 = 64;

/// What is smaller than this part of a page counts as much.
const PAGE_PARTS: u64 = 4;

type QuickCache<V> = Cache<u64, V, UnitWeighter, HashState>;

pub(super) type Flight = Shared<BoxFuture<'static, Result<Bytes, Arc<Error>>>>;

/// What is remembered of under-store objects, and the fetches under way.
pub(crate) struct Remote {
    env: Env,
    /// When a generation was last known to be what the under store has.
    valid: QuickCache<Duration>,
    /// Where the last range request of an object ended.
    pub(super) readers: QuickCache<u64>,
    pub(super) flights: Mutex<HashMap<(Generation, u64), Flight>>,
    /// Bytes on their way.
    fetches: Arc<TenantPlaces>,
    page_bytes: u64,
}

/// An object of the under store, as far as it is known here.
pub(crate) enum Known {
    /// A clean copy, whole or in part, that is what the under store has.
    Copy(Object),
    /// Not kept here.
    Remote(Box<RemoteObject>),
    Absent,
}

/// A whole object as the under store sends it.
pub(crate) enum WholeBody {
    /// All of it, sound.
    Here(Bytes),
    OnItsWay(ByteStream),
}

/// What an object is looked up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    /// To have it on disk: nobody has asked for it yet, so that it has no place in memory.
    Load,
}

/// A version of an object of the under store, to read pages of.
#[derive(Clone)]
pub(crate) struct Version {
    pub(crate) path: ObjectPath,
    /// Of the longest policy rule that holds: reads are counted by it.
    pub(crate) rule: Arc<str>,
    /// What was here when the reader came: it stays readable when the key has been written anew in the meantime.
    pub(crate) opened: Object,
    pub(crate) generation: Generation,
    pub(crate) size: u64,
    /// What clients see.
    pub(crate) etag: ETag,
    pub(crate) remote_etag: ETag,
    pub(crate) under_store: Arc<dyn UnderStore>,
}

fn remembering<V: Clone>(items: usize, hasher: &HashState) -> QuickCache<V> {
    Cache::with(items, items as u64, UnitWeighter, hasher.clone(), DefaultLifecycle::default())
}

impl Remote {
    pub(crate) fn new(env: Env, hasher: &HashState, page_bytes: u64) -> Self {
        Self {
            env,
            valid: remembering(VALIDATIONS_MAX, hasher),
            readers: remembering(READERS_MAX, hasher),
            flights: Mutex::default(),
            fetches: TenantPlaces::new(TenantShares::new(PAGES_MAX * page_bytes)),
            page_bytes,
        }
    }

    pub(crate) fn mark_valid(&self, generation: Generation) {
        self.valid.insert(generation.0, self.env.clock.monotonic());
    }

    pub(crate) fn is_valid(&self, generation: Generation, ttl: Duration) -> bool {
        let now = self.env.clock.monotonic();
        self.valid.get(&generation.0).is_some_and(|at| now.saturating_sub(at) < ttl)
    }

    /// A place for bytes of a bucket that are on their way.
    pub(super) async fn place(&self, tenant: &Tenant, bytes: u64) -> TenantPlace {
        self.fetches.take(tenant, bytes.clamp(self.page_bytes / PAGE_PARTS, self.page_bytes)).await
    }

    /// What is here is not what the under store has.
    pub(super) fn invalidate(&self, generation: Generation) {
        self.valid.remove(&generation.0);
    }
}

/// Whether what is read under a policy stays here.
pub(crate) fn keeps_reads(policy: &PathPolicy) -> bool {
    policy.cache_reads && policy.write_mode != WriteMode::NoCache
}
