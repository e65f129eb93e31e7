//! Pages of under stores' listings, kept for the policy's `listTtl`.
//!
//! What is kept is the under store's answer, never a finished listing. Each use overlays it with everything that the
//! homes of keys have changed since ([`super::changes`]) and with the records of the catalog. So writes through Forebay
//! are visible at once, and only what others change in the under store waits for the TTL. A page is not used while a
//! request that may change a key of it is in flight, or may still land: nobody knows then what the under store has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_env::HashState;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_types::{BucketName, ObjectPath};
use forebay_ufs::{ListPage, ListRequest, ListedObject};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::list::positions::ChangeMark;
use crate::read::single_flight::SingleFlight;
use crate::scope::Scope;

/// Bytes of all pages that are kept: those of about a hundred thousand names.
const PAGES_BYTES_MAX: u64 = 32 << 20;

/// Bytes that a page of 100 names takes, to size tables by.
const PAGE_BYTES: u64 = 32 << 10;

/// Bytes that a listed name takes beside its texts.
const NAME_BYTES: u64 = 256;

/// Directories around an object whose listings are looked at for it.
const PARENTS_MAX: usize = 8;

/// What the under store was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PageKey {
    bucket: BucketName,
    prefix: String,
    delimiter: Option<String>,
    start_after: Option<String>,
    token: Option<String>,
}

impl PageKey {
    pub(super) fn of(bucket: &BucketName, request: &ListRequest) -> Self {
        let ListRequest { prefix, delimiter, start_after, token, limit: _ } = request.clone();
        Self { bucket: bucket.clone(), prefix, delimiter, start_after, token }
    }

    fn bytes(&self) -> u64 {
        let texts = [&self.delimiter, &self.start_after, &self.token];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        NAME_BYTES + (self.bucket.as_str().len() + self.prefix.len() + texts) as u64
    }
}

/// An answer of the under store.
pub(crate) struct KeptPage {
    pub(crate) page: ListPage,
    /// The number of names that it was asked for.
    pub(super) limit: usize,
    /// The number of the last change of this worker that it certainly contains.
    pub(crate) since: u64,
    /// The same of the other workers.
    pub(super) marks: BTreeMap<String, ChangeMark>,
    /// When the under store's listing began: the page contains everything that others had changed by then.
    pub(crate) begun: Duration,
    /// Nobody uses it from then on.
    pub(super) until: Duration,
}

impl KeptPage {
    fn bytes(&self) -> u64 {
        let name = |text: &str| NAME_BYTES + text.len() as u64;
        let objects: u64 = self.page.objects.iter().map(|object| name(&object.key)).sum();
        let prefixes: u64 = self.page.prefixes.iter().map(|prefix| name(prefix)).sum();
        objects + prefixes
    }

