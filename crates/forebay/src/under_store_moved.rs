//! Whether changes still wait for an under store that the configuration has since replaced by another one. Sent to the
//! new one, a delete or an overwrite would destroy an object that it was never about.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::records::{self, ObjectRecord, State};
use forebay_catalog::{Catalog, Engine, Error, ErrorKind, Transaction};
use forebay_cluster::{HomeCatalog, parse_path_record_key, path_records_range};
use forebay_env::Env;
use forebay_store::{Commit, Store, ValueWrite};
use forebay_types::{BucketName, Durability, ObjectPath};
use forebay_ufs::UnderStoreUrl;
use serde::{Deserialize, Serialize};

use crate::config::{Config, UnderStoreConfig};
use crate::failure::Failure;
use crate::locations::{endpoint, location, nameservice_configuration};

/// Records that are read in one go.
const SCAN_RECORDS: usize = 1000;

/// Before an engine that was out of reach is asked again. It has answered a moment ago.
const PAUSE: Duration = Duration::from_secs(1);

/// Where an S3 under store without an endpoint is.
const AMAZON: &str = "Amazon S3";

/// What earlier starts have left.
pub(crate) enum Records<'a> {
    /// Of a worker that is alone.
    Catalog(&'a dyn Catalog),
    /// Of all workers of a cluster. Only a worker that has joined it may note anything.
    Engine(&'a dyn Engine, Option<&'a HomeCatalog>),
}

impl Records<'_> {
    async fn noted(&self) -> Result<Option<UnderStores>, Error> {
        let noted = match self {
            Self::Catalog(catalog) => catalog.get(records::UNDER_STORES_KEY).await?,
            Self::Engine(engine, _) => engine.get(forebay_cluster::UNDER_STORES_KEY).await?,
        };
        noted.map(|noted| records::decode_json("under stores", &noted.value)).transpose()
    }

    async fn note(&self, note: &UnderStores) -> Result<(), Error> {
        let write = |key: &'static [u8]| ValueWrite { key: key.into(), value: Some(records::encode_json(note)) };
        match self {
            Self::Catalog(catalog) => {
                let writes = vec![write(records::UNDER_STORES_KEY)];
                let transaction = Transaction { writes, durability: Durability::Fsync, ..Transaction::default() };
                catalog.commit(transaction).await.map(drop)
            }
            Self::Engine(_, Some(home)) => home.note(write(forebay_cluster::UNDER_STORES_KEY)).await,
            Self::Engine(_, None) => Err(Error::new(ErrorKind::Unavailable, "this worker has not joined its cluster")),
        }
    }

    /// The keys of the records of all objects, and maybe of more.
    fn objects_range(&self) -> (Bytes, Bytes) {
        match self {
            Self::Catalog(_) => records::all_objects_range(),
            Self::Engine(..) => path_records_range(),
        }
    }

    async fn scan(&self, from: &[u8], to: &[u8]) -> Result<Vec<(Bytes, Bytes)>, Error> {
        let found = match self {
            Self::Catalog(catalog) => catalog.scan(from, to, SCAN_RECORDS).await?,
            Self::Engine(engine, _) => engine.scan(from, to, SCAN_RECORDS).await?,
        };
        Ok(found.into_iter().map(|(key, found)| (key, found.value)).collect())
    }

    fn object_of(&self, key: &[u8]) -> Option<ObjectPath> {
        match self {
            Self::Catalog(_) => records::parse_object_key(key),
            Self::Engine(..) => records::parse_object_key(parse_path_record_key(key)?),
        }
    }

    /// Asks until a shared engine answers.
    async fn ask<T, F: Future<Output = Result<T, Error>>>(
        &self,
        env: &Env,
        question: impl Fn() -> F,
    ) -> Result<T, Failure> {
        let may_pass = |kind| matches!(kind, ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Busy);
        let mut is_told = false;
        loop {
            match (question().await, self) {
                (Ok(answer), _) => return Ok(answer),
                (Err(error), Self::Engine(..)) if may_pass(error.kind) => {
                    if !is_told {
                        tracing::warn!(%error, "waiting for the engine of the cluster (etcd): check that it runs and can be reached (cluster.engine)");
                    }
                    is_told = true;
                    env.clock.sleep(PAUSE).await;
                }
                (Err(error), _) => return Err(Failure::of("the catalog", &error)),
            }
        }
    }

    /// How many objects and deletes of these buckets the under store does not have.
    async fn waiting(
        &self,
        env: &Env,
        is_asked: impl Fn(&BucketName) -> bool,
    ) -> Result<BTreeMap<BucketName, u64>, Failure> {
        let (mut from, to) = self.objects_range();
        let mut waiting: BTreeMap<BucketName, u64> = BTreeMap::new();
        loop {
            let found = self.ask(env, || self.scan(&from, &to)).await?;
            let Some((last, _)) = found.last() else { return Ok(waiting) };
            from = records::successor(last);
            for (key, value) in &found {
                let Some(path) = self.object_of(key).filter(|path| is_asked(&path.bucket)) else { continue };
                let record = ObjectRecord::decode(value).map_err(|error| Failure::of("the catalog", &error))?;
                if matches!(record.state, State::Dirty | State::Tombstone) {
                    *waiting.entry(path.bucket).or_default() += 1;
                }
            }
        }
    }
}

