//! Limits of the process, and memory.

use std::fs;
use std::path::Path;

use super::report::{Report, Unit};
use crate::config::Config;
use crate::{limits, store_settings};

/// Pages on their way from under stores at once, as the cache bounds them.
const PAGES_FETCHED_MAX: u64 = 64;
/// A connection's buffers.
const CONNECTION_BYTES: u64 = 16 << 10;
/// Program, runtime and allocator.
const BASE_BYTES: u64 = 128 << 20;
/// An object's entry in the index with its key, and the bytes of data that one entry stands for: objects are of 1 MiB
/// in the mean.
const INDEX_ENTRY_BYTES: u64 = 300;
const OBJECT_BYTES_MEAN: u64 = 1 << 20;

/// `own`: bytes that are taken by the process which the settings are for. 0 when it does not run yet.
pub(super) fn examine(config: &Config, own: u64, report: &mut Report) {
    let capacity = super::filesystem::capacity_bytes(config);
    open_files(config, capacity, report);
    memory(config, capacity, own, report);
}

fn open_files(config: &Config, capacity: u64, report: &mut Report) {
    let smallest = capacity / config.store.data_dirs.len().max(1) as u64;
    let segments = capacity / store_settings::segment_bytes(&config.store, smallest).max(1);
    let needed = limits::open_files_needed(config, segments);
    let limit = limits::open_files_max();
    if let Some(limit) = limit.filter(|limit| *limit < needed) {
        let (wanted, taken) = (config.server.connections_max, limits::connections_max(config, segments, Some(limit)));
        report.find("open-files-few", "", format!("limit {limit}, needed up to {needed}: {wanted} connections, each with a file or a connection of its own, {segments} segments; {taken} connections are taken"));
    }
}

/// What the settings let the process take.
fn needed_memory(config: &Config, capacity: u64) -> u64 {
    let quotas: u64 = config.policies.iter().filter_map(|rule| rule.memory_quota).map(|quota| quota.0).sum();
    let pages = PAGES_FETCHED_MAX * config.cache.page_size.0;
    let connections = config.server.connections_max as u64 * CONNECTION_BYTES;
    let index = capacity / OBJECT_BYTES_MEAN * INDEX_ENTRY_BYTES;
    config.cache.memory_size.0 + quotas + config.store.write_buffer.0 + pages + connections + index + BASE_BYTES
}

pub(super) fn memory(config: &Config, capacity: u64, own: u64, report: &mut Report) {
    let needed = needed_memory(config, capacity);
    let Some(memory) = Memory::of(Path::new("/")) else { return };
    report.measured("memory", memory.limited_by, memory.total as f64, Unit::Bytes);
    compare(needed, config.cache.memory_size.0, &memory.with(own), report);
}

fn compare(needed: u64, tier: u64, memory: &Memory, report: &mut Report) {
    let [shown, tier] = [needed, tier].map(|bytes| Unit::Bytes.show(bytes as f64));
    if needed > memory.total {
        let has = Unit::Bytes.show(memory.total as f64);
        report.find(
            "memory-missing",
            "",
            format!("up to {shown} (memory tier {tier}); {} has {has}", memory.limited_by),
        );
    } else if needed > memory.available {
        let free = Unit::Bytes.show(memory.available as f64);
        report.find("memory-tight", "", format!("up to {shown} (memory tier {tier}); {free} are free"));
    }
}

#[derive(Debug, PartialEq)]
struct Memory {
    total: u64,
    available: u64,
    limited_by: &'static str,
}

impl Memory {
    /// Of the container where one has a limit below the machine's. `root` is `/` but for tests. `None` where the system
    /// does not tell.
    fn of(root: &Path) -> Option<Self> {
        let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
        let (total, available) = (meminfo(&text, "MemTotal:")?, meminfo(&text, "MemAvailable:")?);
        match container(root) {
            Some((limit, used)) if limit < total => {
                let available = limit.saturating_sub(used).min(available);
                Some(Self { total: limit, available, limited_by: "the container" })
            }
            Some(_) | None => Some(Self { total, available, limited_by: "the machine" }),
        }
    }

    /// What a process may take that has taken some of it already.
    fn with(self, own: u64) -> Self {
        Self { available: self.available.saturating_add(own).min(self.total), ..self }
    }
}

/// What this process has taken of the memory that can be available: not the files that it maps. `root` is `/` but for
/// tests.
pub(super) fn own_bytes(root: &Path) -> u64 {
    let text = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    meminfo(&text, "RssAnon:").or_else(|| meminfo(&text, "VmRSS:")).unwrap_or(0)
}

