//! The record of a commit: what changed in one step.

use bytes::Bytes;
use forebay_types::Generation;
use serde::{Deserialize, Serialize};

use super::{CHECKSUM_BYTES, Draft, Kind, decode_body, encode_body};
use crate::Result;

/// Most bytes that a commit of one change takes, in addition to its keys, values and annexes: header, lengths, sequence
/// and padding.
pub(crate) const RECORD_BYTES: u64 = (super::HEADER_BYTES + super::ALIGNMENT + 32) as u64;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommitBody {
    /// Objects whose records come before this one: in the same log, unless they were prepared.
    pub(crate) publish: Vec<(Vec<u8>, Generation)>,
    pub(crate) forget: Vec<Vec<u8>>,
    pub(crate) annotate: Vec<AnnotationBody>,
    pub(crate) writes: Vec<WriteBody>,
    /// Set where reclaim carries what still counts of an older commit: the sequence of that commit. It is the version
    /// of the values, and the position at which a rebuild applies the rest.
    pub(crate) as_of: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnnotationBody {
    pub(crate) key: Vec<u8>,
    pub(crate) generation: Generation,
    pub(crate) annex: Vec<u8>,
    pub(crate) pinned: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriteBody {
    pub(crate) key: Vec<u8>,
    /// `None` deletes.
    pub(crate) value: Option<Vec<u8>>,
}

impl CommitBody {
    pub(crate) fn draft(&self) -> Draft {
        Draft { kind: Kind::Commit, body: encode_body(self), payload: Bytes::new() }
    }

    /// Most bytes that its deletes and annotations take in a log.
    pub(crate) fn change_bytes(&self) -> u64 {
        let forgotten = self.forget.iter().map(Vec::len);
        let annotated = self.annotate.iter().map(|annotation| annotation.key.len() + annotation.annex.len());
        let deleted = self.writes.iter().filter(|write| write.value.is_none()).map(|write| write.key.len());
        forgotten.chain(annotated).chain(deleted).map(|bytes| bytes as u64 + RECORD_BYTES).sum()
    }

    /// A record that changes nothing and fills `bytes` of a log, a multiple of [`super::ALIGNMENT`]. `None` when no
    /// record is that short.
    pub(crate) fn filler(bytes: usize) -> Option<Draft> {
        let empty = Self::default().draft();
        let payload = bytes.checked_sub(empty.head_bytes() + CHECKSUM_BYTES).filter(|payload| *payload > 0)?;
        Some(Draft { payload: vec![0; payload].into(), ..empty })
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self> {
        decode_body(body)
    }
}
