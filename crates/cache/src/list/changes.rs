//! What has changed in the under store since a page of a listing was requested: at this worker and, in a cluster, at
//! all homes of keys.
//!
//! A page that a worker keeps bears a mark of each home, read before the page was requested: the page contains all that
//! was changed up to it. When the page is used, each home says what has changed since its mark. A home that has gained
//! or lost slots, or has been started again, does not know all of that. The page is not used then.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::SlotSet;
use forebay_catalog::records;
use forebay_types::{BucketName, ObjectPath};
use futures::future::join_all;

use super::homes::check_covered;
use super::pages::KeptPage;
use super::positions::{Change, ChangeMark};
use crate::home::lost::not_all_at_home;
use crate::others::home_changes::{ChangesSince, ChangesWanted, HomeChanges, path_of};
use crate::worker::Worker;
use crate::{Error, ErrorKind, Result};

/// With more changes than this since a page was requested, it is requested again.
pub(super) const CHANGES_MAX: usize = 1000;

/// Changes since a page was requested.
#[derive(Default)]
pub(super) struct Changed {
    /// Keys that a request may still change, at a time that is not known yet.
    pub(super) in_doubt: Vec<ObjectPath>,
    pub(super) changes: Vec<(ObjectPath, Change)>,
}

impl Worker {
    /// Changes of catalog keys in a range. To be asked after the catalog was read: what has left it by now is among
    /// them. `None` when not all of them are known.
    pub(super) async fn changed_since(
        &self,
        bucket: &BucketName,
        range: Range<&Bytes>,
        kept: &KeptPage,
    ) -> Option<Changed> {
        let Some(others) = &self.others else { return self.changed_here(bucket, range, kept.since) };
        let wanted = |since| wanted(bucket, &range, since, Duration::ZERO);
        let own = self.home_changes(&wanted(Some(self.home.positions.mark_at(kept.since))));
        let workers = others.workers();
        let ask = async |worker: &String| others.changes(worker, &wanted(kept.marks.get(worker).copied())).await;
        let answers = join_all(workers.iter().map(ask)).await;
        let answers: Vec<_> = [own].into_iter().chain(answers).flatten().collect();
        check_covered(answers.iter().map(|answer| &answer.slots)).ok()?;
        let mut all = Changed::default();
        for HomeChanges { since, .. } in answers.into_iter().filter(|answer| !answer.slots.is_empty()) {
            let ChangesSince { in_doubt, changed } = since?;
            all.in_doubt.extend(in_doubt.iter().filter_map(|key| path_of(bucket, key)));
            let changed = changed.into_iter().filter_map(|(key, change)| Some((path_of(bucket, &key)?, change)));
            all.changes.extend(changed);
        }
        Some(all)
    }

    /// Tells the other workers that the under store is about to be asked for a page, which is then kept for `ttl`, or
    /// not at all. Returns the present marks of those that answer. They keep changes for as long, and drop what they
    /// know of absent keys below the prefix.
    pub(super) async fn begin_page(
        &self,
        bucket: &BucketName,
        prefix: &str,
        ttl: Duration,
    ) -> BTreeMap<String, ChangeMark> {
        let Some(others) = &self.others else { return BTreeMap::new() };
        let nothing = Bytes::new();
        let wanted = wanted(bucket, &(&nothing..&nothing), None, ttl);
        let wanted = ChangesWanted { listed: Some(prefix.to_owned()), ..wanted };
        let ask = async |worker: String| others.changes(&worker, &wanted).await.map(|answer| (worker, answer.mark));
        join_all(others.workers().into_iter().map(ask)).await.into_iter().flatten().collect()
    }

    /// See [`crate::Cache::home_changes`].
    pub(crate) fn home_changes(&self, wanted: &ChangesWanted) -> Result<HomeChanges> {
        let losses = self.losses();
        let ChangesWanted { bucket, from, to, since, keep_ms, listed } = wanted;
        if let Some(prefix) = listed {
            self.drop_absences_below(bucket, prefix);
        }
        // Before the mark is read, so that no change after it is forgotten.
        self.home.positions.keep_changes(self.env.clock.monotonic() + Duration::from_millis(*keep_ms));
        let slots = self.slots_known()?;
        let mark = self.home.positions.mark();
        let is_known = |since: &&ChangeMark| since.log == mark.log && !self.home.settle.may_change_any();
        let (from, to) = (Bytes::copy_from_slice(from), Bytes::copy_from_slice(to));
        let since = since.as_ref().filter(is_known);
        let since = since.and_then(|since| self.changed_here(bucket, &from..&to, since.number));
        let since = since.filter(|Changed { in_doubt, changes }| in_doubt.len() + changes.len() <= CHANGES_MAX);
        if self.losses() != losses {
            return Err(not_all_at_home());
        }
        let since = since.map(|Changed { in_doubt, changes }| ChangesSince {
            in_doubt: in_doubt.into_iter().map(|path| path.key.as_str().to_owned()).collect(),
            changed: changes.into_iter().map(|(path, change)| (path.key.as_str().to_owned(), change)).collect(),
        });
        Ok(HomeChanges { slots, mark, since })
    }

    /// The slots at home here, without those that are being given up, and without those that are being taken: what
    /// their former home has begun is not known yet.
    fn slots_known(&self) -> Result<SlotSet> {
        let Some(slots) = self.catalog.slots() else {
            return Err(Error::new(ErrorKind::Unavailable, "this worker is in no cluster"));
        };
        Ok(self.home.persist_locks.open_of(&self.home.locks.open_of(&slots)))
    }

    /// What this worker has changed itself. The keys in doubt are read first: a request that ends in between is then
    /// among the changes.
    fn changed_here(&self, bucket: &BucketName, range: Range<&Bytes>, since: u64) -> Option<Changed> {
        let mut in_doubt = self.keys_in_doubt(bucket);
        in_doubt.retain(|path| range.contains(&&records::object_key(path)));
        let changes = self.home.positions.changes(range.start, range.end, since)?;
        Some(Changed { in_doubt, changes })
    }

    /// Keys of a bucket that a request of this worker may change in the under store, at a time that is not known yet.
    fn keys_in_doubt(&self, bucket: &BucketName) -> Vec<ObjectPath> {
        // In this order: a request whose answer is lost is first in flight, and then not settled.
        let mut found = self.home.upload_locks.held_in(bucket);
        found.extend(self.home.settle.unsettled_in(bucket));
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn wanted(bucket: &BucketName, range: &Range<&Bytes>, since: Option<ChangeMark>, keep: Duration) -> ChangesWanted {
    ChangesWanted {
        bucket: bucket.clone(),
        from: range.start.to_vec(),
        to: range.end.to_vec(),
        since,
        keep_ms: keep.as_millis() as u64,
        listed: None,
    }
}
