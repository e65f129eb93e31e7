//! Fill records that the tables do not show yet.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicU64, Ordering};

/// The sequences of fills that are being written, or are written but not applied yet.
///
/// A snapshot notes them: of the fills that began before it, a replay takes only these. The others are in the tables,
/// or were there and have been dropped since, and must not come back.
#[derive(Default)]
pub(crate) struct Fills {
    unapplied: Mutex<BTreeSet<u64>>,
}

/// Registers a fill until the tables show it.
pub(crate) struct UnappliedFill {
    fills: Arc<Fills>,
    pub(crate) sequence: u64,
}

impl Fills {
    /// Takes the next sequence for a fill.
    pub(crate) fn begin(self: &Arc<Self>, next_sequence: &AtomicU64) -> UnappliedFill {
        let mut unapplied = self.unapplied.lock();
        let sequence = next_sequence.fetch_add(1, Ordering::SeqCst);
        unapplied.insert(sequence);
        UnappliedFill { fills: Arc::clone(self), sequence }
    }

    /// The lowest sequence that a fill in flight may have.
    pub(crate) fn lowest(&self, next_sequence: &AtomicU64) -> u64 {
        let unapplied = self.unapplied.lock();
        unapplied.first().copied().unwrap_or_else(|| next_sequence.load(Ordering::SeqCst))
    }

    /// The next sequence, and the lower ones that are not applied.
    pub(crate) fn unapplied(&self, next_sequence: &AtomicU64) -> (u64, Vec<u64>) {
        let unapplied = self.unapplied.lock();
        (next_sequence.load(Ordering::SeqCst), unapplied.iter().copied().collect())
    }
}

impl Drop for UnappliedFill {
    fn drop(&mut self) {
        self.fills.unapplied.lock().remove(&self.sequence);
    }
}
