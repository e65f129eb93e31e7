//! What outlives the processes of a run: time, chance, the trace of all that happened, and what clients saw.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_env::random::SeededRandom;
use forebay_env::{Background, Env, Random};
use parking_lot::Mutex;

use crate::clock::SimClock;
use crate::content::SharedContents;
use crate::history::History;
use crate::rules::Rules;

/// Lines of the trace that are kept: the last ones.
const LINES_MAX: usize = 20_000;

/// FNV-1a (Fowler, Noll, Vo): short texts, and no attacker.
struct TraceHash(u64);

impl Write for TraceHash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Ok(())
    }
}

struct Trace {
    hash: TraceHash,
    lines: Option<Vec<String>>,
}

pub(crate) struct World {
    pub(crate) clock: Arc<SimClock>,
    /// Decides on latencies and on what fails.
    random: SeededRandom,
    /// What the product gets.
    product_random: Arc<SeededRandom>,
    pub(crate) contents: SharedContents,
    pub(crate) history: Mutex<History>,
    pub(crate) rules: Mutex<Rules>,
    /// All keys of the plan, as `bucket/key`.
    pub(crate) keys: BTreeSet<String>,
    trace: Mutex<Trace>,
    broken: Mutex<Option<String>>,
    /// Whether anything still fails or is slow.
    pub(crate) calm: AtomicBool,
    /// Whether there are objects in the end that never go to the under store: their bytes stay pinned.
    pub(crate) has_transient: AtomicBool,
    /// Whether bytes at rest were damaged.
    pub(crate) flipped: AtomicBool,
    /// Whether reads of a disk have failed: what can't be read counts as damaged, for that once.
    pub(crate) unreadable: AtomicBool,
    /// Whether a directory is gone for good: what only it held is missing.
    pub(crate) lost: AtomicBool,
    /// How often all disks of a machine were lost. What is only acknowledged with copies at others is not.
    pub(crate) replaced: AtomicUsize,
    /// A store was so full that reclaim gave segments back.
    pub(crate) reclaimed: AtomicBool,
    /// Whether that was after an end that was not clean: older versions may be back, and what was deleted.
    pub(crate) reverted: AtomicBool,
    /// Whether a sector can't be read any more: its segment stays where it is.
    pub(crate) spoiled: AtomicBool,
    /// Whether several machines share the keys: of objects that never go to the under store, one has the bytes.
    pub(crate) is_shared: bool,
    /// Within which a request without an answer may still be carried out.
    pub(crate) settle: Duration,
}

impl World {
    pub(crate) fn new(
        seed: u64,
        keys: BTreeSet<String>,
        is_shared: bool,
        settle: Duration,
        keeps_lines: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::new(SimClock::new()),
            random: SeededRandom::new(seed ^ 0x5eed_0001),
            product_random: Arc::new(SeededRandom::new(seed ^ 0x5eed_0002)),
            contents: Arc::default(),
            history: Mutex::default(),
            rules: Mutex::default(),
            keys,
            is_shared,
            trace: Mutex::new(Trace { hash: TraceHash(0xcbf2_9ce4_8422_2325), lines: keeps_lines.then(Vec::new) }),
            broken: Mutex::default(),
            calm: AtomicBool::new(false),
            has_transient: AtomicBool::new(false),
            flipped: AtomicBool::new(false),
            unreadable: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            replaced: AtomicUsize::new(0),
            reclaimed: AtomicBool::new(false),
            reverted: AtomicBool::new(false),
            spoiled: AtomicBool::new(false),
            settle,
        })
    }

    pub(crate) fn env(&self) -> Env {
        Env {
            clock: Arc::<SimClock>::clone(&self.clock),
            random: Arc::<SeededRandom>::clone(&self.product_random),
            background: Background::default(),
        }
    }

    /// Uniform in `0..bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// True once in `times`.
    pub(crate) fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub(crate) fn is_flipped(&self) -> bool {
        self.flipped.load(Ordering::Relaxed)
    }

    /// Adds a line to the trace.
    pub(crate) fn note(&self, text: fmt::Arguments<'_>) {
        let now = self.clock.now();
        let mut trace = self.trace.lock();
        let Trace { hash, lines } = &mut *trace;
        // Writing to a number does not fail.
        let _ = write!(hash, "{} {text}", now.as_nanos());
        if let Some(lines) = lines {
            lines.push(format!("{:12.6} {text}", now.as_secs_f64()));
            if lines.len() > 2 * LINES_MAX {
                lines.drain(..LINES_MAX);
            }
        }
    }

    /// Notes that a promise does not hold. The first one counts.
    pub(crate) fn broken(&self, what: String) {
        self.note(format_args!("BROKEN: {what}"));
        self.broken.lock().get_or_insert(what);
    }

    pub(crate) fn what_is_broken(&self) -> Option<String> {
        self.broken.lock().clone()
    }

    /// Of all that has happened.
    pub(crate) fn hash(&self) -> u64 {
        self.trace.lock().hash.0 ^ self.clock.hash()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.trace.lock().lines.clone().unwrap_or_default()
    }
}
