//! Whether the workers of a cluster agree: on the settings that all of them need alike, and on the time. While a worker
//! lives that has other under stores, none joins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_auth::Users;
use forebay_catalog::Engine;
use forebay_cluster::{HomeSettings, WorkerId, addresses_told, other_under_stores};
use forebay_env::sync::Mutex;
use forebay_env::{Clock, Env};
use forebay_peers::{Identity, Members, OwnSettings, Peers, WorkerSettings, protocols};
use forebay_types::PolicyRule;
use forebay_ufs::UnderStoreUrl;
use futures::future::join_all;

use super::router::Router;
use crate::config::Config;
use crate::failure::Failure;
use crate::locations::{endpoint, location};

/// Between two looks at all others.
const LOOK: Duration = Duration::from_secs(5);

/// Clocks that are further apart are not kept by NTP. What one worker has written would be older, or expire sooner, at
/// another.
const CLOCK_MAX: Duration = Duration::from_secs(30);

/// The setting whose value is read again while this process runs.
const USERS_FILE: &str = "server.users_file";

/// What decides where objects go.
const UNDER_STORE: &str = "under_store.url";
const MOUNTS: &str = "mounts";
const ENDPOINT: &str = "the endpoint of under_store.url";
const ENDPOINTS: &str = "the endpoints of mounts";

/// It stands with those: a worker that the others don't understand would take slots whose keys nobody else can reach.
const PROTOCOL: &str = "the protocol of workers";

/// How another worker differs from this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Names of settings, as the configuration has them.
    pub(crate) settings: Vec<String>,
    /// How far its clock is ahead of the one here; negative where it is behind. Milliseconds.
    pub(crate) clock_ms: Option<i64>,
}

impl Difference {
    /// In one line. `own` is the worker that it differs from.
    pub(super) fn describe(&self, own: &str) -> String {
        let settings = self.settings.join(", ");
        let settings = (!settings.is_empty()).then(|| format!("other settings than {own}: {settings}"));
        let clock = self.clock_ms.map(|ahead_ms| format!("its clock is {} {own}'s", aside(ahead_ms)));
        settings.into_iter().chain(clock).collect::<Vec<_>>().join("; ")
    }
}

/// What was found at the last looks.
#[derive(Default)]
pub(crate) struct Agreement {
    /// Of workers that live.
    looks: Mutex<BTreeMap<String, Looks>>,
}

/// At one worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Looks {
    last: Difference,
    /// What the last two looks have found: files do not change on all machines at once.
    lasting: Difference,
}

impl Looks {
    /// The look after this one. Nothing changes without an answer.
    fn then(self, found: Option<Difference>) -> Self {
        let Some(found) = found else { return self };
        let settings = found.settings.iter().filter(|name| self.last.settings.contains(name)).cloned().collect();
        let clock_ms = found.clock_ms.filter(|_| self.last.clock_ms.is_some());
        Self { last: found, lasting: Difference { settings, clock_ms } }
    }
}

impl Agreement {
    /// By worker: only of those that differ.
    pub(crate) fn differences(&self) -> BTreeMap<String, Difference> {
        let looks = self.looks.lock();
        let differing = looks.iter().filter(|(_, looks)| looks.lasting != Difference::default());
        differing.map(|(worker, looks)| (worker.clone(), looks.lasting.clone())).collect()
    }

    /// What one look has found, by worker. Without an answer, `None`.
    fn note(&self, found: impl Iterator<Item = (String, Option<Difference>)>) {
        let mut looks = self.looks.lock();
        let mut before = std::mem::take(&mut *looks);
        *looks = found
            .map(|(worker, found)| {
                let looks = before.remove(&worker).unwrap_or_default().then(found);
                (worker, looks)
            })
            .collect();
    }

    /// Never returns.
    pub(super) async fn follow(&self, own: &OwnSettings, peers: &Peers, members: &Router, clock: &dyn Clock) {
        loop {
            let others = members.others();
            let found = join_all(others.iter().map(|worker| look(own, clock, peers.settings(worker)))).await;
            self.note(others.into_iter().zip(found));
            clock.sleep(LOOK).await;
        }
    }
}

/// Compares this worker with another one. `None` without an answer.
async fn look(
    own: &OwnSettings,
    clock: &dyn Clock,
    answer: impl Future<Output = forebay_cache::Result<WorkerSettings>>,
) -> Option<Difference> {
    let (asked_ms, asked) = (clock.unix_ms(), clock.monotonic());
    let theirs = answer.await.ok()?;
    let took = clock.monotonic().saturating_sub(asked);
    Some(Difference {
        settings: own().differing(&theirs),
        clock_ms: far_off(theirs.clock_ms, asked_ms, took.as_millis() as u64),
    })
}

