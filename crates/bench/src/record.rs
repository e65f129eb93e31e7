//! The measurements of a load.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::s3::{Kind, Sample};

/// Latencies above an hour count as an hour.
const LATENCY_MAX_NS: u64 = 3600 * 1_000_000_000;
/// Latencies are kept to three digits.
const DIGITS: u8 = 3;
/// Most points in time of a chart: nobody would see more, and memory is bounded.
const SLOTS_MAX: usize = 100_000;

/// Samples of one kind of operation.
pub(crate) struct Counted {
    /// In nanoseconds, of successful operations.
    pub(crate) latency: Histogram<u64>,
    /// In nanoseconds, until the first byte of the answer.
    pub(crate) first_byte: Histogram<u64>,
    pub(crate) bytes: u64,
    pub(crate) objects: u64,
    /// By code.
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Default for Counted {
    fn default() -> Self {
        let histogram = || Histogram::new_with_max(LATENCY_MAX_NS, DIGITS).expect("the bounds are valid");
        Self { latency: histogram(), first_byte: histogram(), bytes: 0, objects: 0, errors: BTreeMap::new() }
    }
}

impl Counted {
    fn add(&mut self, sample: Sample) {
        if let Some(code) = sample.error {
            *self.errors.entry(code).or_default() += 1;
            return;
        }
        self.latency.saturating_record(nanoseconds(sample.end, sample.begin));
        if let Some(first_byte) = sample.first_byte {
            self.first_byte.saturating_record(nanoseconds(first_byte, sample.begin));
        }
        self.bytes += sample.bytes;
        self.objects += sample.objects;
    }

    fn merge(&mut self, other: Self) {
        self.latency.add(other.latency).expect("all histograms have the same bounds");
        self.first_byte.add(other.first_byte).expect("all histograms have the same bounds");
        self.bytes += other.bytes;
        self.objects += other.objects;
        other.errors.into_iter().for_each(|(code, count)| *self.errors.entry(code).or_default() += count);
    }
}

fn nanoseconds(end: Duration, begin: Duration) -> u64 {
    u64::try_from(end.saturating_sub(begin).as_nanos()).unwrap_or(u64::MAX)
}

/// What ended within one slot of time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Slot {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
}

/// Which samples count: those that end from `from` on and before `until`, by the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) from: Duration,
    pub(crate) until: Option<Duration>,
    /// Length of a [`Slot`].
    pub(crate) slot: Duration,
}

/// Samples of a load.
pub(crate) struct Recorded {
    window: Window,
    pub(crate) kinds: BTreeMap<Kind, Counted>,
    pub(crate) slots: Vec<Slot>,
}

impl Recorded {
    pub(crate) fn new(window: Window) -> Self {
        Self { window, kinds: BTreeMap::new(), slots: Vec::new() }
    }

    pub(crate) fn add(&mut self, sample: Sample) {
        if sample.end < self.window.from || self.window.until.is_some_and(|until| sample.end >= until) {
            return;
        }
        // The bytes of parts are those of their upload, and count when it ends.
        if sample.kind != Kind::Part {
            self.add_to_slot(&sample);
        }
        self.kinds.entry(sample.kind).or_default().add(sample);
    }

    fn add_to_slot(&mut self, sample: &Sample) {
        let since = (sample.end - self.window.from).as_nanos();
        let index = usize::try_from(since / self.window.slot.as_nanos()).unwrap_or(usize::MAX);
        if index >= SLOTS_MAX {
            return;
        }
        if self.slots.len() <= index {
            self.slots.resize(index + 1, Slot::default());
        }
        let slot = &mut self.slots[index];
        if sample.error.is_some() {
            slot.errors += 1;
        } else {
            slot.operations += 1;
            slot.bytes += sample.bytes;
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        other.kinds.into_iter().for_each(|(kind, counted)| self.kinds.entry(kind).or_default().merge(counted));
        if self.slots.len() < other.slots.len() {
            self.slots.resize(other.slots.len(), Slot::default());
        }
        for (slot, more) in self.slots.iter_mut().zip(other.slots) {
            slot.operations += more.operations;
            slot.bytes += more.bytes;
            slot.errors += more.errors;
        }
    }

    /// Successful operations. Parts of multipart uploads do not count, because they are included in their uploads.
    pub(crate) fn operations(&self) -> u64 {
        let whole = self.kinds.iter().filter(|(kind, _)| **kind != Kind::Part);
        whole.map(|(_, counted)| counted.latency.len()).sum()
    }

    /// Failed operations, counted in the same way.
    pub(crate) fn failures(&self) -> u64 {
        let whole = self.kinds.iter().filter(|(kind, _)| **kind != Kind::Part);
        whole.flat_map(|(_, counted)| counted.errors.values()).sum()
    }

    /// Bytes of objects that the server took.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.bytes_of(&[Kind::Put, Kind::Multipart])
    }

    /// Bytes of objects that the server sent.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_of(&[Kind::Get])
    }

    fn bytes_of(&self, kinds: &[Kind]) -> u64 {
        kinds.iter().filter_map(|kind| self.kinds.get(kind)).map(|counted| counted.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(kind: Kind, begin_ms: u64, end_ms: u64, error: Option<&str>) -> Sample {
        let [begin, end] = [begin_ms, end_ms].map(Duration::from_millis);
        Sample { kind, begin, end, first_byte: Some(begin), bytes: 10, objects: 1, error: error.map(str::to_owned) }
    }

    fn window(from_ms: u64, until_ms: Option<u64>) -> Window {
        let slot = Duration::from_millis(100);
        Window { from: Duration::from_millis(from_ms), until: until_ms.map(Duration::from_millis), slot }
    }

    #[test]
    fn samples_count_by_kind_by_error_and_by_time() {
        let mut one = Recorded::new(window(1000, Some(2000)));
        one.add(sample(Kind::Get, 900, 999, None));
        one.add(sample(Kind::Get, 990, 1050, None));
        one.add(sample(Kind::Get, 1000, 1150, Some("SlowDown")));
        one.add(sample(Kind::Get, 1900, 2000, None));
        let mut other = Recorded::new(window(1000, Some(2000)));
        other.add(sample(Kind::Part, 1000, 1001, None));
        other.add(sample(Kind::Multipart, 1000, 1210, None));
        other.add(sample(Kind::Get, 1000, 1250, None));
        one.merge(other);
        let get = &one.kinds[&Kind::Get];
        assert_eq!((get.latency.len(), get.bytes, get.errors["SlowDown"]), (2, 20, 1));
        assert_eq!(get.latency.max() / 1_000_000, 250);
        assert_eq!((one.operations(), one.failures(), one.bytes_written(), one.bytes_read()), (3, 1, 10, 20));
        let slots: Vec<_> = one.slots.iter().map(|slot| (slot.operations, slot.errors)).collect();
        assert_eq!(slots, [(1, 0), (0, 1), (2, 0)]);
    }

    #[test]
    fn latencies_keep_three_digits_from_microseconds_to_an_hour() {
        let mut counted = Counted::default();
        for (latency, expected) in [(1_234, 1_234), (1_234_567, 1_234_567), (LATENCY_MAX_NS * 2, LATENCY_MAX_NS)] {
            let end = Duration::from_nanos(latency);
            counted.add(Sample { end, begin: Duration::ZERO, ..sample(Kind::Put, 0, 0, None) });
            let error = counted.latency.max().abs_diff(expected);
            assert!(error * 1000 <= expected, "{latency}: {}", counted.latency.max());
        }
    }
}
