//! Connections for probes and scrapers when all others are taken: a worker that is well must not look dead, however
//! many clients hold on to its admin port.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The most connections that are open at once. One more closes the oldest, so that no client keeps the others out.
const CONNECTIONS_MAX: usize = 32;

#[derive(Clone, Default)]
pub(crate) struct Reserve {
    open: Arc<Mutex<VecDeque<CancellationToken>>>,
}

/// A connection, until it is dropped.
pub(crate) struct Reserved {
    /// Cancelled when another one needs the place.
    pub(crate) end: CancellationToken,
    reserve: Reserve,
}

impl Reserve {
    pub(crate) fn enter(&self) -> Reserved {
        let end = CancellationToken::new();
        let mut open = self.open.lock();
        if open.len() >= CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.cancel();
        }
        open.push_back(end.clone());
        Reserved { end, reserve: self.clone() }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // Those that were cancelled are out already.
        self.end.cancel();
        self.reserve.open.lock().retain(|end| !end.is_cancelled());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_always_has_a_place_and_the_oldest_goes() {
        let reserve = Reserve::default();
        let mut open: Vec<_> = (0..CONNECTIONS_MAX).map(|_| reserve.enter()).collect();
        assert!(open.iter().all(|one| !one.end.is_cancelled()));
        drop(open.remove(1));
        let _in_its_place = reserve.enter();
        assert!(!open[0].end.is_cancelled());
        let newest = reserve.enter();
        assert!(open[0].end.is_cancelled() && !open[1].end.is_cancelled() && !newest.end.is_cancelled());
        drop((open, newest));
        assert_eq!(reserve.open.lock().len(), 1);
    }
}
