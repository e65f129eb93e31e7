//! The targets, by name. The tests of `forebay` include this file, too: they run the committed inputs without a fuzzer, in the
//! same build as all other tests.

mod catalog;
mod configuration;
mod directory;
mod requests;
mod text;

pub(crate) type Target = fn(&[u8]);

pub(crate) const TARGETS: [(&str, Target); 27] = [
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
