//! How long clean copies are used without asking the under store.
//!
//! A clean stop notes what is known, and the next start takes it over for writes: what others have written since is in
//! conflict with them. Reads ask once after each start. After a crash nothing is taken over, because an older copy may
//! be back that had been replaced. A note is therefore of use only to the start after the process that wrote it, and
//! only if that process has closed the store after the note. In a cluster, another home may have written in between.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::records::KNOWN_COPIES_KEY;
use forebay_catalog::{Catalog, Transaction};
use forebay_env::sync::Mutex;
use forebay_env::{Env, HashState};
use forebay_store::{SEQUENCES_OF_A_LIFE, ValueWrite};
use forebay_types::Generation;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::Result;

/// Objects whose last validation is remembered, at about 32 bytes each.
const VALIDATIONS_MAX: usize = 1 << 20;

/// Validations that outlast a clean stop: the latest ones, at 16 bytes each.
const NOTED_MAX: usize = 1 << 14;

/// The first generations of two starts are further apart when there was another start in between.
const STARTS_APART_MAX: u64 = SEQUENCES_OF_A_LIFE + SEQUENCES_OF_A_LIFE / 2;

/// What moments count from: long before the clock's zero, at the start of the process.
const BEFORE_START: Duration = Duration::from_secs(1 << 32);

/// A time at which the under store had some version. It may be before the start of this process, when another worker
/// has told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// A time of this process's clock.
    pub(crate) fn of(monotonic: Duration) -> Self {
        Self(BEFORE_START + monotonic)
    }

    pub(crate) fn minus(self, ago: Duration) -> Self {
        Self(self.0.saturating_sub(ago))
    }
}

/// When each copy was last known to match the under store, by generation.
pub(crate) struct Validity {
    env: Env,
    /// The first generation of this process.
    start: Generation,
    validated: Cache<u64, Moment, UnitWeighter, HashState>,
    /// The same of the process before, for writes.
    before_start: Mutex<BTreeMap<u64, Moment>>,
}

impl Validity {
    fn new(env: Env, hasher: &HashState, start: Generation) -> Self {
        let (items, hasher) = (VALIDATIONS_MAX, hasher.clone());
        let validated = Cache::with(items, items as u64, UnitWeighter, hasher, DefaultLifecycle::default());
        Self { env, start, validated, before_start: Mutex::default() }
    }

