//! How long clean copies are used without asking the under store.

use std::time::Duration;

use forebay_env::{Env, HashState};
use forebay_types::Generation;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

/// Objects whose last validation is remembered, at about 32 bytes each.
const VALIDATIONS_MAX: usize = 1 << 20;

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
    validated: Cache<u64, Moment, UnitWeighter, HashState>,
}

impl Validity {
    pub(crate) fn new(env: Env, hasher: &HashState) -> Self {
        let (items, hasher) = (VALIDATIONS_MAX, hasher.clone());
        let validated = Cache::with(items, items as u64, UnitWeighter, hasher, DefaultLifecycle::default());
        Self { env, validated }
    }

    pub(crate) fn mark_valid(&self, generation: Generation) {
        self.mark_valid_at(generation, self.now());
    }

    fn now(&self) -> Moment {
        Moment::of(self.env.clock.monotonic())
    }

    /// The copy is known to have matched the under store at this time. Answers may come in another order than their
    /// questions: what is known of a later time stays.
    pub(crate) fn mark_valid_at(&self, generation: Generation, at: Moment) {
        if self.validated.peek(&generation.0).is_none_or(|known| known < at) {
            self.validated.insert(generation.0, at);
        }
    }

    pub(crate) fn is_valid(&self, generation: Generation, ttl: Duration) -> bool {
        self.age(generation).is_some_and(|age| age < ttl)
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
    }
}
