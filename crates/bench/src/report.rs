//! Reports of runs.

mod csv;
mod html;
mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

pub(crate) use csv::csv;
pub(crate) use html::html;
pub(crate) use table::table;

use crate::load::Measured;
use crate::process::Usage;
use crate::record::{Counted, Recorded, Slot};

/// Percentiles in the chart.
const CURVE: [f64; 13] = [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 100.0];

/// The whole report, as it is written to a JSON file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) version: &'static str,
    pub(crate) workload: String,
    pub(crate) started_unix_ms: u64,
    /// The options, without secrets.
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) runs: Vec<Run>,
}

/// One workload at one concurrency, in all its rounds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) connections: usize,
    /// Operations per second that were due. Absent in closed loops.
    pub(crate) rate: Option<f64>,
    /// The median of each number over all rounds, sums of errors, and the points in time of the middle round.
    pub(crate) median: Round,
    pub(crate) rounds: Vec<Round>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Round {
    pub(crate) seconds: f64,
    pub(crate) operations_per_second: f64,
    /// By kind of operation.
    pub(crate) operations: BTreeMap<&'static str, Figures>,
    /// Operations of an open loop that were due but have not begun.
    pub(crate) missed: u64,
    /// Processor time of the generator, in microseconds per operation.
    pub(crate) generator_cpu_us: f64,
    pub(crate) server: Option<ServerFigures>,
    pub(crate) slot_seconds: f64,
    pub(crate) slots: Vec<Slot>,
}

/// The figures of one kind of operation.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figures {
    /// Successful operations.
    pub(crate) count: f64,
    pub(crate) operations_per_second: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) objects_per_second: f64,
    /// By error code of S3, or what replaces it.
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) latency_ms: Latency,
    /// Only for operations with a body to wait for.
    pub(crate) first_byte_ms: Option<Latency>,
    /// Percentile and latency in milliseconds.
    pub(crate) curve_ms: Vec<(f64, f64)>,
}

/// In milliseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Latency {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// What the server used.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerFigures {
    /// User and system time, in microseconds per operation.
    pub(crate) cpu_us: f64,
    pub(crate) memory_peak_bytes: f64,
    pub(crate) written_bytes: f64,
    /// Bytes written to storage per byte of objects that the server received.
    pub(crate) write_amplification: Option<f64>,
    /// Bytes read from storage per byte of objects that the server sent.
    pub(crate) read_amplification: Option<f64>,
}

impl Latency {
    /// From a histogram of nanoseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let ms = |percentile| histogram.value_at_percentile(percentile) as f64 / 1e6;
        let mean = histogram.mean() / 1e6;
        Self { mean, p50: ms(50.0), p90: ms(90.0), p99: ms(99.0), p999: ms(99.9), max: histogram.max() as f64 / 1e6 }
    }

    fn median(all: &[Self]) -> Self {
        let of = |field: fn(&Self) -> f64| median(all.iter().map(field));
        Self {
            mean: of(|l| l.mean),
            p50: of(|l| l.p50),
            p90: of(|l| l.p90),
            p99: of(|l| l.p99),
            p999: of(|l| l.p999),
            max: of(|l| l.max),
        }
    }
}

impl Figures {
    fn of(counted: &Counted, seconds: f64) -> Self {
        let count = counted.latency.len() as f64;
        let curve = CURVE.iter().map(|p| (*p, counted.latency.value_at_percentile(*p) as f64 / 1e6));
        Self {
            count,
            operations_per_second: count / seconds,
            bytes_per_second: counted.bytes as f64 / seconds,
            objects_per_second: counted.objects as f64 / seconds,
            errors: counted.errors.clone(),
            latency_ms: Latency::of(&counted.latency),
            first_byte_ms: (!counted.first_byte.is_empty()).then(|| Latency::of(&counted.first_byte)),
            curve_ms: if counted.latency.is_empty() { Vec::new() } else { curve.collect() },
        }
    }

    fn median(all: &[&Self]) -> Self {
        let of = |field: fn(&Self) -> f64| median(all.iter().map(|figures| field(figures)));
        let mut errors = BTreeMap::new();
        for (code, count) in all.iter().flat_map(|figures| &figures.errors) {
            *errors.entry(code.clone()).or_default() += count;
        }
        let first_bytes: Vec<_> = all.iter().filter_map(|figures| figures.first_byte_ms).collect();
        let latencies: Vec<_> = all.iter().map(|figures| figures.latency_ms).collect();
        let points = all.iter().map(|figures| figures.curve_ms.len()).min().unwrap_or_default();
        let point = |index: usize| (CURVE[index], median(all.iter().map(|figures| figures.curve_ms[index].1)));
        Self {
            count: of(|f| f.count),
            operations_per_second: of(|f| f.operations_per_second),
            bytes_per_second: of(|f| f.bytes_per_second),
            objects_per_second: of(|f| f.objects_per_second),
            errors,
            latency_ms: Latency::median(&latencies),
            first_byte_ms: (!first_bytes.is_empty()).then(|| Latency::median(&first_bytes)),
            curve_ms: (0..points).map(point).collect(),
        }
    }

