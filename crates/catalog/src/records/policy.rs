//! The path policies and their history. JSON behind the version byte: rules gain fields, and people may have to read
//! them. A new field has a default, so that records of before are read; a reader of before passes it over.

use bytes::Bytes;
use forebay_types::{PolicyChange, PolicyRule};
use serde::{Deserialize, Serialize};

use super::{decode_json, encode_json};
use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRecord {
    pub rules: Vec<PolicyRule>,
    /// The configuration's rules when these were stored: a configuration that differs replaces them.
    pub configured: Vec<PolicyRule>,
    /// The number of this version, which grows by one with every change. 0: stored before versions were counted.
    #[serde(default)]
    pub revision: u64,
}

impl PolicyRecord {
    pub fn encode(&self) -> Bytes {
        encode_json(self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode_json("policy", bytes)
    }
}

/// The rules of the configuration of a worker of a cluster, at its last start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfiguredPolicies {
    pub rules: Vec<PolicyRule>,
}

impl ConfiguredPolicies {
    pub fn encode(&self) -> Bytes {
        encode_json(self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode_json("configured policies", bytes)
    }
}

/// One version of the path policies, as the history keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyVersionRecord {
    pub revision: u64,
    pub time_ms: u64,
    /// The user, or `configuration`.
    pub by: String,
    pub reason: String,
    pub rules: Vec<PolicyRule>,
    /// Against the version before, which the history may keep no more.
    pub changes: Vec<PolicyChange>,
}

impl PolicyVersionRecord {
    pub fn encode(&self) -> Bytes {
        encode_json(self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode_json("policy version", bytes)
    }
}
