//! What the homes of keys have brought to the under store, as workers tell each other: it is laid over pages of
//! listings that another worker keeps.

use forebay_catalog::SlotSet;
use forebay_types::{BucketName, ObjectKey, ObjectPath};
use serde::{Deserialize, Serialize};

use crate::list::positions::{Change, ChangeMark};

/// Asks for the changes of keys with `from <= key < to`, as the catalog has them, in one bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangesWanted {
    pub(crate) bucket: BucketName,
    pub(crate) from: Vec<u8>,
    pub(crate) to: Vec<u8>,
    /// `None`: only the present mark is wanted.
    pub(crate) since: Option<ChangeMark>,
    /// For how long the asker may use what it lists after this, in milliseconds. Changes are kept for as long.
    pub(crate) keep_ms: u64,
    /// The prefix of the listing that the asker is about to ask the under store for.
    pub(crate) listed: Option<String>,
}

/// What one worker has changed of its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeChanges {
    /// The slots whose changes it knows.
    pub(crate) slots: SlotSet,
    pub(crate) mark: ChangeMark,
    /// `None`: it does not know all changes since then, or there are too many to tell.
    pub(crate) since: Option<ChangesSince>,
}

/// The changes since a mark, in no order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangesSince {
    /// Keys that a request may still change, at a time that is not known yet.
    pub(crate) in_doubt: Vec<String>,
    pub(crate) changed: Vec<(String, Change)>,
}

/// The path of a key that another worker has named.
pub(crate) fn path_of(bucket: &BucketName, key: &str) -> Option<ObjectPath> {
    Some(ObjectPath::new(bucket.clone(), ObjectKey::new(key).ok()?))
}
