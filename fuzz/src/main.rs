//! The fuzz targets, in one binary since linking takes longest: `FUZZ_TARGET` names the one that runs. `scripts/fuzz` builds and
//! runs them all. Targets of what is private to a crate are in the `fuzz.rs` of that crate.

#![no_main]

#[path = "targets.rs"]
mod targets;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use targets::{TARGETS, Target};

/// The configuration is a part of the binary, which no other package can name.
#[path = "../../crates/forebay/src"]
#[expect(dead_code, unused_imports, reason = "the target reads configurations and serves nothing")]
mod product {
    pub(crate) mod config;
    pub(crate) mod failure;
    pub(crate) mod store_settings;
}
use product::{config, failure, store_settings};

/// The target to run. Without one, or for `list`, the names are printed.
fn target() -> Target {
    static CHOSEN: OnceLock<Target> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
        match TARGETS.into_iter().find(|(name, _)| *name == wanted) {
            Some((_, target)) => target,
            None => {
                TARGETS.iter().for_each(|(name, _)| println!("{name}"));
                std::process::exit(i32::from(wanted != "list"));
            }
        }
    })
}

fuzz_target!(init: { target(); }, |data: &[u8]| target()(data));
