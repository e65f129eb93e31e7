//! What the operating system says of the process, under the names that Prometheus clients share, and the build.

use std::fmt;

use forebay_env::Env;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType::{Counter, Gauge};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::encode_number;

pub(crate) struct ProcessMetrics {
    start_seconds: f64,
}

impl ProcessMetrics {
    /// The process counts as started now.
    pub(crate) fn register(registry: &mut Registry, env: &Env) {
        let start_seconds = env.clock.unix_ms() as f64 / 1000.0;
        registry.register_collector(Box::new(Self { start_seconds }));
    }
}

impl fmt::Debug for ProcessMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProcessMetrics")
    }
}

impl Collector for ProcessMetrics {
    #[rustfmt::skip]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let usage = Usage::read();
        let numbers = [
            ("process_start_time_seconds", "Start of the process, in seconds since 1970", Gauge, self.start_seconds),
            ("process_resident_memory_bytes", "Memory of the process that is in RAM", Gauge, usage.resident_bytes),
            ("process_open_fds", "Open file descriptors", Gauge, usage.open_files),
            ("process_max_fds", "Most file descriptors that may be open", Gauge, usage.open_files_max),
            ("process_cpu_seconds", "Processor time used, user and system", Counter, usage.cpu_seconds),
        ];
        for (name, help, kind, value) in numbers {
            encode_number(&mut encoder, name, help, kind, value)?;
        }
        let mut family = encoder.encode_descriptor("forebay_build_info", "Always 1; the version is a label", None, Gauge)?;
        ConstGauge::new(1u32).encode(family.encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?)
    }
}

/// Zero where the operating system does not tell.
#[derive(Default)]
struct Usage {
    resident_bytes: f64,
    open_files: f64,
    open_files_max: f64,
    cpu_seconds: f64,
}

impl Usage {
    fn read() -> Self {
        // Finer than the ticks of `/proc/self/stat`.
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Self {
            resident_bytes: resident_pages().unwrap_or(0) as f64 * rustix::param::page_size() as f64,
            open_files: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as f64,
            open_files_max: limit.current.map_or(f64::INFINITY, |limit| limit as f64),
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
        }
    }
}

/// The second field of `/proc/self/statm`, see proc(5).
fn resident_pages() -> Option<u64> {
    std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()
}
