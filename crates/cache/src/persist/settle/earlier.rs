//! Requests that earlier processes may have sent.
//!
//! A start does not know which requests were in flight when the last process ended. It sends nothing for the keys that
//! it finds until these requests can no longer land. Processes that end earlier than that would wait forever. The
//! catalog therefore records how long they have waited, and the next start waits only for the rest. Generations show
//! which keys a note covers: a start issues higher ones than all starts before it.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::records;
use forebay_types::Generation;
use serde::{Deserialize, Serialize};

/// Starts that are distinguished. With more starts, the last of them wait as long as the one that must wait longest.
const STRETCHES_MAX: usize = 32;

/// A process that lives for less than this part of the settle time records no progress for its successors.
const STEPS: u32 = 16;

/// An entry in the catalog, for generations below `before` that are not below the `before` of the previous entry.
/// Nothing was sent for them for `waited_ms`. If everything that was sent has been answered, `waited_ms` is the whole
/// period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Waited {
    before: Generation,
    waited_ms: u64,
}

/// Keys that were last written, or sent, between two starts.
#[derive(Debug)]
struct Stretch {
    before: Generation,
    /// Time waited before this start.
    waited: Duration,
    /// Hashes of the keys, of which there may be millions. Two keys with the same hash only wait longer than they must.
    keys: HashSet<u64>,
    /// Whether requests may be sent for these keys, or there are none. The catalog then no longer says that nothing was
    /// sent.
    is_over: bool,
}

#[derive(Debug)]
pub(super) struct Earlier {
    /// Start of this process. Earlier processes sent their requests before it.
    began: Duration,
    period: Duration,
    /// In order of time. The last one ends with this start.
    stretches: Vec<Stretch>,
    /// Any key may have a request: the record of it is lost, and perhaps also how long the catalog said to wait.
    is_about_all: bool,
    /// The note in the catalog.
    noted: Option<Bytes>,
}

/// A note to write, and what may be sent after it.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) note: Option<Bytes>,
    /// Whether the catalog contains the note.
    pub(super) is_noted: bool,
    /// Whether the note withdraws an earlier one. Such a note must not be lost.
    pub(super) takes_back: bool,
    /// Pause until the next step.
    pub(super) pause: Duration,
    at: Duration,
}

impl Earlier {
    /// `start` is a generation above all that were issued before. `noted` is the note in the catalog.
    pub(super) fn new(began: Duration, period: Duration, start: Generation, noted: Option<Bytes>) -> Self {
        let waited = noted.as_deref().map_or_else(Vec::new, decode);
        // A repaired counter may have gone back.
        let known = waited.into_iter().filter(|one| one.before < start);
        let stretches = known.chain([Waited { before: start, waited_ms: 0 }]).map(|one| Stretch {
            before: one.before,
            waited: Duration::from_millis(one.waited_ms),
            keys: HashSet::new(),
            is_over: false,
        });
        Self { began, period, stretches: stretches.collect(), is_about_all: false, noted }
    }

    /// A request of this generation may be in flight. `None`: the generation is unknown.
    pub(super) fn mark(&mut self, hash: u64, generation: Option<Generation>) {
        let last = self.stretches.len() - 1;
        let of_generation = |generation| self.stretches.iter().position(|stretch| generation < stretch.before);
        let stretch = generation.and_then(of_generation).unwrap_or(last);
        self.stretches[stretch].keys.insert(hash);
    }

    pub(super) fn mark_all(&mut self) {
        self.is_about_all = true;
    }

    /// When requests may be sent for a key, or `None` if that is now.
    pub(super) fn until(&self, hash: impl FnOnce() -> u64, now: Duration) -> Option<Duration> {
        let all = self.is_about_all(now).then(|| self.all_until());
        if self.stretches.iter().all(|stretch| stretch.is_over) {
            return all;
        }
        let hash = hash();
        let marked = self.stretches.iter().filter(|stretch| !stretch.is_over && stretch.keys.contains(&hash));
        marked.map(|stretch| self.stretch_until(stretch)).chain(all).max()
    }

    fn all_until(&self) -> Duration {
        self.began + self.period
    }

    fn stretch_until(&self, stretch: &Stretch) -> Duration {
        self.began + self.period.saturating_sub(stretch.waited)
    }

