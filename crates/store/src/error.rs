//! The store's errors.

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A caller's mistake, or data of a newer format.
    Invalid,
    /// An object has more pieces than one record can name.
    TooLarge,
    /// No room now, and reclaim has made none in time; nothing changed. What is in the way may leave later.
    Full,
    /// More than a disk holds when nothing else is in the store.
    NeverFits,
    /// The process had no descriptor left for a file that was needed, or a disk does not answer: nothing changed, and it may work later.
    Busy,
    /// Stored bytes do not match their checksum.
    Corrupt,
    /// The object was overwritten, deleted or evicted while somebody read it, and its room was needed.
    Gone,
    /// The disk refused; the directory takes no more writes.
    Failed,
    /// The store is closed.
    Closed,
}

/// An error, with what was being done and why it failed.
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

    /// A refusal of the disk.
    pub(crate) fn io(context: impl Into<String>, source: std::io::Error) -> Self {
        let context = format!("{}: {source}", context.into());
        Self { kind: ErrorKind::Failed, context, source: Some(source) }
    }
}
