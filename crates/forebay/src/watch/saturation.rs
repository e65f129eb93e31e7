//! When a disk cannot keep up.
//!
//! Busy time alone does not tell: a device that works on many requests at once is busy all the time long before it is
//! at its limit (iostat(1), on `%util`). Slow syncs alone do not either: they may be large. Both together, for a while,
//! do.

use std::time::Duration;

/// Above this share of busy time a disk may be at its limit.
const BUSY: f64 = 0.95;
/// Syncs take this many times what they take while the disk is calm. Queueing makes them several times as slow; twice
/// is within what a busy but healthy disk does.
const SLOW: f64 = 4.0;
/// Both must hold for so long: bursts that a cache is there to take are shorter.
const HOLDS: Duration = Duration::from_secs(30);
/// It ends below this, and not just below [`BUSY`] ...
const BUSY_CLEAR: f64 = 0.8;
/// ... or below this, and not just below [`SLOW`] ...
const SLOW_CLEAR: f64 = 2.0;
/// ... for so long, so that a load at the border does not raise and clear a notice all day.
const CLEARS: Duration = Duration::from_secs(60);
/// Below this share of busy time a disk shows what a sync takes by itself.
const CALM: f64 = 0.5;
/// Weight of the newest calm interval in their mean: about the last twenty count.
const CALM_WEIGHT: f64 = 0.05;
/// Until the disk was calm once: the sync of a healthy solid-state disk, cloud volumes included.
const CALM_SYNC_SECONDS: f64 = 0.005;

/// What was seen of a disk in one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Interval {
    /// Share of the time in which it had work; absent where the system does not report it.
    pub(super) busy: Option<f64>,
    /// Mean time of a write and its sync; absent when there was none.
    pub(super) sync_seconds: Option<f64>,
}

/// The state of one disk.
#[derive(Debug, Default)]
pub(super) struct Saturation {
    calm_sync_seconds: Option<f64>,
    /// Since when the other state looks right.
    turning_since: Option<Duration>,
    saturated: bool,
}

impl Saturation {
    /// Takes an interval that ended at `now`; says whether the disk is saturated.
    pub(super) fn observe(&mut self, now: Duration, interval: Interval) -> bool {
        self.learn(interval);
        let turns = if self.saturated {
            !self.is_over(interval, BUSY_CLEAR, SLOW_CLEAR)
        } else {
            self.is_over(interval, BUSY, SLOW)
        };
        if !turns {
            self.turning_since = None;
            return self.saturated;
        }
        let since = *self.turning_since.get_or_insert(now);
        let needed = if self.saturated { CLEARS } else { HOLDS };
        if now.saturating_sub(since) >= needed {
            self.saturated = !self.saturated;
            self.turning_since = None;
        }
        self.saturated
    }

    /// An interval without syncs, or of unknown busy time, is over no limit.
    fn is_over(&self, interval: Interval, busy: f64, slow: f64) -> bool {
        let is_busy = interval.busy.is_some_and(|share| share > busy);
        is_busy && interval.sync_seconds.is_some_and(|seconds| seconds > slow * self.calm_seconds())
    }

    fn learn(&mut self, interval: Interval) {
        let (Some(busy), Some(seconds)) = (interval.busy, interval.sync_seconds) else { return };
        if busy < CALM {
            let before = self.calm_sync_seconds.unwrap_or(seconds);
            self.calm_sync_seconds = Some(before + (seconds - before) * CALM_WEIGHT);
        }
    }

    fn calm_seconds(&self) -> f64 {
        self.calm_sync_seconds.unwrap_or(CALM_SYNC_SECONDS)
    }

    /// One line with the figures.
    pub(super) fn describe(&self, interval: Interval) -> String {
        let percent = interval.busy.unwrap_or(1.0) * 100.0;
        let calm_ms = self.calm_seconds() * 1000.0;
        match interval.sync_seconds {
            Some(seconds) => format!(
                "the disk cannot keep up: busy {percent:.0} % of the time, a sync takes {:.1} ms instead of {calm_ms:.1} ms",
                seconds * 1000.0
            ),
            None => format!("the disk cannot keep up: busy {percent:.0} % of the time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays intervals of five seconds: how many, busy share, milliseconds of a sync. Returns the state after each
    /// group.
    fn play(saturation: &mut Saturation, at: &mut u64, groups: &[(usize, f64, f64)]) -> Vec<bool> {
        let mut states = Vec::new();
        for (count, busy, sync_ms) in groups {
            let mut state = saturation.saturated;
            for _ in 0..*count {
                *at += 5;
                let interval = Interval { busy: Some(*busy), sync_seconds: Some(sync_ms / 1000.0) };
                state = saturation.observe(Duration::from_secs(*at), interval);
            }
            states.push(state);
        }
        states
    }

    #[test]
    fn a_disk_is_saturated_when_busy_and_slow_for_half_a_minute() {
        let (mut saturation, mut at) = (Saturation::default(), 0);
        // Calm at 1 ms; then busy and five times as slow, for 30 s after the first such interval.
        assert_eq!(
            play(&mut saturation, &mut at, &[(5, 0.1, 1.0), (6, 0.99, 5.0), (1, 0.99, 5.0)]),
            [false, false, true]
        );
    }

    #[test]
    fn neither_busy_alone_nor_slow_alone_nor_a_burst_is_saturation() {
        let (mut saturation, mut at) = (Saturation::default(), 0);
        let groups = [(5, 0.1, 1.0), (50, 1.0, 1.5), (50, 0.6, 20.0), (6, 1.0, 20.0), (1, 0.9, 20.0), (6, 1.0, 20.0)];
        assert_eq!(play(&mut saturation, &mut at, &groups), [false; 6]);
    }

    #[test]
    fn it_ends_a_minute_after_both_limits_are_left_well_behind() {
        let (mut saturation, mut at) = (Saturation::default(), 0);
        // At the border it stays; then it is calm for less than a minute, busy once more, and calm for a minute.
        let groups = [
            (5, 0.1, 1.0),
            (7, 1.0, 9.0),
            (40, 0.9, 3.0),
            (12, 0.3, 1.0),
            (1, 1.0, 9.0),
            (12, 0.3, 1.0),
            (1, 0.3, 1.0),
        ];
        assert_eq!(play(&mut saturation, &mut at, &groups), [false, true, true, true, true, true, false]);
    }

    #[test]
    fn what_the_system_does_not_tell_is_no_saturation() {
        let mut saturation = Saturation::default();
        for second in 0..100 {
            let unknown = Interval { busy: None, sync_seconds: Some(9.0) };
            assert!(!saturation.observe(Duration::from_secs(second), unknown));
        }
    }

    #[test]
    fn the_notice_has_the_figures() {
        let (mut saturation, mut at) = (Saturation::default(), 0);
        play(&mut saturation, &mut at, &[(5, 0.1, 2.0)]);
        let line = saturation.describe(Interval { busy: Some(0.99), sync_seconds: Some(0.0405) });
        assert_eq!(line, "the disk cannot keep up: busy 99 % of the time, a sync takes 40.5 ms instead of 2.0 ms");
    }
}
