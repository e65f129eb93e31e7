//! Watches what a worker stands on while it runs, and raises a notice where an operator should look.

mod devices;
mod health;
mod saturation;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use forebay_admin::{FirstRound, Notice, Notices, Severity};
use forebay_auth::Users;
use forebay_cache::Cache;
use forebay_env::{Env, Task};
use forebay_store::Store;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::certificate::{CertificateState, Present};
use crate::cluster::{Agreement, ClusterUsers, EngineHealth};
use crate::metrics::{DirectoryLabels, StoreObserver, SyncTotal};
use crate::under_stores::OpenUnderStores;
pub(crate) use devices::device_of;
use devices::{Device, ticks_ms};
use health::{Condition, Facts, FullDisks, Lately};
use saturation::{Interval, Saturation};

/// As often as the history of the admin API takes a sample: what is shown there and what is watched are the same
/// intervals.
const INTERVAL: Duration = Duration::from_secs(5);

/// Until the first round is complete: somebody may wait for it.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);

/// What is watched, as metrics.
#[derive(Clone, Default)]
pub(crate) struct WatchMetrics {
    busy: Family<DirectoryLabels, Gauge<f64, AtomicU64>>,
    saturated: Family<DirectoryLabels, Gauge>,
    full: Family<DirectoryLabels, Gauge>,
    missing: Gauge<u64, AtomicU64>,
    certificate_expiring: Gauge,
    certificate_not_after: Gauge,
    pinned_max: Gauge<u64, AtomicU64>,
}

impl WatchMetrics {
    #[rustfmt::skip]
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("forebay_disk_busy_ratio", "Share of the last seconds in which the disk had work to do, by directory; absent where the system does not report it", metrics.busy.clone());
        registry.register("forebay_disk_saturated", "1 while the disk cannot keep up, by directory", metrics.saturated.clone());
        registry.register("forebay_disk_full", "1 while the file system of the directory has less room than store.size counts on, so that writes which need it are refused: others have filled it, or it is smaller than store.size says; by directory", metrics.full.clone());
        registry.register("forebay_missing_objects", "Acknowledged objects whose bytes were missing at the start", metrics.missing.clone());
        registry.register("forebay_certificate_expiring", "1 while the TLS certificate has expired, is not valid yet, or expires soon: within 14 days, or within the last twelfth of its lifetime if that is shorter", metrics.certificate_expiring.clone());
        registry.register("forebay_certificate_not_after_timestamp_seconds", "When the TLS certificate that clients see expires; 0 without one", metrics.certificate_not_after.clone());
        registry.register("forebay_pinned_max_bytes", "Most bytes that objects which may not be evicted may take", metrics.pinned_max.clone());
        metrics
    }
}

/// What is watched.
pub(crate) struct Watch {
    pub(crate) env: Env,
    pub(crate) cache: Cache,
    pub(crate) store: Store,
    pub(crate) syncs: Arc<StoreObserver>,
    pub(crate) under_stores: OpenUnderStores,
    pub(crate) users: Users,
    /// Of a cluster.
    pub(crate) cluster_users: Option<Arc<ClusterUsers>>,
    /// With the other workers of a cluster.
    pub(crate) agreement: Option<Arc<Agreement>>,
    /// Of a cluster.
    pub(crate) engine: Option<Arc<EngineHealth>>,
    pub(crate) notices: Notices,
    pub(crate) metrics: WatchMetrics,
    /// Share of the capacity that pinned data may take.
    pub(crate) pinned_ratio: f64,
}

/// A directory, and what was seen of it last.
struct Watched {
    label: String,
    device: Option<Device>,
    ticks_ms: Option<u64>,
    syncs: SyncTotal,
    saturation: Saturation,
}

impl Watch {
    /// Watches until the task is aborted.
    pub(crate) fn start(self, directories: &[PathBuf], certificate: Option<Arc<Present>>) -> Task<()> {
        self.metrics.pinned_max.set(self.pinned_bytes_max());
        let watched: Vec<_> = directories.iter().map(|directory| Watched::new(directory)).collect();
        let first_round = self.notices.first_round();
        forebay_env::spawn(self.run(watched, certificate, first_round))
    }

