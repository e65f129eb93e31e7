//! SIGTERM and SIGINT end the process, SIGHUP reopens log files.

use forebay_env::Task;
use forebay_logs::Logs;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The exit code after a second signal: 128 and the number of SIGTERM, as shells count.
const EXIT_AT_ONCE: i32 = 143;

/// Reopens the log files at every SIGHUP, until the task is ended.
pub(crate) fn reopen_at_hangup(logs: Logs) -> Result<Task<()>, Failure> {
    let mut hangup = signal(SignalKind::hangup()).map_err(|e| Failure::of("signal handler", &e))?;
    Ok(forebay_env::spawn(async move {
        while hangup.recv().await.is_some() {
            logs.reopen();
        }
    }))
}

pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on these signals no longer end the process by themselves.
    pub(crate) fn install() -> Result<Self, Failure> {
        let install = |kind| signal(kind).map_err(|e| Failure::of("signal handler", &e));
        Ok(Self { terminate: install(SignalKind::terminate())?, interrupt: install(SignalKind::interrupt())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Ends the process at the next signal. What was acknowledged is on disk already, so nothing is lost: the next
    /// start has a little more to replay.
    pub(crate) async fn exit_at_next(mut self) -> ! {
        self.next().await;
        tracing::warn!("second signal: ending at once");
        std::process::exit(EXIT_AT_ONCE)
    }
}
