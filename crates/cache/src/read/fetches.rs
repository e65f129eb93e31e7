//! Pages in flight from under stores, and the readers for whom the next ones are prefetched.

use std::sync::Arc;

use bytes::Bytes;
use forebay_env::HashState;
use forebay_types::Generation;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::Error;
use crate::fair_share::{Tenant, TenantPermit, TenantPermits, TenantShares};
use crate::metrics::Tier;
use crate::read::single_flight::SingleFlight;

/// Sequential readers that are tracked between requests.
const READERS_MAX: usize = 16_384;

/// Pages of one bucket in flight from under stores at once. All buckets together have less than twice as many. With
/// pages of 1 MiB they take at most 120 MiB of memory.
const PAGES_MAX: u64 = 64;

/// A fetch counts as at least one part in this many of a page.
const PAGE_PARTS: u64 = 4;

/// A page by the generation of its object and its first byte.
pub(super) type PageId = (Generation, u64);

/// A page that was not here.
#[derive(Clone)]
pub(crate) struct Page {
    pub(super) data: Bytes,
    /// Where it came from.
    pub(super) tier: Tier,
}

pub(crate) type FetchedPage = Result<Page, Arc<Error>>;

pub(crate) struct Fetches {
    /// Where the last range request of an object ended, by generation.
    pub(super) readers: Cache<u64, u64, UnitWeighter, HashState>,
    pub(super) pages: Arc<SingleFlight<PageId, FetchedPage>>,
    bytes: Arc<TenantPermits>,
    page_bytes: u64,
}

impl Fetches {
    pub(crate) fn new(hasher: &HashState, page_bytes: u64) -> Self {
        let (items, hasher) = (READERS_MAX, hasher.clone());
        Self {
            readers: Cache::with(items, items as u64, UnitWeighter, hasher, DefaultLifecycle::default()),
            pages: SingleFlight::new(),
            bytes: TenantPermits::new(TenantShares::new(PAGES_MAX * page_bytes)),
            page_bytes,
        }
    }

    /// Waits until the bucket's share of fetches in flight has room.
    pub(crate) async fn permit(&self, tenant: &Tenant, bytes: u64) -> TenantPermit {
        self.bytes.take(tenant, bytes.clamp(self.page_bytes / PAGE_PARTS, self.page_bytes)).await
    }
}