    async fn run(self, mut directories: Vec<Watched>, certificate: Option<Arc<Present>>, first_round: FirstRound) {
        let (mut pinned_full, mut full_disks) = (Lately::default(), FullDisks::default());
        let mut first_round = Some(first_round);
        let mut at = self.env.clock.monotonic();
        loop {
            self.env.clock.sleep(if first_round.is_some() { FIRST_INTERVAL } else { INTERVAL }).await;
            let now = self.env.clock.monotonic();
            // Two short files of the kernel, which never wait for a disk.
            let stats = std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
            let ticks = ticks_ms(&stats);
            let totals = self.syncs.totals();
            for directory in &mut directories {
                self.look(directory, &ticks, &totals, now, now.saturating_sub(at));
            }
            at = now;
            self.metrics.pinned_max.set(self.pinned_bytes_max());
            self.look_at_space().await;
            // What a probe finds later is not among these facts.
            let is_complete = self.under_stores.are_probed();
            let mut facts = self.facts(certificate.as_deref());
            facts.rejected_pinned_full = pinned_full.observe(now, facts.status.rejected_pinned_full);
            let is_short = facts.directories.iter().any(|directory| directory.shortage.is_some());
            facts.rejected_disk_full = full_disks.observe(now, facts.status.rejected_disk_full, is_short);
            self.observe(&facts);
            for condition in health::conditions(&facts) {
                self.tell(condition);
            }
            first_round = first_round.filter(|_| !is_complete);
        }
    }

    /// A file system that does not answer holds up nothing else.
    async fn look_at_space(&self) {
        tokio::select! {
            () = self.store.look_at_space() => {}
            () = self.env.clock.sleep(INTERVAL) => {}
        }
    }

    fn observe(&self, facts: &Facts) {
        self.metrics.missing.set(facts.status.missing_objects);
        let certificate = facts.certificate;
        let is_expiring = certificate.is_some_and(|expiry| expiry.state() != CertificateState::Valid);
        self.metrics.certificate_expiring.set(i64::from(is_expiring));
        let not_after_ms = certificate.map_or(0, |expiry| expiry.not_after_ms);
        self.metrics.certificate_not_after.set((not_after_ms / 1000) as i64);
        for directory in &facts.directories {
            let labels = DirectoryLabels { directory: directory.label.clone() };
            self.metrics.full.get_or_create(&labels).set(i64::from(directory.shortage.is_some()));
        }
    }

    fn look(
        &self,
        directory: &mut Watched,
        ticks: &HashMap<Device, u64>,
        totals: &HashMap<String, SyncTotal>,
        now: Duration,
        passed: Duration,
    ) {
        let interval = directory.advance(ticks, totals.get(&directory.label).copied().unwrap_or_default(), passed);
        let labels = DirectoryLabels { directory: directory.label.clone() };
        match interval.busy {
            Some(busy) => {
                self.metrics.busy.get_or_create(&labels).set(busy);
            }
            None => {
                self.metrics.busy.remove(&labels);
            }
        }
        let saturated = directory.saturation.observe(now, interval);
        self.metrics.saturated.get_or_create(&labels).set(i64::from(saturated));
        let title = saturated.then(|| directory.saturation.describe(interval));
        let subject = directory.label.clone();
        self.tell(Condition { id: "disk-saturated", severity: Severity::Warning, subject, title, cure: DISK_CURE });
    }

    /// Changes with the size of the index.
    fn pinned_bytes_max(&self) -> u64 {
        (self.store.usage().capacity_bytes as f64 * self.pinned_ratio) as u64
    }