    /// With what the process before has noted. `start` is the first generation of this process, and `was_closed` is
    /// that of [`Store::was_closed`](forebay_store::Store::was_closed).
    ///
    /// # Errors
    /// Whatever the catalog answers.
    pub(crate) async fn load(
        env: Env,
        hasher: &HashState,
        catalog: &dyn Catalog,
        start: Generation,
        was_closed: bool,
    ) -> Result<Self> {
        let validity = Self::new(env, hasher, start);
        if catalog.worker().is_some() {
            return Ok(validity);
        }
        let Some(noted) = catalog.get(KNOWN_COPIES_KEY).await? else { return Ok(validity) };
        // It holds for this start only.
        match catalog.commit(note(None)).await {
            Ok(_) if was_closed => *validity.before_start.lock() = validity.decoded(&noted.value),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "what was known before the start could not be taken over"),
        }
        Ok(validity)
    }

    /// Notes what is known, for the next start. Called at a stop, when nothing changes any more.
    ///
    /// # Errors
    /// Whatever the catalog answers.
    pub(crate) async fn note(&self, catalog: &dyn Catalog) -> Result<()> {
        if catalog.worker().is_none() {
            catalog.commit(note(Some(self.encoded()))).await?;
        }
        Ok(())
    }

    /// The start, and then generations and times by the wall clock, the latest first.
    fn encoded(&self) -> Bytes {
        let (now, now_ms) = (self.now(), self.env.clock.unix_ms());
        let mut known: Vec<(Moment, u64)> = self.validated.iter().map(|(generation, at)| (at, generation)).collect();
        known.extend(self.before_start.lock().iter().map(|(generation, at)| (*at, *generation)));
        known.sort_unstable();
        let entry = |(at, generation): &(Moment, u64)| {
            let ago = now.0.saturating_sub(at.0).as_millis() as u64;
            [*generation, now_ms.saturating_sub(ago)].map(u64::to_be_bytes).concat()
        };
        let entries = known.iter().rev().take(NOTED_MAX).flat_map(entry);
        self.start.0.to_be_bytes().into_iter().chain(entries).collect()
    }

    /// Nothing, when a note could not be removed by the start that it was for: a full disk refuses that, too.
    fn decoded(&self, noted: &[u8]) -> BTreeMap<u64, Moment> {
        let (now, now_ms) = (self.now(), self.env.clock.unix_ms());
        let (numbers, _) = noted.as_chunks::<8>();
        let mut known = BTreeMap::new();
        let Some((start, numbers)) = numbers.split_first() else { return known };
        let apart = self.start.0.checked_sub(u64::from_be_bytes(*start));
        if apart.is_none_or(|apart| apart > STARTS_APART_MAX) {
            return known;
        }
        for pair in numbers.chunks_exact(2) {
            let [generation, at_ms] = [pair[0], pair[1]].map(u64::from_be_bytes);
            // A clock that was set back tells nothing.
            if let Some(ago) = now_ms.checked_sub(at_ms) {
                known.entry(generation).or_insert(now.minus(Duration::from_millis(ago)));
            }
        }
        known
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::of(self.env.clock.monotonic())
    }

    /// The copy is known to have matched the under store at this time. Answers may come in another order than their
    /// questions: what is known of a later time stays.
    pub(crate) fn mark_valid_at(&self, generation: Generation, at: Moment) {
        if self.validated.peek(&generation.0).is_none_or(|known| known < at) {
            self.validated.insert(generation.0, at);
        }
    }

    /// When the copy was last known to match.
    pub(crate) fn at(&self, generation: Generation) -> Option<Moment> {
        self.validated.peek(&generation.0)
    }

    pub(crate) fn is_valid(&self, generation: Generation, ttl: Duration) -> bool {
        self.age(generation).is_some_and(|age| age < ttl)
    }

    /// Whether it was known to match this lately, be it before the start.
    pub(crate) fn was_valid(&self, generation: Generation, ttl: Duration) -> bool {
        let before = self.before_start.lock().get(&generation.0).copied();
        let age = before.map(|at| self.now().0.saturating_sub(at.0));
        self.is_valid(generation, ttl) || age.is_some_and(|age| age < ttl)
    }

    /// For how long it stays valid.
    pub(crate) fn left(&self, generation: Generation, ttl: Duration) -> Duration {
        self.age(generation).map_or(Duration::ZERO, |age| ttl.saturating_sub(age))
    }

    /// How long ago it was last known to match.
    pub(crate) fn age(&self, generation: Generation) -> Option<Duration> {
        let now = self.now();
        self.validated.get(&generation.0).map(|at| now.0.saturating_sub(at.0))
    }

    /// The under store now has another version.
    pub(crate) fn invalidate(&self, generation: Generation) {
        self.validated.remove(&generation.0);
        self.before_start.lock().remove(&generation.0);
    }
}

fn note(value: Option<Bytes>) -> Transaction {
    let writes = vec![ValueWrite { key: Bytes::from_static(KNOWN_COPIES_KEY), value }];
    Transaction { writes, ..Transaction::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Of the first start, the second one, and so on.
    fn validity(env: &Env, start: u64) -> Validity {
        let first = Generation(start * SEQUENCES_OF_A_LIFE + 3);
        Validity::new(env.clone(), &HashState::new(env.random.as_ref()), first)
    }

    #[test]
    fn what_is_noted_ages_and_the_latest_is_noted_first() {
        let (env, clock) = Env::simulated(1);
        let before = validity(&env, 1);
        before.mark_valid_at(Generation(1), before.now());
        clock.advance(MINUTE / 2);
        before.mark_valid_at(Generation(2), before.now());
        clock.advance(MINUTE / 4);
        let noted = before.encoded();
        assert_eq!(noted[8..16], 2_u64.to_be_bytes());
        clock.advance(MINUTE / 4);
        let after = validity(&env, 2);
        *after.before_start.lock() = after.decoded(&noted);
        let known = |number| after.was_valid(Generation(number), MINUTE);
        assert_eq!([1, 2].map(known), [false, true]);
        assert!(!after.is_valid(Generation(2), MINUTE), "reads ask");
        after.invalidate(Generation(2));
        assert!(!after.was_valid(Generation(2), MINUTE));
    }

    #[test]
    fn a_note_is_for_the_next_start_alone() {
        let (env, _) = Env::simulated(1);
        let before = validity(&env, 7);
        before.mark_valid_at(Generation(1), before.now());
        let noted = before.encoded();
        assert_eq!([6, 8, 9].map(|start| validity(&env, start).decoded(&noted).len()), [0, 1, 0]);
        assert!(validity(&env, 8).decoded(b"").is_empty());
    }
}