/// Where the buckets are, as the last start had it. JSON, without keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct UnderStores {
    root: Option<Place>,
    mounts: BTreeMap<BucketName, Place>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    location: String,
    /// `None`: not one of S3, or of a worker that reaches the same store by an address of its own.
    endpoint: Option<String>,
    /// Of a nameservice of HDFS: other clusters may have one of the same name. `None`: anything else, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hadoop_configuration: Option<String>,
}

impl Place {
    fn of(under_store: &UnderStoreConfig, config: &Config) -> Self {
        let UnderStoreUrl::S3 { bucket, prefix, .. } = &under_store.url else {
            let inherited = config.inherited_hadoop_conf_dir.as_deref();
            let hadoop_configuration = nameservice_configuration(&under_store.url, inherited);
            return Self {
                location: location(&under_store.url),
                endpoint: None,
                // The workers of a cluster may each have it in another directory.
                hadoop_configuration: hadoop_configuration.filter(|_| config.cluster.engine.is_none()),
            };
        };
        let endpoint = || endpoint(&under_store.url, config.inherited_endpoint.as_deref());
        Self {
            location: format!("s3://{}/{prefix}", bucket.as_deref().unwrap_or_default()),
            endpoint: config.cluster.compare_endpoints.then(|| endpoint().unwrap_or_else(|| AMAZON.to_owned())),
            hadoop_configuration: None,
        }
    }

    fn is(&self, other: &Self) -> bool {
        // What one of the two does not tell is no difference.
        let may_be =
            |one: Option<&String>, other: Option<&String>| one.zip(other).is_none_or(|(one, other)| one == other);
        self.location == other.location
            && may_be(self.endpoint.as_ref(), other.endpoint.as_ref())
            && may_be(self.hadoop_configuration.as_ref(), other.hadoop_configuration.as_ref())
    }

    fn describe(&self) -> String {
        match self {
            Self { location, endpoint: Some(endpoint), .. } => format!("{location} at {endpoint}"),
            Self { location, hadoop_configuration: Some(directory), .. } => {
                format!("{location} with the Hadoop configuration in {directory}")
            }
            Self { location, .. } => location.clone(),
        }
    }
}

impl UnderStores {
    fn of(config: &Config) -> Self {
        let place = |under_store: &UnderStoreConfig| Place::of(under_store, config);
        Self {
            root: config.root.as_ref().map(place),
            mounts: config.mounts.iter().map(|(bucket, mount)| (bucket.clone(), place(mount))).collect(),
        }
    }

    /// Whether each bucket is where it is in the other one.
    fn are(&self, other: &Self) -> bool {
        self.differences(other).is_empty()
    }

    /// The settings that name another place in `other`: what they are called, and both places.
    fn differences(&self, other: &Self) -> Vec<(String, String, String)> {
        let mounts = self.mounts.keys().chain(other.mounts.keys()).collect::<BTreeSet<_>>();
        let mounts = mounts
            .into_iter()
            .map(|bucket| (format!("mounts.{bucket}"), self.mounts.get(bucket), other.mounts.get(bucket)));
        let root = ("under_store.url".to_owned(), self.root.as_ref(), other.root.as_ref());
        let differs = |from: Option<&Place>, to: Option<&Place>| match (from, to) {
            (Some(from), Some(to)) => !from.is(to),
            (from, to) => from.is_some() || to.is_some(),
        };
        let shown = |place: Option<&Place>| place.map_or("none".to_owned(), Place::describe);
        let all = std::iter::once(root).chain(mounts);
        all.filter(|(_, from, to)| differs(*from, *to)).map(|(name, from, to)| (name, shown(from), shown(to))).collect()
    }

