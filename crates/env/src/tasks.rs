//! Tasks.

use std::future::Future;

#[cfg(not(feature = "schedules"))]
use tokio::task::JoinHandle;

#[cfg(feature = "schedules")]
use shuttle::future::JoinHandle;

#[cfg(not(feature = "schedules"))]
use crate::{Process, Requester};

/// A running task. When the handle is dropped, the task continues.
pub struct Task<T> {
    handle: JoinHandle<T>,
}

/// Starts a task on the current runtime. It works for the same requester as the current task, and belongs to the same
/// simulated process if there is one.
#[cfg(not(feature = "schedules"))]
#[expect(clippy::disallowed_methods, reason = "this is the replacement that the lint names")]
pub fn spawn<F>(future: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let handle = match (Requester::present(), Process::present()) {
        (Requester::NOBODY, None) => tokio::spawn(future),
        (requester, None) => tokio::spawn(requester.gets(future)),
        (requester, Some(process)) => process.spawn(requester.gets(future)),
    };
    Task { handle }
}

/// Starts a task in the current run of shuttle, where each task is a thread.
#[cfg(feature = "schedules")]
pub fn spawn<F>(future: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Task { handle: shuttle::future::spawn(future) }
}

/// Where work runs that no client waits for: on a runtime of its own if there is one, otherwise among all other tasks.
#[derive(Clone, Default)]
pub struct Background {
    runtime: Option<tokio::runtime::Handle>,
}

impl Background {
    /// On the threads of another runtime, which must outlive its tasks.
    pub fn on(runtime: &tokio::runtime::Handle) -> Self {
        Self { runtime: Some(runtime.clone()) }
    }

    /// Starts a task there. What that task spawns runs there, too.
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match &self.runtime {
            #[cfg(not(feature = "schedules"))]
            Some(runtime) => Task { handle: runtime.spawn(future) },
            // Runs of shuttle have no other threads.
            _ => spawn(future),
        }
    }
}

impl Background {
    /// Runs a blocking call on a thread there.
    pub fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        match &self.runtime {
            Some(runtime) => runtime.spawn_blocking(work),
            None => tokio::task::spawn_blocking(work),
        }
    }
}

impl<T> Task<T> {
    /// Waits for the end of the task. A panic in it continues here.
    #[cfg(not(feature = "schedules"))]
    pub async fn join(self) -> T {
        match self.handle.await {
            Ok(value) => value,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Waits for the end of the task. A panic in it has ended the run.
    #[cfg(feature = "schedules")]
    pub async fn join(self) -> T {
        match self.handle.await {
            Ok(value) => value,
            Err(_) => std::future::pending().await,
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
