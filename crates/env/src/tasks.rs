//! Tasks.

use std::future::Future;

/// A running task. Dropping the handle lets the task run on.
pub struct Task<T> {
    handle: tokio::task::JoinHandle<T>,
}

/// Starts a task on the runtime that this is called in.
#[expect(clippy::disallowed_methods, reason = "this is the replacement that the lint names")]
pub fn spawn<F>(future: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Task { handle: tokio::spawn(future) }
}

impl<T> Task<T> {
    /// Waits for the end of the task; a panic in it goes on here.
    pub async fn join(self) -> T {
        match self.handle.await {
            Ok(value) => value,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Ends the task at its next await.
    pub fn abort(&self) {
        self.handle.abort();
    }

    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }
}