    /// Takes what the settings here do not tell from what was noted.
    fn complete(&mut self, noted: &Self) {
        let complete = |place: &mut Place, noted: Option<&Place>| {
            let Some(noted) = noted.filter(|noted| noted.location == place.location) else { return };
            if place.endpoint.is_none() {
                place.endpoint.clone_from(&noted.endpoint);
            }
            if place.hadoop_configuration.is_none() {
                place.hadoop_configuration.clone_from(&noted.hadoop_configuration);
            }
        };
        self.root.iter_mut().for_each(|root| complete(root, noted.root.as_ref()));
        self.mounts.iter_mut().for_each(|(bucket, mount)| complete(mount, noted.mounts.get(bucket)));
    }

    /// Keeps the places of buckets that have none here: the copies of their objects stay, and are of these places.
    fn keep_places(&mut self, noted: &Self) {
        if self.root.is_some() {
            return;
        }
        self.root.clone_from(&noted.root);
        for (bucket, mount) in &noted.mounts {
            self.mounts.entry(bucket.clone()).or_insert_with(|| mount.clone());
        }
    }

    /// Where a bucket is. In `under_store.url`, each has a place of its own by its name.
    fn of_bucket(&self, bucket: &BucketName) -> Option<(bool, &Place)> {
        let mount = self.mounts.get(bucket).map(|mount| (true, mount));
        mount.or_else(|| self.root.as_ref().map(|root| (false, root)))
    }
}

/// Compares where the buckets are with the last start. Call it before anything is sent.
///
/// # Errors
/// When changes wait for buckets whose under store is another one than at the last start, and the configuration does
/// not name these buckets in `under_store.moved_buckets`.
pub(crate) async fn check(config: &Config, env: &Env, records: &Records<'_>) -> Result<(), Failure> {
    let present = UnderStores::of(config);
    let noted = records.ask(env, || records.noted()).await?;
    let Some(before) = noted.filter(|before| !before.are(&present)) else { return Ok(()) };
    let moves = |bucket: &BucketName| {
        let moves = match (before.of_bucket(bucket), present.of_bucket(bucket)) {
            (Some((was_mount, from)), Some((is_mount, to))) => was_mount != is_mount || !from.is(to),
            // The cache refuses that for the homes that are here. The note would forget the place for all others.
            (Some(_), None) => matches!(records, Records::Engine(..)),
            (None, _) => false,
        };
        moves && !config.moved_buckets.contain(bucket)
    };
    let waiting = records.waiting(env, moves).await?;
    match waiting.is_empty() {
        true => Ok(()),
        false => Err(Failure::Refused(refusal(&waiting, &before, &present))),
    }
}

/// Drops the clean copies of buckets that are in another under store than at the last start of this worker: they were
/// never compared with what is there. Not of buckets in `under_store.moved_buckets`, which has the same objects.
///
/// # Errors
/// Those of the catalog and of the store.
pub(crate) async fn drop_copies(
    config: &Config,
    env: &Env,
    records: &Records<'_>,
    catalog: &dyn Catalog,
    store: &Store,
) -> Result<(), Failure> {
    let mut present = UnderStores::of(config);
    let own = catalog.get(records::COPIES_KEY).await.map_err(|error| Failure::of("the catalog", &error))?;
    let own = own.map(|found| records::decode_json("places of copies", &found.value)).transpose();
    let before: Option<UnderStores> = match own.map_err(|error| Failure::of("the catalog", &error))? {
        Some(own) => Some(own),
        // A release that kept no such note, or a new worker.
        None => records.ask(env, || records.noted()).await?,
    };
    if let Some(before) = &before {
        if !before.are(&present) {
            let moved = |bucket: &BucketName| {
                let moved = match (before.of_bucket(bucket), present.of_bucket(bucket)) {
                    (Some((was_mount, from)), Some((is_mount, to))) => was_mount != is_mount || !from.is(to),
                    (before, present) => before.is_none() && present.is_some(),
                };
                moved && !config.moved_buckets.contain(bucket)
            };
            forget_copies(store, moved)
                .await
                .map_err(|error| Failure::of("copies of the former under store", &error))?;
        }
        present.complete(before);
        present.keep_places(before);
    }
    if before.as_ref() == Some(&present) {
        return Ok(());
    }
    let key = Bytes::from_static(records::COPIES_KEY);
    // The same objects may have other ETags there.
    let known = ValueWrite { key: Bytes::from_static(records::KNOWN_COPIES_KEY), value: None };
    let writes = vec![ValueWrite { key, value: Some(records::encode_json(&present)) }, known];
    let transaction = Transaction { writes, durability: Durability::Fsync, ..Transaction::default() };
    catalog.commit(transaction).await.map(drop).map_err(|error| Failure::of("the catalog", &error))
}

