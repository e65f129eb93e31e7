//! Names, numbers and settings that every part of Forebay shares. No I/O.

pub mod checksum;
pub mod error_chain;
pub mod etag;
pub mod limits;
pub mod names;
pub mod object;
pub mod policy;
pub mod range;
pub mod shares;
pub mod units;

pub use checksum::{Algorithm, Checksum, ChecksumKind, ChecksumNames, Checksums};
pub use error_chain::error_chain;
pub use etag::ETag;
pub use names::{BucketName, Generation, InvalidName, ObjectKey, ObjectPath};
pub use object::{ObjectInfo, PartInfo, StorageState, SystemHeaders, Tags, UserMetadata, header_bytes, sent_bytes};
pub use policy::{
    Durability, EvictionOrder, ExplainedSetting, PathPolicy, PinnedFull, PolicyChange, PolicyRule, PolicySet,
    ReplicasMissing, WriteMode,
};
pub use range::ByteRange;
pub use units::{ByteSize, Period};
