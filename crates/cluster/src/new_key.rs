//! Another key for a cluster whose workers have all stopped.

use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::{Check, Engine, ErrorKind, Result, records};
use forebay_env::Env;
use forebay_store::ValueWrite;

use crate::cluster_settings::ClusterSettings;
use crate::failure_detector::{FailureDetector, START_MAX, Sign};
use crate::identity::ClusterIdentity;
use crate::layout::{IDENTITY_KEY, SHARED_PREFIX, WorkerId, worker_key};
use crate::ownership::workers;
use crate::retry::tried;
use crate::shared_revision::Revision;
use crate::stream::WRITES_MAX;
use crate::worker_record::{WorkerRecord, WorkerState};

/// Makes of the record of the users one that is encrypted with the new key. `None`: it stays as it is.
pub type Reseal<'a> = &'a (dyn Fn(&[u8]) -> Option<Bytes> + Send + Sync);

/// The key itself, the users, and the revision of shared records.
const KEY_WRITES: usize = 3;

/// The result of [`replace_key`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyReplacement {
    Done,
    /// The cluster has another key than the one that was to be replaced.
    OtherKey,
    /// This worker runs, or may run when `is_sure` is not set.
    Runs {
        worker: WorkerId,
        is_sure: bool,
    },
}

/// Replaces the key with the fingerprint `old` by one with the fingerprint `new`, which only the workers have. A worker
/// that may have ended is waited for, for a lease, and does not come back after it. What is encrypted with the key is
/// replaced in the same transaction.
///
/// # Errors
/// `Corrupt` for records that can't be decoded; whatever the engine answers again and again. Another try is safe.
pub async fn replace_key(
    env: &Env,
    engine: &dyn Engine,
    old: &str,
    new: &str,
    reseal: Reseal<'_>,
) -> Result<KeyReplacement> {
    let cluster = tried(env, || ClusterSettings::present(engine)).await?;
    let lease = Duration::from_millis(cluster.lease_ms);
    let mut detector = FailureDetector::new(lease);
    let until = env.clock.monotonic() + START_MAX.max(2 * lease);
    loop {
        let is_over = env.clock.monotonic() >= until;
        match try_to_replace(env, engine, &mut detector, (old, new), reseal).await {
            Ok(None) => continue,
            Ok(Some(KeyReplacement::Runs { is_sure: false, .. })) if !is_over => {}
            Ok(Some(outcome)) => return Ok(outcome),
            Err(error) if is_over || error.kind == ErrorKind::Corrupt => return Err(error),
            // The engine answers later, or a worker has changed its record meanwhile.
            Err(_) => {}
        }
        env.clock.sleep(lease / 20).await;
    }
}