/// proc_meminfo(5) and proc_pid_status(5): in KiB.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Limit and use of memory of the control group: version 2, else version 1. Pages of files that nobody uses are not in
/// use: the kernel takes them back first. Inside a container its own group is the root of what it sees.
fn container(root: &Path) -> Option<(u64, u64)> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let path_of = |controller: &str| {
        let line = groups
            .lines()
            .find(|line| line.split(':').nth(1).is_some_and(|names| names.split(',').any(|name| name == controller)));
        line.and_then(|line| line.splitn(3, ':').nth(2)).unwrap_or_default().trim_start_matches('/').to_owned()
    };
    let base = root.join("sys/fs/cgroup");
    let number = |path: std::path::PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    for (place, path, limit, used) in [
        (base.clone(), path_of(""), "memory.max", "memory.current"),
        (base.join("memory"), path_of("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ] {
        for group in [place.join(path), place] {
            if let Some(limit) = number(group.join(limit)) {
                let used = number(group.join(used)).unwrap_or(0);
                let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
                return Some((limit, used.saturating_sub(unused_file_bytes(&stat))));
            }
        }
    }
    None
}

/// Of `memory.stat`. That of version 1 has sums with all groups below, as the use has.
fn unused_file_bytes(stat: &str) -> u64 {
    let bytes = |name: &str| {
        let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok();
        stat.lines().find_map(of)
    };
    bytes("total_inactive_file").or_else(|| bytes("inactive_file")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let meminfo = ("proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\n");
        for (path, text) in [meminfo].iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn memory_of(files: &[(&str, &str)]) -> (u64, u64, &'static str) {
        let memory = Memory::of(machine(files).path()).unwrap();
        (memory.total >> 20, memory.available >> 20, memory.limited_by)
    }

    #[test]
    fn memory_is_the_machine_s_unless_a_container_has_less() {
        assert_eq!(memory_of(&[]), (8192, 4096, "the machine"));
        let v2 = [
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/memory.current", "268435456\n"),
        ];
        assert_eq!(memory_of(&v2), (1024, 768, "the container"));
        let unlimited = [("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "max\n")];
        assert_eq!(memory_of(&unlimited), (8192, 4096, "the machine"));
        let files = ("sys/fs/cgroup/memory.stat", "anon 1\nfile 201326592\ninactive_file 134217728\n");
        assert_eq!(memory_of(&[&v2[..], &[files]].concat()), (1024, 896, "the container"));
        let v1 = [
            ("proc/self/cgroup", "4:memory:/pod\n0::/\n"),
            ("sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "2147483648\n"),
        ];
        assert_eq!(memory_of(&v1), (2048, 2048, "the container"));
        let endless = [
            ("proc/self/cgroup", "4:memory:/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(memory_of(&endless), (8192, 4096, "the machine"));
    }

    #[test]
    fn what_a_server_has_filled_itself_is_not_missing() {
        let status = "Name:\tforebay\nVmRSS:\t 3670016 kB\nRssAnon:\t 3145728 kB\n";
        let root = machine(&[("proc/self/status", status)]);
        let found = |own| {
            let memory = Memory::of(root.path()).unwrap().with(own);
            let mut report = Report::default();
            compare(6 << 30, 4 << 30, &memory, &mut report);
            report.findings.iter().map(|finding| finding.id).collect::<Vec<_>>()
        };
        assert_eq!(found(0), ["memory-tight"], "4 GiB are available");
        assert_eq!(own_bytes(root.path()), 3 << 30);
        assert!(found(own_bytes(root.path())).is_empty());
        assert_eq!(found(1 << 30), ["memory-tight"], "others have the rest");
        assert_eq!(Memory::of(root.path()).unwrap().with(u64::MAX).available, 8 << 30);
    }

    #[test]
    fn settings_that_cannot_fit_are_told_with_both_figures() {
        let config = |size: &str| {
            let text = format!("[cache]\nmemory_size = \"{size}\"\n[store]\nsize = \"64 MiB\"\n");
            Config::load(
                Some(("test.toml", &text)),
                &std::collections::BTreeMap::new(),
                &crate::config::Overrides::default(),
            )
            .unwrap()
        };
        let found = |size| {
            let mut report = Report::default();
            memory(&config(size), 64 << 20, 0, &mut report);
            report.findings
        };
        let [finding] = &found("4096 TiB")[..] else { panic!("one finding") };
        assert_eq!(finding.id, "memory-missing");
        assert!(finding.measured.contains("GiB"), "{finding:?}");
        assert!(found("1 MiB").iter().all(|finding| finding.id != "memory-missing"));
    }
}
