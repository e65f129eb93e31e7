//! Blocking calls, on threads where they delay nobody else.

use tokio::task::JoinError;

use crate::{Background, RequesterPermits};

/// Limits the blocking calls to one device. A device that no longer answers keeps the threads that wait for it, and no
/// threads of other devices. The requesters of the calls (see [`crate::Requester`]) share the permits fairly. Clones
/// share them, too.
#[derive(Clone)]
pub struct Calls {
    permits: RequesterPermits,
    /// Where the calls of a requester run that has more than this many in flight.
    background: Option<(Background, usize)>,
}

impl Calls {
    /// At most `max` calls run at once.
    pub fn new(max: usize) -> Self {
        Self { permits: RequesterPermits::new(max), background: None }
    }

    /// As [`Calls::new`], for calls that may use much of a processor. When a requester has more than `first` in flight,
    /// the others run in the background: they give way to requests that are served from memory or from local disk.
    pub fn giving_way(background: &Background, first: usize, max: usize) -> Self {
        Self { background: Some((background.clone(), first)), ..Self::new(max) }
    }

    /// Runs `work` on a thread for blocking calls, once a permit is free.
    ///
    /// # Errors
    /// When `work` panicked, or the runtime ends.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        let permit = self.permits.take().await;
        let background = self.background.as_ref().filter(|(_, first)| permit.count() > *first);
        let work = move || {
            // Held until the call returns, even if nobody waits for it any more.
            let _place = permit;
            work()
        };
        match background {
            Some((background, _)) => background.spawn_blocking(work).await,
            None => tokio::task::spawn_blocking(work).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::Requester;

    /// Like the calls to a disk that hangs, or to a network file system whose server is gone.
    #[tokio::test]
    async fn calls_that_never_return_keep_some_threads_and_no_more() {
        let (broken, sound) = (Calls::new(3), Calls::new(3));
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(parking_lot::Mutex::new(ended));
        let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let ask = || {
            let (broken, ended, began) = (broken.clone(), Arc::clone(&ended), began.clone());
            let hang = move || {
                began.send(()).expect("the test waits for it");
                ended.lock().recv().expect_err("nothing is sent");
            };
            crate::spawn(async move { broken.run(hang).await })
        };
        for _ in 0..3 {
            let asked = ask();
            begun.recv().await.expect("a permit is free");
            // Nobody waits for it any more.
            asked.abort();
        }
        let last = ask();
        for _ in 0..100 {
            assert_eq!(sound.run(|| 1).await.expect("it does not panic"), 1);
            assert!(begun.try_recv().is_err(), "all permits are taken");
        }
        drop(end);
        last.join().await.expect("the permits come back");
    }

    /// Like a tenant that lists a large directory over a hundred connections.
    #[tokio::test]
    async fn who_asks_for_much_leaves_places_to_others() {
        let calls = Calls::new(8);
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(parking_lot::Mutex::new(ended));
        let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let greedy: Vec<_> = (0..100)
            .map(|_| {
                let (calls, ended, began) = (calls.clone(), Arc::clone(&ended), began.clone());
                let hang = move || {
                    began.send(()).expect("the test waits for it");
                    ended.lock().recv().expect_err("nothing is sent");
                };
                // A task that works for this requester starts another.
                let greedy = Requester::named("greedy");
                crate::spawn(
                    greedy.gets(async move { crate::spawn(async move { calls.run(hang).await }).join().await }),
                )
            })
            .collect();
        for _ in 0..6 {
            begun.recv().await.expect("it has permits");
        }
        for modest in [Requester::named("modest"), Requester::named("another"), Requester::NOBODY] {
            assert_eq!(modest.gets(calls.run(|| 1)).await.expect("it does not panic"), 1);
        }
        assert!(begun.try_recv().is_err(), "it has three quarters of the permits, and no more");
        drop(end);
        for call in greedy {
            call.join().await.expect("all get their turn");
        }
    }

    /// Of many calls of one requester, the first compete with those of others, and the rest do not.
    #[test]
    fn who_asks_for_much_gives_way_with_the_rest() {
        let runtime = |name: &str| {
            let builder = &mut tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(1).thread_name(name).build().expect("a runtime")
        };
        let (own, other) = (runtime("own"), runtime("background"));
        let calls = Calls::giving_way(&Background::on(other.handle()), 1, 8);
        let (end, ended) = mpsc::channel::<()>();
        let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let name = || std::thread::current().name().map(str::to_owned);
        own.block_on(async {
            let (busy, modest) = (Requester::named("busy"), Requester::named("modest"));
            let first = calls.clone();
            let first = crate::spawn(busy.gets(async move {
                let hold = move || {
                    began.send(name()).expect("the test waits for it");
                    ended.recv().expect_err("nothing is sent");
                };
                first.run(hold).await
            }));
            let thread = |found: Option<String>| found.expect("threads of runtimes have names");
            assert_eq!(thread(begun.recv().await.expect("a permit is free")), "own");
            assert_eq!(thread(busy.gets(calls.run(name)).await.expect("it does not panic")), "background");
            assert_eq!(thread(modest.gets(calls.run(name)).await.expect("it does not panic")), "own");
            drop(end);
            first.join().await.expect("it ends");
        });
    }
}
