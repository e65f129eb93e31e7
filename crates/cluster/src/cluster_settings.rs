//! What all workers of a cluster must agree on.

use bytes::Bytes;
use forebay_catalog::{Check, Engine, ErrorKind, Result, SlotCount, records};
use forebay_store::ValueWrite;
use serde::{Deserialize, Serialize};

use crate::layout::CLUSTER_KEY;

/// Chosen when the cluster is created, and kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSettings {
    /// Shards of the paths. Many more than workers, so that each can have its share.
    pub slots: SlotCount,
    /// Milliseconds that a worker may be silent before others take its place.
    pub lease_ms: u64,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl ClusterSettings {
    pub const DEFAULT: Self = Self { slots: SlotCount::DEFAULT, lease_ms: 10_000 };

    /// As the cluster was created, or the defaults.
    ///
    /// # Errors
    /// As [`ClusterSettings::load`].
    pub(crate) async fn present(engine: &dyn Engine) -> Result<Self> {
        match engine.get(CLUSTER_KEY).await? {
            Some(found) => records::decode("cluster", records::VERSION, &found.value),
            None => Ok(Self::DEFAULT),
        }
    }

    /// Creates the cluster, or takes it as it was created.
    ///
    /// # Errors
    /// `Corrupt` when the record is damaged or of a newer version; whatever the engine answers, and then another try is
    /// safe.
    pub(crate) async fn load(engine: &dyn Engine, new: Self) -> Result<Self> {
        loop {
            if let Some(found) = engine.get(CLUSTER_KEY).await? {
                return records::decode("cluster", records::VERSION, &found.value);
            }
            let key = Bytes::from_static(CLUSTER_KEY);
            let value = Some(records::encode(records::VERSION, &new));
            let checks = [Check { key: key.clone(), version: None }];
            match engine.commit(&checks, &[ValueWrite { key, value }]).await {
                Ok(_) => return Ok(new),
                // Another worker was first.
                Err(error) if error.kind == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
    }
}
