//! Calls that block, on threads where they disturb nobody.

use tokio::task::JoinError;

use crate::RequesterPlaces;

/// Places for the calls of one device. One that does not answer any more keeps each thread that waits for it, and those of no other. Those for
/// whom there are calls (see [`crate::Requester`]) share them. Clones share them.
#[derive(Clone)]
pub struct Calls {
    places: RequesterPlaces,
}

impl Calls {
    /// So many at once.
    pub fn new(max: usize) -> Self {
        Self { places: RequesterPlaces::new(max) }
    }

    /// Runs `work` when a place is free, on a thread for what blocks.
    ///
    /// # Errors
    /// When `work` panicked, or the runtime ends.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        let place = self.places.take().await;
        let work = move || {
            // Until the call returns, also when nobody waits for it any more.
            let _place = place;
            work()
        };
        tokio::task::spawn_blocking(work).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::Requester;

    /// As those of a disk that stands still, or of a file system over a network whose server is gone.
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
            begun.recv().await.expect("a place is free");
            // Nobody waits for it any more.
            asked.abort();
        }
        let last = ask();
        for _ in 0..100 {
            assert_eq!(sound.run(|| 1).await.expect("it does not panic"), 1);
            assert!(begun.try_recv().is_err(), "all places are taken");
        }
        drop(end);
        last.join().await.expect("the places come back");
    }

    /// As a tenant does who lists a large directory over a hundred connections.
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
                // A task that works for him starts another.
                let greedy = Requester::named("greedy");
                crate::spawn(
                    greedy.gets(async move { crate::spawn(async move { calls.run(hang).await }).join().await }),
                )
            })
            .collect();
        for _ in 0..6 {
            begun.recv().await.expect("it has places");
        }
        for modest in [Requester::named("modest"), Requester::named("another"), Requester::NOBODY] {
            assert_eq!(modest.gets(calls.run(|| 1)).await.expect("it does not panic"), 1);
        }
        assert!(begun.try_recv().is_err(), "it has three quarters of the places, and no more");
        drop(end);
        for call in greedy {
            call.join().await.expect("all get their turn");
        }
    }
}
