//! The catalog's errors.

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A check of the transaction did not hold; nothing changed.
    Conflict,
    /// Whether the commit holds is not known.
    Unknown,
    /// A record can't be decoded.
    Corrupt,
    /// The engine lacks room, or something else that it may have again soon; nothing changed.
    Busy,
    /// The engine is closed or out of reach; nothing changed.
    Unavailable,
}

/// An error, with what was being done and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    pub kind: ErrorKind,
    pub context: String,
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }
}

impl From<forebay_store::Error> for Error {
    fn from(error: forebay_store::Error) -> Self {
        use forebay_store::ErrorKind as Store;
        let kind = match error.kind {
            // The commit may have reached the disk before the disk refused.
            Store::Failed => ErrorKind::Unknown,
            Store::Corrupt => ErrorKind::Corrupt,
            Store::Full | Store::Busy | Store::Gone => ErrorKind::Busy,
            Store::Invalid | Store::TooLarge | Store::NeverFits | Store::Closed => ErrorKind::Unavailable,
        };
        Self { kind, context: format!("the local store: {error}"), source: Some(Box::new(error)) }
    }
}
