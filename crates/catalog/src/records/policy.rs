//! The path policies. JSON behind the version byte: rules gain fields, and people may have to read them.

use bytes::Bytes;
use forebay_types::PolicyRule;
use serde::{Deserialize, Serialize};

use super::{VERSION, body, corrupt};
use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRecord {
    pub rules: Vec<PolicyRule>,
    /// The configuration's rules when these were stored: a configuration that differs replaces them.
    pub configured: Vec<PolicyRule>,
}

impl PolicyRecord {
    pub fn encode(&self) -> Bytes {
        let mut bytes = vec![VERSION];
        serde_json::to_writer(&mut bytes, self).expect("memory takes every rule");
        bytes.into()
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(body("policy", bytes)?)
            .map_err(|error| corrupt("policy", format!("is damaged: {error}")))
    }
}
