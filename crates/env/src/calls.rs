//! Calls that block, on threads where they disturb nobody.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Places for the calls of one device. One that does not answer any more keeps each thread that waits for it, and those of no other.
/// Clones share them.
#[derive(Debug, Clone)]
pub struct Calls {
    places: Arc<Semaphore>,
}

impl Calls {
    /// So many at once.
    pub fn new(max: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(max)) }
    }

    /// Runs `work` when a place is free, on a thread for what blocks.
    ///
    /// # Errors
    /// When `work` panicked, or the runtime ends.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        let place = Arc::clone(&self.places).acquire_owned().await.expect("this semaphore is never closed");
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
    use std::sync::mpsc;

    use super::*;

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
}
