//! Writes up to their acknowledgement: objects, deletes, copies, tags, and requests that pass through.

pub(crate) mod change;
pub(crate) mod copy;
pub(crate) mod delete;
pub(crate) mod digests;
mod dropped;
pub(crate) mod passing;
pub(crate) mod permits;
pub(crate) mod put;
pub(crate) mod receive;
pub(crate) mod tags;
pub(crate) mod write_times;
