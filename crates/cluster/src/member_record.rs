//! Where a worker is reached and what it runs, as the engine has it.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_catalog::{Result, records};
use serde::{Deserialize, Serialize};

use crate::layout::WorkerId;

/// Of this build.
const BUILD_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where a worker is reached, each as `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Addresses {
    /// By other workers.
    pub peers: String,
    /// By S3 clients. `None` when it has no address of its own that they may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<String>,
    /// By clients of the admin API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
}

/// Written by a worker when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemberRecord {
    pub(crate) addresses: Addresses,
    /// Of the build.
    pub(crate) version: String,
    /// See [`crate::HomeSettings::under_stores`]. Older builds told nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) under_stores: BTreeMap<String, String>,
}

impl MemberRecord {
    /// Of this process.
    pub(crate) fn new(addresses: Addresses, under_stores: BTreeMap<String, String>) -> Self {
        Self { addresses, version: BUILD_VERSION.to_owned(), under_stores }
    }

    pub(crate) fn encode(&self) -> Bytes {
        records::encode_json(self)
    }

    /// # Errors
    /// `Corrupt` when the bytes are damaged or of a newer version.
    pub(crate) fn decode(worker: &WorkerId, bytes: &[u8]) -> Result<Self> {
        records::decode_json(&format!("member {worker}"), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What version 1 wrote. Every later version must still read it.
    const RECORD: &[u8] =
        b"\x01{\"addresses\":{\"peers\":\"10.0.0.1:9100\",\"s3\":\"10.0.0.1:9000\"},\"version\":\"0.1.0\"}";

    #[test]
    fn a_record_reads_as_version_1_wrote_it() {
        let worker = WorkerId::new("w1").unwrap();
        let addresses =
            Addresses { peers: "10.0.0.1:9100".to_owned(), s3: Some("10.0.0.1:9000".to_owned()), admin: None };
        let record = MemberRecord { addresses, version: "0.1.0".to_owned(), under_stores: BTreeMap::new() };
        assert_eq!(MemberRecord::decode(&worker, RECORD).unwrap(), record);
        assert_eq!(record.encode(), RECORD);
        let under_stores = BTreeMap::from([("mounts".to_owned(), "0a".to_owned())]);
        let told = MemberRecord { under_stores, ..record };
        assert_eq!(MemberRecord::decode(&worker, &told.encode()).unwrap(), told);
        let problem = MemberRecord::decode(&worker, b"\x02{}").unwrap_err().to_string();
        assert_eq!(problem, "the member w1 record has version 2, newer than this release's 1");
        assert!(MemberRecord::decode(&worker, &RECORD[..20]).unwrap_err().to_string().contains("member w1"));
    }
}
