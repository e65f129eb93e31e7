//! Warm-up: the new home of a slot takes clean copies over from its former home, instead of reading the objects from
//! the under store again.
//!
//! It does so when an object is read: the description first, and with it a small object as a whole; then pages of large
//! objects, when they are wanted. A page is identified by the under store's ETag, so it needs nothing else. A
//! description counts as validated when the former home has validated it, and only while nothing has been heard of the
//! object since the slot was gained: no write, and no answer of the under store.

mod gained;
mod give;
mod hand_over;
mod hand_overs;
mod take_over;
pub(crate) mod touched;

use std::time::Duration;

use forebay_types::{ByteRange, ETag, ObjectPath};
use serde::{Deserialize, Serialize};

pub(crate) use gained::GainedSlots;
pub(crate) use hand_overs::HandOvers;

use crate::ByteStream;

/// A clean copy, as the former home of its slot has it.
pub struct CleanCopy {
    pub terms: CleanTerms,
    /// All bytes of a small object.
    pub body: Option<ByteStream>,
}

/// A clean copy without the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanTerms {
    pub size: u64,
    /// As the store keeps it with the bytes.
    pub metadata: Vec<u8>,
    /// As the store keeps it in memory.
    pub annex: Vec<u8>,
    /// How long ago the copy was validated, by the process that was the home.
    pub validated: Duration,
}

/// Some bytes of a version of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanRange {
    pub path: ObjectPath,
    /// The under store's.
    pub remote_etag: ETag,
    pub size: u64,
    pub range: ByteRange,
}

/// An object that a worker has read often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotObject {
    pub path: ObjectPath,
    /// Its bytes there, in order.
    pub cached: Vec<ByteRange>,
}
