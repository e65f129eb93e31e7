//! Opens the under stores of the configuration, and tells how they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_admin::UnderStores;
use forebay_admin::api::{CircuitState, UnderStoreStatus};
use forebay_cache::{Mount, Mounts};
use forebay_env::{Env, Task};
use forebay_ufs::governor::{CallObserver, Circuit, DeniedWrites, Governor};
use forebay_ufs::s3::S3Credentials;
use forebay_ufs::{BucketRoot, Error, ErrorKind, OpenOptions, UnderStore, UnderStoreUrl, open_mount, open_root};
use parking_lot::Mutex;

use crate::config::{Config, Keys, Origin, UnderStoreConfig};
use crate::doctor::findings::{self, Kind};
use crate::failure::Failure;

/// Pause between two checks whether an under store has failed since, and between two probes of one that can't be used.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

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
        Self { label: url.clone(), url, buckets, governor, behind, trouble: Mutex::default() }
    }

    /// Probes at the start, and when requests have failed since; ends with its task.
    async fn watch(&self, env: &Env) {
        let mut errors_seen = None;
        loop {
            let errors = self.governor.state().errors;
            if errors_seen != Some(errors) || self.trouble.lock().is_some() {
                let probed = tokio::select! {
                    biased;
                    probed = self.probe() => probed,
                    () = env.clock.sleep(PROBE_MAX) => Err(silent()),
                };
                let trouble = probed.err().map(|error| Trouble {
                    kind: findings::of_under_store(error.kind),
                    error: one_line(&error.to_string()),
                });
                let trouble = trouble.or_else(|| self.denial());
                *self.trouble.lock() = trouble;
                errors_seen = Some(self.governor.state().errors);
            }
            env.clock.sleep(PROBE_INTERVAL).await;
        }
    }

    /// What no probe finds, because it writes nothing.
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
            calls: state.calls,
            errors: state.errors,
            throttled: state.throttled,
            last_error,
            last_error_ms,
            problem: self.trouble.lock().as_ref().map(|trouble| format!("{}: {}", trouble.kind.what, trouble.error)),
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
    use super::*;
    use crate::config::Overrides;
    use crate::metrics::UnderStoreObserver;

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