/// How far ahead a clock is that has shown this some time within `took_ms` after the one here has shown `asked_ms`.
/// `None`: not too far.
fn far_off(shown_ms: u64, asked_ms: u64, took_ms: u64) -> Option<i64> {
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    let ahead = signed(shown_ms) - signed(asked_ms.saturating_add(took_ms / 2));
    let is_far = ahead.unsigned_abs() > CLOCK_MAX.as_millis() as u64 + took_ms / 2;
    is_far.then_some(ahead)
}

/// Asks the workers that answer for the time, before this one joins them for the first time.
///
/// # Errors
/// When the clock here is ahead of those of most of them, or behind.
pub(super) async fn check_clock(
    engine: &dyn Engine,
    own: &WorkerId,
    settings: &OwnSettings,
    peers: &Peers,
    clock: &dyn Clock,
) -> Result<(), String> {
    // Joining asks the same engine, and tells what is wrong.
    let mut others = addresses_told(engine).await.unwrap_or_default();
    others.remove(own);
    let looks = others.iter().map(async |(worker, addresses)| {
        let answer = peers.settings_at(worker.as_str(), &addresses.peers);
        Some((worker.to_string(), look(settings, clock, answer).await?.clock_ms.unwrap_or_default()))
    });
    let answers: Vec<_> = join_all(looks).await.into_iter().flatten().collect();
    match outvoted(&answers) {
        None => Ok(()),
        Some((worker, ahead_ms)) => Err(format!(
            "this machine's clock is {} worker {worker}'s: set the one that is wrong, for example with an NTP client, and start again",
            aside(0 - ahead_ms)
        )),
    }
}

/// The first clock of those on one side that are more than half of all. They are given by worker, and 0 is right.
fn outvoted(ahead_ms: &[(String, i64)]) -> Option<(&str, i64)> {
    [1, -1].into_iter().find_map(|side| {
        let mut aside = ahead_ms.iter().filter(|(_, ahead_ms)| ahead_ms.signum() == side);
        let (worker, first) = aside.next()?;
        ((aside.count() + 1) * 2 > ahead_ms.len()).then_some((worker.as_str(), *first))
    })
}

/// Where objects go, and how workers talk, as they tell it one another in the engine.
pub(super) fn under_stores(config: &Config, identity: &Identity) -> BTreeMap<String, String> {
    let (root, mounts) = locations(config);
    let mut told = vec![(UNDER_STORE, root), (MOUNTS, mounts), (PROTOCOL, protocols())];
    if config.cluster.compare_endpoints {
        let endpoint_of = |url: &UnderStoreUrl| endpoint(url, config.inherited_endpoint.as_deref());
        let root = config.root.as_ref().map(|root| endpoint_of(&root.url));
        let mounts: Vec<_> = config.mounts.iter().map(|(bucket, mount)| (bucket, endpoint_of(&mount.url))).collect();
        told.extend([(ENDPOINT, format!("{root:?}")), (ENDPOINTS, format!("{mounts:?}"))]);
    }
    told.into_iter().map(|(name, value)| (name.to_owned(), identity.digest(name, value.as_bytes()))).collect()
}

/// Looks at the workers that live, before this one joins them.
///
/// # Errors
/// When one of them has other under stores or speaks another protocol, or the engine does not answer.
pub(super) async fn check_under_stores(env: &Env, engine: &dyn Engine, settings: &HomeSettings) -> Result<(), Failure> {
    let HomeSettings { worker, cluster, under_stores, .. } = settings;
    let other = other_under_stores(env, engine, worker, under_stores, *cluster).await;
    let other = other.map_err(|error| Failure::Failed(format!("the other workers can't be looked at: {error}")))?;
    let Some(other) = other else { return Ok(()) };
    if other.settings.iter().any(|name| name == PROTOCOL) {
        let worker = other.worker;
        return Err(Failure::Refused(format!(
            "worker {worker} of this cluster runs a release that speaks another protocol than this one ({}): run the same release on all workers. For an upgrade, stop all of them first",
            env!("CARGO_PKG_VERSION")
        )));
    }
    let reaches = other.settings.iter().all(|name| [ENDPOINT, ENDPOINTS].contains(&name.as_str()));
    let cure = match reaches {
        true => "give both the same, or set cluster.compare_endpoints = false here if both lead to the same store",
        false => "give both the same; to change it, stop all workers first",
    };
    Err(Failure::Refused(format!("{other}, so objects would go to two locations: {cure}")))
}

