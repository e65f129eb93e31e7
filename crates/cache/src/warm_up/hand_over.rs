//! Hot data of a worker that is leaving: the new homes of its slots take it over before anybody reads it again.
//!
//! A worker that is drained stops when nobody needs it. Without this, what is cached there would be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_catalog::SlotSet;
use forebay_types::ByteRange;
use futures::StreamExt;
use futures::stream::{self, FuturesUnordered};

use super::HotObject;
use crate::read::pages::pages_of;
use crate::read::remote::{Purpose, Version, keeps_reads_of};
use crate::worker::Worker;
use crate::{OtherWorkers, Result};

/// For so long the worker that is leaving is kept waiting. In this time a network of 10 Gbit/s brings 30 GB.
const HAND_OVER_MAX: Duration = Duration::from_secs(30);

/// Objects that are taken over at once. The rest of what a worker may fetch at once is for clients.
const CONCURRENCY: usize = 8;

/// Before a worker is asked again that has not answered.
const PAUSE: Duration = Duration::from_millis(200);

/// How often it is asked for one object.
const TRIES: usize = 3;

impl Worker {
    /// The workers that are leaving, and from which this one still takes over what is read often. Begins with that
    /// where it has not begun: a worker that leaves asks for this first.
    pub(crate) fn takes_over_from(&self, open: &SlotSet) -> BTreeSet<String> {
        let Some(others) = &self.others else { return BTreeSet::new() };
        let mut of_workers = BTreeMap::<String, SlotSet>::new();
        for slot in open.iter() {
            if let Some(former) = self.former_home_of(u64::from(slot.0)) {
                of_workers.entry(former).or_insert_with(|| SlotSet::none(open.count())).insert(slot);
            }
        }
        of_workers.retain(|former, _| others.is_leaving(former));
        self.home.hand_overs.note(of_workers);
        self.home.hand_overs.from()
    }

    /// Ends when the worker stops.
    pub(crate) async fn hand_over_loop(self: Arc<Self>, others: Arc<dyn OtherWorkers>) {
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                Some(()) = running.next() => {}
                () = self.home.hand_overs.noted() => {
                    let begun = self.home.hand_overs.begin();
                    running.extend(begun.into_iter().map(|(former, slots)| self.hand_over(&others, former, slots)));
                }
            }
        }
    }

    async fn hand_over(self: &Arc<Self>, others: &Arc<dyn OtherWorkers>, former: String, slots: SlotSet) {
        let (began, taken) = (self.env.clock.monotonic(), AtomicUsize::new(0));
        let ended = tokio::select! {
            biased;
            ended = self.take_hot_objects(others.as_ref(), &former, &slots, &taken) => ended,
            () = self.env.clock.sleep(HAND_OVER_MAX) => Err("it takes too long".to_owned()),
        };
        let (took, objects) = (self.env.clock.monotonic().saturating_sub(began), taken.into_inner());
        match ended {
            Ok(()) => tracing::info!(former, objects, ?took, "took over the hot objects of a worker that leaves"),
            Err(problem) => {
                tracing::warn!(
                    former,
                    objects,
                    ?took,
                    problem,
                    "took over only some hot objects of a worker that leaves"
                );
            }
        }
        self.home.hand_overs.end(&former);
    }

    /// # Errors
    /// Why not all of them could be taken over.
    async fn take_hot_objects(
        self: &Arc<Self>,
        others: &dyn OtherWorkers,
        former: &str,
        slots: &SlotSet,
        taken: &AtomicUsize,
    ) -> std::result::Result<(), String> {
        let hot = others.hot_objects(former, slots).await.map_err(|error| error.to_string())?;
        let mut takes = stream::iter(hot)
            .map(|hot| async move { self.take_hot_object_with_retries(others, former, &hot).await })
            .buffer_unordered(CONCURRENCY);
        while let Some(is_taken) = takes.next().await {
            taken.fetch_add(usize::from(is_taken), Ordering::Relaxed);
        }
        match others.workers().iter().any(|worker| worker == former) {
            true => Ok(()),
            false => Err("it has stopped".to_owned()),
        }
    }

    /// Also from a worker that answers late now and then.
    async fn take_hot_object_with_retries(
        self: &Arc<Self>,
        others: &dyn OtherWorkers,
        former: &str,
        hot: &HotObject,
    ) -> bool {
        for _ in 0..TRIES {
            while !self.home.gained.may_ask(former) {
                if !others.workers().iter().any(|worker| worker == former) {
                    return false;
                }
                self.env.clock.sleep(PAUSE).await;
            }
            match self.take_hot_object(hot).await {
                // It has not answered.
                Ok(false) if !self.home.gained.may_ask(former) => {}
                Ok(is_taken) => return is_taken,
                Err(error) => {
                    tracing::debug!(path = %hot.path, %error, "not taken over");
                    return false;
                }
            }
        }
        false
    }

    /// Whether all that the former home has of the object is here.
    async fn take_hot_object(self: &Arc<Self>, hot: &HotObject) -> Result<bool> {
        let HotObject { path, cached } = hot;
        let policy = self.policies.resolve(path);
        // Somebody has written it since.
        if self.current(path).await?.record.is_some() {
            return Ok(false);
        }
        let copy = match self.store.peek(&Self::store_key(path)) {
            Some(copy) => copy,
            None => {
                // A client that wants it, too, waits for this.
                let (Some(flight), _) = self.home.lookups.begin(path) else { return Ok(false) };
                let copy = self.take_over_copy(path, &policy, true, Purpose::Load).await;
                let Some(copy) = copy else { return Ok(false) };
                flight.end(());
                // What was read twice is kept by all orders of eviction but FIFO.
                (0..2).for_each(|_| drop(self.store.get(&Self::store_key(path))));
                copy
            }
        };
        if copy.is_whole() || !keeps_reads_of(&policy, copy.size()) {
            return Ok(copy.is_whole());
        }
        let mount = self.buckets.mount(&path.bucket).await?;
        let version = Version::of(path, &policy, &mount, copy)?;
        let page_size = self.settings.page_size.0;
        let mut has_all = true;
        for window in cached.iter().flat_map(|range| pages_of(*range, page_size)) {
            let is_page = window.len() == page_size || window.end == version.size;
            if window.end > version.size || !is_page || self.has_all(&version, window) {
                continue;
            }
            let _permit = self.fetches.permit(&self.buckets.tenant(&path.bucket), window.len()).await;
            match self.page_of_former_home(&version, window).await {
                Some(page) => self.fill(&version, window, &page).await,
                None => has_all = false,
            }
        }
        Ok(has_all)
    }
}

/// Ranges without gaps between those that touch.
pub(super) fn joined(ranges: impl IntoIterator<Item = ByteRange>) -> Vec<ByteRange> {
    let mut joined = Vec::<ByteRange>::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}
