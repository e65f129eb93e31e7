//! Leaves out of a plan that fails whatever is not needed for that.

use crate::plan::{Life, Plan};
use crate::run::run;

/// Runs that a search takes at most.
const RUNS_MAX: usize = 3000;

/// A list in a plan from which items can be left out.
type Part = (usize, Kind);

#[derive(Debug, Clone, Copy)]
enum Kind {
    Clients,
    Faults,
    Changes,
    Steps(usize),
}

struct Search {
    best: Plan,
    runs: usize,
}

/// The smallest plan found that still fails, in whatever way.
pub fn shrink(plan: &Plan) -> Plan {
    let mut search = Search { best: plan.clone(), runs: 0 };
    loop {
        let before = search.best.size();
        search.leave_out_lives();
        let lives = search.best.lives.len();
        for life in 0..lives {
            search.leave_out((life, Kind::Clients));
            search.leave_out((life, Kind::Faults));
            search.leave_out((life, Kind::Changes));
            for client in 0..search.best.lives[life].clients.len() {
                search.leave_out((life, Kind::Steps(client)));
            }
        }
        if search.best.size() == before || search.runs >= RUNS_MAX {
            return search.best;
        }
    }
}

fn length(life: &Life, kind: Kind) -> usize {
    match kind {
        Kind::Clients => life.clients.len(),
        Kind::Faults => life.faults.len(),
        Kind::Changes => life.changes.len(),
        Kind::Steps(client) => life.clients[client].len(),
    }
}

fn without(plan: &Plan, (life, kind): Part, from: usize, count: usize) -> Plan {
    let mut plan = plan.clone();
    let life = &mut plan.lives[life];
    let range = from..(from + count).min(length(life, kind));
    match kind {
        Kind::Clients => drop(life.clients.drain(range)),
        Kind::Faults => drop(life.faults.drain(range)),
        Kind::Changes => drop(life.changes.drain(range)),
        Kind::Steps(client) => drop(life.clients[client].drain(range)),
    }
    plan
}

impl Search {
    fn take_if_it_fails(&mut self, plan: Plan) -> bool {
        self.runs += 1;
        let fails = self.runs <= RUNS_MAX && run(&plan, false).failure.is_some();
        if fails {
            self.best = plan;
        }
        fails
    }

    fn leave_out_lives(&mut self) {
        let mut at = 0;
        while at < self.best.lives.len() {
            let mut plan = self.best.clone();
            plan.lives.remove(at);
            if !self.take_if_it_fails(plan) {
                at += 1;
            }
        }
    }

    /// Large pieces first, then smaller ones.
    fn leave_out(&mut self, part: Part) {
        let mut count = length(&self.best.lives[part.0], part.1);
        while count > 0 {
            let mut at = 0;
            while at < length(&self.best.lives[part.0], part.1) {
                let plan = without(&self.best, part, at, count);
                if !self.take_if_it_fails(plan) {
                    at += count;
                }
            }
            count /= 2;
        }
    }
}
