//! The users of a cluster. They have secrets, so the workers encrypt them, and this crate does not look inside.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{VERSION, decode, encode};
use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsersRecord {
    /// Grows by one with every change of the users.
    pub revision: u64,
    pub sealed: Vec<u8>,
}

impl UsersRecord {
    pub fn encode(&self) -> Bytes {
        encode(VERSION, self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode("users", VERSION, bytes)
    }
}
