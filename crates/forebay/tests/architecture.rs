//! The arrows between the crates point one way, as ARCHITECTURE.md draws them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Each crate with what it may know. A new crate or a new arrow is a decision: it's made here first.
const MAY_KNOW: [(&str, &[&str]); 18] = [
    ("forebay-types", &[]),
    ("forebay-env", &["forebay-types"]),
    ("forebay-store", &["forebay-types", "forebay-env"]),
    ("forebay-catalog", &["forebay-types", "forebay-env", "forebay-store"]),
    ("forebay-cluster", &["forebay-types", "forebay-env", "forebay-store", "forebay-catalog"]),
    ("forebay-etcd", &["forebay-types", "forebay-env", "forebay-store", "forebay-catalog"]),
    ("forebay-ufs", &["forebay-types", "forebay-env"]),
    ("forebay-cache", &["forebay-types", "forebay-env", "forebay-store", "forebay-catalog", "forebay-ufs"]),
    // Tests alone.
    ("forebay-cache-tests", &[]),
    ("forebay-peers", &["forebay-types", "forebay-env", "forebay-cache"]),
    ("forebay-auth", &["forebay-types", "forebay-env"]),
    ("forebay-logs", &["forebay-env"]),
    ("forebay-s3", &["forebay-types", "forebay-env", "forebay-cache", "forebay-auth", "forebay-logs"]),
    ("forebay-admin", &["forebay-types", "forebay-env", "forebay-cache", "forebay-auth", "forebay-logs"]),
    (
        "forebay",
        &[
            "forebay-types",
            "forebay-env",
            "forebay-store",
            "forebay-catalog",
            "forebay-cluster",
            "forebay-etcd",
            "forebay-ufs",
            "forebay-cache",
            "forebay-peers",
            "forebay-auth",
            "forebay-logs",
            "forebay-s3",
            "forebay-admin",
        ],
    ),
    // It speaks to any server, and knows nothing of this one.
    ("forebay-bench", &["forebay-types", "forebay-env"]),
    // Stands beside the binary: it is made of the same parts, on simulated disks and under stores.
    (
        "forebay-sim",
        &[
            "forebay-types",
            "forebay-env",
            "forebay-store",
            "forebay-catalog",
            "forebay-cluster",
            "forebay-ufs",
            "forebay-cache",
        ],
    ),
    // In tests/: it speaks to the server, and knows nothing of it.
    ("forebay-test-clients", &[]),
];

/// A file longer than this is two files.
const LINES_MAX: usize = 1000;

fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in crates/").to_owned()
}

/// The crates of the workspace, each with those of the workspace that it's built with. Tests may use any.
fn crates() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(workspace_root())
        .output()
        .expect("cargo runs: it runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    packages.iter().map(|package| (text(&package["name"]), dependencies(package))).collect()
}

fn dependencies(package: &Value) -> BTreeSet<String> {
    let all = package["dependencies"].as_array().expect("a list of dependencies");
    let built_with = all.iter().filter(|dependency| dependency["kind"] != "dev");
    built_with.map(|dependency| text(&dependency["name"])).filter(|name| name.starts_with("forebay")).collect()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

#[test]
fn crates_know_only_what_lies_below_them() {
    let crates = crates();
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        MAY_KNOW.iter().map(|(name, may)| (*name, may.iter().copied().collect())).collect();
    assert_eq!(
        crates.keys().map(String::as_str).collect::<Vec<_>>(),
        allowed.keys().copied().collect::<Vec<_>>(),
        "the crates of the workspace and those of this table"
    );
    for (name, known) in &crates {
        for other in known {
            assert!(allowed[name.as_str()].contains(other.as_str()), "{name} must not know {other}");
        }
    }
}

#[test]
fn the_table_itself_points_downward() {
    for (position, (name, known)) in MAY_KNOW.iter().enumerate() {
        for other in *known {
            let below = MAY_KNOW[..position].iter().any(|(lower, _)| lower == other);
            assert!(below, "{name} stands above {other} in the table, or {other} isn't in it");
        }
    }
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_source_file_is_too_long_to_proofread() {
    let mut files = Vec::new();
    rust_files(&workspace_root().join("crates"), &mut files);
    assert!(files.len() > 50, "only {} files found", files.len());
    for file in files {
        let lines = std::fs::read_to_string(&file).expect("UTF-8").lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines", file.display());
    }
}
