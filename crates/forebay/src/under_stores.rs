//! Opens the under stores of the configuration, and tells how they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_admin::UnderStores;
use forebay_admin::api::{CircuitState, UnderStoreStatus};
use forebay_cache::{Mount, Mounts};
use forebay_env::{Env, Task};
use forebay_ufs::governor::{CallObserver, Circuit, DeniedWrites, Governor, RefusedWrites};
use forebay_ufs::s3::S3Credentials;
use forebay_ufs::{BucketRoot, Error, ErrorKind, OpenOptions, UnderStore, UnderStoreUrl, open_mount, open_root};
use parking_lot::Mutex;

use crate::config::{Config, Keys, Origin, UnderStoreConfig};
use crate::doctor::findings::{self, Kind};
use crate::failure::Failure;

/// Pause between two probes of an under store that can't be used.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

/// Pause between two checks whether an under store has failed since.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// When no request has been answered for so long, a probe shows whether the under store answers at all: an upload alone
/// may take longer.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// An under store that says nothing for so long is out of reach. Requests of clients wait for longer.
const PROBE_MAX: Duration = Duration::from_secs(10);

/// When this many writes of a bucket in a row are denied, it is no matter of single keys.
const DENIED_MIN: u64 = 3;

fn silent() -> Error {
    Error::new(ErrorKind::Unavailable, format!("no answer within {} s", PROBE_MAX.as_secs()))
}

/// The under stores of a worker. Shared by clones.
#[derive(Clone, Default)]
pub(crate) struct OpenUnderStores {
    all: Arc<Vec<OpenUnderStore>>,
}

struct OpenUnderStore {
    /// Its URL without secrets; where several mounts have the same, with the bucket behind it: labels of metrics are
    /// unique.
    label: String,
    url: String,
    buckets: Vec<String>,
    governor: Arc<Governor>,
    behind: Behind,
    trouble: Mutex<Option<Trouble>>,
    /// Since the start.
    is_probed: AtomicBool,
}

/// What is asked whether it can be used.
enum Behind {
    Root(Arc<dyn BucketRoot>),
    Mount(Arc<dyn UnderStore>),
}

/// Why an under store can't be used.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub(crate) kind: Kind,
    pub(crate) error: String,
}

/// Opens `under_store.url` and all mounts; each has limits of its own.
pub(crate) async fn open(
    config: &Config,
    env: &Env,
    observer: Arc<dyn CallObserver>,
) -> Result<(Mounts, OpenUnderStores), Failure> {
    let options = |keys: &Keys| OpenOptions { observer: Some(Arc::clone(&observer)), ..options(config, keys) };
    let mut under_stores = Vec::new();
    let mut mounts = BTreeMap::new();
    let (mut root, mut background_root) = (None, None);
    if let Some(setting) = &config.root {
        let lanes = open_root(env, &setting.url, &options(&setting.keys)).await;
        let lanes = lanes.map_err(|error| Failure::of(&name_of_root(setting), &error))?;
        under_stores.push(OpenUnderStore::new(
            &setting.url,
            None,
            lanes.governor,
            Behind::Root(Arc::clone(&lanes.foreground)),
        ));
        (root, background_root) = (Some(lanes.foreground), Some(lanes.background));
    }
    for (bucket, under_store) in &config.mounts {
        let lanes = open_mount(env, &under_store.url, &options(&under_store.keys)).await;
        let lanes = lanes.map_err(|error| Failure::of(&format!("mounts.{bucket}"), &error))?;
        let behind = Behind::Mount(Arc::clone(&lanes.foreground));
        under_stores.push(OpenUnderStore::new(&under_store.url, Some(bucket.as_str()), lanes.governor, behind));
        mounts.insert(bucket.clone(), Mount { foreground: lanes.foreground, background: lanes.background });
    }
    make_unique(&mut under_stores);
    let mounts = Mounts { mounts, root, background_root };
    Ok((mounts, OpenUnderStores { all: Arc::new(under_stores) }))
}

/// The setting that names the under store, or that nobody has set it.
fn name_of_root(setting: &UnderStoreConfig) -> String {
    match setting.origin {
        Origin::Default => format!("under_store.url is not set, and the default is {}", setting.url),
        Origin::File { .. } | Origin::Environment { .. } | Origin::Flag { .. } => "under_store.url".to_owned(),
    }
}

/// How the configuration has an under store opened.
pub(crate) fn options(config: &Config, keys: &Keys) -> OpenOptions {
    OpenOptions {
        credentials: credentials(keys),
        s3: config.s3.clone(),
        governor: config.limits.clone(),
        observer: None,
    }
}

fn make_unique(under_stores: &mut [OpenUnderStore]) {
    let mut seen = BTreeSet::new();
    for under_store in under_stores {
        if !seen.insert(under_store.label.clone()) {
            under_store.label = format!("{}#{}", under_store.label, under_store.buckets.join(","));
        }
    }
}

