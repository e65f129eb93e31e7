//! The cache's errors. Each kind maps to one error of a protocol.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_types::{Algorithm, ETag, ObjectInfo, ObjectPath};
use serde::{Deserialize, Serialize};

/// What happened. The `s3` crate maps each kind to one S3 error code.
/// Workers send each other its index: new kinds come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorKind {
    /// No object under this key.
    NotFound,
    NoSuchBucket,
    NoSuchUpload,
    BucketAlreadyExists,
    BucketNotEmpty,
    /// Objects are being written, so nobody can tell whether the bucket is empty (409).
    BucketBusy,
    /// A condition of the request did not hold (412).
    PreconditionFailed,
    /// The object is the one that the client has already (304).
    NotModified,
    /// Another write of the same key was in flight (409).
    Conflict,
    /// A parameter, or a combination of parameters, is invalid.
    InvalidArgument,
    /// The under store cannot have such names. Nothing can be written there, and nothing exists there.
    InvalidKey,
    /// The request does not match its context, such as the upload that it belongs to.
    InvalidRequest,
    /// The bytes do not match `Content-MD5`.
    BadDigest,
    /// The bytes do not match `x-amz-content-sha256`.
    PayloadHashMismatch,
    /// The bytes do not match an `x-amz-checksum-*` header or trailer.
    ChecksumMismatch,
    /// Fewer or more bytes arrived than the request announced.
    IncompleteBody,
    /// A body ended with an error of the protocol layer, which is the source.
    Body,
    EntityTooSmall,
    EntityTooLarge,
    InvalidPart,
    InvalidPartOrder,
    InvalidRange,
    /// The object has no such part (416).
    InvalidPartNumber,
    /// The path's policy or the under store's credentials refuse this.
    AccessDenied,
    /// Pinned data or records fill their share, the engine's database is nearly full, too few workers can have a copy,
    /// the disks are full, no file descriptor is left, or no disk answers. Retry later (503 SlowDown).
    SlowDown,
    /// The bytes exceed what the disks or the share of pinned data can ever hold (507).
    InsufficientStorage,
    /// The under store is out of reach or failing, or a disk does not answer (503). A write may have been executed, or
    /// may be executed later.
    Unavailable,
    /// The only copy of the bytes is damaged or missing (500).
    Corrupt,
    NotImplemented,
    Internal,
    /// The home of the key is another worker, or none at the moment (503). Nothing was done with it.
    Moved,
}

/// An error, with what failed and why. The text never contains secrets.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    pub kind: ErrorKind,
    pub context: String,
    /// The object that a condition was checked against. 304 and 412 show its ETag and time.
    pub object: Option<Box<ObjectInfo>>,
    /// The time after which a retry may succeed, as far as is known.
    pub retry_after: Option<Duration>,
    /// What the client may be told beside the kind.
    pub detail: Option<Box<Detail>>,
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What an error is about, for clients that ask why. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    /// Of `BadDigest`: the MD5 that the client gave, and the one of the bytes.
    Md5 { given: [u8; 16], calculated: [u8; 16] },
    /// Of `EntityTooLarge`.
    AboveLimit { size: u64, limit: u64 },
    /// Of `EntityTooSmall`: a part that is not the last one.
    SmallPart { number: u32, etag: ETag, size: u64, limit: u64 },
    /// Of `InvalidPart`: the part as the completion names it.
    Part { number: u32, etag: ETag },
}

/// The cause of an `InvalidPart` that is not the client's mistake: the part was uploaded, and its bytes are lost. The
/// error's text is for clients.
#[derive(Debug, thiserror::Error)]
#[error("its bytes are missing")]
pub struct LostPart;

/// The cause of an error that several requests share.
#[derive(Debug)]
struct SharedCause(Arc<Error>);

impl fmt::Display for SharedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.source.as_ref().map_or(Ok(()), |source| source.fmt(f))
    }
}

impl std::error::Error for SharedCause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref()?.source()
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), object: None, retry_after: None, detail: None, source: None }
    }

    /// Whether the disks of the cache have no room for what was to be stored.
    pub fn is_disk_full(&self) -> bool {
        use forebay_store::ErrorKind as Store;
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<forebay_store::Error>() {
                return matches!(error.kind, Store::Full | Store::NeverFits);
            }
            cause = error.source();
        }
        false
    }

    pub(crate) fn moved(path: &ObjectPath) -> Self {
        Self::new(ErrorKind::Moved, format!("{path} moves between workers at present; try again"))
    }

    /// The same error with what it is about.
    pub(crate) fn with(self, detail: Detail) -> Self {
        Self { detail: Some(Box::new(detail)), ..self }
    }

    /// An error of the protocol layer, which gets it back as the source.
    pub fn body(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..Self::new(ErrorKind::Body, "the request's body ended with an error") }
    }
}

impl Error {
    /// Whether it is not known if a commit to the catalog holds. With any other error of a commit, nothing has changed.
    pub(crate) fn is_commit_in_doubt(&self) -> bool {
        let cause = self.source.as_deref().and_then(|source| source.downcast_ref::<forebay_catalog::Error>());
        cause.is_some_and(|cause| cause.kind == forebay_catalog::ErrorKind::Unknown)
    }

