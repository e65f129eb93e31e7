use std::collections::VecDeque;
use std::path::PathBuf;

use async_trait::async_trait;
use forebay_auth::{RootUser, Secret};
use forebay_catalog::{EmbeddedCatalog, Error, Generations, Versioned, Watch};
use forebay_env::Disk;
use forebay_env::clock::ManualClock;
use forebay_env::disk::memory::MemoryDisk;
use forebay_peers::ClusterKey;
use forebay_store::{Settings, Store};

use super::*;

const SECRET: &str = "nobody else knows it";

/// What happens to a commit.
enum Fate {
    /// It is done, and the answer is lost.
    AnswerLost,
    /// Etcd does not answer.
    Refused,
    /// Another worker has done this to the record just before.
    After(UsersRecord),
}

/// The catalog that all workers share.
struct SharedCatalog {
    inner: EmbeddedCatalog,
    fates: Mutex<VecDeque<Fate>>,
}

#[async_trait]
impl Catalog for SharedCatalog {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        self.inner.get(key).await
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Versioned)>> {
        self.inner.scan(from, to, limit).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<u64> {
        let fate = self.fates.lock().pop_front();
        match fate {
            None => {}
            Some(Fate::AnswerLost) => {
                self.inner.commit(transaction).await?;
                return Err(Error::new(ErrorKind::Unknown, "the answer is lost"));
            }
            Some(Fate::Refused) => return Err(Error::new(ErrorKind::Unavailable, "nothing is heard")),
            Some(Fate::After(record)) => self.write(&record).await,
        }
        self.inner.commit(transaction).await
    }

    async fn watch(&self, key: &[u8]) -> Result<Watch> {
        self.inner.watch(key).await
    }

    async fn generations(&self, now_ms: u64) -> Result<Arc<dyn Generations>> {
        self.inner.generations(now_ms).await
    }
}

impl SharedCatalog {
    async fn write(&self, record: &UsersRecord) {
        let writes = vec![ValueWrite { key: Bytes::from_static(records::USERS_KEY), value: Some(record.encode()) }];
        self.inner.commit(Transaction { writes, ..Transaction::default() }).await.expect("a disk in memory");
    }

    async fn record(&self) -> UsersRecord {
        let found = self.inner.get(records::USERS_KEY).await.expect("a disk in memory");
        UsersRecord::decode(&found.expect("users were published").value).expect("this release has written it")
    }
}

struct Ground {
    env: Env,
    clock: Arc<ManualClock>,
    catalog: Arc<SharedCatalog>,
    files: tempfile::TempDir,
    identity: Identity,
}

fn identity(letter: &str) -> Identity {
    Identity::new(&ClusterKey::parse(&letter.repeat(32)).expect("a key"), "lake")
}

impl Ground {
    async fn new() -> Self {
        let (env, clock) = Env::simulated(1);
        let disks: Vec<Arc<dyn Disk>> = vec![Arc::new(MemoryDisk::default())];
        let store = Store::open(env.clone(), disks, Settings::new(vec![64 << 20]), None).await.expect("a new store");
        let catalog = Arc::new(SharedCatalog { inner: EmbeddedCatalog::new(store), fates: Mutex::default() });
        Self { env, clock, catalog, files: tempfile::tempdir().expect("a directory"), identity: identity("k") }
    }

    fn file(&self, worker: &str) -> PathBuf {
        self.files.path().join(worker)
    }

    /// The users in the file of a worker, by their first letters.
    fn write(&self, worker: &str, users: &str) {
        std::fs::write(self.file(worker), document(users)).expect("a file");
    }

    /// Without a file, the worker has no `server.users_file`.
    async fn start(&self, worker: &str) -> Worker {
        let file = Some(self.file(worker)).filter(|file| file.exists());
        let root = RootUser { access_key: "root".to_owned(), secret_key: Secret::new("root-secret") };
        let users = Users::open(root, file).expect("a good file");
        let catalog = Arc::clone(&self.catalog) as Arc<dyn Catalog>;
        let cluster = ClusterUsers::new(worker, &self.env, &users, catalog, &self.identity);
        cluster.begin().await;
        Worker { clock: Arc::clone(&self.clock), users, cluster }
    }

    fn fail(&self, fate: Fate) {
        self.catalog.fates.lock().push_back(fate);
    }
}

fn document(users: &str) -> String {
    let user = |name: char| {
        format!("[[user]]\nname = \"{name}\"\naccess_key = \"key-{name}\"\nsecret_key = \"{SECRET}\"\ngrants = []\n")
    };
    users.chars().map(user).collect()
}

struct Worker {
    clock: Arc<ManualClock>,
    users: Users,
    cluster: ClusterUsers,
}

impl Worker {
    async fn look_once(&self) {
        self.cluster.look_at_file();
        self.cluster.pass(&mut false).await;
    }

