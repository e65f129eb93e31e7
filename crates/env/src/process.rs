//! Processes of a simulation: groups of tasks that are stopped and killed together, as an operating system does it. Any
//! number of them share one runtime, whose tasks run one at a time. Outside of a simulation there are none.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::sync::Mutex;

tokio::task_local! {
    static PRESENT: Process;
}

/// The work of a task. It is taken away when the process is killed.
type Body = Arc<Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>>;

/// A process. Clones are the same one.
#[derive(Clone, Default)]
pub struct Process(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// By the order of their start.
    tasks: BTreeMap<u64, Member>,
    started: u64,
    is_stopped: bool,
    is_killed: bool,
    /// Tasks that could run if the process were not stopped.
    ready: BTreeMap<u64, Waker>,
}

struct Member {
    body: Body,
    task: Option<AbortHandle>,
}

/// What the runtime polls for a task of a process.
struct Guest {
    process: Process,
    number: u64,
    body: Body,
}

impl Process {
    /// That of the current task.
    pub fn present() -> Option<Self> {
        PRESENT.try_with(Self::clone).ok()
    }

    /// Runs work of the process: its first task, or what another process asked of it. All that the work starts with
    /// [`crate::spawn`] belongs to the process, too. It waits while the process is stopped; drop it before
    /// [`Process::kill`].
    pub async fn run<F: Future>(&self, work: F) -> F::Output {
        let number = self.number();
        let mut work = Inside { process: self, work: Some(Box::pin(work)) };
        std::future::poll_fn(|context| self.step(number, context, |context| work.poll(context))).await
    }

    /// As SIGSTOP does: no task of the process runs until [`Process::resume`].
    pub fn stop(&self) {
        self.0.lock().is_stopped = true;
    }

    /// As SIGCONT does.
    pub fn resume(&self) {
        let ready = {
            let mut state = self.0.lock();
            state.is_stopped = false;
            std::mem::take(&mut state.ready)
        };
        ready.into_values().for_each(Waker::wake);
    }

    /// As SIGKILL does. The tasks are dropped in the order of their start. Call it from outside of the process.
    pub fn kill(&self) {
        let tasks = {
            let mut state = self.0.lock();
            state.is_killed = true;
            state.ready.clear();
            std::mem::take(&mut state.tasks)
        };
        for member in tasks.into_values() {
            let body = member.body.lock().take();
            PRESENT.sync_scope(self.clone(), || drop(body));
            if let Some(task) = member.task {
                task.abort();
            }
        }
    }

    /// Starts a task. In a process that is killed, it never runs.
    #[expect(clippy::disallowed_methods, reason = "`spawn` calls this")]
    pub(crate) fn spawn<F>(self, future: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let number = self.number();
        let (sender, receiver) = oneshot::channel();
        let work = async move {
            // Who has gone away does not ask.
            let _ = sender.send(future.await);
        };
        let is_killed = self.0.lock().is_killed;
        let body: Body = Arc::new(Mutex::new((!is_killed).then(|| Box::pin(work) as _)));
        let guest = Guest { process: self.clone(), number, body: Arc::clone(&body) };
        self.0.lock().tasks.insert(number, Member { body, task: None });
        let handle = tokio::spawn(async move {
            guest.await;
            match receiver.await {
                Ok(value) => value,
                Err(_) => std::future::pending().await,
            }
        });
        if let Some(member) = self.0.lock().tasks.get_mut(&number) {
            member.task = Some(handle.abort_handle());
        }
        handle
    }

    fn number(&self) -> u64 {
        let mut state = self.0.lock();
        state.started += 1;
        state.started
    }

    /// Polls a task, unless the process is stopped.
    fn step<T>(
        &self,
        number: u64,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        {
            let mut state = self.0.lock();
            if state.is_stopped {
                state.ready.insert(number, context.waker().clone());
                return Poll::Pending;
            }
        }
        PRESENT.sync_scope(self.clone(), || poll(context))
    }
}

/// Work that is dropped in the process that it belongs to.
struct Inside<'a, F> {
    process: &'a Process,
    work: Option<Pin<Box<F>>>,
}

impl<F: Future> Inside<'_, F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        self.work.as_mut().map_or(Poll::Pending, |work| work.as_mut().poll(context))
    }
}

impl<F> Drop for Inside<'_, F> {
    fn drop(&mut self) {
        PRESENT.sync_scope(self.process.clone(), || drop(self.work.take()));
    }
}

impl Future for Guest {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut body = self.body.lock();
        let Some(work) = body.as_mut() else { return Poll::Pending };
        self.process.step(self.number, context, |context| work.as_mut().poll(context))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut state = self.process.0.lock();
        let member = state.tasks.remove(&self.number);
        state.ready.remove(&self.number);
        drop(state);
        let body = self.body.lock().take();
        drop((member, body));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    /// Counts for as long as it runs, in a task that a task of the process has started.
    fn count(counter: &Arc<Mutex<u64>>) -> impl Future<Output = ()> + use<> {
        let counter = Arc::clone(counter);
        async move {
            let inner = crate::spawn(async move {
                loop {
                    *counter.lock() += 1;
                    tokio::task::yield_now().await;
                }
            });
            inner.join().await
        }
    }

    #[tokio::test]
    async fn a_stopped_process_does_nothing_until_it_continues() {
        let (process, counter) = (Process::default(), Arc::default());
        let running = async {
            tokio::select! { biased; () = process.run(count(&counter)) => {}, () = settle() => {} }
        };
        running.await;
        let before = *counter.lock();
        assert!(before > 0);
        settle().await;
        assert!(*counter.lock() > before, "its tasks run on");
        process.stop();
        settle().await;
        let stopped = *counter.lock();
        settle().await;
        assert_eq!(*counter.lock(), stopped);
        process.resume();
        settle().await;
        assert!(*counter.lock() > stopped);
        process.kill();
        let killed = *counter.lock();
        settle().await;
        assert_eq!(*counter.lock(), killed);
    }

    /// Notes when it is dropped, and starts a task then.
    struct Dropped(u64, Arc<Mutex<Vec<u64>>>, Arc<Mutex<u64>>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.1.lock().push(self.0);
            crate::spawn(count(&self.2));
        }
    }

    #[tokio::test]
    async fn tasks_are_dropped_in_the_order_of_their_start_and_none_outlives_them() {
        let (process, order, counter) = (Process::default(), Arc::default(), Arc::default());
        process
            .run(async {
                for number in 0..50 {
                    let dropped = Dropped(number, Arc::clone(&order), Arc::clone(&counter));
                    crate::spawn(async move {
                        let _dropped = dropped;
                        std::future::pending::<()>().await;
                    });
                }
                settle().await;
            })
            .await;
        let other = crate::spawn(async { 7 });
        process.kill();
        assert_eq!(*order.lock(), (0..50).collect::<Vec<_>>());
        settle().await;
        assert_eq!(*counter.lock(), 0, "a killed process starts no tasks");
        assert_eq!(other.join().await, 7, "tasks of others continue");
    }

    #[tokio::test]
    async fn what_a_task_returns_and_how_it_ends_is_known_to_who_waits() {
        let process = Process::default();
        let seven = process.run(async { crate::spawn(async { 7 }).join().await }).await;
        assert_eq!(seven, 7);
        let aborted = process
            .run(async {
                let task = crate::spawn(std::future::pending::<()>());
                task.abort();
                settle().await;
                task.is_finished()
            })
            .await;
        assert!(aborted);
        assert!(process.0.lock().tasks.is_empty(), "nothing is kept of tasks that have ended");
    }
}