    /// Operations that failed.
    pub(crate) fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

impl Round {
    /// `server` is what the server had used before and after.
    pub(crate) fn new(measured: &Measured, server: Option<(Usage, Usage)>) -> Self {
        let seconds = measured.elapsed.as_secs_f64().max(1e-9);
        let recorded = &measured.recorded;
        let operations = recorded.operations() as f64;
        let kinds = recorded.kinds.iter().map(|(kind, counted)| (kind.name(), Figures::of(counted, seconds)));
        let used = |(before, after)| ServerFigures::of(&before, &after, recorded);
        Self {
            seconds,
            operations_per_second: operations / seconds,
            operations: kinds.collect(),
            missed: measured.missed,
            generator_cpu_us: each(measured.own_cpu, operations),
            server: server.map(used),
            slot_seconds: measured.slot.as_secs_f64(),
            slots: recorded.slots.clone(),
        }
    }

    fn median(rounds: &[Self]) -> Self {
        let of = |field: fn(&Self) -> f64| median(rounds.iter().map(field));
        let names: std::collections::BTreeSet<_> = rounds.iter().flat_map(|round| round.operations.keys()).collect();
        let figures = |name: &'static str| {
            let all: Vec<_> = rounds.iter().filter_map(|round| round.operations.get(name)).collect();
            (name, Figures::median(&all))
        };
        let mut by_rate: Vec<_> = rounds.iter().collect();
        by_rate.sort_by(|a, b| a.operations_per_second.total_cmp(&b.operations_per_second));
        let middle = by_rate[(by_rate.len() - 1) / 2];
        let servers: Vec<_> = rounds.iter().filter_map(|round| round.server).collect();
        Self {
            seconds: of(|r| r.seconds),
            operations_per_second: of(|r| r.operations_per_second),
            operations: names.into_iter().map(|name| figures(name)).collect(),
            missed: rounds.iter().map(|round| round.missed).sum(),
            generator_cpu_us: of(|r| r.generator_cpu_us),
            server: (!servers.is_empty()).then(|| ServerFigures::median(&servers)),
            slot_seconds: middle.slot_seconds,
            slots: middle.slots.clone(),
        }
    }
}

impl ServerFigures {
    fn of(before: &Usage, after: &Usage, recorded: &Recorded) -> Self {
        let written = after.written.saturating_sub(before.written);
        let read = after.read.saturating_sub(before.read);
        let ratio = |storage: u64, bytes: u64| (bytes > 0).then(|| storage as f64 / bytes as f64);
        Self {
            cpu_us: each(after.cpu.saturating_sub(before.cpu), recorded.operations() as f64),
            memory_peak_bytes: after.memory_peak as f64,
            written_bytes: written as f64,
            write_amplification: ratio(written, recorded.bytes_written()),
            read_amplification: ratio(read, recorded.bytes_read()),
        }
    }

    fn median(all: &[Self]) -> Self {
        let of = |field: fn(&Self) -> f64| median(all.iter().map(field));
        let ratio = |field: fn(&Self) -> Option<f64>| {
            let ratios: Vec<_> = all.iter().filter_map(field).collect();
            (!ratios.is_empty()).then(|| median(ratios.into_iter()))
        };
        Self {
            cpu_us: of(|s| s.cpu_us),
            memory_peak_bytes: of(|s| s.memory_peak_bytes),
            written_bytes: of(|s| s.written_bytes),
            write_amplification: ratio(|s| s.write_amplification),
            read_amplification: ratio(|s| s.read_amplification),
        }
    }
}

impl Run {
    /// `rounds` must not be empty.
    pub(crate) fn new(name: String, connections: usize, rate: Option<f64>, rounds: Vec<Round>) -> Self {
        Self { name, connections, rate, median: Round::median(&rounds), rounds }
    }

    /// The name of this run's lines.
    fn label(&self) -> String {
        let rate = self.rate.map(|rate| format!(" at {rate}/s")).unwrap_or_default();
        format!("{} x{}{rate}", self.name, self.connections)
    }
}

impl Report {
    /// Operations that failed in all rounds, including those that are parts of others.
    pub(crate) fn failed(&self) -> u64 {
        let figures = self.runs.iter().flat_map(|run| run.median.operations.values());
        figures.map(Figures::failed).sum()
    }
}

fn each(time: Duration, operations: f64) -> f64 {
    if operations > 0.0 { time.as_secs_f64() * 1e6 / operations } else { 0.0 }
}

/// The middle value, or the mean of the two in the middle. 0 without values.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        length if length % 2 == 1 => values[length / 2],
        length => f64::midpoint(values[length / 2 - 1], values[length / 2]),
    }
}

#[cfg(test)]
pub(crate) mod tests;
