//! Whether all workers that live bring objects to the same under stores. One with others would acknowledge writes that
//! nobody finds once it is gone, so it does not start.
//!
//! Each worker tells its under stores before it takes slots, and looks at those of the others after that. So of two
//! that start at the same time, at least one sees the other.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use forebay_catalog::{Engine, ErrorKind, Result};
use forebay_env::Env;

use crate::ClusterSettings;
use crate::failure_detector::{FailureDetector, START_MAX, Sign};
use crate::layout::WorkerId;
use crate::ownership::{end, members_told, workers};
use crate::retry::tried;
use crate::stream::Stream;
use crate::worker_record::WorkerState;

/// A worker that lives, and what it has otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherUnderStores {
    pub worker: WorkerId,
    /// Names, as in [`crate::HomeSettings::under_stores`].
    pub settings: Vec<String>,
}

impl fmt::Display for OtherUnderStores {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worker, settings } = self;
        write!(formatter, "worker {worker} of this cluster runs with another value of {}", settings.join(" and of "))
    }
}

/// The first worker that lives and differs from this one. A worker that may have ended is waited for, for a lease: it
/// can be asked before this worker is in the cluster. `cluster` is for a new one.
///
/// # Errors
/// `Corrupt` for records that can't be decoded; whatever the engine answers again and again.
pub async fn other_under_stores(
    env: &Env,
    engine: &dyn Engine,
    worker: &WorkerId,
    own: &BTreeMap<String, String>,
    cluster: ClusterSettings,
) -> Result<Option<OtherUnderStores>> {
    let look = Look { env, engine, worker, own, ends: None };
    let cluster = tried(env, || ClusterSettings::load(engine, cluster)).await?;
    look.until_known(cluster.lease_ms).await
}

/// Looks at the others.
pub(crate) struct Look<'a> {
    pub(crate) env: &'a Env,
    pub(crate) engine: &'a dyn Engine,
    pub(crate) worker: &'a WorkerId,
    pub(crate) own: &'a BTreeMap<String, String>,
    /// Of this worker, when it is in the cluster: what differs and has been silent for a lease does not come back.
    pub(crate) ends: Option<&'a Stream>,
}

/// A worker that differs.
enum Differs {
    Lives(OtherUnderStores),
    /// Or it has ended.
    MayLive(OtherUnderStores),
}

impl Look<'_> {
    /// See [`other_under_stores`].
    pub(crate) async fn until_known(&self, lease_ms: u64) -> Result<Option<OtherUnderStores>> {
        if self.own.is_empty() {
            return Ok(None);
        }
        let lease = Duration::from_millis(lease_ms);
        let mut detector = FailureDetector::new(lease);
        // So that the lease of a worker that has ended is over before.
        let until = self.env.clock.monotonic() + START_MAX.max(2 * lease);
        loop {
            let is_over = self.env.clock.monotonic() >= until;
            match self.once(&mut detector).await {
                Ok(None) => return Ok(None),
                Ok(Some(Differs::Lives(other))) => return Ok(Some(other)),
                Ok(Some(Differs::MayLive(other))) if is_over => return Ok(Some(other)),
                Err(error) if is_over || error.kind == ErrorKind::Corrupt => return Err(error),
                // The engine answers later, or a worker has changed its record meanwhile.
                Ok(Some(Differs::MayLive(_))) | Err(_) => self.env.clock.sleep(lease / 20).await,
            }
        }
    }

    async fn once(&self, detector: &mut FailureDetector) -> Result<Option<Differs>> {
        let mut told = members_told(self.engine).await?;
        let seen = workers(self.engine).await?;
        let (now, written_for) = (self.env.clock.monotonic(), self.ends.map_or(Duration::MAX, Stream::written_for));
        let mut found = None;
        for (other, (record, version)) in seen {
            let told = told.remove(&other).filter(|_| other != *self.worker && record.state == WorkerState::Live);
            let settings = told.map(|told| differing(self.own, &told.under_stores)).unwrap_or_default();
            if settings.is_empty() {
                continue;
            }
            match (detector.sign(&other, version, written_for, now), self.ends) {
                (Sign::Lives, _) => return Ok(Some(Differs::Lives(OtherUnderStores { worker: other, settings }))),
                (Sign::None, _) => found = Some(Differs::MayLive(OtherUnderStores { worker: other, settings })),
                (Sign::Over, None) => {}
                (Sign::Over, Some(stream)) => drop(end(stream, &other, record, version).await?),
            }
        }
        Ok(found)
    }
}

