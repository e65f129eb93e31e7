//! The cluster as this worker sees it, for Prometheus.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_cache::Cache;
use forebay_catalog::Catalog;
use forebay_cluster::{HomeCatalog, MemberState};
use forebay_env::Clock;
use forebay_env::sync::Mutex;
use forebay_etcd::{EtcdEngine, MemberHealth, MemberStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType::{self, Gauge};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::router::Router;
use super::settings_drift::Agreement;
use crate::metrics::encode_number;

/// Between two looks at the members of the engine: at least one for each scrape, as most are configured.
const LOOK: Duration = Duration::from_secs(10);

const STATES: [(MemberState, &str); 5] = [
    (MemberState::Live, "live"),
    (MemberState::Draining, "draining"),
    (MemberState::Drained, "drained"),
    (MemberState::Left, "left"),
    (MemberState::Lost, "lost"),
];

/// Slots that have changed their home since the start of this worker.
#[derive(Clone, Default)]
pub(super) struct SlotMoves {
    pub(super) taken: Counter,
    pub(super) released: Counter,
}

/// The members of the engine at the last look; none before the first.
#[derive(Default)]
pub(crate) struct EngineHealth {
    members: Mutex<Vec<MemberHealth>>,
}

impl EngineHealth {
    /// Tells the cache when the engine is nearly full, so that it adds no records. Never returns.
    pub(super) async fn follow(&self, engine: &EtcdEngine, clock: &dyn Clock, cache: &Cache) {
        let mut was_nearly_full = false;
        loop {
            let members = engine.status().await;
            let is_nearly_full = members.iter().any(is_nearly_full);
            *self.members.lock() = members;
            cache.set_catalog_nearly_full(is_nearly_full);
            match (was_nearly_full, is_nearly_full) {
                (false, true) => tracing::warn!(
                    "the database of the engine (etcd) is nearly full: writes that need a record there are refused until it has room"
                ),
                (true, false) => tracing::info!("the database of the engine (etcd) has room again"),
                _ => {}
            }
            was_nearly_full = is_nearly_full;
            clock.sleep(LOOK).await;
        }
    }

    /// Members that are so old that they may return stale reads, with their versions.
    pub(crate) fn old_members(&self) -> Vec<String> {
        let members = self.members.lock();
        let answers = members.iter().filter_map(|member| Some((member, member.status.as_ref().ok()?)));
        let old = answers.filter(|(_, status)| status.is_old());
        old.map(|(member, status)| format!("{} ({})", member.endpoint, status.version)).collect()
    }
}

/// `false` for a member that does not answer.
fn is_nearly_full(member: &MemberHealth) -> bool {
    member.status.as_ref().is_ok_and(MemberStatus::is_nearly_full)
}

/// What is read when a scrape asks for it.
pub(super) struct ClusterMetrics {
    pub(super) catalog: Arc<HomeCatalog>,
    pub(super) router: Arc<Router>,
    pub(super) cache: Cache,
    pub(super) engine: Arc<EngineHealth>,
    pub(super) agreement: Arc<Agreement>,
}

impl ClusterMetrics {
    #[rustfmt::skip]
    pub(super) fn register(self, moves: &SlotMoves, registry: &mut Registry) {
        registry.register("forebay_cluster_slots_taken", "Slots that this worker has got since its start", moves.taken.clone());
        registry.register("forebay_cluster_slots_released", "Slots that this worker has given up to others since its start", moves.released.clone());
        registry.register_collector(Box::new(self));
    }

    /// What was seen without a lease may have changed since.
    #[rustfmt::skip]
    fn encode_view(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(view) = self.router.view() else { return Ok(()) };
        let without_home = view.slots_without_home(self.catalog.slot_count());
        encode_number(encoder, "forebay_cluster_slots_without_home", "Slots whose home is no worker that lives: their keys get 503; absent while this worker has no lease", Gauge, f64::from(without_home))?;
        let help = "Workers of the cluster, by state; absent while this worker has no lease";
        let mut family = encoder.encode_descriptor("forebay_cluster_workers", help, None, Gauge)?;
        for (state, name) in STATES {
            let count = view.members.values().filter(|member| member.state == state).count();
            ConstGauge::new(count as u64).encode(family.encode_family(&[("state", name)])?)?;
        }
        Ok(())
    }

    fn encode_differences(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let differences = self.agreement.differences();
        let help = "Other workers of the cluster that differ from this one, by what differs: settings that all of them need alike, or the clock";
        let mut family = encoder.encode_descriptor("forebay_cluster_differing_workers", help, None, Gauge)?;
        let settings = differences.values().filter(|difference| !difference.settings.is_empty()).count();
        let clock = differences.values().filter(|difference| difference.clock_ms.is_some()).count();
        for (of, count) in [("settings", settings), ("clock", clock)] {
            ConstGauge::new(count as u64).encode(family.encode_family(&[("of", of)])?)?;
        }
        Ok(())
    }

    #[rustfmt::skip]
    fn encode_engine(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Number = (&'static str, &'static str, fn(&MemberHealth) -> Option<u64>);
        let numbers: [Number; 4] = [
            ("forebay_cluster_engine_up", "1 when the member of the engine has answered this worker at the last look, by member", |member| Some(u64::from(member.status.is_ok()))),
            ("forebay_cluster_engine_full", "1 when the member takes no writes because its database is full, by member", |member| member.status.as_ref().ok().map(|status| u64::from(status.is_full))),
            ("forebay_cluster_engine_database_bytes", "Size of the member's database, by member", |member| member.status.as_ref().ok().map(|status| status.database_bytes)),
            ("forebay_cluster_engine_quota_bytes", "How large the member's database may become, by member; absent where the member does not report it", |member| member.status.as_ref().ok().map(|status| status.quota_bytes).filter(|quota| *quota > 0)),
        ];
        let members = self.engine.members.lock();
        for (name, help, value) in numbers {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for member in members.iter() {
                if let Some(value) = value(member) {
                    ConstGauge::new(value).encode(family.encode_family(&[("member", member.endpoint.as_str())])?)?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ClusterMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterMetrics")
    }
}

impl Collector for ClusterMetrics {
    #[rustfmt::skip]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let lease = self.catalog.lease().unwrap_or_default();
        let slots = self.catalog.slots().map_or(0, |slots| slots.iter().count());
        let status = self.cache.status();
        let numbers = [
            ("forebay_cluster_lease_seconds", "What is left of this worker's lease if the engine does not renew it; at 0, all keys that are at home here get 503", lease.as_secs_f64()),
            ("forebay_cluster_slots", "Slots that are at home at this worker", slots as f64),
            ("forebay_cluster_copies_wanted", "Objects and parts that are at home here and whose bytes are still to be fetched from other workers", status.copies_wanted as f64),
            ("forebay_cluster_copies_unavailable", "Objects and parts at home here whose bytes no worker gave at the last try: requests for them get 503", status.copies_unavailable as f64),
            ("forebay_under_replicated_objects", "Objects and parts that are at home here with fewer copies than writeReplicas asks for, or whose copies are still to be counted", status.under_replicated as f64),
        ];
        for (name, help, value) in numbers {
            encode_number(&mut encoder, name, help, Gauge, value)?;
        }
        self.encode_engine(&mut encoder)?;
        self.encode_differences(&mut encoder)?;
        if lease.is_zero() { Ok(()) } else { self.encode_view(&mut encoder) }
    }
}