    /// What keeps the under store from taking the write, in words for clients.
    pub fn why_under_store_takes_none(&self) -> Option<&'static str> {
        let cause = self.source.as_deref().and_then(|source| source.downcast_ref::<forebay_ufs::Error>())?;
        match cause.kind {
            forebay_ufs::ErrorKind::NoSpace => Some("has no space left"),
            forebay_ufs::ErrorKind::ReadOnly => Some("is read-only"),
            _ => None,
        }
    }

    /// For a read: if the under store cannot have such names, the object does not exist.
    pub(crate) fn of_read(self) -> Self {
        match self.kind {
            ErrorKind::InvalidKey => Self { kind: ErrorKind::NotFound, ..self },
            _ => self,
        }
    }

    /// The same error for one more request.
    pub(crate) fn shared(self: &Arc<Self>) -> Self {
        let cause = self.source.is_some().then(|| SharedCause(Arc::clone(self)));
        let source = cause.map(|cause| Box::new(cause) as Box<dyn std::error::Error + Send + Sync>);
        Self { retry_after: self.retry_after, source, ..Self::new(self.kind, self.context.clone()) }
    }

    pub(crate) fn not_found(path: &ObjectPath) -> Self {
        Self::new(ErrorKind::NotFound, format!("{path} does not exist"))
    }

    pub(crate) fn read_only(path: &ObjectPath) -> Self {
        Self::new(ErrorKind::AccessDenied, format!("the path of {path} is READ_ONLY"))
    }

    /// In S3's words, because clients see it.
    pub(crate) fn checksum_mismatch(algorithm: Algorithm) -> Self {
        let context = format!("The {} you specified did not match the calculated checksum.", algorithm.name());
        Self::new(ErrorKind::ChecksumMismatch, context)
    }

    /// The same of a completion, where S3 writes the name of the algorithm in small letters.
    pub(crate) fn completion_mismatch(algorithm: Algorithm) -> Self {
        let name = algorithm.name().to_ascii_lowercase();
        let context = format!("The {name} you specified did not match the calculated checksum.");
        Self::new(ErrorKind::ChecksumMismatch, context)
    }

    /// An error of a condition, with the object that it was checked against.
    pub(crate) fn about(kind: ErrorKind, context: &str, object: &ObjectInfo) -> Self {
        Self { object: Some(Box::new(object.clone())), ..Self::new(kind, context) }
    }

    fn from_source(
        kind: ErrorKind,
        context: String,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { source: Some(source.into()), ..Self::new(kind, context) }
    }
}

impl From<forebay_store::Error> for Error {
    fn from(error: forebay_store::Error) -> Self {
        use forebay_store::ErrorKind as Store;
        let kind = match error.kind {
            Store::Invalid => ErrorKind::Internal,
            Store::TooLarge => ErrorKind::EntityTooLarge,
            Store::NeverFits => ErrorKind::InsufficientStorage,
            Store::Full | Store::Busy | Store::Gone => ErrorKind::SlowDown,
            Store::Corrupt => ErrorKind::Corrupt,
            Store::Failed | Store::Closed => ErrorKind::Unavailable,
        };
        Self::from_source(kind, format!("the local store: {error}"), error)
    }
}

impl From<forebay_catalog::Error> for Error {
    fn from(error: forebay_catalog::Error) -> Self {
        use forebay_catalog::ErrorKind as Catalog;
        let kind = match error.kind {
            Catalog::Conflict => ErrorKind::Conflict,
            Catalog::Busy => ErrorKind::SlowDown,
            Catalog::Unknown | Catalog::Unavailable => ErrorKind::Unavailable,
            Catalog::Corrupt => ErrorKind::Internal,
        };
        Self::from_source(kind, format!("the catalog: {error}"), error)
    }
}

impl From<forebay_ufs::Error> for Error {
    fn from(error: forebay_ufs::Error) -> Self {
        use forebay_ufs::ErrorKind as Ufs;
        let kind = match error.kind {
            Ufs::NotFound => ErrorKind::NotFound,
            Ufs::NoBucket => ErrorKind::NoSuchBucket,
            Ufs::AlreadyExists => ErrorKind::BucketAlreadyExists,
            Ufs::NotEmpty => ErrorKind::BucketNotEmpty,
            Ufs::Precondition => ErrorKind::PreconditionFailed,
            Ufs::Conflict => ErrorKind::Conflict,
            Ufs::Throttled => ErrorKind::SlowDown,
            // The clients have the permissions. An operator must fix this, and clients should retry.
            Ufs::Unavailable | Ufs::Ambiguous | Ufs::Credentials | Ufs::NoSpace | Ufs::ReadOnly => {
                ErrorKind::Unavailable
            }
            Ufs::Denied => ErrorKind::AccessDenied,
            Ufs::Unsupported => ErrorKind::NotImplemented,
            Ufs::Invalid | Ufs::InvalidStorageClass => ErrorKind::InvalidArgument,
            Ufs::InvalidName => ErrorKind::InvalidKey,
            Ufs::Corrupt => ErrorKind::Corrupt,
        };
        Self::from_source(kind, format!("the under store: {error}"), error)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn what_several_share_has_its_causes_once() {
        let cause = Error { source: Some("refused".into()), ..Error::new(ErrorKind::Unavailable, "connecting") };
        let error = Error { source: Some(Box::new(cause)), ..Error::new(ErrorKind::Unavailable, "the under store") };
        let shared = Arc::new(error).shared();
        let (mut chain, mut next) = (vec![shared.to_string()], shared.source());
        while let Some(error) = next {
            chain.push(error.to_string());
            next = error.source();
        }
        assert_eq!(chain, ["the under store", "connecting", "refused"]);
        assert!(Arc::new(Error::new(ErrorKind::Unavailable, "alone")).shared().source().is_none());
    }
}