/// `None`: those of the environment and the profile files.
fn credentials(keys: &Keys) -> Option<S3Credentials> {
    let Keys { access_key, secret_key, session_token, .. } = keys;
    (!access_key.is_empty()).then(|| S3Credentials {
        access_key: access_key.clone(),
        secret_key: secret_key.0.clone(),
        session_token: (!session_token.0.is_empty()).then(|| session_token.0.clone()),
    })
}

impl OpenUnderStore {
    fn new(url: &UnderStoreUrl, bucket: Option<&str>, governor: Arc<Governor>, behind: Behind) -> Self {
        let url = url.to_string();
        let buckets = bucket.into_iter().map(str::to_owned).collect();
        let (trouble, is_probed) = (Mutex::default(), AtomicBool::new(false));
        Self { label: url.clone(), url, buckets, governor, behind, trouble, is_probed }
    }

    /// Probes at the start, when requests have failed since, and while none is answered; ends with its task.
    async fn watch(&self, env: &Env) {
        let mut errors_seen = None;
        loop {
            let state = self.governor.state();
            let is_silent = state.silent_for.is_some_and(|silent| silent >= SILENT_MAX);
            let is_troubled = self.trouble.lock().is_some() || self.governor.refused_writes().is_some();
            let must_probe = is_silent || is_troubled || errors_seen != Some(state.errors);
            if must_probe {
                self.find_trouble(env).await;
                errors_seen = Some(self.governor.state().errors);
            }
            env.clock.sleep(if must_probe { PROBE_INTERVAL } else { LOOK_INTERVAL }).await;
        }
    }

    async fn find_trouble(&self, env: &Env) {
        let probed = tokio::select! {
            biased;
            probed = self.probe() => probed,
            () = env.clock.sleep(PROBE_MAX) => Err(silent()),
        };
        let trouble = probed
            .err()
            .map(|error| Trouble { kind: findings::of_under_store(error.kind), error: one_line(&error.to_string()) });
        let trouble = trouble.or_else(|| self.refusal()).or_else(|| self.denial());
        *self.trouble.lock() = trouble;
        self.is_probed.store(true, Ordering::Release);
    }

    /// What no probe finds, because it writes nothing: a file system that is full for some writes, or read-only.
    fn refusal(&self) -> Option<Trouble> {
        let RefusedWrites { bucket, kind, error } = self.governor.refused_writes()?;
        let place = if bucket.is_empty() { String::new() } else { format!("in the bucket {bucket}: ") };
        Some(Trouble { kind: findings::of_under_store(kind), error: format!("{place}{}", one_line(&error)) })
    }

    /// The same.
    fn denial(&self) -> Option<Trouble> {
        let DeniedWrites { bucket, count, last } = self.governor.denied_writes(DENIED_MIN)?;
        let place = if bucket.is_empty() { String::new() } else { format!(", in the bucket {bucket}") };
        Some(Trouble {
            kind: findings::of_under_store(ErrorKind::Denied),
            error: format!("{count} writes in a row were denied{place}: {}", one_line(&last)),
        })
    }

    /// # Errors
    /// Why it can't be used.
    async fn probe(&self) -> Result<(), Error> {
        match &self.behind {
            Behind::Mount(store) => store.probe("").await,
            Behind::Root(root) => match root.list().await {
                // Keys that may use buckets need not be allowed to list all, and not every server can list them.
                Err(error) if error.kind == ErrorKind::Denied || error.kind == ErrorKind::Unsupported => Ok(()),
                Err(error) if error.kind.is_invalid() => Ok(()),
                listed => listed.map(drop),
            },
        }
    }

