//! From which workers hot data is to be taken over.

use std::collections::{BTreeMap, BTreeSet};

use forebay_catalog::SlotSet;
use forebay_env::sync::Mutex;
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct HandOvers {
    state: Mutex<State>,
    woken: Notify,
}

/// Slots by their former home, which is leaving.
#[derive(Default)]
struct State {
    waiting: BTreeMap<String, SlotSet>,
    running: BTreeMap<String, SlotSet>,
    done: BTreeMap<String, SlotSet>,
}

impl HandOvers {
    /// Notes slots whose former homes are leaving, unless they have been taken over.
    pub(super) fn note(&self, of_workers: BTreeMap<String, SlotSet>) {
        let mut state = self.state.lock();
        for (former, mut slots) in of_workers {
            for known in [state.running.get(&former), state.done.get(&former)].into_iter().flatten() {
                slots.take_off(known);
            }
            add(&mut state.waiting, former, &slots);
        }
        if !state.waiting.is_empty() {
            self.woken.notify_one();
        }
    }

    /// Returns after slots were noted.
    pub(super) async fn noted(&self) {
        self.woken.notified().await;
    }

    /// The workers from which this one still takes over what is read often.
    pub(super) fn from(&self) -> BTreeSet<String> {
        let state = self.state.lock();
        state.waiting.keys().chain(state.running.keys()).cloned().collect()
    }

    /// Marks the waiting slots as running, and returns them. While a worker is being asked, its further slots keep
    /// waiting.
    pub(super) fn begin(&self) -> Vec<(String, SlotSet)> {
        let mut state = self.state.lock();
        let State { waiting, running, .. } = &mut *state;
        let begun = std::mem::take(waiting);
        let (later, begun) = begun.into_iter().partition(|(former, _)| running.contains_key(former));
        *waiting = later;
        running.extend(begun.clone());
        begun.into_iter().collect()
    }

    /// These have been taken over, or there was no time for more.
    pub(super) fn end(&self, former: &str) {
        let mut state = self.state.lock();
        if let Some(slots) = state.running.remove(former) {
            add(&mut state.done, former.to_owned(), &slots);
        }
        if !state.waiting.is_empty() {
            self.woken.notify_one();
        }
    }

    /// These slots are at home elsewhere by now.
    pub(super) fn forget(&self, slots: &SlotSet) {
        let mut state = self.state.lock();
        let State { waiting, running, done } = &mut *state;
        for of_workers in [waiting, running, done] {
            of_workers.retain(|_, of_worker| {
                of_worker.take_off(slots);
                !of_worker.is_empty()
            });
        }
    }
}

fn add(to: &mut BTreeMap<String, SlotSet>, former: String, slots: &SlotSet) {
    if !slots.is_empty() {
        to.entry(former).or_insert_with(|| SlotSet::none(slots.count())).add(slots);
    }
}