/// As text, before the name of the other clock.
pub(crate) fn aside(ahead_ms: i64) -> String {
    let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
    let seconds = ahead_ms.unsigned_abs() / 1000;
    match seconds / 3600 {
        0 | 1 => format!("{seconds} s {side}"),
        hours => format!("{hours} h {side}"),
    }
}

/// Gives what others compare. It changes with the users file.
pub(super) fn own_settings(config: &Config, users: &Users, identity: &Identity, clock: &Arc<dyn Clock>) -> OwnSettings {
    let digest = |(name, value): (&str, String)| (name.to_owned(), identity.digest(name, value.as_bytes()));
    let fixed: BTreeMap<_, _> = fixed_settings(config, users).into_iter().map(digest).collect();
    let (users, identity, clock) = (users.clone(), identity.clone(), Arc::clone(clock));
    Arc::new(move || {
        let mut digests = fixed.clone();
        digests.insert(USERS_FILE.to_owned(), identity.digest(USERS_FILE, users.digest().as_bytes()));
        WorkerSettings { clock_ms: clock.unix_ms(), digests }
    })
}

/// What does not change while this process runs: names and values.
fn fixed_settings(config: &Config, users: &Users) -> Vec<(&'static str, String)> {
    let (server, root) = (&config.server, users.root());
    let (under_store, mounts) = locations(config);
    let mut rules: Vec<&PolicyRule> = config.policies.iter().collect();
    rules.sort_by_key(|rule| &rule.path);
    let rules: Vec<_> = rules.into_iter().map(serde_json::to_string).collect();
    vec![
        ("server.domain", format!("{:?}", server.domain.as_ref().map(|domain| domain.to_ascii_lowercase()))),
        ("server.region", server.region.clone()),
        ("server.account_id", format!("{:?}", server.account_id)),
        ("server.root_access_key", root.access_key.clone()),
        ("server.root_secret_key", root.secret.expose().to_owned()),
        (UNDER_STORE, under_store),
        (MOUNTS, mounts),
        ("policy", format!("{rules:?}")),
        ("cache.settle_time", format!("{:?}", config.cache.settle_time)),
        ("cache.part_size_min", config.cache.part_size_min.to_string()),
    ]
}

/// The under store and the mounts.
fn locations(config: &Config) -> (String, String) {
    let root = config.root.as_ref().map(|root| location(&root.url));
    let mounts: Vec<_> = config.mounts.iter().map(|(bucket, mount)| (bucket.as_str(), location(&mount.url))).collect();
    (format!("{root:?}"), format!("{mounts:?}"))
}

#[cfg(test)]
mod tests {
    use forebay_auth::{RootUser, Secret};
    use forebay_catalog::MemoryEngine;
    use forebay_cluster::{Addresses, ClusterSettings, HomeCatalog};
    use forebay_env::Disk;
    use forebay_env::clock::ManualClock;
    use forebay_env::disk::memory::MemoryDisk;
    use forebay_peers::ClusterKey;
    use forebay_store::{Settings, Store};

    use super::*;
    use crate::config::Overrides;

    fn settings(file: &str) -> WorkerSettings {
        let config = Config::load(Some(("forebay.toml", file)), &BTreeMap::new(), &Overrides::default()).unwrap();
        let key = |key: &Option<String>| key.clone().unwrap_or_default();
        let secret_key = Secret::new(config.server.root_secret_key.as_ref().map_or("", |secret| &secret.0));
        let root = RootUser { access_key: key(&config.server.root_access_key), secret_key };
        let users = Users::open(root, None).unwrap();
        let identity = Identity::new(&ClusterKey::parse(&"k".repeat(32)).unwrap(), "lake");
        own_settings(&config, &users, &identity, &forebay_env::Env::real().clock)()
    }

    const FILE: &str = "[server]
root_access_key = \"root\"
root_secret_key = \"root-secret\"
[under_store]
url = \"s3://?endpoint=http://127.0.0.1:1\"
[mounts]
logs = \"file:///logs\"
[[policy]]
path = \"/a\"
cacheQuota = \"1 GiB\"
[[policy]]
path = \"/b\"
writeMode = \"WRITE_BACK\"
";

