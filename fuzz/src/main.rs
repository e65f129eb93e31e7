//! The fuzz targets, in one binary since linking takes longest: `FUZZ_TARGET` names the one that runs. `scripts/fuzz` builds and
//! runs them all. Targets of what is private to a crate are in the `fuzz.rs` of that crate.

#![no_main]

mod catalog;
mod configuration;
mod directory;
mod requests;
mod text;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

/// The configuration is a part of the binary, which no other package can name.
#[path = "../../crates/forebay/src"]
#[expect(dead_code, unused_imports, reason = "the target reads configurations and serves nothing")]
mod product {
    pub(crate) mod config;
    pub(crate) mod failure;
    pub(crate) mod store_settings;
}
use product::{config, failure, store_settings};

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 27] = [
    ("cache-metadata", forebay_cache::fuzz::metadata),
    ("catalog-keys", catalog::keys),
    ("catalog-records", catalog::records),
    ("configuration", configuration::file),
    ("directory-keys", directory::keys),
    ("policies", text::policies),
    ("s3-chunks", forebay_s3::fuzz::chunked),
    ("s3-digests", forebay_s3::fuzz::digests),
    ("s3-documents", forebay_s3::fuzz::document),
    ("s3-forms", forebay_s3::fuzz::form),
    ("s3-head", forebay_s3::fuzz::head),
    ("s3-header-values", forebay_s3::fuzz::header_values),
    ("s3-host", forebay_s3::fuzz::host),
    ("s3-parameters", forebay_s3::fuzz::parameters),
    ("s3-requests", requests::requests),
    ("s3-signatures", forebay_s3::fuzz::signature),
    ("s3-tokens", forebay_s3::fuzz::token),
    ("stamp", forebay_ufs::fuzz::stamp),
    ("store-damage", forebay_store::fuzz::damage),
    ("store-heads", forebay_store::fuzz::head),
    ("store-records", forebay_store::fuzz::record),
    ("store-segment", forebay_store::fuzz::segment),
    ("store-snapshot", forebay_store::fuzz::snapshot),
    ("names", text::names),
    ("under-store-urls", text::urls),
    ("units", text::units),
    ("users-file", forebay_auth::fuzz::users_file),
];

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
