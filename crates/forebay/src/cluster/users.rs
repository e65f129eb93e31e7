//! The users of all workers of a cluster. They come from the users files of the workers: a file that changes on one of
//! them replaces the users of all. Etcd keeps them, encrypted with a key that follows from that of the cluster.

mod state;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_auth::{Document, Users};
use forebay_catalog::records::{self, UsersRecord};
use forebay_catalog::{Catalog, Check, ErrorKind, Result, TRANSACTION_BYTES_MAX, Transaction};
use forebay_env::sync::Mutex;
use forebay_env::{Env, Random, Task};
use forebay_peers::Identity;
use forebay_store::ValueWrite;

use state::UsersState;

/// How often the file is checked, and what other workers have changed.
const PERIOD: Duration = Duration::from_millis(250);

/// A file counts once it has been the same for this long: somebody may still write it. Only a disk that has no room for
/// it leaves it empty for longer.
const UNCHANGED: Duration = Duration::from_millis(500);
const EMPTY_UNCHANGED: Duration = Duration::from_secs(10);

/// How often a change is tried at once when other workers change the record at the same time.
const TRIES_MAX: usize = 10;

/// Of the record: a transaction of the engine takes little more.
const RECORD_BYTES_MAX: usize = TRANSACTION_BYTES_MAX - (64 << 10);

/// Why the users of the cluster and the file of this worker are not the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UsersProblem {
    /// What the cluster has can't be used here.
    Unusable(String),
    /// What the file has can't become the users of the cluster.
    FileRefused(String),
    /// The users are those of the file of this other worker.
    OtherFile(String),
}

/// Keeps the users of this worker those of the cluster.
pub(crate) struct ClusterUsers {
    /// The name of this worker.
    own: String,
    env: Env,
    users: Users,
    catalog: Arc<dyn Catalog>,
    identity: Identity,
    seen: Mutex<Seen>,
    problem: Mutex<Option<UsersProblem>>,
}

/// What this worker knows of its file and of the record.
struct Seen {
    /// Since when the file is what it is.
    file_at: Duration,
    /// The file has changed since this process has started, and the cluster does not have that yet. The revision of the
    /// users that were in force.
    edited: Option<u64>,
    /// Of the users in force.
    revision: u64,
    /// The version of the record, or its absence, that nothing more is to be done about.
    settled: Option<Option<u64>>,
}

impl ClusterUsers {
    pub(super) fn new(own: &str, env: &Env, users: &Users, catalog: Arc<dyn Catalog>, identity: &Identity) -> Self {
        Self {
            own: own.to_owned(),
            env: env.clone(),
            users: users.clone(),
            catalog,
            identity: identity.clone(),
            seen: Mutex::new(Seen { file_at: env.clock.monotonic(), edited: None, revision: 0, settled: None }),
            problem: Mutex::default(),
        }
    }

    /// Brings the users of the cluster into force before the first request.
    pub(super) async fn begin(&self) {
        // The own file may be an old one. The start waits for the engine anyway.
        while let Err(error) = self.catalog.get(records::USERS_KEY).await
            && error.kind == ErrorKind::Unavailable
        {
            self.env.clock.sleep(PERIOD).await;
        }
        self.pass(&mut false).await;
    }

    /// Follows the file and the cluster until the task is aborted.
    pub(crate) fn watch(self: Arc<Self>) -> Task<()> {
        forebay_env::spawn(self.follow())
    }

    async fn follow(self: Arc<Self>) {
        let mut has_failed = false;
        loop {
            self.env.clock.sleep(PERIOD).await;
            self.look_at_file();
            self.pass(&mut has_failed).await;
        }
    }

    pub(crate) fn problem(&self) -> Option<UsersProblem> {
        self.problem.lock().clone()
    }

    /// Only other users are a change: a file that could not be read for a moment is none, nor is a comment.
    fn look_at_file(&self) {
        let before = self.users.file();
        let Some(file) = self.users.look() else { return };
        let mut seen = self.seen.lock();
        if before.is_none_or(|before| before.digest() != file.digest()) {
            seen.file_at = self.env.clock.monotonic();
            seen.edited = Some(seen.revision);
        }
        seen.settled = None;
    }

    /// Whether the file may replace other users.
    fn is_unchanged(&self, file: &Document) -> bool {
        let unchanged = if file.is_empty() { EMPTY_UNCHANGED } else { UNCHANGED };
        self.env.clock.monotonic().saturating_sub(self.seen.lock().file_at) >= unchanged
    }

    /// What fails is tried again by the next one.
    async fn pass(&self, has_failed: &mut bool) {
        let problem = self.settle().await.err();
        // Once for each time that it begins.
        if let Some(error) = problem.as_ref().filter(|_| !*has_failed) {
            tracing::warn!(%error, "the users of the cluster could not be read or changed: retrying; the users stay as they were");
        }
        *has_failed = problem.is_some();
    }

    async fn settle(&self) -> Result<()> {
        for _ in 1..TRIES_MAX {
            match self.try_to_settle().await {
                // Another worker was quicker, and the catalog shows its change by now.
                Err(error) if error.kind == ErrorKind::Conflict => {}
                settled => return settled,
            }
        }
        self.try_to_settle().await
    }

