//! Fill records that the tables do not show yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicU64, Ordering};

/// The sequences of fills that are being written, or are written but not applied yet.
///
/// A snapshot notes those that somebody waits for: of the fills that began before it, a replay takes only these. The
/// others are in the tables, or were there and have been dropped since, or were given up: none of them must come back.
#[derive(Default)]
pub(crate) struct Fills {
    unapplied: Mutex<BTreeMap<u64, Awaited>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Yes,
    /// The record may still be written, but nothing will apply it.
    GivenUp,
}

/// Registers a fill until the tables show it.
pub(crate) struct UnappliedFill {
    fills: Arc<Fills>,
    pub(crate) sequence: u64,
}

/// Held by the caller of a fill. Dropped before [`WaitingForFill::ends`], it gives the fill up.
pub(crate) struct WaitingForFill {
    /// None once the wait has ended.
    fills: Option<Arc<Fills>>,
    sequence: u64,
}

impl UnappliedFill {
    pub(crate) fn waiting(&self) -> WaitingForFill {
        WaitingForFill { fills: Some(Arc::clone(&self.fills)), sequence: self.sequence }
    }
}

impl WaitingForFill {
    /// The record is written, and the caller applies it.
    pub(crate) fn ends(mut self) {
        self.fills = None;
    }
}

impl Fills {
    /// Takes the next sequence for a fill.
    pub(crate) fn begin(self: &Arc<Self>, next_sequence: &AtomicU64) -> UnappliedFill {
        let mut unapplied = self.unapplied.lock();
        let sequence = next_sequence.fetch_add(1, Ordering::SeqCst);
        unapplied.insert(sequence, Awaited::Yes);
        UnappliedFill { fills: Arc::clone(self), sequence }
    }

    /// The lowest sequence that a fill in flight may have.
    pub(crate) fn lowest(&self, next_sequence: &AtomicU64) -> u64 {
        let unapplied = self.unapplied.lock();
        let first = unapplied.first_key_value().map(|(sequence, _)| *sequence);
        first.unwrap_or_else(|| next_sequence.load(Ordering::SeqCst))
    }

    /// The next sequence, and the lower ones that are not applied yet but will be.
    pub(crate) fn unapplied(&self, next_sequence: &AtomicU64) -> (u64, Vec<u64>) {
        let unapplied = self.unapplied.lock();
        let awaited = unapplied.iter().filter(|(_, awaited)| **awaited == Awaited::Yes);
        (next_sequence.load(Ordering::SeqCst), awaited.map(|(sequence, _)| *sequence).collect())
    }
}

impl Drop for WaitingForFill {
    fn drop(&mut self) {
        let Some(fills) = &self.fills else { return };
        if let Some(awaited) = fills.unapplied.lock().get_mut(&self.sequence) {
            *awaited = Awaited::GivenUp;
        }
    }
}

impl Drop for UnappliedFill {
    fn drop(&mut self) {
        self.fills.unapplied.lock().remove(&self.sequence);
    }
}
