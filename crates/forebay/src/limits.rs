//! What the process asks of the operating system before it does anything else, and what it makes of the answer.

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask};

use crate::config::Config;

/// Files beside connections and segments: the runtime, logs, listeners, the admin API.
const OTHER_FILES: u64 = 256;

/// A connection, and a file or a connection of its own for its request.
const FILES_PER_CONNECTION: u64 = 2;

/// Connections get at least the limit of open files divided by this, however little is left for them.
const LEAST_SHARE: u64 = 8;

/// Files of this process are nobody else's, its memory is neither unless `core_dumps` says so, and it may open as many
/// files as the administrator allows.
pub(crate) fn prepare_process(core_dumps: bool) {
    umask(Mode::RWXG | Mode::RWXO);
    if !core_dumps {
        hide_memory();
    }
    raise_open_files();
}

/// Memory holds secret keys, and what clients keep: it goes to no core file, and no other process of this user reads it
/// or the environment (`ptrace`, `/proc/PID/mem`, `/proc/PID/environ`). The limit alone would not do: where
/// `core_pattern` names a program, the kernel does not look at it.
fn hide_memory() {
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .and_then(|()| setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }));
    if let Err(error) = hidden {
        tracing::warn!(%error, "core dumps could not be disabled: a crash may leave a core file with secrets in it");
    }
}

/// The usual soft limit of 1,024 is there for `select`, which nothing here uses.
fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, ?current, ?maximum, "the soft limit of open files could not be raised to the hard limit: fewer connections may be accepted");
    }
}

/// The most files that may be open, as far as there is a limit.
pub(crate) fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// The most that the server can raise [`open_files`] to.
pub(crate) fn open_files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// Files that the settings may need when `segments` are on the disks.
pub(crate) fn open_files_needed(config: &Config, segments: u64) -> u64 {
    config.server.connections_max as u64 * FILES_PER_CONNECTION + open_files_beside_connections(config, segments)
}

/// `server.connections_max`, or fewer: connections never take the files that the disks and the under stores need. A
/// file that a request needs for itself it may have to do without: most connections are idle.
pub(crate) fn connections_max(config: &Config, segments: u64, open_files_max: Option<u64>) -> usize {
    let Some(limit) = open_files_max else { return config.server.connections_max };
    let left = limit.saturating_sub(open_files_beside_connections(config, segments));
    let affordable = left.max(limit / LEAST_SHARE).max(1);
    config.server.connections_max.min(usize::try_from(affordable).unwrap_or(usize::MAX))
}

fn open_files_beside_connections(config: &Config, segments: u64) -> u64 {
    let under_stores = u64::from(config.limits.concurrency_max) * (1 + config.mounts.len() as u64);
    segments + under_stores + OTHER_FILES
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Overrides;

    #[test]
    fn connections_leave_files_to_segments_and_under_stores() {
        let text = "[server]\nconnections_max = 1000\n[under_store_limits]\nconcurrency_max = 44\n";
        let config = Config::load(Some(("test.toml", text)), &BTreeMap::new(), &Overrides::default()).unwrap();
        let connections = |limit| connections_max(&config, 700, limit);
        assert_eq!(open_files_needed(&config, 700), 3000);
        assert_eq!(connections(None), 1000);
        assert_eq!(connections(Some(3000)), 1000);
        assert_eq!(connections(Some(2000)), 1000);
        assert_eq!(connections(Some(1500)), 500);
        assert_eq!(connections(Some(1024)), 128, "an eighth");
        assert_eq!(connections(Some(4)), 1);
    }
}