    /// Whether requests of earlier processes can no longer land.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.stretches.iter().all(|stretch| stretch.is_over) && !self.is_about_all(now)
    }

    /// Whether any key may have a request that can still land.
    pub(super) fn is_about_all(&self, now: Duration) -> bool {
        self.is_about_all && now < self.all_until()
    }

    /// The note to write now. `None` when everything is over and the catalog says so.
    pub(super) fn step(&self, now: Duration) -> Option<Step> {
        let note = self.note(now, None);
        if self.is_over(now) && note == self.noted {
            return None;
        }
        let ends = self.stretches.iter().map(|stretch| self.stretch_until(stretch)).chain([self.all_until()]);
        let pause = self.period / STEPS;
        Some(Step {
            is_noted: note == self.noted,
            note,
            at: now,
            takes_back: self.stretches.iter().any(|stretch| stretch.is_over_at(now, self.began, self.period)),
            pause: ends.filter(|end| *end > now).min().map_or(pause, |end| pause.min(end - now)),
        })
    }

    /// Allows requests for everything that is over. The note is written first, if possible.
    pub(super) fn done(&mut self, step: Step) {
        let (began, period) = (self.began, self.period);
        for stretch in &mut self.stretches {
            if stretch.is_over_at(step.at, began, period) {
                stretch.is_over = true;
                stretch.keys = HashSet::new();
            }
        }
        if step.is_noted {
            self.noted = step.note;
        }
    }

    /// Whether the whole settle time is over, whatever the catalog says.
    pub(super) fn is_waited_out(&self, now: Duration) -> bool {
        self.all_until() <= now
    }

    /// The note for the catalog. `quiet` is a generation above all that were issued, and is given when no request is in
    /// flight.
    pub(super) fn note(&self, now: Duration, quiet: Option<Generation>) -> Option<Bytes> {
        let waited = self.stretches.iter().map(|stretch| {
            let may_be_sent = stretch.is_over_at(now, self.began, self.period);
            let waited = match (may_be_sent, quiet) {
                (false, _) => stretch.waited + now.saturating_sub(self.began),
                (true, Some(_)) => self.period,
                (true, None) => Duration::ZERO,
            };
            Waited { before: stretch.before, waited_ms: waited.min(self.period).as_millis() as u64 }
        });
        // A version that was written since the start may replace one that still has to wait.
        let is_over = self.stretches.iter().all(|stretch| stretch.is_over_at(now, self.began, self.period));
        let own_waited = if is_over { self.period } else { self.period.min(now.saturating_sub(self.began)) };
        let own = quiet.map(|before| Waited { before, waited_ms: own_waited.as_millis() as u64 });
        encode(waited.chain(own).collect())
    }
}

impl Stretch {
    fn is_over_at(&self, now: Duration, began: Duration, period: Duration) -> bool {
        self.is_over || self.keys.is_empty() || began + period.saturating_sub(self.waited) <= now
    }
}

/// `None` when there is nothing to record.
fn encode(mut waited: Vec<Waited>) -> Option<Bytes> {
    // A last entry without any waiting says nothing, and adjacent entries with the same time are merged.
    while waited.pop_if(|last| last.waited_ms == 0).is_some() {}
    waited.dedup_by(|next, one| {
        let is_same = next.waited_ms == one.waited_ms;
        if is_same {
            one.before = next.before;
        }
        is_same
    });
    while waited.len() > STRETCHES_MAX {
        let last = waited.pop().expect("there are many");
        let one = waited.last_mut().expect("there are many");
        *one = Waited { before: last.before, waited_ms: one.waited_ms.min(last.waited_ms) };
    }
    (!waited.is_empty()).then(|| records::encode_json(&waited))
}

