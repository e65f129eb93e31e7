//! The store's errors.

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A caller's mistake, or data of a newer format.
    Invalid,
    /// An object has more pieces than one record can name.
    TooLarge,
    /// There is no room now, and reclaim has made none in time. Nothing changed, and there may be room later.
    Full,
    /// More bytes than a disk can hold, even if nothing else is in the store.
    NeverFits,
    /// The process had no file descriptor left, or a disk does not answer. Nothing changed, and a retry may work.
    Busy,
    /// Stored bytes do not match their checksum.
    Corrupt,
    /// The object was overwritten, deleted or evicted during a read, and its room was needed.
    Gone,
    /// The disk failed. The directory takes no more writes.
    Failed,
    /// The store is closed.
    Closed,
}

/// An error: what was being done, and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    pub kind: ErrorKind,
    pub context: String,
    #[source]
    pub source: Option<std::io::Error>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// An error that the disk reported.
    pub(crate) fn io(context: impl Into<String>, source: std::io::Error) -> Self {
        let context = format!("{}: {source}", context.into());
        Self { kind: ErrorKind::Failed, context, source: Some(source) }
    }
}
