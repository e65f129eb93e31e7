//! The same seed makes the same run, down to every operation and every answer.

use forebay_sim::{Plan, run};

#[test]
fn a_seed_is_a_run() {
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..48 {
        let plan = Plan::new(seed);
        let (first, second) = (run(&plan, true), run(&plan, true));
        let differs = first.lines.iter().zip(&second.lines).position(|(first, second)| first != second);
        let at = differs.map(|at| (&first.lines[at], &second.lines[at]));
        assert_eq!(first.hash, second.hash, "seed {seed}: {at:?}");
        assert_eq!(first.failure, None, "seed {seed}");
        hashes.insert(first.hash);
    }
    assert_eq!(hashes.len(), 48, "different seeds make different runs");
}
