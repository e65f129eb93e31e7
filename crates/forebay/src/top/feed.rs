//! What is shown, from the admin API.

use forebay_admin::api::{ClusterStatus, Overview, Sample, UnderStoreStatus};
use forebay_cache::Job;
use ureq::http::StatusCode;

use crate::client::{Call, CallError, Client};

/// Samples that the server keeps: an hour of five seconds each.
const SAMPLES_MAX: usize = 720;

/// A worker at one moment, and its last hour.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Snapshot {
    pub(super) overview: Overview,
    /// The oldest first.
    pub(super) history: Vec<Sample>,
    pub(super) under_stores: Vec<UnderStoreStatus>,
    /// The newest first.
    pub(super) jobs: Vec<Job>,
    /// `None` for a worker that is alone.
    pub(super) cluster: Option<ClusterStatus>,
}

pub(super) struct Feed {
    client: Client,
    history: Vec<Sample>,
}

impl Feed {
    pub(super) fn new(client: Client) -> Self {
        Self { client, history: Vec::new() }
    }

    pub(super) fn look(&mut self) -> Result<Snapshot, CallError> {
        let overview = self.client.read(Call::get("overview"))?;
        let since = self.history.last().map_or(0, |sample| sample.time_ms + 1);
        let news: Vec<Sample> = self.client.read(Call::get("overview/history").query("sinceMs", since))?;
        self.history.extend(news.into_iter().filter(|sample| sample.time_ms >= since));
        let surplus = self.history.len().saturating_sub(SAMPLES_MAX);
        self.history.drain(..surplus);
        let under_stores = self.client.read(Call::get("under-stores"))?;
        let jobs = self.client.read(Call::get("jobs"))?;
        Ok(Snapshot { overview, history: self.history.clone(), under_stores, jobs, cluster: self.cluster()? })
    }

    fn cluster(&self) -> Result<Option<ClusterStatus>, CallError> {
        match self.client.read(Call::get("cluster")) {
            Err(error) if error.is_status(StatusCode::NOT_FOUND) => Ok(None),
            cluster => cluster.map(Some),
        }
    }
}
