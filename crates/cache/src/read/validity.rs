//! How long clean copies are used without asking the under store.

use std::time::Duration;

use forebay_env::{Env, HashState};
use forebay_types::Generation;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

/// Objects whose last validation is remembered, at about 32 bytes each.
const VALIDATIONS_MAX: usize = 1 << 20;

/// When each copy was last known to match the under store, by generation.
pub(crate) struct Validity {
    env: Env,
    validated: Cache<u64, Duration, UnitWeighter, HashState>,
}

impl Validity {
    pub(crate) fn new(env: Env, hasher: &HashState) -> Self {
        let (items, hasher) = (VALIDATIONS_MAX, hasher.clone());
        let validated = Cache::with(items, items as u64, UnitWeighter, hasher, DefaultLifecycle::default());
        Self { env, validated }
    }

    pub(crate) fn mark_valid(&self, generation: Generation) {
        self.mark_valid_at(generation, self.env.clock.monotonic());
    }

    /// The copy is known to have matched the under store at this time.
    pub(crate) fn mark_valid_at(&self, generation: Generation, at: Duration) {
        self.validated.insert(generation.0, at);
    }

    pub(crate) fn is_valid(&self, generation: Generation, ttl: Duration) -> bool {
        let now = self.env.clock.monotonic();
        self.validated.get(&generation.0).is_some_and(|at| now.saturating_sub(at) < ttl)
    }

    /// For how long it stays valid.
    pub(crate) fn left(&self, generation: Generation, ttl: Duration) -> Duration {
        let now = self.env.clock.monotonic();
        self.validated.get(&generation.0).map_or(Duration::ZERO, |at| (at + ttl).saturating_sub(now))
    }

    /// The under store now has another version.
    pub(crate) fn invalidate(&self, generation: Generation) {
        self.validated.remove(&generation.0);
    }
}
