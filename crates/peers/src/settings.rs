//! What a worker says of its settings: all workers of a cluster need some of them alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Settings that others compare with their own, and the clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSettings {
    /// Of its clock when it answers: milliseconds since 1970.
    pub clock_ms: u64,
    /// By name: see [`Identity::digest`](crate::Identity::digest).
    pub digests: BTreeMap<String, String>,
}

impl WorkerSettings {
    /// The names of settings that both have, with other values.
    pub fn differing(&self, other: &Self) -> Vec<String> {
        let differs = |(name, digest): &(&String, &String)| other.digests.get(*name).is_some_and(|of| of != *digest);
        self.digests.iter().filter(differs).map(|(name, _)| name.clone()).collect()
    }
}

/// Gives the settings of a worker, as they are now.
pub type OwnSettings = Arc<dyn Fn() -> WorkerSettings + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_both_have_can_differ() {
        let settings = |values: &[(&str, &str)]| {
            let digests = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            WorkerSettings { clock_ms: 1, digests }
        };
        let one = settings(&[("a", "1"), ("b", "x"), ("c", "y")]);
        let other = settings(&[("b", "z"), ("c", "y"), ("d", "")]);
        assert_eq!(one.differing(&other), ["b"]);
        assert_eq!(other.differing(&one), ["b"]);
    }
}
