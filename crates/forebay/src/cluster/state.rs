//! How the cluster stands, for the admin API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_admin::api::{ClusterHomes, ClusterStatus, ClusterWorker, EngineMember, HomeWorker, WorkerState};
use forebay_admin::{Cluster, LeavingRefused};
use forebay_cache::Cache;
use forebay_catalog::SlotCount;
use forebay_cluster::{Addresses, HomeCatalog, LeavingError, LeavingResult, Member, MemberState, WorkerId};
use forebay_env::Env;
use forebay_etcd::{EtcdEngine, MemberHealth};
use forebay_peers::Peers;
use futures::future::{join, join_all};

use super::router::Router;
use super::settings_drift::Agreement;

/// For an engine that does not answer. What was asked for may be done later.
const ENGINE_MAX: Duration = Duration::from_secs(10);

pub(super) struct ClusterState {
    pub(super) name: String,
    pub(super) slots: SlotCount,
    pub(super) engine: Arc<EtcdEngine>,
    pub(super) router: Arc<Router>,
    pub(super) peers: Peers,
    pub(super) cache: Cache,
    pub(super) env: Env,
    pub(super) catalog: Arc<HomeCatalog>,
    pub(super) agreement: Arc<Agreement>,
}

impl ClusterState {
    async fn worker(&self, id: WorkerId, member: Member, slots: u32) -> ClusterWorker {
        let Member { state, life: _, addresses, version } = member;
        let status = match state {
            MemberState::Left | MemberState::Lost => None,
            _ if id.as_str() == self.router.own() => Some(Ok(self.cache.status())),
            _ => Some(self.peers.status(id.as_str()).await.map_err(|error| error.to_string())),
        };
        let (status, problem) = match status {
            None => (None, None),
            Some(Ok(status)) => (Some(status), None),
            Some(Err(problem)) => (None, Some(problem)),
        };
        let is_cut_off = id.as_str() == self.router.own() && self.cache.is_cut_off();
        let unanswered = "the engine of the cluster (etcd) does not answer this worker";
        let problem = if is_cut_off { Some(unanswered.to_owned()) } else { problem };
        let differs = || Some(self.agreement.differences().get(id.as_str())?.describe(self.router.own()));
        let problem = problem.or_else(differs);
        let (peer_address, s3_address, admin_address) = match addresses {
            Some(Addresses { peers, s3, admin }) => (Some(peers), s3, admin),
            None => (None, None, None),
        };
        ClusterWorker {
            id: id.to_string(),
            state: match state {
                MemberState::Live => WorkerState::Live,
                MemberState::Draining => WorkerState::Draining,
                MemberState::Drained => WorkerState::Drained,
                MemberState::Left => WorkerState::Left,
                MemberState::Lost => WorkerState::Lost,
            },
            slots,
            peer_address,
            s3_address,
            admin_address,
            version,
            status,
            problem,
        }
    }
}

/// Waits for the result, for at most [`ENGINE_MAX`].
async fn leaving(env: &Env, result: impl Future<Output = LeavingResult>) -> Result<(), LeavingRefused> {
    let result = tokio::select! {
        biased;
        result = result => result,
        () = env.clock.sleep(ENGINE_MAX) => {
            let late = "the engine of the cluster (etcd) does not answer: the change may still be carried out; see `forebay cluster status`";
            return Err(LeavingRefused::Unavailable(late.to_owned()));
        }
    };
    result.map_err(|error| match error {
        LeavingError::NoSuchWorker(_) | LeavingError::Gone(_) => LeavingRefused::Absent(error.to_string()),
        LeavingError::IsDead(_) | LeavingError::IsLast(_) | LeavingError::Lives(_) => {
            LeavingRefused::Conflict(error.to_string())
        }
        LeavingError::Engine(_) => LeavingRefused::Unavailable(error.to_string()),
    })
}

fn named(worker: &str) -> Result<WorkerId, LeavingRefused> {
    WorkerId::new(worker).map_err(|error| LeavingRefused::Absent(error.to_string()))
}

#[async_trait]
impl Cluster for ClusterState {
    async fn drain(&self, worker: &str) -> Result<(), LeavingRefused> {
        leaving(&self.env, self.catalog.drain(&named(worker)?)).await
    }

    async fn remove(&self, worker: &str) -> Result<(), LeavingRefused> {
        leaving(&self.env, self.catalog.remove(&named(worker)?)).await
    }

    fn homes(&self) -> ClusterHomes {
        let Some(view) = self.router.view() else {
            return ClusterHomes { workers: Vec::new(), homes: vec![None; self.slots.all().count()] };
        };
        let live: Vec<(&WorkerId, &Member)> = view.members.iter().filter(|(_, member)| member.state.lives()).collect();
        let index = |slot| view.homes.home(slot).and_then(|home| live.iter().position(|(id, _)| *id == home));
        let homes = self.slots.all().map(|slot| index(slot).map(|index| index as u32)).collect();
        let worker = |(id, member): &(&WorkerId, &Member)| HomeWorker {
            id: id.to_string(),
            s3_address: member.addresses.as_ref().and_then(|addresses| addresses.s3.clone()),
        };
        ClusterHomes { workers: live.iter().map(worker).collect(), homes }
    }

    async fn status(&self) -> ClusterStatus {
        let (view, age) = (self.router.view(), self.router.age());
        let count = self.slots.all().count() as u32;
        let without_home = view.as_ref().map_or(count, |view| view.slots_without_home(self.slots));
        let mut slots = BTreeMap::<WorkerId, u32>::new();
        for home in self.slots.all().filter_map(|slot| view.as_ref()?.homes.home(slot)) {
            *slots.entry(home.clone()).or_default() += 1;
        }
        let members = view.map(|view| view.members).unwrap_or_default();
        let workers = members.into_iter().map(|(id, member)| {
            let slots = slots.get(&id).copied().unwrap_or_default();
            self.worker(id, member, slots)
        });
        let (workers, engine) = join(join_all(workers), self.engine.status()).await;
        ClusterStatus {
            name: self.name.clone(),
            worker: self.router.own().to_owned(),
            age_ms: age.as_millis() as u64,
            slots: count,
            slots_without_home: without_home,
            workers,
            engine: engine.into_iter().map(engine_member).collect(),
        }
    }
}

fn engine_member(MemberHealth { endpoint, status }: MemberHealth) -> EngineMember {
    match status {
        Ok(status) => EngineMember {
            endpoint,
            version: Some(status.version),
            database_bytes: Some(status.database_bytes),
            quota_bytes: Some(status.quota_bytes),
            problem: status.is_full.then(|| "it is full, and takes no writes".to_owned()),
        },
        Err(error) => EngineMember {
            endpoint,
            version: None,
            database_bytes: None,
            quota_bytes: None,
            problem: Some(error.to_string()),
        },
    }
}