/// Names of what both have told, and not alike.
fn differing(own: &BTreeMap<String, String>, theirs: &BTreeMap<String, String>) -> Vec<String> {
    let differs = |(name, value): &(&String, &String)| theirs.get(*name).is_some_and(|other| other != *value);
    own.iter().filter(differs).map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_env::Clock;
    use forebay_store::ValueWrite;

    use super::*;
    use crate::layout::member_key;
    use crate::member_record::{Addresses, MemberRecord};
    use crate::test_engine::Fate;
    use crate::test_ground::{Ground, LEASE};

    fn stores(named: &[(&str, &str)]) -> BTreeMap<String, String> {
        named.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    async fn start(ground: &Ground, worker: &str, under_stores: &[(&str, &str)]) -> Arc<Stream> {
        let stream = ground.begin(worker, 1, true).await.unwrap();
        let addresses = Addresses { peers: "10.0.0.1:9702".to_owned(), s3: None, admin: None };
        let value = Some(MemberRecord::new(addresses, stores(under_stores)).encode());
        let key = member_key(&WorkerId::new(worker).unwrap());
        stream.commit(vec![ValueWrite { key, value }]).await.unwrap();
        stream
    }

    /// What worker w2 would see with these, and how long it waits for that.
    async fn look(ground: &Ground, own: &[(&str, &str)]) -> (Option<OtherUnderStores>, Duration) {
        let (env, engine, own) = (ground.env.clone(), ground.engine(), stores(own));
        let cluster = ClusterSettings { lease_ms: LEASE.as_millis() as u64, ..ClusterSettings::DEFAULT };
        let begun = ground.clock.monotonic();
        let worker = WorkerId::new("w2").unwrap();
        let look = async move { other_under_stores(&env, engine.as_ref(), &worker, &own, cluster).await };
        (ground.wait(look).await.unwrap(), ground.clock.monotonic() - begun)
    }

    #[tokio::test]
    async fn a_worker_that_lives_has_what_the_others_have() {
        let ground = Ground::new();
        let first = start(&ground, "w1", &[("url", "a"), ("mounts", "none"), ("endpoint", "x")]).await;
        for alike in
            [&[("url", "a"), ("mounts", "none"), ("endpoint", "x")][..], &[("url", "a")], &[("more", "y")], &[]]
        {
            let (found, waited) = look(&ground, alike).await;
            assert!(found.is_none() && waited < LEASE / 10, "{alike:?}: {found:?} after {waited:?}");
        }
        let found = look(&ground, &[("url", "b"), ("mounts", "none"), ("endpoint", "y")]).await.0.unwrap();
        assert_eq!(found.to_string(), "worker w1 of this cluster runs with another value of endpoint and of url");
        first.leave().await.unwrap();
        let (found, waited) = look(&ground, &[("url", "b")]).await;
        assert!(found.is_none() && waited < LEASE / 10, "it has left: {found:?} after {waited:?}");
        // What the same worker had before says nothing.
        start(&ground, "w2", &[("url", "c")]).await;
        assert_eq!(look(&ground, &[("url", "b")]).await.0, None);
    }

    #[tokio::test]
    async fn a_worker_that_may_have_ended_is_waited_for() {
        let ground = Ground::new();
        let first = start(&ground, "w1", &[("url", "a")]).await;
        let others = ground.beside();
        ground.engine.expect(Fate::Silence);
        drop(first);
        let (found, waited) = look(&others, &[("url", "b")]).await;
        assert!(found.is_none() && waited >= LEASE, "{found:?} after {waited:?}");
    }

    /// It was only stopped for a while.
    #[tokio::test]
    async fn a_worker_with_other_under_stores_does_not_come_back_after_its_lease() {
        let ground = Ground::new();
        let first = start(&ground, "w1", &[("url", "a")]).await;
        let others = ground.beside();
        let second = start(&others, "w2", &[("url", "b")]).await;
        ground.engine.expect(Fate::Silence);
        let (env, engine) = (others.env.clone(), others.engine());
        let check = async move {
            let (worker, own) = (WorkerId::new("w2").unwrap(), stores(&[("url", "b")]));
            let look = Look { env: &env, engine: engine.as_ref(), worker: &worker, own: &own, ends: Some(&second) };
            look.until_known(LEASE.as_millis() as u64).await
        };
        assert_eq!(others.wait(check).await.unwrap(), None);
        assert_eq!(
            workers(others.engine().as_ref()).await.unwrap()[&WorkerId::new("w1").unwrap()].0.state,
            WorkerState::Lost
        );
        drop(first);
    }
}