/// If the note cannot be read, the start waits for the whole period.
fn decode(bytes: &[u8]) -> Vec<Waited> {
    records::decode_json("settle time", bytes).unwrap_or_else(|error| {
        tracing::warn!(%error, "the record of the elapsed settle time is damaged: what is dirty waits for the whole cache.settle_time");
        Vec::new()
    })
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(32);

    /// A process, the catalog that outlives it, and a clock.
    struct Bench {
        now: Duration,
        period: Duration,
        generation: u64,
        noted: Option<Bytes>,
        /// What a power cut leaves.
        synced: Option<Bytes>,
        earlier: Earlier,
    }

    impl Bench {
        fn new() -> Self {
            let earlier = Earlier::new(Duration::ZERO, PERIOD, Generation(0), None);
            Self { now: Duration::ZERO, period: PERIOD, generation: 0, noted: None, synced: None, earlier }
        }

        fn next(&mut self) -> Generation {
            self.generation += 1;
            Generation(self.generation)
        }

        /// Finds these records, whose numbers stand for their keys.
        fn start(&mut self, records: &[Generation]) {
            let start = self.next();
            self.earlier = Earlier::new(self.now, self.period, start, self.noted.clone());
            for (key, generation) in records.iter().enumerate() {
                self.earlier.mark(key as u64, Some(*generation));
            }
        }

        fn may_send(&self, key: u64) -> bool {
            self.earlier.until(|| key, self.now).is_none()
        }

        fn step(&mut self) {
            if let Some(mut step) = self.earlier.step(self.now) {
                if !step.is_noted {
                    self.noted.clone_from(&step.note);
                    if step.takes_back {
                        self.synced.clone_from(&step.note);
                    }
                }
                step.is_noted = true;
                self.earlier.done(step);
            }
        }

        fn live(&mut self, seconds: u64) {
            for _ in 0..seconds {
                self.now += Duration::from_secs(1);
                self.step();
            }
        }
    }

    #[test]
    fn short_lives_wait_no_longer_than_a_long_one() {
        let mut bench = Bench::new();
        let old = bench.next();
        for _ in 0..4 {
            bench.start(&[old]);
            bench.live(7);
            assert!(!bench.may_send(0));
        }
        let new = bench.next();
        bench.start(&[old, new]);
        bench.live(3);
        assert!(!bench.may_send(0));
        bench.live(1);
        assert!(bench.may_send(0) && !bench.may_send(1), "32 seconds and 4 are over");
        // It may have been sent.
        bench.start(&[old, new]);
        bench.live(27);
        assert!(!bench.may_send(0) && !bench.may_send(1));
        bench.live(1);
        assert!(!bench.may_send(0) && bench.may_send(1));
        bench.live(4);
        assert!(bench.may_send(0));
        assert_eq!(bench.noted, None);
        assert!(bench.earlier.step(bench.now).is_none(), "nothing is left to do");
    }

    #[test]
    fn after_a_stop_with_all_answers_nobody_waits() {
        let mut bench = Bench::new();
        let old = bench.next();
        bench.start(&[old]);
        bench.live(40);
        let (new, quiet) = (bench.next(), bench.next());
        bench.noted = bench.earlier.note(bench.now, Some(quiet));
        bench.start(&[old, new]);
        assert!(!bench.may_send(0), "before the note is gone");
        bench.step();
        assert!(bench.may_send(0) && bench.may_send(1));
        bench.start(&[old, new]);
        bench.step();
        assert!(!bench.may_send(0) && !bench.may_send(1), "a crash after that");
    }

    #[test]
    fn who_can_note_nothing_waits_for_the_whole_time() {
        let mut bench = Bench::new();
        let old = bench.next();
        bench.start(&[old]);
        bench.live(20);
        bench.start(&[old]);
        bench.now += Duration::from_secs(20);
        assert!(!bench.may_send(0) && !bench.earlier.is_waited_out(bench.now));
        bench.now += Duration::from_secs(12);
        assert!(!bench.may_send(0) && bench.earlier.is_waited_out(bench.now));
        let step = bench.earlier.step(bench.now).unwrap();
        assert!(step.takes_back && !step.is_noted);
        bench.earlier.done(step);
        assert!(bench.may_send(0) && bench.earlier.is_over(bench.now));
        assert!(bench.earlier.step(bench.now).is_some(), "the note is still to go");
    }

    #[test]
    fn a_note_that_cannot_be_read_is_none() {
        for noted in [&b""[..], b"\x01[", b"\x02[]"] {
            let mut earlier = Earlier::new(Duration::ZERO, PERIOD, Generation(9), Some(Bytes::copy_from_slice(noted)));
            earlier.mark(1, Some(Generation(1)));
            assert_eq!(earlier.until(|| 1, Duration::ZERO), Some(PERIOD));
        }
    }

    /// Lives of any length, notes that come late or fail, stops, crashes and power cuts, a period that changes: nothing
    /// is sent before what an earlier process has sent can land no more.
    #[test]
    fn nothing_is_sent_too_early() {
        let (env, _) = Env::simulated(11);
        let below = |bound: u64| env.random.below(bound);
        let (mut sent_at_all, mut sent_after_waiting) = (0, 0);
        for _ in 0..400 {
            let mut bench = Bench::new();
            // Since when each key waits, as its record has it.
            let mut dirty_since: Vec<_> = (0..4).map(|_| bench.next()).collect();
            // What an earlier process has sent, and what this one has.
            let mut earlier_sent = [None; 4];
            let mut sent = [None; 4];
            for _ in 0..60 {
                if below(10) == 0 {
                    bench.period = PERIOD / (1 + below(2) as u32);
                }
                bench.start(&dirty_since);
                for _ in 0..below(40) {
                    bench.now += Duration::from_millis(below(3_000));
                    let key = below(4) as usize;
                    match below(8) {
                        // It was answered, and the key is written again; or a write of another mode starts afresh.
                        0 => {
                            if bench.may_send(key as u64) {
                                (sent[key], earlier_sent[key]) = (None, None);
                            }
                            dirty_since[key] = bench.next();
                        }
                        1..4 if bench.may_send(key as u64) => {
                            let has_landed = earlier_sent[key].is_none_or(|at| at + bench.period <= bench.now);
                            assert!(has_landed, "{key} at {:?}, sent {earlier_sent:?}", bench.now);
                            (sent[key], sent_at_all) = (Some(bench.now), sent_at_all + 1);
                            sent_after_waiting += u64::from(earlier_sent[key].take().is_some());
                        }
                        // A note that fails.
                        4 => {}
                        _ => bench.step(),
                    }
                }
                match below(8) {
                    0 => {
                        sent = [None; 4];
                        let quiet = bench.next();
                        bench.noted = bench.earlier.note(bench.now, Some(quiet));
                        bench.synced.clone_from(&bench.noted);
                    }
                    1 | 2 => bench.noted.clone_from(&bench.synced),
                    _ => {}
                }
                // What a start finds is synced before it is relied on.
                bench.synced.clone_from(&bench.noted);
                for key in 0..4 {
                    earlier_sent[key] = earlier_sent[key].max(sent[key].take());
                }
            }
        }
        assert!(sent_at_all > 10_000 && sent_after_waiting > 3_000, "{sent_at_all}, {sent_after_waiting}");
    }
}