/// Dirty and transient objects, and parts, stay: nobody else has them.
async fn forget_copies(store: &Store, moved: impl Fn(&BucketName) -> bool) -> Result<(), forebay_store::Error> {
    let mut copies = Vec::new();
    store.for_each_object(&mut |key, _, is_pinned| {
        if !is_pinned && records::parse_object_key(key).is_some_and(|path| moved(&path.bucket)) {
            copies.push(Bytes::copy_from_slice(key));
        }
    });
    if copies.is_empty() {
        return Ok(());
    }
    tracing::warn!(
        objects = copies.len(),
        "dropping the cached copies of buckets whose under store is another one now"
    );
    for forget in copies.chunks(SCAN_RECORDS) {
        let commit = Commit { forget: forget.to_vec(), ..Commit::default() };
        store.commit(commit, Durability::Fsync).await?;
    }
    Ok(())
}

/// Notes where the buckets are, for the next start. Call it when nothing can refuse this start any more, and before a
/// client can write. Returns whether an under store is another one than at the last start.
///
/// # Errors
/// Those of the catalog.
pub(crate) async fn note(config: &Config, env: &Env, records: &Records<'_>) -> Result<bool, Failure> {
    let mut present = UnderStores::of(config);
    let noted = records.ask(env, || records.noted()).await?;
    if let Some(noted) = &noted {
        present.complete(noted);
    }
    if noted.as_ref() == Some(&present) {
        return Ok(false);
    }
    let differences = noted.map(|noted| noted.differences(&present)).unwrap_or_default();
    for (setting, from, to) in &differences {
        tracing::warn!(setting, %from, %to, "the under store is another one than at the last start");
    }
    records.note(&present).await.map_err(|error| Failure::of("the catalog", &error))?;
    Ok(!differences.is_empty())
}

/// Buckets that a refusal names. Of more, it tells the number.
const NAMED_MAX: usize = 10;

