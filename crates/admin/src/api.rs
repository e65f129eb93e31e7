//! What the admin API says, beside what the cache says itself: the words that command line, console and server share.

use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_cache::Status;
use forebay_types::{ExplainedSetting, PolicyChange, PolicyRule};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A setting of the configuration in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationEntry {
    /// `section.key`
    pub name: String,
    /// Secrets are shown as `…`.
    pub value: String,
    pub default: String,
    /// `default`, `forebay.toml:12`, `FOREBAY_STORE_SIZE` or `--size`.
    pub source: String,
    pub about: String,
}

/// How urgent a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Info,
    Warning,
    Critical,
}

/// Something that an operator should know or do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// A word for programs, such as `disk-saturated`.
    pub id: String,
    pub severity: Severity,
    /// What it is about: a directory, an under store; empty for the whole worker.
    pub subject: String,
    /// What is so, in one line, with the measured value.
    pub title: String,
    /// What to do about it, in one line.
    pub cure: String,
    pub since_ms: u64,
}

/// The notices in force, shared by clones. Watchers raise and clear them.
#[derive(Debug, Clone, Default)]
pub struct Notices {
    present: Arc<RwLock<Vec<Notice>>>,
    /// Watchers that have not finished their first round.
    first_rounds: Arc<AtomicUsize>,
}

/// The first round of a watcher. It ends when this is dropped.
#[derive(Debug)]
pub struct FirstRound {
    open: Arc<AtomicUsize>,
}

impl Drop for FirstRound {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Release);
    }
}

impl Notices {
    /// A watcher begins. Until it drops this, notices of its first round may be missing.
    pub fn first_round(&self) -> FirstRound {
        self.first_rounds.fetch_add(1, Ordering::Relaxed);
        FirstRound { open: Arc::clone(&self.first_rounds) }
    }

    /// Whether a watcher has not finished its first round.
    pub fn is_checking(&self) -> bool {
        self.first_rounds.load(Ordering::Acquire) > 0
    }

    /// Adds a notice, or replaces the one of the same id and subject, whose `since_ms` stays.
    /// Says whether it is new.
    pub fn raise(&self, notice: Notice) -> bool {
        let mut present = self.present.write();
        match present.iter_mut().find(|other| other.id == notice.id && other.subject == notice.subject) {
            Some(other) => {
                *other = Notice { since_ms: other.since_ms, ..notice };
                false
            }
            None => {
                present.push(notice);
                true
            }
        }
    }

    /// Says whether there was one.
    pub fn clear(&self, id: &str, subject: &str) -> bool {
        let mut present = self.present.write();
        let before = present.len();
        present.retain(|notice| notice.id != id || notice.subject != subject);
        present.len() < before
    }

    /// The most severe first.
    pub fn all(&self) -> Vec<Notice> {
        let mut all = self.present.read().clone();
        all.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.id.cmp(&b.id)));
        all
    }
}

/// What one interval looked like. Rates are per second, latencies in milliseconds; a latency is absent when nothing
/// was asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// The end of the interval, in milliseconds since 1970.
    pub time_ms: u64,
    pub interval_ms: u64,
    pub operations: Vec<OperationSample>,
    /// Bytes of bodies per second, from and to clients.
    pub bytes_in: f64,
    pub bytes_out: f64,
    pub reads: Vec<ReadSample>,
    pub dirty_objects: u64,
    pub dirty_bytes: u64,
    pub oldest_dirty_age_ms: u64,
    /// Objects and bytes brought to the under store per second.
    pub persisted: f64,
    pub persisted_bytes: f64,
    pub persist_failures: f64,
    pub pinned_bytes: u64,
    pub evictable_bytes: u64,
    pub free_bytes: u64,
    pub capacity_bytes: u64,
    pub memory_tier_bytes: u64,
    pub disks: Vec<DiskSample>,
    pub under_store_calls: f64,
    pub under_store_errors: f64,
    /// Processors that the process used, 1.0 for one core.
    pub cpu: f64,
    pub resident_bytes: u64,
    pub connections: u64,
}

/// Requests of one S3 operation in an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationSample {
    pub operation: String,
    pub rate: f64,
    /// Answers of 500 and above, except 503, per second.
    pub errors: f64,
    /// Answers of 503 per second.
    pub throttled: f64,
    /// Until the first byte of the answer.
    pub p25_ms: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p75_ms: Option<f64>,
    pub p90_ms: Option<f64>,
    pub p99_ms: Option<f64>,
}

/// Reads in an interval, by the tier that answered and the path of the policy rule that they fall under.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadSample {
    pub path: String,
    pub bucket: String,
    /// `memory`, `disk` or `under_store`.
    pub tier: String,
    pub rate: f64,
    pub bytes: f64,
}

/// One cache directory in an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskSample {
    pub directory: String,
    /// Share of the interval in which the device had work to do, 0 to 1; absent where the system does not report it.
    pub busy: Option<f64>,
    /// Mean time of a group commit's write and sync.
    pub sync_ms: Option<f64>,
    pub written_bytes: f64,
    pub failed: bool,
}

/// The state of the worker, at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    pub version: String,
    pub started_ms: u64,
    pub now_ms: u64,
    pub status: Status,
    pub notices: Vec<Notice>,
    /// The first checks after the start are not complete: notices may be missing.
    #[serde(default)]
    pub checking: bool,
    /// The newest sample, once there is one.
    pub sample: Option<Sample>,
    /// Seconds until the backlog is empty, at the rates of the last minute; absent while it grows or is empty.
    pub drain_seconds: Option<f64>,
}

/// Whether requests to an under store go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CircuitState {
    /// They do.
    Closed,
    /// They do not, until the next probe.
    Open,
    /// A probe is in flight.
    Probing,
}