    async fn try_to_settle(&self) -> Result<()> {
        let found = self.catalog.get(records::USERS_KEY).await?;
        let version = found.as_ref().map(|found| found.version);
        let edited = {
            let seen = self.seen.lock();
            if seen.settled == Some(version) {
                return Ok(());
            }
            seen.edited
        };
        let file = self.users.file();
        match found.map(|found| opened(&found.value, &self.identity)) {
            None => {
                // The first users. As long as the cluster has none, they are in force here as without a cluster.
                let Some(file) = file else { return Ok(()) };
                self.bring_into_force(&file);
                self.publish(version, 1, UsersState::default(), &file).await?;
            }
            Some(Err(Unreadable { revision, why })) => {
                self.show(Some(UsersProblem::Unusable(why)));
                // An operator has changed them since, and so replaces what nobody can read.
                if let Some(file) = file.filter(|_| edited.is_some()) {
                    if !self.is_unchanged(&file) {
                        return Ok(());
                    }
                    self.publish(version, revision + 1, UsersState::default(), &file).await?;
                }
            }
            Some(Ok((revision, state))) => {
                let problem = self.apply(revision, &state).err().map(UsersProblem::Unusable);
                match file {
                    Some(file) if state.is_news(revision, &self.own, file.digest(), edited) => {
                        if !self.is_unchanged(&file) {
                            return Ok(());
                        }
                        self.publish(version, revision + 1, state, &file).await?;
                    }
                    Some(file) => {
                        self.seen.lock().edited = None;
                        let other = (file.digest() != state.digest).then(|| UsersProblem::OtherFile(state.by.clone()));
                        self.show(problem.or(other));
                        self.note(version, revision, state, &file).await?;
                    }
                    None => self.show(problem),
                }
            }
        }
        self.seen.lock().settled = Some(version);
        Ok(())
    }

    fn show(&self, problem: Option<UsersProblem>) {
        *self.problem.lock() = problem;
    }

    /// # Errors
    /// What is wrong with the users of the cluster.
    fn apply(&self, revision: u64, state: &UsersState) -> Result<(), String> {
        if self.users.digest() != state.digest {
            let document = self.users.document(&state.text)?;
            self.users.set(&document);
            tracing::info!(users = self.users.count(), by = state.by, "took over the users of the cluster");
        }
        self.seen.lock().revision = revision;
        Ok(())
    }

    fn bring_into_force(&self, file: &Document) {
        if self.users.digest() != file.digest() {
            self.users.set(file);
        }
    }

    /// Makes the users of the file those of the cluster. `expected` is the version of the record.
    async fn publish(&self, expected: Option<u64>, revision: u64, before: UsersState, file: &Document) -> Result<()> {
        let state = before.replaced(revision, &self.own, file);
        if let Some(bytes) = self.commit(expected, revision, state).await? {
            self.show(Some(UsersProblem::FileRefused(format!(
                "they take {bytes} bytes, and a cluster keeps {RECORD_BYTES_MAX} at most"
            ))));
            return Ok(());
        }
        self.bring_into_force(file);
        {
            let mut seen = self.seen.lock();
            (seen.edited, seen.revision) = (None, revision);
        }
        self.show(None);
        tracing::info!(users = self.users.count(), "the users file has changed the users of all workers");
        Ok(())
    }

    /// Notes what the file has, so that it is not news at the next start of this worker.
    async fn note(&self, expected: Option<u64>, revision: u64, state: UsersState, file: &Document) -> Result<()> {
        match state.with_note(revision, &self.own, file.digest()) {
            Some(state) => self.commit(expected, revision, state).await.map(drop),
            None => Ok(()),
        }
    }

    /// Returns the bytes of a record that is too large for a cluster.
    async fn commit(&self, expected: Option<u64>, revision: u64, mut state: UsersState) -> Result<Option<usize>> {
        let value = loop {
            let value = sealed(revision, &state, &self.identity, self.env.random.as_ref());
            if value.len() <= RECORD_BYTES_MAX {
                break value;
            }
            if !state.shrink() {
                return Ok(Some(value.len()));
            }
        };
        let key = Bytes::from_static(records::USERS_KEY);
        let checks = vec![Check { key: key.clone(), version: expected }];
        let writes = vec![ValueWrite { key, value: Some(value) }];
        self.catalog.commit(Transaction { checks, writes, ..Transaction::default() }).await?;
        Ok(None)
    }
}

/// A record that no users follow from.
struct Unreadable {
    revision: u64,
    why: String,
}

/// So a record does not pass for one of another revision.
fn about(revision: u64) -> String {
    format!("users {revision}")
}

fn sealed(revision: u64, state: &UsersState, identity: &Identity, random: &dyn Random) -> Bytes {
    UsersRecord { revision, sealed: identity.seal(random, &about(revision), &state.encode()) }.encode()
}

fn opened(record: &[u8], identity: &Identity) -> Result<(u64, UsersState), Unreadable> {
    let unreadable = |revision, why: String| Unreadable { revision, why };
    let UsersRecord { revision, sealed } =
        UsersRecord::decode(record).map_err(|error| unreadable(0, error.to_string()))?;
    let Some(text) = identity.open(&about(revision), &sealed) else {
        let why = "they are encrypted with another cluster key, or damaged".to_owned();
        return Err(unreadable(revision, why));
    };
    let state = UsersState::decode(&text).map_err(|error| unreadable(revision, error.to_string()))?;
    Ok((revision, state))
}

/// The record, encrypted with another key. `None` when it can't be read with the old one.
pub(super) fn resealed(record: &[u8], old: &Identity, new: &Identity, random: &dyn Random) -> Option<Bytes> {
    let (revision, state) = opened(record, old).ok()?;
    Some(sealed(revision, &state, new, random))
}

#[cfg(test)]
mod tests;