    fn status(&self) -> UnderStoreStatus {
        let (settings, state) = (self.governor.settings(), self.governor.state());
        let trouble = self.trouble.lock().clone();
        let (circuit, probe_in_ms) = match state.circuit {
            Circuit::Closed => (CircuitState::Closed, None),
            Circuit::Probing => (CircuitState::Probing, None),
            Circuit::Open { probe_in } => (CircuitState::Open, Some(probe_in.as_millis() as u64)),
        };
        let (last_error, last_error_ms) = state.last_error.map(|error| (one_line(&error.text), error.unix_ms)).unzip();
        UnderStoreStatus {
            url: self.url.clone(),
            buckets: self.buckets.clone(),
            circuit,
            probe_in_ms,
            failures_in_a_row: state.failures_in_a_row,
            concurrency_limit: state.limit,
            concurrency_max: settings.concurrency_max,
            running: state.running,
            silent_ms: state.silent_for.map(|silent| silent.as_millis() as u64),
            calls: state.calls,
            errors: state.errors,
            throttled: state.throttled,
            last_error,
            last_error_ms,
            problem: trouble.as_ref().map(|trouble| format!("{}: {}", trouble.kind.what, trouble.error)),
            problem_id: trouble.map(|trouble| trouble.kind.id.to_owned()),
            checking: !self.is_probed.load(Ordering::Acquire),
            requests_per_second_max: settings.requests_per_second,
            upload_bandwidth_max: settings.upload_bandwidth.0,
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl OpenUnderStores {
    /// Probes all under stores in the background, until the tasks are aborted.
    pub(crate) fn watch(&self, env: &Env) -> Vec<Task<()>> {
        let watch = |number: usize| {
            let (under_stores, env) = (self.clone(), env.clone());
            forebay_env::spawn(async move { under_stores.all[number].watch(&env).await })
        };
        (0..self.all.len()).map(watch).collect()
    }

    /// Whether each has been probed since the start.
    pub(crate) fn are_probed(&self) -> bool {
        self.all.iter().all(|under_store| under_store.is_probed.load(Ordering::Acquire))
    }

    /// By their labels, why they can't be used.
    pub(crate) fn troubles(&self) -> impl Iterator<Item = (&str, Option<Trouble>)> {
        self.all.iter().map(|under_store| (under_store.label.as_str(), under_store.trouble.lock().clone()))
    }

    /// A name for each, which no other has, and its state.
    pub(crate) fn labelled(&self) -> impl Iterator<Item = (&str, UnderStoreStatus)> {
        self.all.iter().map(|under_store| (under_store.label.as_str(), under_store.status()))
    }
}

impl UnderStores for OpenUnderStores {
    fn states(&self) -> Vec<UnderStoreStatus> {
        self.all.iter().map(OpenUnderStore::status).collect()
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::clock::ManualClock;
    use forebay_types::ObjectKey;
    use forebay_ufs::governor::{Governed, GovernorSettings, Lane, govern};
    use forebay_ufs::memory::{MemoryUnderStore, Mood};

    use super::*;
    use crate::config::Overrides;
    use crate::metrics::UnderStoreObserver;

    /// Seconds on this clock until something is so.
    async fn seconds_until(clock: &ManualClock, mut is_so: impl FnMut() -> bool) -> u64 {
        for seconds in 0..600 {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            if is_so() {
                return seconds;
            }
            clock.advance(Duration::from_secs(1));
        }
        panic!("not within ten minutes")
    }

    #[tokio::test]
    async fn an_under_store_that_answers_nothing_is_found_while_a_request_still_waits() {
        let (env, clock) = Env::simulated(1);
        let memory = MemoryUnderStore::default();
        let governor = govern(&env, &GovernorSettings::default(), None);
        let behind: Arc<dyn UnderStore> =
            Arc::new(Governed::new(Arc::new(memory.clone()), Arc::clone(&governor), Lane::Foreground));
        let url: UnderStoreUrl = "s3://bucket".parse().unwrap();
        let under_store = OpenUnderStore::new(&url, None, governor, Behind::Mount(Arc::clone(&behind)));
        let under_stores = OpenUnderStores { all: Arc::new(vec![under_store]) };
        let state = || under_stores.states().remove(0);
        assert!(state().checking && !under_stores.are_probed());
        let probes = under_stores.watch(&env);
        seconds_until(&clock, || under_stores.are_probed()).await;
        assert!(!state().checking && state().problem.is_none(), "{:?}", state());

        memory.set_mood(Mood::Hang);
        let request = forebay_env::spawn(async move { behind.head(&ObjectKey::new("key").unwrap()).await.map(drop) });
        let seconds = seconds_until(&clock, || state().problem.is_some()).await;
        assert!(seconds <= 40, "{seconds} s: the probe at the start may have been a moment ago");
        let problem = state().problem.unwrap();
        assert!(problem.contains("no answer within 10 s") && !request.is_finished(), "{problem}");
        memory.set_mood(Mood::Well);
        seconds_until(&clock, || state().problem.is_none()).await;
        probes.iter().for_each(Task::abort);
    }

    #[tokio::test]
    async fn every_under_store_has_a_state_and_a_label_of_its_own_without_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let url = "s3://bucket?endpoint=http://me:hunter2@127.0.0.1:9";
        let config = format!(
            "[under_store]\nurl = \"file://{}\"\n[mounts]\none-bucket = \"{url}\"\ntwo-bucket = \"{url}\"\n",
            directory.path().display()
        );
        let config = Config::load(Some(("test.toml", &config)), &BTreeMap::new(), &Overrides::default()).unwrap();
        let observer = UnderStoreObserver::register(&mut prometheus_client::registry::Registry::default());
        let (_, under_stores) = open(&config, &Env::real(), Arc::new(observer)).await.unwrap();
        let states = under_stores.states();
        let buckets: Vec<_> = states.iter().map(|state| state.buckets.join(",")).collect();
        assert_eq!(buckets, ["", "one-bucket", "two-bucket"]);
        assert!(states.iter().all(|state| state.circuit == CircuitState::Closed));
        let labels: Vec<_> = under_stores.labelled().map(|(label, _)| label.to_owned()).collect();
        let shown = "s3://bucket?endpoint=http://127.0.0.1:9";
        assert_eq!(labels[1..], [shown.to_owned(), format!("{shown}#two-bucket")]);
        assert!(!format!("{states:?}{labels:?}").contains("hunter2"));
    }
}
