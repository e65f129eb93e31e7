//! Where a listing gets a page of the under store from: an earlier answer that is kept, or the under store. All else
//! that a worker does with kept pages is here as well.

use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::records;
use forebay_types::{BucketName, ObjectPath};
use forebay_ufs::{ListPage, ListRequest, ListedObject, UnderStore};

use crate::list::pages::{KeptPage, PageKey};
use crate::list::positions::{POSITION_AGE_MAX, Position};
use crate::metrics::{PageLabels, PageSource};
use crate::scope::Scope;
use crate::worker::Worker;
use crate::{ListObjects, Result};

/// An answer of the under store, to this request or to an earlier one.
pub(crate) struct ListedPage {
    pub(crate) kept: Arc<KeptPage>,
    pub(crate) is_earlier: bool,
}

impl Worker {
    /// How long the under store's answers are used again.
    fn list_ttl(&self, bucket: &BucketName, prefix: &str) -> Duration {
        // After a start that has lost what was sent before it, requests may change any key.
        if self.home.settle.may_change_any() {
            return Duration::ZERO;
        }
        self.policies.present().0.list_ttl(bucket, prefix).0
    }

    /// A page of the under store. `may_be_earlier`: the answer to an earlier request will do.
    pub(super) async fn page_of(
        &self,
        bucket: &BucketName,
        under_store: &dyn UnderStore,
        request: &ListRequest,
        at: &Position,
        may_be_earlier: bool,
    ) -> Result<ListedPage> {
        let ttl = self.list_ttl(bucket, &request.prefix);
        let key = PageKey::of(bucket, request);
        let mut flight = None;
        if may_be_earlier && !ttl.is_zero() {
            let now = self.env.clock.monotonic();
            if let Some(kept) = self.home.pages.get(&key, request.limit, now, ttl) {
                return Ok(ListedPage { kept: with_usable_token(kept, now), is_earlier: true });
            }
            let (mine, outcome) = self.home.pages.flights.begin(&(key.clone(), request.limit));
            if mine.is_none()
                && let Ok(kept) = outcome.await
            {
                return Ok(ListedPage { kept, is_earlier: true });
            }
            flight = mine;
        }
        let drops = self.home.pages.drops();
        // What it shows must be found then.
        self.drop_absences_below(bucket, &request.prefix);
        let marks = self.begin_page(bucket, &request.prefix, ttl).await;
        let now = self.env.clock.monotonic();
        // Before the number of the last change is taken, so that none is forgotten in between.
        self.home.positions.keep_changes(now + ttl);
        let (since, begun) = match &request.token {
            // Another listing of the under store, after everything that has left the catalog by now.
            None => (self.home.positions.now(), now),
            Some(_) => (at.since, at.begun),
        };
        let page = under_store.list(request).await?;
        // A read may have found a key absent since then, and others may have written it before the answer.
        self.drop_absences_below(bucket, &request.prefix);
        if !page.objects.is_empty() || !page.prefixes.is_empty() {
            self.begin_page(bucket, &request.prefix, Duration::ZERO).await;
        }
        self.metrics.list_pages.get_or_create(&PageLabels { source: PageSource::under_store }).inc();
        let kept = Arc::new(KeptPage { page, limit: request.limit, since, marks, begun, until: begun + ttl });
        if !ttl.is_zero() {
            self.home.pages.keep(key, &kept, drops);
            self.show_kept_pages();
        }
        // Who has come since pages were dropped asks again.
        if let Some(flight) = flight
            && self.home.pages.drops() == drops
        {
            flight.end(Arc::clone(&kept));
        }
        Ok(ListedPage { kept, is_earlier: false })
    }

    /// An object as a page shows it that is kept and younger than `metadata_ttl`, and since when it is known. `None`
    /// when there is no such page, or this worker has changed the object since, or may be changing it.
    pub(crate) fn listed_by_now(&self, path: &ObjectPath, metadata_ttl: Duration) -> Option<(ListedObject, Duration)> {
        if self.home.pages.is_empty() {
            return None;
        }
        let ttl = metadata_ttl.min(self.list_ttl(&path.bucket, path.key.as_str()));
        let (listed, kept) = self.home.pages.find(path, self.env.clock.monotonic(), ttl)?;
        // Of keys at home elsewhere, this worker does not know what changes.
        if !self.home.locks.has(path) {
            return None;
        }
        // In the order of `keys_in_doubt`.
        if self.home.upload_locks.is_held(path) || !self.home.settle.wait(path).is_zero() {
            return None;
        }
        let from = records::object_key(path);
        let changes = self.home.positions.changes(&from, &records::successor(&from), kept.since)?;
        changes.is_empty().then_some((listed, kept.begun))
    }

    /// A page without a request to the under store was used.
    pub(super) fn count_kept_page(&self) {
        self.metrics.avoided_lists.inc();
        self.metrics.list_pages.get_or_create(&PageLabels { source: PageSource::cache }).inc();
    }

    fn show_kept_pages(&self) {
        self.metrics.list_cache_bytes.set(self.home.pages.bytes() as i64);
    }

    pub(crate) fn drop_old_pages(&self) {
        self.home.pages.drop_old(self.env.clock.monotonic());
        self.show_kept_pages();
    }

    /// What was listed below a path, or found to be absent, is asked for again.
    pub(crate) fn drop_pages_in(&self, scope: &Scope) {
        self.home.pages.drop_in(scope);
        self.home.negative_cache.drop_in(scope);
        self.show_kept_pages();
    }

    /// The under store is about to be asked for a listing, or has answered one.
    pub(super) fn drop_absences_below(&self, bucket: &BucketName, prefix: &str) {
        self.home.negative_cache.drop_in(&Scope { bucket: Some(bucket.clone()), prefix: prefix.to_owned() });
    }

    /// The bucket is deleted or created: what was listed is another one's.
    pub(crate) fn forget_listings_of(&self, bucket: &BucketName) {
        self.home.positions.forget(bucket);
        self.drop_pages_in(&Scope { bucket: Some(bucket.clone()), prefix: String::new() });
    }

    /// Other workers may have changed any key.
    pub(crate) fn forget_listings(&self) {
        self.home.positions.forget_all();
        self.home.pages.drop_all();
        self.show_kept_pages();
    }
}

/// A page without its token if that is too old: an under store that keeps listings for their later pages forgets them.
fn with_usable_token(kept: Arc<KeptPage>, now: Duration) -> Arc<KeptPage> {
    if kept.page.token.is_none() || now.saturating_sub(kept.begun) < POSITION_AGE_MAX {
        return kept;
    }
    let KeptPage { ref page, limit, since, ref marks, begun, until } = *kept;
    let (page, marks) = (ListPage { token: None, ..page.clone() }, marks.clone());
    Arc::new(KeptPage { page, limit, since, marks, begun, until })
}

impl ListObjects {
    /// The under store's page for `at`.
    pub(super) fn remote(&self, start_after: Option<String>, token: Option<String>, limit: usize) -> ListRequest {
        ListRequest { prefix: self.prefix.clone(), delimiter: self.delimiter.clone(), start_after, token, limit }
    }
}
