//! Single flight: when several tasks of one requester want the same thing at the same time, one does the work, and the
//! others wait for its result. Each requester has a flight of its own: the work of another one may wait for that one's
//! share of fetches. Two flights may do the same work at the same time, so it must do no harm to do it twice.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use forebay_env::Requester;
use forebay_env::sync::Mutex;
use futures::FutureExt;
use futures::future::Shared;
use tokio::sync::oneshot;

/// The work in flight, by requester and key.
pub(crate) struct SingleFlight<K, V> {
    in_flight: Mutex<HashMap<(Requester, K), Outcome<V>>>,
}

/// Resolves to the result, or to an error when the work was abandoned.
pub(crate) type Outcome<V> = Shared<oneshot::Receiver<V>>;

/// The work of one task. If it is dropped without [`Flight::end`], it is abandoned, and the next task starts again.
pub(crate) struct Flight<K: Hash + Eq, V> {
    flights: Arc<SingleFlight<K, V>>,
    key: (Requester, K),
    sender: Option<oneshot::Sender<V>>,
}

impl<K: Hash + Eq + Clone, V: Clone> SingleFlight<K, V> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { in_flight: Mutex::default() })
    }

    /// The outcome for `key` and the present requester, and the flight if the caller has to do the work.
    pub(crate) fn begin(self: &Arc<Self>, key: &K) -> (Option<Flight<K, V>>, Outcome<V>) {
        // What Forebay itself does is for all.
        let keys = [Requester::present(), Requester::NOBODY].map(|requester| (requester, key.clone()));
        let mut in_flight = self.in_flight.lock();
        if let Some(outcome) = keys.iter().find_map(|key| in_flight.get(key)) {
            return (None, outcome.clone());
        }
        let (sender, outcome) = oneshot::channel();
        let outcome = outcome.shared();
        let [key, _] = keys;
        in_flight.insert(key.clone(), outcome.clone());
        (Some(Flight { flights: Arc::clone(self), key, sender: Some(sender) }), outcome)
    }
}

impl<K: Hash + Eq, V> Flight<K, V> {
    /// Ends the work with its result. Tasks that come from now on start their own.
    pub(crate) fn end(mut self, result: V) {
        let sender = self.sender.take();
        drop(self);
        // It is fine if no task waits.
        let _ = sender.map(|sender| sender.send(result));
    }
}

impl<K: Hash + Eq, V> Drop for Flight<K, V> {
    fn drop(&mut self) {
        self.flights.in_flight.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_works_and_the_others_get_its_result() {
        let flights = SingleFlight::<u32, u32>::new();
        let (flight, first) = flights.begin(&1);
        let (none, second) = flights.begin(&1);
        assert!(none.is_none());
        assert!(flights.begin(&2).0.is_some(), "another key is other work");
        flight.expect("the first does the work").end(7);
        assert_eq!((first.await, second.await), (Ok(7), Ok(7)));
        assert!(flights.begin(&1).0.is_some(), "what has ended begins again");
    }

    #[tokio::test]
    async fn each_requester_does_its_own_work() {
        let flights = SingleFlight::<u32, u32>::new();
        let begin = |requester: &str| Requester::named(requester).gets_step(|| flights.begin(&1));
        let ((first, _), (second, outcome)) = (begin("first"), begin("second"));
        assert!(first.is_some() && second.is_some() && begin("first").0.is_none());
        second.expect("it has its own").end(2);
        assert_eq!(outcome.await, Ok(2));
        assert!(begin("second").0.is_some() && begin("first").0.is_none(), "the first one's has not ended");
        let (for_all, _) = flights.begin(&1);
        assert!(for_all.is_some() && begin("second").0.is_none(), "what Forebay itself does is for all");
    }

    #[tokio::test]
    async fn work_that_is_given_up_is_told_and_begins_anew() {
        let flights = SingleFlight::<u32, u32>::new();
        let (flight, _) = flights.begin(&1);
        let (_, waiting) = flights.begin(&1);
        drop(flight);
        assert!(waiting.await.is_err());
        assert!(flights.begin(&1).0.is_some());
    }
}
