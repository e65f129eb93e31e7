//! How the cluster stands, for the admin API.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use forebay_admin::Cluster;
use forebay_admin::api::{ClusterStatus, ClusterWorker, EngineMember, WorkerState};
use forebay_cache::Cache;
use forebay_catalog::SlotCount;
use forebay_cluster::{Addresses, Member, MemberState, WorkerId};
use forebay_etcd::{EtcdEngine, MemberHealth};
use forebay_peers::Peers;
use futures::future::{join, join_all};

use super::router::Router;

pub(super) struct ClusterState {
    pub(super) name: String,
    pub(super) slots: SlotCount,
    pub(super) engine: Arc<EtcdEngine>,
    pub(super) router: Arc<Router>,
    pub(super) peers: Peers,
    pub(super) cache: Cache,
}

impl ClusterState {
    async fn worker(&self, id: WorkerId, member: Member, slots: u32) -> ClusterWorker {
        let Member { state, addresses, version } = member;
        let status = match state {
            MemberState::Live if id.as_str() == self.router.own() => Some(Ok(self.cache.status())),
            MemberState::Live => Some(self.peers.status(id.as_str()).await.map_err(|error| error.to_string())),
            MemberState::Left | MemberState::Lost => None,
        };
        let (status, problem) = match status {
            None => (None, None),
            Some(Ok(status)) => (Some(status), None),
            Some(Err(problem)) => (None, Some(problem)),
        };
        let is_cut_off = id.as_str() == self.router.own() && self.cache.is_cut_off();
        let problem = if is_cut_off { Some("the engine does not answer it".to_owned()) } else { problem };
        let (peer_address, s3_address, admin_address) = match addresses {
            Some(Addresses { peers, s3, admin }) => (Some(peers), s3, admin),
            None => (None, None, None),
        };
        ClusterWorker {
            id: id.to_string(),
            state: match state {
                MemberState::Live => WorkerState::Live,
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

#[async_trait]
impl Cluster for ClusterState {
    async fn status(&self) -> ClusterStatus {
        let (members, homes) = self.router.seen();
        let mut slots = BTreeMap::<WorkerId, u32>::new();
        for home in self.slots.all().filter_map(|slot| homes.as_ref()?.home(slot)) {
            *slots.entry(home.clone()).or_default() += 1;
        }
        let count = self.slots.all().count() as u32;
        let without_home = count - slots.values().sum::<u32>();
        let workers = members.into_iter().map(|(id, member)| {
            let slots = slots.get(&id).copied().unwrap_or_default();
            self.worker(id, member, slots)
        });
        let (workers, engine) = join(join_all(workers), self.engine.status()).await;
        ClusterStatus {
            name: self.name.clone(),
            worker: self.router.own().to_owned(),
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