    /// Whether it has the names that a request for `limit` of them would bring. More of them do no harm.
    fn has(&self, limit: usize) -> bool {
        self.limit >= limit || self.page.next.is_none()
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<PageKey, Arc<KeptPage>> for ByBytes {
    fn weight(&self, key: &PageKey, page: &Arc<KeptPage>) -> u64 {
        key.bytes() + page.bytes()
    }
}

pub(crate) struct Pages {
    kept: Cache<PageKey, Arc<KeptPage>, ByBytes, HashState>,
    pub(super) flights: Arc<SingleFlight<(PageKey, usize), Arc<KeptPage>>>,
    drops: AtomicU64,
}

impl Pages {
    pub(crate) fn new(hasher: HashState) -> Self {
        let items = (PAGES_BYTES_MAX / PAGE_BYTES) as usize;
        // One shard: a large page must fit, and listings are rarer than reads.
        let options = OptionsBuilder::new()
            .shards(1)
            .estimated_items_capacity(items)
            .weight_capacity(PAGES_BYTES_MAX)
            .build()
            .expect("both capacities are given");
        let kept = Cache::with_options(options, ByBytes, hasher, DefaultLifecycle::default());
        Self { kept, flights: SingleFlight::new(), drops: AtomicU64::new(0) }
    }

    pub(super) fn get(&self, key: &PageKey, limit: usize, now: Duration, ttl: Duration) -> Option<Arc<KeptPage>> {
        self.kept.get(key).filter(|kept| kept.has(limit) && now.saturating_sub(kept.begun) < ttl)
    }

    /// An object as the page has it on which a listing of a directory begins, and the page.
    pub(super) fn find(
        &self,
        path: &ObjectPath,
        now: Duration,
        ttl: Duration,
    ) -> Option<(ListedObject, Arc<KeptPage>)> {
        let key = path.key.as_str();
        let ends = key.rmatch_indices('/').map(|(at, _)| at + 1).chain([0]);
        // Clients list the directory itself, or all below one of those around it.
        ends.take(PARENTS_MAX).enumerate().find_map(|(distance, end)| {
            let delimiters: &[Option<&str>] = if distance == 0 { &[Some("/"), None] } else { &[None] };
            delimiters.iter().find_map(|delimiter| {
                let (bucket, prefix) = (path.bucket.clone(), key[..end].to_owned());
                let delimiter = delimiter.map(str::to_owned);
                let kept = self.kept.peek(&PageKey { bucket, prefix, delimiter, start_after: None, token: None })?;
                let is_fresh = now.saturating_sub(kept.begun) < ttl;
                let at = kept.page.objects.binary_search_by(|object| object.key.as_str().cmp(key)).ok()?;
                is_fresh.then(|| (kept.page.objects[at].clone(), kept))
            })
        })
    }

    /// How often pages were dropped because what is listed may be another by now.
    pub(super) fn drops(&self) -> u64 {
        self.drops.load(Ordering::SeqCst)
    }

    /// Keeps the answer to a request, unless pages were dropped since. `drops` is as it was before the request.
    pub(super) fn keep(&self, key: PageKey, page: &Arc<KeptPage>, drops: u64) {
        self.insert(key.clone(), page);
        // After that: a drop that comes later finds the page.
        if self.drops() != drops {
            self.kept.remove(&key);
        }
    }

    fn insert(&self, key: PageKey, page: &Arc<KeptPage>) {
        if self.kept.peek(&key).is_none_or(|kept| kept.begun <= page.begun) {
            self.kept.insert(key, Arc::clone(page));
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.kept.weight()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Drops the pages that nobody uses any more.
    pub(super) fn drop_old(&self, now: Duration) {
        self.kept.retain(|_, page| page.until > now);
    }

    pub(super) fn drop_in(&self, scope: &Scope) {
        // First: see `keep`.
        self.drops.fetch_add(1, Ordering::SeqCst);
        self.kept.retain(|key, _| !scope.meets(&key.bucket, &key.prefix));
    }

    pub(super) fn drop_all(&self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;
    use forebay_types::ETag;

    use super::*;

    fn key(bucket: &str, prefix: &str) -> PageKey {
        let bucket = BucketName::new(bucket).expect("a bucket");
        PageKey { bucket, prefix: prefix.to_owned(), delimiter: None, start_after: None, token: None }
    }

    fn page(names: usize, limit: usize, begun: u64) -> Arc<KeptPage> {
        let object = |n| ListedObject {
            key: format!("{n:04}"),
            size: 1,
            etag: ETag::new("1"),
            remote_etag: ETag::new("1"),
            last_modified_ms: 0,
            storage_class: None,
            checksums: None,
        };
        let next = (names == limit).then(|| "next".to_owned());
        let page = ListPage { objects: (0..names).map(object).collect(), next, ..ListPage::default() };
        let begun = Duration::from_secs(begun);
        let (marks, until) = (BTreeMap::new(), begun + Duration::from_secs(10));
        Arc::new(KeptPage { page, limit, since: 0, marks, begun, until })
    }

    fn pages() -> Pages {
        let (env, _) = Env::simulated(1);
        Pages::new(HashState::new(env.random.as_ref()))
    }

    fn has(pages: &Pages, key: &PageKey, limit: usize, now: u64) -> bool {
        pages.get(key, limit, Duration::from_secs(now), Duration::from_secs(10)).is_some()
    }

    #[test]
    fn a_page_answers_within_its_time_and_for_as_many_names_as_it_may_have() {
        let pages = pages();
        let (cut, whole) = (key("bucket", "cut/"), key("bucket", "whole/"));
        pages.insert(cut.clone(), &page(3, 3, 5));
        pages.insert(whole.clone(), &page(2, 3, 5));
        assert!(has(&pages, &cut, 3, 14) && has(&pages, &cut, 1, 14) && !has(&pages, &cut, 4, 14));
        assert!(has(&pages, &whole, 1000, 14));
        assert!(!has(&pages, &cut, 3, 15) && !has(&pages, &whole, 3, 15));
        pages.insert(cut.clone(), &page(3, 3, 4));
        assert!(has(&pages, &cut, 3, 14), "an older one does not replace it");
    }

    #[test]
    fn pages_are_dropped_with_what_they_show() {
        let kept = |path: &str| {
            let pages = pages();
            let keys = [key("bucket", ""), key("bucket", "dir/"), key("bucket", "dir/x/"), key("other", "dir/")];
            keys.iter().for_each(|key| pages.insert(key.clone(), &page(1, 3, 5)));
            pages.drop_in(&Scope::parse(path).expect("a path"));
            keys.map(|key| has(&pages, &key, 1, 5))
        };
        assert_eq!(kept("/"), [false; 4]);
        assert_eq!(kept("/bucket"), [false, false, false, true]);
        assert_eq!(kept("/bucket/dir/x"), [false, false, false, true]);
        assert_eq!(kept("/bucket/e"), [false, true, true, true]);
        let pages = pages();
        pages.insert(key("bucket", ""), &page(1, 3, 5));
        pages.drop_old(Duration::from_secs(14));
        assert!(pages.bytes() > 0);
        pages.drop_old(Duration::from_secs(15));
        assert_eq!(pages.bytes(), 0);
    }

    #[test]
    fn pages_are_bounded_in_bytes() {
        let pages = pages();
        for n in 0..400 {
            pages.insert(key("bucket", &format!("{n}/")), &page(1000, 1000, 5));
            assert!(pages.bytes() <= PAGES_BYTES_MAX);
        }
        assert!(pages.bytes() > PAGES_BYTES_MAX / 2);
        assert!(has(&pages, &key("bucket", "399/"), 1000, 5));
    }
}
