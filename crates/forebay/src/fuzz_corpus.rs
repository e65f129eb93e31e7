//! Runs the committed inputs of all fuzz targets, those that once crashed among them. `scripts/fuzz` finds new ones.

use std::panic::catch_unwind;
use std::path::Path;

#[path = "../../../fuzz/src/targets.rs"]
mod targets;

#[test]
fn committed_inputs_break_no_promise() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut failed = Vec::new();
    for (name, target) in targets::TARGETS {
        let mut inputs = 0;
        for input in corpus.join(name).read_dir().unwrap_or_else(|error| panic!("{name} has no inputs: {error}")) {
            let path = input.unwrap().path();
            let data = std::fs::read(&path).unwrap();
            if catch_unwind(|| target(&data)).is_err() {
                failed.push(path);
            }
            inputs += 1;
        }
        assert!(inputs > 0, "{name} has no inputs");
    }
    assert!(failed.is_empty(), "{failed:?}");
}
