//! Waiting for something at the server, until the user has enough.

use std::sync::Arc;
use std::time::Duration;

use forebay_env::Env;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// How a pause has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Over,
    /// Ctrl-C or SIGTERM.
    Interrupted,
}

/// Waits and hears signals. A signal during a request is heard at the next pause.
pub(crate) struct Interruptible {
    /// There until the end of life.
    runtime: Option<Runtime>,
    env: Env,
    interrupt: Signal,
    terminate: Signal,
}

impl Interruptible {
    /// From now on Ctrl-C no longer ends the process by itself.
    pub(crate) fn new() -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| Failure::of("runtime", &e))?;
        let install = |kind| {
            let _entered = runtime.enter();
            signal(kind).map_err(|e| Failure::of("signal handler", &e))
        };
        let (interrupt, terminate) = (install(SignalKind::interrupt())?, install(SignalKind::terminate())?);
        Ok(Self { runtime: Some(runtime), env: Env::real(), interrupt, terminate })
    }

    pub(crate) fn pause(&mut self, period: Duration) -> Pause {
        let clock = Arc::clone(&self.env.clock);
        let over = self.until_interrupted(async move { clock.sleep(period).await });
        over.map_or(Pause::Interrupted, |()| Pause::Over)
    }

    /// Does what blocks, such as to wait for an answer on the terminal; `None` when interrupted.
    pub(crate) fn blocking<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let done = self.until_interrupted(async { tokio::task::spawn_blocking(work).await });
        done.map(|result| result.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())))
    }

    /// Does what blocks beside everything else; at the end of this nobody waits for it.
    pub(crate) fn background(&self, work: impl FnOnce() + Send + 'static) {
        self.runtime().spawn_blocking(work);
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is taken at the end of life")
    }

    fn until_interrupted<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let Self { runtime, interrupt, terminate, .. } = self;
        runtime.as_ref().expect("it is taken at the end of life").block_on(async {
            tokio::select! {
                // A signal that has come in the meantime counts more than work that is done.
                biased;
                _ = interrupt.recv() => None,
                _ = terminate.recv() => None,
                result = work => Some(result),
            }
        })
    }

    /// Time since some fixed instant.
    pub(crate) fn now(&self) -> Duration {
        self.env.clock.monotonic()
    }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        // What blocks may block for ever, and nobody waits for it any more.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
