//! Amazon S3's protocol over the cache: signatures, grants, XML, errors, and the HTTP/1.1 server around them.
//!
//! `s3s` reads and writes the protocol; what it gets wrong or leaves out is put right in one place, [`s3s_fixes`]. A
//! request goes through [`service`] (identity, checks before the signature), `s3s` (signature, routing), [`authorize`]
//! (grants) and one function of [`operations`], which asks the cache. Plain reads pass `s3s` by: [`fast_path`].

mod access_list;
mod authorize;
mod buffers;
mod checksums;
mod compat;
mod connection;
mod context;
mod error;
mod fast_path;
mod forward;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod homes;
mod host;
mod incoming;
mod metrics;
mod misplaced;
mod object_url;
mod operations;
mod pass_through;
mod query;
mod record;
mod redirect;
mod s3_error;
mod s3s_fixes;
mod s3s_types;
mod server;
mod service;
mod settings;
mod shares;
mod token;
mod trace;

pub use homes::{Client, ForwardBody, Home, Homes, RequestBody};
pub use redirect::Redirect;
pub use service::S3Service;
pub use settings::S3Settings;