/// An under store, as its governor sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnderStoreStatus {
    /// Its URL, without secrets.
    pub url: String,
    /// Buckets that are mounted on it by name; empty for the one that has all others.
    pub buckets: Vec<String>,
    pub circuit: CircuitState,
    /// Until the next probe, while the circuit is open.
    pub probe_in_ms: Option<u64>,
    pub failures_in_a_row: u32,
    /// Background requests that may run at once now (AIMD), and the most that ever may.
    pub concurrency_limit: u32,
    pub concurrency_max: u32,
    pub running: u32,
    /// How long requests have been in flight without an answer to any of them.
    #[serde(default)]
    pub silent_ms: Option<u64>,
    /// Since the start.
    pub calls: u64,
    pub errors: u64,
    pub throttled: u64,
    /// The last error, in one line, and when it was.
    pub last_error: Option<String>,
    pub last_error_ms: Option<u64>,
    /// Why it can't be used, in one line, as the last probe found it: at the start, after requests that failed, and
    /// while requests are not answered.
    pub problem: Option<String>,
    /// The id of the problem's notice, such as `under-store-unreachable`.
    #[serde(default)]
    pub problem_id: Option<String>,
    /// The probe at the start has not ended: there may be a problem.
    #[serde(default)]
    pub checking: bool,
    /// 0 is no limit.
    pub requests_per_second_max: u32,
    pub upload_bandwidth_max: u64,
}

/// Where the admin API gets the states of under stores from.
pub trait UnderStores: Send + Sync + 'static {
    fn states(&self) -> Vec<UnderStoreStatus>;
}

/// Whether a worker of a cluster is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerState {
    Live,
    /// It lives, and gives its slots to others: it stops when nobody needs its bytes.
    Draining,
    /// Nobody needs its bytes any more, and it is about to stop.
    Drained,
    /// It has stopped.
    Left,
    /// It was silent for too long, and others have taken its place.
    Lost,
}

/// A worker of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterWorker {
    pub id: String,
    pub state: WorkerState,
    /// Slots that are at home there.
    pub slots: u32,
    /// Where it is reached, as `host:port`: by other workers, by S3 clients and by clients of the admin API.
    pub peer_address: Option<String>,
    pub s3_address: Option<String>,
    pub admin_address: Option<String>,
    pub version: Option<String>,
    /// What it says of itself; absent when it does not answer.
    pub status: Option<Status>,
    /// Why it does not answer, or how it differs from the worker that is asked.
    pub problem: Option<String>,
}

/// A member of the engine that all workers share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineMember {
    pub endpoint: String,
    pub version: Option<String>,
    pub database_bytes: Option<u64>,
    /// Writes are refused beyond it.
    pub quota_bytes: Option<u64>,
    /// Why it does not answer, or takes no writes.
    pub problem: Option<String>,
}

/// The cluster, as the worker that is asked sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    pub name: String,
    /// The worker that is asked.
    pub worker: String,
    /// How long ago that worker saw states and slots in the engine, in milliseconds: less than two seconds while the
    /// engine answers.
    pub age_ms: u64,
    pub slots: u32,
    /// Slots whose keys are refused at the moment.
    pub slots_without_home: u32,
    pub workers: Vec<ClusterWorker>,
    pub engine: Vec<EngineMember>,
}

/// Where keys are at home, for clients that ask the home of a key themselves.
///
/// The slot of a key is the XXH3 hash (64 bits, no seed) of the bucket, a zero byte and the key, modulo the number of
/// slots. Any worker answers for any key: the homes may have changed since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterHomes {
    /// The workers that live.
    pub workers: Vec<HomeWorker>,
    /// For each slot, the index of its home in `workers`.
    pub homes: Vec<Option<u32>>,
}

/// A worker that may be the home of slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HomeWorker {
    pub id: String,
    /// Where it speaks S3: `host:port`.
    pub s3_address: Option<String>,
}

/// Where the admin API gets the state of the cluster from.
#[async_trait]
pub trait Cluster: Send + Sync + 'static {
    async fn status(&self) -> ClusterStatus;
    fn homes(&self) -> ClusterHomes;
    /// Marks a worker as draining.
    async fn drain(&self, worker: &str) -> Result<(), LeavingRefused>;
    /// Notes that a worker that does not run will never come back.
    async fn remove(&self, worker: &str) -> Result<(), LeavingRefused>;
}

/// Why a worker is not taken out of the cluster, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeavingRefused {
    /// There is no such worker.
    Absent(String),
    /// Not as the worker is now.
    Conflict(String),
    Unavailable(String),
}

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bucket {
    pub name: String,
    pub created_ms: Option<u64>,
}

/// The settings that hold for one path, each with where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedPolicy {
    pub path: String,
    /// The path of the longest rule that holds; none when no rule does.
    pub rule: Option<String>,
    pub settings: Vec<ExplainedSetting>,
    pub version: u64,
}

/// What replacing the rules would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyCheck {
    /// The version that it was compared with.
    pub version: u64,
    pub changes: Vec<PolicyChange>,
}

/// The rules of one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRules {
    pub version: u64,
    pub rules: Vec<PolicyRule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rollback {
    pub version: u64,
}

/// Keys of an administrator.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Login {
    pub access_key: String,
    pub secret_key: String,
}

/// A session of the console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    pub user: String,
    /// Goes into the header `x-forebay-csrf` of everything that is not GET or HEAD.
    pub csrf: String,
    pub expires_ms: u64,
}

/// The answer to stored bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContentWritten {
    /// In quotes, as S3 shows it.
    pub etag: String,
}

/// An error, RFC 9457.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemBody {
    pub title: String,
    pub status: u16,
    pub detail: String,
}