    #[test]
    fn what_all_workers_need_alike_is_compared_and_nothing_else() {
        let check = |old: &str, new: &str, expected: &[&str]| {
            assert_eq!(FILE.matches(old).count(), 1, "{old}");
            assert_eq!(settings(&FILE.replace(old, new)).differing(&settings(FILE)), expected, "{old} {new}");
        };
        check("[server]", "[store]\ndata_dirs = [\"/x\"]\n[server]\nlisten = \"127.0.0.1:3\"", &[]);
        check("[server]", "[server]\nregion = \"eu-1\"", &["server.region"]);
        check("[server]", "[server]\ndomain = \"s3.example.com\"", &["server.domain"]);
        check("[server]", "[server]\naccount_id = \"123456789012\"", &["server.account_id"]);
        check("[server]", "[cache]\nsettle_time = \"31 s\"\n[server]", &["cache.settle_time"]);
        check("[server]", "[cache]\npart_size_min = \"1 B\"\n[server]", &["cache.part_size_min"]);
        check("\"root\"", "\"other\"", &["server.root_access_key"]);
        check("\"root-secret\"", "\"other-secret\"", &["server.root_secret_key"]);
        check("s3://?endpoint=http://127.0.0.1:1", "s3://?endpoint=http://127.0.0.1:2", &[]);
        check("s3://?endpoint=http://127.0.0.1:1", "file:///all", &["under_store.url"]);
        check("file:///logs", "file:///other", &["mounts"]);
        check("file:///logs", "file:///logs/", &[]);
        check("file:///logs", "hdfs://namenode:9000/a?user=ada", &["mounts"]);
        let hdfs = |user: &str| settings(&FILE.replace("file:///logs", &format!("hdfs://namenode:9000/a?user={user}")));
        assert!(hdfs("ada").differing(&hdfs("bob")).is_empty(), "each machine may have a user of its own");
        check("1 GiB", "1024 MiB", &[]);
        check("1 GiB", "2 GiB", &["policy"]);
        let (first, second) = FILE.split_at(FILE.find("[[policy]]").unwrap());
        let (a, b) = second.split_at(second.rfind("[[policy]]").unwrap());
        assert!(settings(&format!("{first}{b}{a}")).differing(&settings(FILE)).is_empty(), "their order says nothing");
    }

    #[test]
    fn under_stores_are_compared_with_their_endpoints_unless_these_may_differ() {
        let told = |file: &str, variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let config = Config::load(Some(("forebay.toml", file)), &variables, &Overrides::default()).unwrap();
            under_stores(&config, &Identity::new(&ClusterKey::parse(&"k".repeat(32)).unwrap(), "lake"))
        };
        let differing = |one: &str, other: &str| {
            let (one, other) = (told(one, &[]), told(other, &[]));
            one.into_iter()
                .filter(|(name, value)| other.get(name).is_some_and(|theirs| theirs != value))
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        let check = |old: &str, new: &str, expected: &[&str]| {
            assert_eq!(FILE.matches(old).count(), 1, "{old}");
            assert_eq!(differing(FILE, &FILE.replace(old, new)), expected, "{old} {new}");
        };
        check("s3://?endpoint=http://127.0.0.1:1", "s3://?endpoint=http://127.0.0.1:2", &[ENDPOINT]);
        check("http://127.0.0.1:1", "http://me:secret@127.0.0.1:1/", &[]);
        check("s3://?endpoint=http://127.0.0.1:1", "s3://all?endpoint=http://127.0.0.1:1", &[UNDER_STORE]);
        check("file:///logs", "s3://logs?endpoint=http://127.0.0.1:1", &[MOUNTS, ENDPOINTS]);
        check("[server]", "[cluster]\nengine = \"etcd://a:1\"\n[server]\nregion = \"eu-1\"", &[]);
        let elsewhere = FILE.replace("127.0.0.1:1", "127.0.0.1:2");
        let may_differ = format!("{elsewhere}[cluster]\ncompare_endpoints = false\n");
        assert_eq!(differing(FILE, &may_differ), [""; 0]);
        assert_eq!(differing(&may_differ, FILE), [""; 0]);
        // Of the environment.
        let inherits = FILE.replace("file:///logs", "s3://logs");
        let variables = [("AWS_ENDPOINT_URL", "http://HOST")];
        let named = FILE.replace("file:///logs", "s3://logs?endpoint=http://host:80");
        assert_eq!(told(&inherits, &variables), told(&named, &[]));
        assert_ne!(told(&inherits, &[]), told(&named, &[]));
    }

