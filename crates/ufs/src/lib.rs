//! Under stores: the S3 bucket or the directory behind the cache.
//!
//! [`UnderStore`] is one bucket's place in it, [`BucketRoot`] is where buckets come from. Every implementation runs the
//! suite in [`conformance`].

pub mod conformance;
pub mod directory;
mod error;
mod file_meta;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
pub mod governor;
mod grouping;
mod hasher;
pub mod hdfs;
pub mod memory;
mod open;
mod options;
mod passed;
mod root;
pub mod s3;
mod stamp;
mod under_store;
mod url;

pub use error::{Error, ErrorKind, Result};
pub use hasher::Hasher;
pub use open::{Lanes, open_mount, open_root};
pub use options::OpenOptions;
pub use root::{BucketInfo, BucketRoot};
pub use stamp::{STAMP_HEADER, Stamp};
pub use under_store::{
    ByteStream, Condition, IsOurs, ListPage, ListRequest, ListedObject, Mark, RemoteBody, RemoteObject, S3Target,
    Stored, UnderStore, Upload, UploadSource,
};
pub use url::{InvalidUrl, UnderStoreUrl};