    fn facts(&self, certificate: Option<&Present>) -> Facts {
        Facts {
            status: self.cache.status(),
            directories: self.store.health(),
            corrupt_records: self.store.counters().corrupt_records,
            damaged: self.store.last_damaged(),
            pinned_bytes_max: self.pinned_bytes_max(),
            under_stores: self.under_stores.labelled().map(|(label, state)| (label.to_owned(), state)).collect(),
            troubles: self.under_stores.troubles().map(|(label, trouble)| (label.to_owned(), trouble)).collect(),
            rejected_pinned_full: 0,
            rejected_disk_full: 0,
            users_file: self.users.refusal(),
            users: self.users.file_counts(),
            cluster_users: self.cluster_users.as_ref().and_then(|users| users.problem()),
            certificate: certificate.and_then(|certificate| certificate.expiry(self.env.clock.unix_ms())),
            replaced_rules: self.cache.replaced_rules(),
            is_cut_off: self.cache.is_cut_off(),
            old_engines: self.engine.as_ref().map(|engine| engine.old_members()).unwrap_or_default(),
            differences: self.agreement.as_ref().map(|agreement| agreement.differences()).unwrap_or_default(),
        }
    }

    fn tell(&self, condition: Condition) {
        let now_ms = self.env.clock.unix_ms();
        match condition.notice(now_ms) {
            Ok(notice) => raise(&self.notices, notice),
            Err((id, subject)) => clear(&self.notices, id, &subject),
        }
    }
}

/// Ends a notice; if there was one, the log has a line.
pub(crate) fn clear(notices: &Notices, id: &str, subject: &str) {
    if notices.clear(id, subject) {
        tracing::info!(notice = id, subject, "a notice is over");
    }
}

/// Raises a notice; a new one has a line in the log.
pub(crate) fn raise(notices: &Notices, notice: Notice) {
    if !notices.raise(notice.clone()) {
        return;
    }
    let Notice { id, severity, subject, title, cure, .. } = notice;
    match severity {
        Severity::Critical => tracing::error!(notice = id, subject, cure, "{title}"),
        Severity::Warning => tracing::warn!(notice = id, subject, cure, "{title}"),
        Severity::Info => tracing::info!(notice = id, subject, cure, "{title}"),
    }
}

const DISK_CURE: &str = "Add a disk or a faster one (store.data_dirs), or write less: fewer readers that fill the cache, cacheReads off for cold paths";

impl Watched {
    fn new(directory: &Path) -> Self {
        Self {
            label: directory.display().to_string(),
            device: devices::device_of(directory, Path::new("/")),
            ticks_ms: None,
            syncs: SyncTotal::default(),
            saturation: Saturation::default(),
        }
    }

    /// What has happened since the last look.
    fn advance(&mut self, ticks: &HashMap<Device, u64>, syncs: SyncTotal, passed: Duration) -> Interval {
        let ticks = self.device.as_ref().and_then(|device| ticks.get(device)).copied();
        let spent_ms = ticks.zip(self.ticks_ms).map(|(now, before)| now.saturating_sub(before) as f64);
        // The kernel counts in milliseconds of its own: a little more than the interval is still all of it.
        let busy = spent_ms.map(|spent| (spent / (passed.as_secs_f64() * 1000.0).max(1.0)).min(1.0));
        let done = syncs.syncs - self.syncs.syncs;
        let sync_seconds = (done > 0).then(|| (syncs.seconds - self.syncs.seconds) / done as f64);
        self.ticks_ms = ticks;
        self.syncs = syncs;
        Interval { busy, sync_seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_the_difference_of_two_looks() {
        let directory = tempfile::tempdir().unwrap();
        let mut watched = Watched::new(directory.path());
        let device = Device { major: 8, minor: 0 };
        watched.device = Some(device);
        let total = |syncs, seconds| SyncTotal { syncs, seconds };
        let passed = Duration::from_secs(5);
        let first = watched.advance(&HashMap::from([(device, 1_000)]), total(10, 0.1), passed);
        assert_eq!(first.busy, None, "one look tells no rate");
        let second = watched.advance(&HashMap::from([(device, 3_500)]), total(14, 0.3), passed);
        assert_eq!(second.busy, Some(0.5));
        assert!((second.sync_seconds.unwrap() - 0.05).abs() < 1e-9);
        let third = watched.advance(&HashMap::from([(device, 9_500)]), total(14, 0.3), passed);
        assert_eq!((third.busy, third.sync_seconds), (Some(1.0), None));
        assert_eq!(watched.advance(&HashMap::new(), total(14, 0.3), passed).busy, None, "a device that went away");
    }
}
