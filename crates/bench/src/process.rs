//! What a server uses of its machine, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// The usage of a process and all its descendants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// User and system time, including that of children that have ended.
    pub(crate) cpu: Duration,
    /// The sum of the peaks (`VmHWM`), in bytes.
    pub(crate) memory_peak: u64,
    /// Bytes handed to storage (`write_bytes`).
    pub(crate) written: u64,
    /// Bytes fetched from storage (`read_bytes`).
    pub(crate) read: u64,
}

/// Reads what a process has used so far.
///
/// # Errors
/// One line that names the process, when it does not exist or may not be inspected.
pub(crate) fn usage(pid: u32) -> Result<Usage, String> {
    let parents = parents().map_err(|error| format!("/proc: {error}"))?;
    let mut usage = one(pid)?;
    for child in parents.keys().copied().filter(|child| descends(*child, pid, &parents)) {
        // It may have ended meanwhile. Its time is then included in that of its parent.
        let Ok(more) = one(child) else { continue };
        usage.cpu += more.cpu;
        usage.memory_peak += more.memory_peak;
        usage.written += more.written;
        usage.read += more.read;
    }
    Ok(usage)
}

/// All processes with their parents.
fn parents() -> std::io::Result<BTreeMap<u32, u32>> {
    let pids = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(pids.filter_map(|pid: u32| Some((pid, stat(pid).ok()?.parent))).collect())
}

fn descends(child: u32, ancestor: u32, parents: &BTreeMap<u32, u32>) -> bool {
    let mut next = child;
    // A chain of parents is shorter than the number of processes, unless one has ended and its number was reused.
    for _ in 0..parents.len() {
        match parents.get(&next) {
            Some(parent) if *parent == ancestor => return true,
            Some(parent) => next = *parent,
            None => return false,
        }
    }
    false
}

struct Stat {
    parent: u32,
    ticks: u64,
}

fn stat(pid: u32) -> Result<Stat, String> {
    let text = read(pid, "stat")?;
    // The name, in parentheses, may contain anything.
    let fields: Vec<&str> = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let field = |number: usize| -> Option<u64> { fields.get(number)?.parse().ok() };
    // proc(5): state is field 3, ppid 4, utime to cstime 14 to 17.
    let parsed = || Some(Stat { parent: field(1)? as u32, ticks: field(11)? + field(12)? + field(13)? + field(14)? });
    parsed().ok_or_else(|| format!("/proc/{pid}/stat is not as expected"))
}

fn one(pid: u32) -> Result<Usage, String> {
    let status = read(pid, "status")?;
    let io = read(pid, "io")?;
    let ticks = Duration::from_secs_f64(stat(pid)?.ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
    Ok(Usage {
        cpu: ticks,
        memory_peak: labelled(&status, "VmHWM:").unwrap_or_default() * 1024,
        written: labelled(&io, "write_bytes:").unwrap_or_default(),
        read: labelled(&io, "read_bytes:").unwrap_or_default(),
    })
}

fn labelled(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_whitespace().next()?.parse().ok()
}

fn read(pid: u32, name: &str) -> Result<String, String> {
    fs::read_to_string(format!("/proc/{pid}/{name}")).map_err(|error| format!("/proc/{pid}/{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_counts_with_its_children() {
        let own = usage(std::process::id()).unwrap();
        assert!(own.memory_peak > 1 << 20, "{own:?}");
        let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let child = Killed(child);
        let parents = parents().unwrap();
        assert!(descends(child.0.id(), std::process::id(), &parents));
        assert!(!descends(std::process::id(), child.0.id(), &parents));
        assert!(usage(child.0.id()).unwrap().memory_peak > 0);
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let error = usage(u32::MAX).unwrap_err();
        assert!(error.contains(&u32::MAX.to_string()), "{error}");
    }

    #[test]
    fn processor_time_grows_with_work() {
        let before = usage(std::process::id()).unwrap().cpu;
        let mut value = 1_u64;
        while usage(std::process::id()).unwrap().cpu < before + Duration::from_millis(30) {
            value = std::hint::black_box((0..100_000).fold(value, |value, number| value.wrapping_mul(31) + number));
        }
    }
}
