//! The same seed makes the same run, down to every operation and every answer.

use std::collections::BTreeSet;

use forebay_sim::{Plan, run};
use tokio::runtime::Builder;

const SEEDS: u64 = 200;

/// So that the tasks of two runs have other numbers: tokio has lists of tasks by number, and drops one list after the
/// other.
fn count_a_task() {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async { forebay_env::spawn(async {}).join().await });
}

#[test]
fn a_seed_is_a_run() {
    let mut hashes = BTreeSet::new();
    for seed in 0..SEEDS {
        let plan = Plan::new(seed);
        let first = run(&plan, true);
        count_a_task();
        let second = run(&plan, true);
        let differs = first.lines.iter().zip(&second.lines).position(|(first, second)| first != second);
        let at = differs.map(|at| (&first.lines[at], &second.lines[at]));
        assert_eq!(first.hash, second.hash, "seed {seed}: {at:?}");
        assert_eq!(first.failure, None, "seed {seed}");
        hashes.insert(first.hash);
    }
    assert_eq!(hashes.len(), SEEDS as usize, "different seeds make different runs");
}
