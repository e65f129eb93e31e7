//! When a worker that is draining may stop.
//!
//! Nobody may need its bytes any more: it is the home of nothing, all slots are at home at other workers that live,
//! each of these has all bytes of its slots, and these have their copies without this worker. A slot that a worker is
//! still taking is in no answer, so nothing is decided then.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::{Catalog, SlotSet};
use forebay_cluster::{HomeCatalog, Member, MemberState, View, WorkerId};
use forebay_env::Clock;
use forebay_peers::Peers;
use futures::future::join_all;

/// For the answers of all workers. Without them, the next look asks again.
const ANSWERS_MAX: Duration = Duration::from_secs(3);

pub(super) struct Drain {
    clock: Arc<dyn Clock>,
    catalog: Arc<HomeCatalog>,
    peers: Peers,
    own: String,
}

impl Drain {
    pub(super) fn new(clock: Arc<dyn Clock>, catalog: Arc<HomeCatalog>, peers: Peers, own: &str) -> Self {
        Self { clock, catalog, peers, own: own.to_owned() }
    }

    /// Whether this worker is draining.
    pub(super) fn is_wanted(&self, view: &View) -> bool {
        let own = view.members.iter().find(|(name, _)| name.as_str() == self.own);
        own.is_some_and(|(_, member)| matches!(member.state, MemberState::Draining | MemberState::Drained))
    }

    /// Whether nobody needs this worker, which takes no slots meanwhile.
    ///
    /// # Errors
    /// Who needs it, or why that is not known.
    pub(super) async fn check(&self, view: &View) -> Result<(), String> {
        if self.catalog.slots().is_some_and(|own| !own.is_empty()) {
            return Err("this worker has slots".to_owned());
        }
        let others = self.others(view);
        let is_at_home = |home: &WorkerId| others.contains(home);
        let slots = self.catalog.slot_count();
        if !slots.all().all(|slot| view.homes.home(slot).is_some_and(is_at_home)) {
            return Err("some slots are not at home at other workers".to_owned());
        }
        let asked = join_all(others.iter().map(|worker| self.peers.needs(worker.as_str())));
        let answers = tokio::select! {
            biased;
            answers = asked => answers,
            () = self.clock.sleep(ANSWERS_MAX) => return Err("some worker does not answer".to_owned()),
        };
        let mut covered = SlotSet::none(slots);
        for (worker, answer) in others.iter().zip(answers) {
            let needs = answer.map_err(|error| format!("worker {worker}: {error}"))?;
            if needs.copies_wanted > 0 {
                return Err(format!("worker {worker} has not fetched all bytes yet"));
            }
            // Not for long: the others give up the rest then.
            if needs.takes_over_from.contains(&self.own) {
                return Err(format!("worker {worker} is taking over what is read often"));
            }
            if needs.complete_at.is_none_or(|at| at.contains(&self.own)) {
                let lacks = "objects have fewer copies than writeReplicas asks for, without those of this worker";
                return Err(format!("worker {worker}: {lacks}"));
            }
            if needs.slots.count() != slots {
                return Err(format!("worker {worker} has another number of slots"));
            }
            covered.add(&needs.slots);
        }
        match covered.others().is_empty() {
            true => Ok(()),
            false => Err("some slots are being taken".to_owned()),
        }
    }

    /// The other workers that live.
    fn others(&self, view: &View) -> BTreeSet<WorkerId> {
        let is_other = |(name, member): &(&WorkerId, &Member)| name.as_str() != self.own && member.state.lives();
        view.members.iter().filter(is_other).map(|(name, _)| name.clone()).collect()
    }
}
