//! `forebay cluster remove`.

use std::io::{self, IsTerminal};

use forebay_admin::api::{ClusterStatus, WorkerState};
use ureq::http::Method;

use super::super::Target;
use super::super::edit::ask_unless;
use super::super::units::count;
use super::seen::{look, page, told, wanted_elsewhere};
use crate::client::Call;
use crate::failure::Failure;

pub(super) fn remove(target: &Target, worker: &str, yes: bool) -> Result<(), Failure> {
    let client = &target.client()?;
    let page = page(worker)?;
    if !yes && let Some(loss) = loss(&look(client)?, worker) {
        if !io::stdin().is_terminal() {
            return Err(Failure::Refused(format!("{loss}: start it again, or give --yes if it will never come back")));
        }
        ask_unless(yes, &format!("{loss}. Remove it?"))?;
    }
    client.call(Call::new(Method::DELETE, page))?;
    told(target, "removed", worker)
}

/// What may be lost with a worker that is there no more, as far as others tell. The server refuses to remove any other.
fn loss(cluster: &ClusterStatus, worker: &str) -> Option<String> {
    let found = cluster.workers.iter().find(|found| found.id == worker)?;
    if !matches!(found.state, WorkerState::Left | WorkerState::Lost) {
        return None;
    }
    let lives = |state| matches!(state, WorkerState::Live | WorkerState::Draining | WorkerState::Drained);
    let silent = cluster.workers.iter().find(|other| lives(other.state) && other.status.is_none());
    if let Some(silent) = silent {
        return Some(format!("worker {} does not tell whether it needs bytes of worker {worker}", silent.id));
    }
    if cluster.slots_without_home > 0 || found.slots > 0 {
        return Some(format!(
            "not all slots have moved away from worker {worker} yet, so nobody knows what only it has"
        ));
    }
    let wanted = wanted_elsewhere(cluster, worker);
    (wanted > 0)
        .then(|| format!("others look for {} objects and parts that only worker {worker} may have", count(wanted)))
}

#[cfg(test)]
mod tests {
    use forebay_admin::api::ClusterWorker;
    use forebay_cache::Status;

    use super::*;

    fn cluster(states: &[(&str, WorkerState, u32, Option<u64>)]) -> ClusterStatus {
        let worker = |(id, state, slots, wanted): &(&str, WorkerState, u32, Option<u64>)| ClusterWorker {
            id: (*id).to_owned(),
            state: *state,
            slots: *slots,
            peer_address: None,
            s3_address: None,
            admin_address: None,
            version: None,
            status: wanted.map(|copies_wanted| Status { copies_wanted, ..Status::default() }),
            problem: None,
        };
        ClusterStatus {
            name: "lake".to_owned(),
            worker: "w2".to_owned(),
            slots: 1024,
            age_ms: 0,
            slots_without_home: 0,
            workers: states.iter().map(worker).collect(),
            engine: Vec::new(),
        }
    }

    #[test]
    fn what_may_be_lost_is_told_before() {
        use WorkerState::{Left, Live, Lost};
        assert_eq!(loss(&cluster(&[("w1", Left, 0, None), ("w2", Live, 9, Some(0))]), "w1"), None);
        for (states, word) in [
            ([("w1", Lost, 0, None), ("w2", Live, 9, Some(3))], "3 objects"),
            ([("w1", Lost, 5, None), ("w2", Live, 9, Some(0))], "slots"),
            ([("w1", Left, 0, None), ("w2", Live, 9, None)], "worker w2 does not tell"),
        ] {
            let told = loss(&cluster(&states), "w1").expect("something may be lost");
            assert!(told.contains(word), "{told}");
        }
        // The server says what is wrong.
        assert_eq!(loss(&cluster(&[("w1", Live, 5, Some(0)), ("w2", Live, 9, Some(3))]), "w1"), None);
        assert_eq!(loss(&cluster(&[("w2", Live, 9, Some(3))]), "w1"), None);
    }
}