fn refusal(waiting: &BTreeMap<BucketName, u64>, before: &UnderStores, present: &UnderStores) -> String {
    let (bucket, changes) = waiting.first_key_value().expect("it is not empty");
    let shown =
        |place: Option<(bool, &Place)>| place.map_or("no under store".to_owned(), |(_, place)| place.describe());
    let (from, to) = (shown(before.of_bucket(bucket)), shown(present.of_bucket(bucket)));
    let is_mount = [before, present].iter().any(|each| each.mounts.contains_key(bucket));
    let setting = if is_mount { format!("mounts.{bucket}") } else { "under_store.url".to_owned() };
    let changes = if *changes == 1 { "1 change waits".to_owned() } else { format!("{changes} changes wait") };
    let others: Vec<&str> = waiting.keys().skip(1).take(NAMED_MAX).map(BucketName::as_str).collect();
    let more = match waiting.len() - 1 - others.len() {
        _ if others.is_empty() => String::new(),
        0 => format!(" (also for {})", others.join(", ")),
        unnamed => format!(" (also for {} and {unnamed} others)", others.join(", ")),
    };
    format!(
        "{setting}: {changes} to be sent for bucket {bucket}{more}, which was in {from} at the last start and is now in {to}: they could replace or delete other objects there. If the new address is a mistake, correct it. Otherwise start with the earlier under store until `forebay status` shows that nothing is dirty, or, if the new one has the same objects, name each of these buckets in under_store.moved_buckets"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_catalog::EmbeddedCatalog;
    use forebay_env::Disk;
    use forebay_env::disk::memory::MemoryDisk;
    use forebay_store::{Class, NewObject};

    use super::*;
    use crate::config::Overrides;

    fn under_stores(mount: &str, hadoop_conf_dir: Option<&str>) -> UnderStores {
        let text = format!("[mounts]\nlake = \"{mount}\"\n");
        let variables = hadoop_conf_dir.map(|directory| ("HADOOP_CONF_DIR".to_owned(), directory.to_owned()));
        let variables = variables.into_iter().collect();
        let config = Config::load(Some(("test.toml", &text)), &variables, &Overrides::default());
        UnderStores::of(&config.expect("a sound configuration"))
    }

    #[test]
    fn a_nameservice_in_another_hadoop_configuration_is_another_under_store() {
        let of = |directory: &str| {
            under_stores(&format!("hdfs://nameservice1/lake?hadoop_conf_dir={directory}"), Some("/etc/inherited"))
        };
        let (old, new) = (of("/etc/old"), of("/etc/new"));
        let differences = old.differences(&new);
        let [(setting, from, to)] = &differences[..] else { panic!("{differences:?}") };
        assert!(setting == "mounts.lake" && from.ends_with("/etc/old") && to.ends_with("/etc/new"), "{differences:?}");
        assert!(old.are(&of("/etc/old")));
        let inherited = |directory| under_stores("hdfs://nameservice1/lake", Some(directory));
        assert!(inherited("/etc/old").are(&old) && !inherited("/etc/new").are(&old));
        // The address of a NameNode says which one it is.
        let of_address = |directory| under_stores("hdfs://namenode:8020/lake", Some(directory));
        assert!(of_address("/etc/old").are(&of_address("/etc/new")));
    }

    #[test]
    fn a_note_of_a_release_that_did_not_look_at_the_hadoop_configuration_refuses_nothing() {
        let noted = r#"{"root":null,"mounts":{"lake":{"location":"hdfs://nameservice1//lake","endpoint":null}}}"#;
        let noted: UnderStores = serde_json::from_str(noted).unwrap();
        let present = under_stores("hdfs://nameservice1/lake?hadoop_conf_dir=/etc/new", None);
        assert!(noted.are(&present) && present.are(&noted) && noted != present);
        let mut unknown = noted.clone();
        unknown.complete(&present);
        assert_eq!(unknown, present);
    }

    async fn put_copy(store: &Store, path: &ObjectPath) {
        let object = NewObject {
            key: records::object_key(path),
            generation: store.next_generation(),
            metadata: Bytes::new(),
            annex: Bytes::new(),
            pinned: false,
            group: 0,
            size: 4,
        };
        let mut writer = store.writer(Class::Fill, 4).await.expect("there is room");
        writer.append(Bytes::from_static(b"copy")).await.expect("it is written");
        let staged = writer.finish(object).await.expect("it is whole");
        store.publish_fill(staged).await.expect("it is published");
    }

    /// It is refused when something waits, or shows none of these buckets.
    #[tokio::test]
    async fn a_start_without_an_under_store_does_not_make_the_next_one_drop_copies() {
        let (env, _clock) = Env::simulated(1);
        let disks: Vec<Arc<dyn Disk>> = vec![Arc::new(MemoryDisk::new(1 << 30))];
        let settings = forebay_store::Settings::new(vec![1 << 30]);
        let store = Store::open(env.clone(), disks, settings, None).await.expect("a new store");
        let catalog = EmbeddedCatalog::new(store.clone());
        let path = |bucket: &str| ObjectPath::parse(bucket, "key").expect("a path");
        let buckets = ["in-root", "mounted"];
        for bucket in buckets {
            put_copy(&store, &path(bucket)).await;
        }
        let start = async |text: &str| {
            let config = Config::load(Some(("test.toml", text)), &BTreeMap::new(), &Overrides::default());
            let config = config.expect("a sound configuration");
            let dropped = drop_copies(&config, &env, &Records::Catalog(&catalog), &catalog, &store).await;
            dropped.expect("a start");
            buckets.map(|bucket| store.peek(&records::object_key(&path(bucket))).is_some())
        };
        let all = "[under_store]\nurl = \"file:///old\"\n[mounts]\nmounted = \"file:///lake\"\n";
        let neither = "[mounts]\nanother = \"file:///another\"\n";
        for text in [all, neither, neither, all, neither] {
            assert_eq!(start(text).await, [true, true], "{text}");
        }
        let moved = "[under_store]\nurl = \"file:///new\"\n[mounts]\nmounted = \"file:///lake\"\n";
        assert_eq!(start(moved).await, [false, true]);
    }
}
