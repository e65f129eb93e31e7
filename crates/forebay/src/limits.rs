//! What the process asks of the operating system before it does anything else.

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

/// Files of this process are nobody else's, and it may open as many as the administrator allows: the usual soft limit
/// of 1,024 is there for `select`, which nothing here uses.
pub(crate) fn prepare_process() {
    umask(Mode::RWXG | Mode::RWXO);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, ?current, ?maximum, "limit of open files not raised");
    }
}
