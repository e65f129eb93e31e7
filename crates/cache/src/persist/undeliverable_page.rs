//! What is shown of objects and deletes that the under store refuses.

use forebay_types::ObjectPath;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The kind of a pending change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UndeliverableChange {
    Write,
    Delete,
}

/// An object, or a delete, that the under store has refused several times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Undeliverable {
    /// `/bucket/key`
    pub path: String,
    pub change: UndeliverableChange,
    /// Zero for a delete.
    pub size: u64,
    /// The generation of the pending version.
    pub generation: u64,
    pub dirty_since_ms: u64,
    /// The time of the first refusal that this process knows of.
    pub refused_since_ms: u64,
    /// Consecutive refusals.
    pub tries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_in_ms: Option<u64>,
    /// Why the last try failed, in one line.
    pub reason: String,
}

/// Sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UndeliverablePage {
    pub objects: Vec<Undeliverable>,
    /// The path after which the next page starts, if there may be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Workers of the cluster that do not answer: what is at home there is missing here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<String>,
}

/// What an operator does with an undeliverable object. Workers send each other its index: new kinds come last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum UndeliverableEnd {
    Keep,
    Discard,
    Rename(ObjectPath),
}