    /// Until the file has been the same for long enough.
    async fn look(&self) {
        self.look_once().await;
        self.clock.advance(EMPTY_UNCHANGED);
        self.look_once().await;
    }

    /// Who is in force.
    fn known(&self) -> String {
        let known: String = ('a'..='z').filter(|name| self.users.find(&format!("key-{name}")).is_some()).collect();
        assert_eq!(known.len(), self.users.count());
        known
    }

    async fn sees(&self, users: &str, problem: Option<UsersProblem>) {
        self.look().await;
        assert_eq!((self.known().as_str(), self.cluster.problem()), (users, problem));
    }
}

fn of_other(worker: &str) -> Option<UsersProblem> {
    Some(UsersProblem::OtherFile(worker.to_owned()))
}

#[tokio::test]
async fn a_change_of_one_file_is_in_force_on_all_workers_and_stays() {
    let ground = Ground::new().await;
    ground.write("w1", "ab");
    ground.write("w2", "ab");
    let (first, second, third) = (ground.start("w1").await, ground.start("w2").await, ground.start("w3").await);
    assert_eq!((first.known(), second.known(), third.known()), ("ab".into(), "ab".into(), "ab".into()));
    ground.write("w2", "bc");
    second.sees("bc", None).await;
    first.sees("bc", of_other("w2")).await;
    third.sees("bc", None).await;
    let sealed = ground.catalog.record().await.sealed;
    assert!(!sealed.windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes()), "etcd shows the secrets");
    drop((first, second, third));
    let (first, second) = (ground.start("w1").await, ground.start("w2").await);
    assert_eq!((first.known(), second.known()), ("bc".into(), "bc".into()));
    // The file of the first worker gets the change later, and then one of its own.
    ground.write("w1", "bc");
    first.sees("bc", None).await;
    ground.write("w1", "");
    first.sees("", None).await;
    second.sees("", of_other("w1")).await;
    assert_eq!(ground.catalog.record().await.revision, 3);
}

#[tokio::test]
async fn a_worker_with_an_old_file_brings_no_users_back() {
    let ground = Ground::new().await;
    ground.write("w1", "ab");
    ground.write("w2", "ab");
    let first = ground.start("w1").await;
    drop(ground.start("w2").await);
    for users in ["abc", "c"] {
        ground.write("w1", users);
        first.sees(users, None).await;
    }
    let second = ground.start("w2").await;
    assert_eq!((second.known().as_str(), second.cluster.problem()), ("c", of_other("w1")));
    drop(second);
    // It gets the first of the two changes while it is off.
    ground.write("w2", "abc");
    for _ in 0..2 {
        let second = ground.start("w2").await;
        second.sees("c", of_other("w1")).await;
        first.sees("c", None).await;
    }
    // One that was never there before has nothing to say, either.
    ground.write("w3", "ab");
    ground.start("w3").await.sees("c", of_other("w1")).await;
    // A file that was not in force yet is a change.
    ground.write("w2", "cd");
    ground.start("w2").await.sees("cd", None).await;
    first.sees("cd", of_other("w2")).await;
    // One that was is none, although this worker had the newest: it may have got an old disk. While it runs, it is one.
    for users in ["c", "ab"] {
        ground.write("w2", users);
        let second = ground.start("w2").await;
        second.sees("cd", of_other("w2")).await;
        drop(second);
        ground.write("w2", "cd");
        ground.start("w2").await.sees("cd", None).await;
    }
    let second = ground.start("w2").await;
    ground.write("w2", "c");
    second.sees("c", None).await;
    first.sees("c", None).await;
}

#[tokio::test]
async fn a_change_that_waited_for_etcd_does_not_undo_what_others_have_made_of_it() {
    let ground = Ground::new().await;
    ground.write("w1", "ab");
    ground.write("w2", "ab");
    let (first, second) = (ground.start("w1").await, ground.start("w2").await);
    ground.write("w1", "abc");
    ground.fail(Fate::Refused);
    first.sees("ab", None).await;
    for users in ["abc", "ac"] {
        ground.write("w2", users);
        second.sees(users, None).await;
    }
    first.sees("ac", of_other("w2")).await;
    // An operator may want earlier users again.
    ground.write("w1", "ab");
    first.sees("ab", None).await;
}

/// An editor empties a file before it writes it.
#[tokio::test]
async fn a_file_counts_when_it_stays_as_it_is() {
    let ground = Ground::new().await;
    ground.write("w1", "ab");
    let first = ground.start("w1").await;
    for (part, unchanged) in [("", EMPTY_UNCHANGED), ("a", UNCHANGED)] {
        ground.write("w1", part);
        first.look_once().await;
        ground.clock.advance(unchanged - Duration::from_millis(1));
        first.look_once().await;
        assert_eq!(first.known(), "ab");
    }
    ground.write("w1", "ac");
    first.sees("ac", None).await;
    assert_eq!(ground.catalog.record().await.revision, 2);
}