/// In one transaction, which fails when a worker that may live does anything meanwhile. `None` when it is done: then
/// another look is needed, for workers that have started meanwhile, and for those that one transaction could not end.
async fn try_to_replace(
    env: &Env,
    engine: &dyn Engine,
    detector: &mut FailureDetector,
    (old, new): (&str, &str),
    reseal: Reseal<'_>,
) -> Result<Option<KeyReplacement>> {
    let Some(found) = engine.get(IDENTITY_KEY).await? else { return Ok(Some(KeyReplacement::OtherKey)) };
    let identity: ClusterIdentity = records::decode_json("cluster identity", &found.value)?;
    let is_replaced = identity.key_fingerprint == new && identity.key.is_none();
    if !is_replaced && identity.key_fingerprint != old {
        return Ok(Some(KeyReplacement::OtherKey));
    }
    let (mut ended, mut running) = (Vec::new(), None);
    for (worker, (record, version)) in workers(engine).await? {
        // One that has ended, and starts meanwhile, is seen by the next look.
        if record.state != WorkerState::Live {
            continue;
        }
        match detector.sign(&worker, version, Duration::MAX, env.clock.monotonic()) {
            Sign::Lives => return Ok(Some(KeyReplacement::Runs { worker, is_sure: true })),
            Sign::None => running = Some(worker),
            // A process that was only stopped for a while does not continue with the old key.
            Sign::Over => {
                let (key, record) = (worker_key(&worker), WorkerRecord { state: WorkerState::Lost, ..record });
                let check = Check { key: key.clone(), version: Some(version) };
                ended.push((check, ValueWrite { key, value: Some(record.encode()) }));
            }
        }
    }
    if let Some(worker) = running {
        return Ok(Some(KeyReplacement::Runs { worker, is_sure: false }));
    }
    if is_replaced && ended.is_empty() {
        return Ok(Some(KeyReplacement::Done));
    }
    // With more workers to end than a transaction takes, the key is replaced after them.
    let is_last = ended.len() <= WRITES_MAX - KEY_WRITES;
    ended.truncate(WRITES_MAX - KEY_WRITES);
    let (mut checks, mut writes): (Vec<_>, Vec<_>) = ended.into_iter().unzip();
    let key = Bytes::from_static(IDENTITY_KEY);
    checks.push(Check { key: key.clone(), version: Some(found.version) });
    if is_last && !is_replaced {
        writes.push(ValueWrite { key, value: Some(records::encode_json(&identity.with_key(new))) });
        let revision = Revision::read(engine).await?;
        let users: Bytes = [SHARED_PREFIX, records::USERS_KEY].concat().into();
        // Of this revision, or the transaction fails.
        checks.push(revision.check());
        if let Some(value) = engine.get(&users).await?.and_then(|found| reseal(&found.value)) {
            writes.extend([ValueWrite { key: users, value: Some(value) }, revision.write_next()]);
        }
    }
    engine.commit(&checks, &writes).await?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use forebay_env::Clock;
    use forebay_env::sync::atomic::Ordering;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::test_engine::Fate;
    use crate::test_ground::{Ground, LEASE};

    /// A cluster whose engine keeps the key.
    async fn ground() -> Ground {
        let ground = Ground::new();
        let (engine, identity) =
            (ground.engine(), ClusterIdentity::new(ground.env.random.as_ref(), "old", Some("secret")));
        let created = ground.wait(async move { identity.create(engine.as_ref()).await }).await;
        created.expect("the engine answers");
        ground
    }

    /// The result, and after which time.
    async fn replace(ground: &Ground, old: &'static str, new: &'static str) -> (KeyReplacement, Duration) {
        let (env, engine, begun) = (ground.env.clone(), ground.engine(), ground.clock.monotonic());
        let replaced = ground.wait(async move { replace_key(&env, engine.as_ref(), old, new, &resealed).await }).await;
        (replaced.expect("the engine answers"), ground.clock.monotonic() - begun)
    }

    fn resealed(users: &[u8]) -> Option<Bytes> {
        (users == b"with the old key").then(|| Bytes::from_static(b"with the new key"))
    }

    /// Workers that have read them must not take the earlier ones for current.
    #[tokio::test]
    async fn users_are_encrypted_with_the_new_key_from_then_on() {
        for (before, after) in [("with the old key", "with the new key"), ("unreadable", "unreadable")] {
            let ground = ground().await;
            let users = ValueWrite { key: Bytes::from_static(b"shared/users"), value: Some(before.into()) };
            ground.engine.commit(&[], &[users]).await.unwrap();
            let shown = Revision::read(ground.engine().as_ref()).await.unwrap();
            assert_eq!(replace(&ground, "wrong", "new").await.0, KeyReplacement::OtherKey);
            assert_eq!(ground.engine.value("shared/users").await.as_deref(), Some(before));
            assert_eq!(replace(&ground, "old", "new").await.0, KeyReplacement::Done);
            assert_eq!(ground.engine.value("shared/users").await.as_deref(), Some(after));
            let now = Revision::read(ground.engine().as_ref()).await.unwrap();
            assert_eq!(now != shown, before != after, "{before}");
            // Another try changes nothing more.
            assert_eq!(replace(&ground, "new", "new").await.0, KeyReplacement::Done);
            assert_eq!(ground.engine.value("shared/users").await.as_deref(), Some(after));
        }
    }

    async fn identity(ground: &Ground) -> ClusterIdentity {
        let engine = ground.engine();
        let found = ground.wait(async move { ClusterIdentity::load(engine.as_ref()).await }).await;
        found.expect("the engine answers").expect("it was created")
    }

    #[tokio::test]
    async fn a_key_is_replaced_when_all_workers_have_stopped() {
        let ground = ground().await;
        let before = identity(&ground).await;
        let worker = ground.begin("w1", 1, true).await.unwrap();
        let runs = KeyReplacement::Runs { worker: WorkerId::new("w1").unwrap(), is_sure: true };
        assert_eq!(replace(&ground, "old", "new").await.0, runs);
        assert_eq!(identity(&ground).await, before);
        worker.leave().await.unwrap();
        assert_eq!(replace(&ground, "wrong", "new").await.0, KeyReplacement::OtherKey);
        let (replaced, waited) = replace(&ground, "old", "new").await;
        assert!(replaced == KeyReplacement::Done && waited < LEASE / 10, "{replaced:?} after {waited:?}");
        assert_eq!(identity(&ground).await, before.with_key("new"));
        assert_eq!(replace(&ground, "old", "newer").await.0, KeyReplacement::OtherKey);
    }

    #[tokio::test]
    async fn a_worker_that_may_run_is_waited_for_and_does_not_come_back() {
        let ground = ground().await;
        let worker = ground.begin("w1", 1, true).await.unwrap();
        let others = ground.beside();
        ground.engine.expect(Fate::Silence);
        let (replaced, waited) = replace(&others, "old", "new").await;
        assert!(replaced == KeyReplacement::Done && waited >= LEASE, "{replaced:?} after {waited:?}");
        let records = workers(others.engine().as_ref()).await.unwrap();
        assert_eq!(records[&WorkerId::new("w1").unwrap()].0.state, WorkerState::Lost);
        drop(worker);
    }

    /// Their records stay, and the number of checks and writes in a transaction is limited.
    #[tokio::test]
    async fn any_number_of_workers_that_have_ended_may_have_been_there() {
        for state in [WorkerState::Left, WorkerState::Lost, WorkerState::Live] {
            let ground = ground().await;
            let record = WorkerRecord { life: 1, number: 1, state };
            let write = |number: u32| {
                let worker = WorkerId::new(format!("w{number}")).unwrap();
                ValueWrite { key: worker_key(&worker), value: Some(record.encode()) }
            };
            for first in [0, 100] {
                let writes: Vec<_> = (first..first + 100).map(write).collect();
                ground.engine.commit(&[], &writes).await.unwrap();
            }
            assert_eq!(replace(&ground, "old", "new").await.0, KeyReplacement::Done, "{state:?}");
            assert_eq!(identity(&ground).await.key_fingerprint, "new");
            let records = workers(ground.engine().as_ref()).await.unwrap();
            assert!(records.values().all(|(record, _)| record.state != WorkerState::Live) && records.len() == 200);
        }
    }

    /// A worker that has left starts with the old key while the key is replaced.
    #[tokio::test]
    async fn a_worker_that_starts_again_while_the_key_is_replaced_is_seen() {
        let ground = ground().await;
        ground.begin("w1", 1, true).await.unwrap().leave().await.unwrap();
        let others = ground.beside();
        let all = others.engine.gate.forget_permits(Semaphore::MAX_PERMITS);
        let meanwhile = async {
            while others.engine.asked.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            let worker = ground.begin("w1", 2, true).await.unwrap();
            others.engine.gate.add_permits(all);
            worker
        };
        let ((runs, _), worker) = tokio::join!(replace(&others, "old", "new"), meanwhile);
        assert_eq!(runs, KeyReplacement::Runs { worker: WorkerId::new("w1").unwrap(), is_sure: true });
        worker.leave().await.unwrap();
        assert_eq!(replace(&others, "old", "new").await.0, KeyReplacement::Done);
    }

    /// No check of the transaction is about it, and it has seen the old key.
    #[tokio::test]
    async fn a_worker_that_joins_while_the_key_is_replaced_is_seen() {
        let ground = ground().await;
        let others = ground.beside();
        let all = others.engine.gate.forget_permits(Semaphore::MAX_PERMITS);
        let meanwhile = async {
            while others.engine.asked.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            let worker = ground.begin("w1", 1, true).await.unwrap();
            others.engine.gate.add_permits(all);
            worker
        };
        let ((runs, _), worker) = tokio::join!(replace(&others, "old", "new"), meanwhile);
        assert_eq!(runs, KeyReplacement::Runs { worker: WorkerId::new("w1").unwrap(), is_sure: true });
        assert_eq!(replace(&others, "old", "new").await.0, runs, "another try sees it, too");
        worker.leave().await.unwrap();
        assert_eq!(replace(&others, "old", "new").await.0, KeyReplacement::Done);
        assert_eq!(identity(&ground).await.key_fingerprint, "new");
    }
}
