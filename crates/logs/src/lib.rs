//! What is recorded about requests: the access log, the audit log, and the spans of traces.
//!
//! Both logs are files of their own, separate from the log on standard error: other people read them, with other tools,
//! and keep them for another time. Requests never wait for them: a line goes into a queue, and a line that does not fit
//! is dropped and counted.

mod access;
mod audit;
mod escape;
mod file;
mod moment;
pub mod spans;
mod writer;

pub use access::{AccessEntry, AccessLog};
pub use audit::{AuditEntry, AuditLog, Source};
pub use escape::redacted;
pub use file::FileSettings;
pub use writer::{LogMetrics, LogWriter};

/// The logs of a worker. Clones share them. The default ones write nothing.
#[derive(Clone, Default)]
pub struct Logs {
    pub access: AccessLog,
    pub audit: AuditLog,
}

impl Logs {
    /// Whether any log is on.
    pub fn are_on(&self) -> bool {
        self.access.is_on() || self.audit.is_on()
    }

    /// Opens the files again, after another program has renamed them.
    pub fn reopen(&self) {
        for writer in self.writers() {
            writer.reopen();
        }
    }

    /// Returns when everything written so far is in the files, or when that takes too long.
    pub async fn flush(&self) {
        for writer in self.writers() {
            writer.flush().await;
        }
    }

    fn writers(&self) -> impl Iterator<Item = &LogWriter> {
        self.access.writer().into_iter().chain(self.audit.writer())
    }
}
