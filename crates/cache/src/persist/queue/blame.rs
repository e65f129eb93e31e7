//! Why an object could not be persisted.

use std::time::Duration;

/// The cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// Only this object cannot be persisted.
    Object,
    /// The under store is out of reach.
    UnderStore,
    /// The under store asks for fewer requests.
    Throttling,
    /// Credentials or the bucket are missing or invalid, for this object only or for all.
    Access,
    /// Nothing failed: the object must wait until an earlier request is settled.
    Nobody(Duration),
}
