//! Errors of under stores.

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No such object, or no such bucket when the bucket itself was asked for.
    NotFound,
    /// The bucket behind the mount does not exist.
    NoBucket,
    AlreadyExists,
    NotEmpty,
    /// A condition did not hold; nothing changed.
    Precondition,
    /// Another write was in flight (409). Nothing changed; retry.
    Conflict,
    /// The under store asks for fewer requests (503 SlowDown, 429).
    Throttled,
    /// Out of reach or failing. Certainly nothing changed.
    Unavailable,
    /// The answer to a write was lost: the write may have been applied, or may be applied later.
    Ambiguous,
    /// The under store has no room for it, or a quota is used up. A smaller write may still succeed. A directory may
    /// already show the change, and not have synced it. Nothing changes later.
    NoSpace,
    /// The file system behind the under store is read-only. Nothing changes later.
    ReadOnly,
    /// The requester may not do this.
    Denied,
    /// Our credentials are missing, wrong or expired. This says nothing about what clients may do.
    Credentials,
    /// The under store can't do this.
    Unsupported,
    /// The request can't be right, for example because of a size that the under store refuses.
    Invalid,
    /// The under store can't have such names.
    InvalidName,
    /// The under store has no such storage class.
    InvalidStorageClass,
    /// The source of an upload, or a body, is not what it should be.
    Corrupt,
}

impl ErrorKind {
    /// Whether the under store can't have the object, and says what it is about the object that it can't have.
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::InvalidName | Self::InvalidStorageClass)
    }

    /// Whether the under store considers the request invalid.
    pub fn is_invalid(self) -> bool {
        self == Self::Invalid || self.is_refusal()
    }

    /// Whether the same call may succeed later.
    pub fn is_transient(self) -> bool {
        match self {
            Self::Conflict | Self::Throttled | Self::Unavailable | Self::Ambiguous | Self::NoSpace | Self::ReadOnly => {
                true
            }
            Self::NotFound
            | Self::NoBucket
            | Self::AlreadyExists
            | Self::NotEmpty
            | Self::Precondition
            | Self::Denied
            | Self::Credentials
            | Self::Unsupported
            | Self::Invalid
            | Self::InvalidName
            | Self::InvalidStorageClass
            | Self::Corrupt => false,
        }
    }
}

/// An error: what was being done, and why it failed. The text never holds secrets.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    pub kind: ErrorKind,
    pub context: String,
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// See [`Error::is_unsent`].
    pub(crate) unsent: bool,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error for a key without an object.
pub(crate) fn not_found(key: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("{key:?} does not exist"))
}

impl Error {
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None, unsent: false }
    }

    /// The error of a request that was not sent: the under store is out of reach, or nothing is sent to it now.
    pub fn unsent(context: impl Into<String>) -> Self {
        Self { unsent: true, ..Self::new(ErrorKind::Unavailable, context) }
    }

    /// Whether the request certainly did not leave this process. After a write in several steps, the step that would
    /// have changed the object did not.
    pub fn is_unsent(&self) -> bool {
        self.unsent && self.kind == ErrorKind::Unavailable
    }
}