#[tokio::test]
async fn a_bad_file_or_none_changes_nothing() {
    let ground = Ground::new().await;
    ground.write("w1", "ab");
    ground.write("w2", "ab");
    let (first, second) = (ground.start("w1").await, ground.start("w2").await);
    ground.write("w2", "c");
    second.sees("c", None).await;
    let file = ground.file("w1");
    std::fs::write(&file, "[[user]]\nnom = 1\n").expect("a file");
    first.sees("c", of_other("w2")).await;
    assert!(first.users.refusal().is_some());
    std::fs::remove_file(&file).expect("it was there");
    first.sees("c", of_other("w2")).await;
    assert!(first.users.refusal().is_some());
    // It is what it was, but for a comment: that is no change of the users.
    std::fs::write(&file, format!("# Back again.\n{}", document("ab"))).expect("a file");
    first.sees("c", of_other("w2")).await;
    assert_eq!(first.users.refusal(), None);
}

#[tokio::test]
async fn of_two_changes_at_once_the_last_one_is_in_force_everywhere() {
    let ground = Ground::new().await;
    ground.write("w1", "ab");
    ground.write("w2", "ab");
    let (first, second) = (ground.start("w1").await, ground.start("w2").await);
    let before = ground.catalog.record().await;
    ground.write("w1", "abc");
    first.sees("abc", None).await;
    let after = ground.catalog.record().await;
    ground.catalog.write(&before).await;
    ground.write("w2", "abd");
    ground.fail(Fate::After(after));
    second.sees("abd", None).await;
    first.sees("abd", of_other("w2")).await;
    assert_eq!(ground.catalog.record().await.revision, 3, "no change was overwritten unseen");
}

#[tokio::test]
async fn a_change_is_made_up_for_when_etcd_answers_and_made_once() {
    let ground = Ground::new().await;
    ground.write("w1", "ab");
    ground.write("w2", "ab");
    let (first, second) = (ground.start("w1").await, ground.start("w2").await);
    ground.write("w1", "a");
    ground.fail(Fate::Refused);
    first.sees("ab", None).await;
    first.sees("a", None).await;
    second.sees("a", of_other("w1")).await;
    // The change is done, and another one follows before the worker sees that.
    ground.write("w1", "abc");
    ground.fail(Fate::AnswerLost);
    first.look().await;
    second.look().await;
    ground.write("w2", "ad");
    second.sees("ad", None).await;
    first.sees("ad", of_other("w2")).await;
    second.sees("ad", None).await;
    // As the first of all changes, at a start.
    let ground = Ground::new().await;
    ground.write("w1", "ab");
    ground.fail(Fate::Refused);
    let first = ground.start("w1").await;
    assert_eq!(first.known(), "ab");
    first.look().await;
    assert_eq!(ground.catalog.record().await.revision, 1);
}

#[tokio::test]
async fn users_that_nobody_can_read_are_told_until_a_change_replaces_them() {
    let mut ground = Ground::new().await;
    ground.write("w1", "ab");
    let first = ground.start("w1").await;
    let record = ground.catalog.record().await;
    let damaged = UsersRecord { revision: 7, ..record.clone() };
    ground.catalog.write(&damaged).await;
    let unusable = Some(UsersProblem::Unusable("they are encrypted with another cluster key, or damaged".to_owned()));
    first.sees("ab", unusable.clone()).await;
    ground.write("w2", "c");
    let second = ground.start("w2").await;
    assert_eq!((second.known().as_str(), second.cluster.problem()), ("c", unusable));
    assert_eq!(ground.catalog.record().await, damaged, "a start replaces nothing");
    ground.write("w1", "b");
    first.sees("b", None).await;
    second.sees("b", of_other("w1")).await;
    // Another cluster key.
    let (random, other) = (Arc::clone(&ground.env.random), identity("o"));
    let record = ground.catalog.record().await.encode();
    assert_eq!(resealed(&record, &other, &ground.identity, random.as_ref()), None);
    let record = resealed(&record, &ground.identity, &other, random.as_ref()).expect("this is the key");
    ground.catalog.write(&UsersRecord::decode(&record).expect("a record")).await;
    ground.identity = other;
    // Also what was noted of the files is read.
    ground.write("w1", "bd");
    ground.start("w1").await.sees("bd", None).await;
}

#[tokio::test]
async fn users_that_are_too_many_for_etcd_are_refused() {
    let ground = Ground::new().await;
    ground.write("w1", "ab");
    let first = ground.start("w1").await;
    let long = format!("# {}\n{}", "x".repeat(1 << 20), document("c"));
    std::fs::write(ground.file("w1"), long).expect("a file");
    first.look().await;
    assert_eq!(first.known(), "ab");
    assert!(matches!(first.cluster.problem(), Some(UsersProblem::FileRefused(why)) if why.contains("a cluster keeps")));
    ground.write("w1", "c");
    first.sees("c", None).await;
}