    /// Advances the clock until the future ends.
    async fn wait<T: Send + 'static>(clock: &ManualClock, future: impl Future<Output = T> + Send + 'static) -> T {
        let task = forebay_env::spawn(future);
        while !task.is_finished() {
            clock.advance(Duration::from_millis(20));
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }
        task.join().await
    }

    #[tokio::test]
    async fn a_release_that_speaks_another_protocol_does_not_join_workers_that_run() {
        let (env, clock) = Env::simulated(1);
        let engine: Arc<dyn Engine> = Arc::<MemoryEngine>::default();
        let settings = |worker: &str, protocol: &str, mounts: &str| HomeSettings {
            worker: WorkerId::new(worker).unwrap(),
            is_alone: false,
            cluster: ClusterSettings::DEFAULT,
            addresses: Some(Addresses { peers: "127.0.0.1:1".into(), s3: None, admin: None }),
            under_stores: BTreeMap::from([
                (PROTOCOL.to_owned(), protocol.to_owned()),
                (MOUNTS.to_owned(), mounts.to_owned()),
            ]),
        };
        let (first, of_first, engine_of_first) = (settings("w1", "old", "none"), env.clone(), Arc::clone(&engine));
        let first = wait(&clock, async move {
            let disks: Vec<Arc<dyn Disk>> = vec![Arc::new(MemoryDisk::default())];
            let store = Store::open(of_first.clone(), disks, Settings::new(vec![64 << 20]), None).await.unwrap();
            HomeCatalog::open(of_first, store, engine_of_first, first).await.unwrap()
        })
        .await;
        let check = async |settings: HomeSettings| {
            let (env, engine) = (env.clone(), Arc::clone(&engine));
            wait(&clock, async move { check_under_stores(&env, engine.as_ref(), &settings).await }).await
        };
        assert!(check(settings("w2", "old", "none")).await.is_ok());
        let Err(Failure::Refused(refused)) = check(settings("w2", "new", "none")).await else { panic!("it may join") };
        assert!(refused.starts_with("worker w1 ") && refused.contains("speaks another protocol"), "{refused}");
        let Err(Failure::Refused(refused)) = check(settings("w2", "old", "some")).await else { panic!("it may join") };
        assert!(refused.contains("another value of mounts"), "{refused}");
        let config = Config::load(Some(("forebay.toml", FILE)), &BTreeMap::new(), &Overrides::default()).unwrap();
        let identity = Identity::new(&ClusterKey::parse(&"k".repeat(32)).unwrap(), "lake");
        assert!(under_stores(&config, &identity).contains_key(PROTOCOL), "workers tell it");
        drop(first);
    }

    #[test]
    fn a_clock_is_far_off_when_no_delay_of_the_answer_explains_it() {
        assert_eq!(far_off(1_030_000, 1_000_000, 0), None);
        assert_eq!(far_off(1_030_001, 1_000_000, 0), Some(30_001));
        assert_eq!(far_off(969_999, 1_000_000, 0), Some(-30_001));
        assert_eq!(far_off(1_032_000, 1_000_000, 2_000), None, "it has shown that 2 s later");
        assert_eq!(far_off(1_032_001, 1_000_000, 2_000), Some(31_001));
        assert!(far_off(u64::MAX, 0, 0).is_some() && far_off(0, u64::MAX, u64::MAX).is_none());
        assert_eq!((aside(95_500), aside(-95_500)), ("95 s ahead of".to_owned(), "95 s behind".to_owned()));
        assert_eq!(aside(-86_400_000), "24 h behind");
    }

    #[test]
    fn a_clock_is_refused_when_more_than_half_are_on_one_side_of_it() {
        let check = |clocks: &[i64], expected: Option<i64>| {
            let named: Vec<_> = clocks.iter().map(|ahead_ms| ("w".to_owned(), *ahead_ms)).collect();
            assert_eq!(outvoted(&named).map(|(_, ahead_ms)| ahead_ms), expected, "{clocks:?}");
        };
        check(&[], None);
        check(&[0], None);
        check(&[40_000], Some(40_000));
        check(&[-40_000], Some(-40_000));
        check(&[40_000, 0], None);
        check(&[40_000, -40_000], None);
        check(&[0, 40_000, 50_000], Some(40_000));
        check(&[-40_000, 40_000, 50_000], Some(40_000));
    }

    #[test]
    fn what_is_seen_once_is_not_told_yet() {
        let difference = |settings: &[&str], clock_ms| Difference {
            settings: settings.iter().map(|name| (*name).to_owned()).collect(),
            clock_ms,
        };
        let looks = Looks::default().then(Some(difference(&["policy"], Some(1))));
        assert_eq!(looks.lasting, Difference::default());
        let looks = looks.then(None);
        assert_eq!(looks.lasting, Difference::default(), "nothing was seen");
        let looks = looks.then(Some(difference(&["mounts", "policy"], Some(2))));
        assert_eq!(looks.lasting, difference(&["policy"], Some(2)));
        assert_eq!(looks.clone().then(None), looks);
        let looks = looks.then(Some(difference(&["mounts"], None)));
        assert_eq!(looks.lasting, difference(&["mounts"], None));
    }
}
