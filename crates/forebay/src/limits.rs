//! What the process asks of the operating system before it does anything else.

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask};

/// Files of this process are nobody else's, its memory is neither unless `core_dumps` says so, and it may open as many files as the
/// administrator allows.
pub(crate) fn prepare_process(core_dumps: bool) {
    umask(Mode::RWXG | Mode::RWXO);
    if !core_dumps {
        hide_memory();
    }
    raise_open_files();
}

/// Memory holds secret keys, and what clients keep: it goes to no core file, and no other process of this user reads it or the
/// environment (`ptrace`, `/proc/PID/mem`, `/proc/PID/environ`). The limit alone would not do: where `core_pattern` names a
/// program, the kernel does not look at it.
fn hide_memory() {
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .and_then(|()| setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }));
    if let Err(error) = hidden {
        tracing::warn!(%error, "a crash may leave a core file with secrets in it");
    }
}

/// The usual soft limit of 1,024 is there for `select`, which nothing here uses.
fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, ?current, ?maximum, "limit of open files not raised");
    }
}
