//! Buckets: their under stores, and which of them exist.

mod deletion;
mod marks;
mod requests;
pub(crate) mod stranded;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::records::{self, BucketRecord};
use forebay_catalog::{Catalog, Check, Transaction};
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_env::{Env, Requester};
use forebay_store::ValueWrite;
use forebay_types::{BucketName, ObjectPath};
use forebay_ufs::BucketRoot;
use tokio::sync::{Mutex as AsyncMutex, OwnedRwLockReadGuard, RwLock};

use crate::fair_share::Tenant;
use crate::{Error, ErrorKind, Mount, Mounts, Result};

/// How long the existence of a bucket is assumed without checking again. Creation and deletion through this worker take
/// effect at once.
const BUCKET_TTL: Duration = Duration::from_secs(60);

/// In a cluster, at least: twice as long as the worker that deletes a bucket takes at most.
const DELETION_MAX: Duration = Duration::from_secs(120);

/// For the workers to refuse writes, and to bring their last deletes to the under store.
const STEP_MAX: Duration = Duration::from_secs(30);

/// For the under store to delete the bucket.
const UNDER_STORE_MAX: Duration = Duration::from_secs(30);

/// From the mark to the last moment at which the under store may be asked to delete the bucket.
const SENT_MAX: Duration = STEP_MAX.saturating_add(UNDER_STORE_MAX);

/// Resolves buckets. The catalog holds those that have been seen, so they serve reads and accept writes while the under
/// store is out of reach. Checking again never delays a request.
pub(crate) struct Buckets {
    env: Env,
    catalog: Arc<dyn Catalog>,
    mounts: Mounts,
    /// How long a deletion whose answer was lost may still land. Until then, nothing is written to its bucket.
    deletion_max: Duration,
    known: Arc<Mutex<HashMap<BucketName, Known>>>,
    /// By bucket, the mark that this process has found or made where the bucket is: see [`marks`].
    marks: Mutex<HashMap<BucketName, String>>,
    /// Gates of buckets that this process has written to or deleted.
    gates: Mutex<HashMap<BucketName, Arc<RwLock<()>>>>,
    /// Deleted buckets whose contents are still cached here, and how often each was deleted meanwhile.
    gone: Mutex<BTreeMap<BucketName, u64>>,
    /// Held while what is cached of one of them is forgotten.
    forgetting: AsyncMutex<()>,
    /// Number of buckets that this process has deleted.
    deletions: AtomicU64,
    /// Held shared while a bucket is recorded in the catalog, and exclusively while one is deleted. A record that was
    /// written in between would survive a crash, and let a deleted bucket accept writes.
    noting: RwLock<()>,
}

struct Known {
    mount: Mount,
    /// When to check again. No other request checks until then.
    until: Duration,
    deletion: Option<Deletion>,
}

/// Some worker deletes the bucket, or has got no answer to that.
#[derive(Clone, Copy)]
struct Deletion {
    /// See [`BucketRecord::Deleting`].
    number: u64,
    /// When this worker has heard of it.
    heard: Duration,
}

/// A bucket that exists.
struct ExistingBucket {
    mount: Mount,
    is_being_deleted: bool,
}

/// What was known before the under store was asked for a bucket.
struct Before {
    deletions: u64,
    shared_changes: u64,
}

impl Known {
    fn found(&self) -> ExistingBucket {
        ExistingBucket { mount: self.mount.clone(), is_being_deleted: self.deletion.is_some() }
    }

    fn show(&mut self, record: BucketRecord, now: Duration) {
        self.deletion = match (record, self.deletion) {
            (BucketRecord::Open, _) => None,
            (BucketRecord::Deleting(number), Some(known)) if known.number == number => Some(known),
            (BucketRecord::Deleting(number), _) => Some(Deletion { number, heard: now }),
        };
    }
}

impl Buckets {
    /// Starts with the buckets that the catalog knows. `settle_time`: how long a request whose answer was lost may
    /// still land.
    pub(crate) async fn load(
        env: Env,
        catalog: Arc<dyn Catalog>,
        mounts: Mounts,
        settle_time: Duration,
    ) -> Result<Self> {
        let deletion_max = match catalog.slots() {
            // The request may be sent that long after the mark was set.
            Some(_) => DELETION_MAX.max(SENT_MAX + settle_time),
            None => settle_time,
        };
        let buckets = Self {
            env,
            catalog,
            mounts,
            deletion_max,
            known: Arc::default(),
            marks: Mutex::default(),
            gates: Mutex::default(),
            gone: Mutex::default(),
            forgetting: AsyncMutex::default(),
            deletions: AtomicU64::new(0),
            noting: RwLock::default(),
        };
        buckets.follow().await?;
        Ok(buckets)
    }

    /// Makes the known buckets those of the catalog, after other workers have created or deleted some.
    pub(crate) async fn follow(&self) -> Result<()> {
        let Some(root) = &self.mounts.root else { return Ok(()) };
        self.follow_marks().await?;
        let _nothing_is_noted = self.noting.write().await;
        let (from, to) = records::all_buckets_range();
        let mut found = BTreeMap::new();
        for (key, versioned) in self.catalog.scan(&from, &to, usize::MAX).await? {
            if let Some(bucket) = records::parse_bucket_key(&key) {
                found.insert(bucket, BucketRecord::decode(&versioned.value)?);
            }
        }
        let now = self.env.clock.monotonic();
        let mut known = self.known.lock();
        let unrecorded = known.extract_if(|bucket, _| !found.contains_key(bucket));
        // Without a deletion, the under store has only lost sight of the bucket: see `look_again`.
        for (bucket, _) in unrecorded.filter(|(_, last)| last.deletion.is_some()) {
            *self.gone.lock().entry(bucket).or_default() += 1;
        }
        for (bucket, record) in found {
            let mount = || mount_of(&self.mounts, root, &bucket);
            let new = || Known { mount: mount(), until: Duration::ZERO, deletion: None };
            known.entry(bucket.clone()).or_insert_with(new).show(record, now);
        }
        Ok(())
    }

    fn gate(&self, bucket: &BucketName) -> Arc<RwLock<()>> {
        let mut gates = self.gates.lock();
        if let Some(gate) = gates.get(bucket) {
            return Arc::clone(gate);
        }
        Arc::clone(gates.entry(bucket.clone()).or_default())
    }

    /// While this is held, the bucket exists and is not deleted. Every change of an object holds it until its commit.
    ///
    /// # Errors
    /// As [`Buckets::mount`]; `Unavailable` while another worker deletes the bucket, or its deletion may still land.
    pub(crate) async fn begin_write(&self, bucket: &BucketName) -> Result<OwnedRwLockReadGuard<()>> {
        let kept = self.gate(bucket).read_owned().await;
        match self.find(bucket).await? {
            Some(ExistingBucket { is_being_deleted: false, .. }) => Ok(kept),
            Some(_) => Err(Error::new(ErrorKind::Unavailable, format!("the bucket {bucket} is being deleted"))),
            None => Err(no_such_bucket(bucket)),
        }
    }

    /// # Errors
    /// `NoSuchBucket`, or what the under store answers.
    pub(crate) async fn mount(&self, bucket: &BucketName) -> Result<Mount> {
        self.find(bucket).await?.map(|found| found.mount).ok_or_else(|| no_such_bucket(bucket))
    }

    /// The tenant whose share a request uses.
    pub(crate) fn tenant(&self, bucket: &BucketName) -> Tenant {
        let mount = self.mounts.mounts.contains_key(bucket).then(|| bucket.clone());
        Tenant { mount, bucket: bucket.clone(), requester: Requester::present() }
    }

    /// # Errors
    /// As [`Buckets::mount`], and `InvalidArgument` for a key that the under store could never hold.
    pub(crate) async fn mount_for_write(&self, path: &ObjectPath) -> Result<Mount> {
        let mount = self.mount(&path.bucket).await?;
        mount.foreground.check_key(&path.key)?;
        Ok(mount)
    }

    async fn find(&self, bucket: &BucketName) -> Result<Option<ExistingBucket>> {
        if let Some(mount) = self.mounts.mounts.get(bucket) {
            return Ok(Some(ExistingBucket { mount: mount.clone(), is_being_deleted: false }));
        }
        let Some(root) = &self.mounts.root else { return Ok(None) };
        let known = match self.find_known(root, bucket) {
            Some(ExistingBucket { is_being_deleted: true, .. }) => {
                self.look_at_deletion(bucket).await?;
                self.find_known(root, bucket)
            }
            known => known,
        };
        if known.is_some() {
            return Ok(known);
        }
        loop {
            let before = self.before();
            if root.open(bucket).await?.is_none() {
                return Ok(None);
            }
            if let Some(found) = self.note(root, bucket, before).await? {
                return Ok(Some(found));
            }
        }
    }

    fn find_known(&self, root: &Arc<dyn BucketRoot>, bucket: &BucketName) -> Option<ExistingBucket> {
        let now = self.env.clock.monotonic();
        let mut known = self.known.lock();
        let known = known.get_mut(bucket)?;
        if known.until <= now && known.deletion.is_none() {
            known.until = now + BUCKET_TTL;
            self.look_again(Arc::clone(root), bucket.clone());
        }
        Some(known.found())
    }

    fn before(&self) -> Before {
        let deletions = self.deletions.load(Ordering::SeqCst);
        Before { deletions, shared_changes: self.catalog.shared_changes() }
    }

    /// Forgets the bucket if it is gone. Its data here stays: the bucket may come back, and nothing else has its dirty
    /// objects.
    fn look_again(&self, root: Arc<dyn BucketRoot>, bucket: BucketName) {
        let (known, catalog) = (Arc::clone(&self.known), Arc::clone(&self.catalog));
        forebay_env::spawn(async move {
            if let Ok(None) = root.open(&bucket).await {
                tracing::warn!(%bucket, "the under store no longer has this bucket; what is dirty stays here. If its disk is not mounted, mount it. If it is needed again, create it there; for a directory, restart the server with the bucket in under_store.moved_buckets first");
                known.lock().remove(&bucket);
                if let Err(error) = change_record(catalog.as_ref(), &bucket, BucketRecord::Open, None).await {
                    tracing::warn!(%bucket, %error, "could not remove the record of a bucket that the under store no longer has");
                }
            }
        });
    }

    /// Records a bucket that has existed. `None` if a bucket was deleted since `before`, here or at another worker: it
    /// may be gone, and nobody may write to it until that is known.
    async fn note(
        &self,
        root: &Arc<dyn BucketRoot>,
        bucket: &BucketName,
        before: Before,
    ) -> Result<Option<ExistingBucket>> {
        let _nothing_is_deleted = self.noting.read().await;
        if self.deletions.load(Ordering::SeqCst) != before.deletions {
            return Ok(None);
        }
        let record = match self.record(bucket).await? {
            Some(record) => record,
            None => {
                let key = records::bucket_key(bucket);
                let transaction = Transaction {
                    checks: vec![Check { key: key.clone(), version: None }],
                    writes: vec![ValueWrite { key, value: Some(BucketRecord::Open.encode()) }],
                    shared_changes: Some(before.shared_changes),
                    ..Transaction::default()
                };
                if !has_committed(self.catalog.commit(transaction).await)? {
                    return Ok(None);
                }
                BucketRecord::Open
            }
        };
        let mount = mount_of(&self.mounts, root, bucket);
        let now = self.env.clock.monotonic();
        let mut known = Known { mount, until: now + BUCKET_TTL, deletion: None };
        known.show(record, now);
        let found = known.found();
        self.known.lock().insert(bucket.clone(), known);
        Ok(Some(found))
    }

    async fn record(&self, bucket: &BucketName) -> Result<Option<BucketRecord>> {
        let found = self.catalog.get(&records::bucket_key(bucket)).await?;
        Ok(found.map(|found| BucketRecord::decode(&found.value)).transpose()?)
    }

    /// Marks a bucket and then deletes it. In this order, a crash leaves no deleted bucket that accepts writes. When
    /// the under store refuses, or is out of reach, the bucket takes writes again. When its answer is lost, the mark
    /// stays for some time: see [`deletion`].
    async fn delete(&self, root: &Arc<dyn BucketRoot>, bucket: &BucketName) -> Result<()> {
        let _nothing_is_noted = self.noting.write().await;
        let number = self.env.random.next_u64();
        self.set_record(bucket, Some(BucketRecord::Deleting(number))).await?;
        let deleted = root.delete(bucket).await;
        use forebay_ufs::ErrorKind::{Ambiguous, NoBucket, NotFound};
        let ended = match deleted.as_ref().map_err(|error| error.kind) {
            Ok(()) | Err(NotFound | NoBucket) => self.set_record(bucket, None).await,
            Err(Ambiguous) => {
                // The request may have taken long.
                let heard = self.env.clock.monotonic();
                if let Some(known) = self.known.lock().get_mut(bucket) {
                    known.deletion = Some(Deletion { number, heard });
                }
                Ok(())
            }
            Err(_) => self.set_record(bucket, Some(BucketRecord::Open)).await,
        };
        if let Err(error) = ended {
            warn_of_mark(bucket, &error);
        }
        // Requests that have found the bucket so far wait to record it, and now check again.
        self.deletions.fetch_add(1, Ordering::SeqCst);
        Ok(deleted?)
    }

    /// Records the state of a bucket, and then shows it.
    async fn set_record(&self, bucket: &BucketName, record: Option<BucketRecord>) -> Result<()> {
        let writes = vec![ValueWrite { key: records::bucket_key(bucket), value: record.map(BucketRecord::encode) }];
        self.catalog.commit(Transaction { writes, ..Transaction::default() }).await?;
        let now = self.env.clock.monotonic();
        let mut known = self.known.lock();
        match record {
            Some(record) => {
                if let Some(known) = known.get_mut(bucket) {
                    known.show(record, now);
                }
            }
            None => drop(known.remove(bucket)),
        }
        Ok(())
    }
}

fn mount_of(mounts: &Mounts, root: &Arc<dyn BucketRoot>, bucket: &BucketName) -> Mount {
    let background = mounts.background_root.as_ref().unwrap_or(root);
    Mount { foreground: root.assume(bucket), background: background.assume(bucket) }
}

/// Changes the record of a bucket if it is as expected. Returns whether it was.
async fn change_record(
    catalog: &dyn Catalog,
    bucket: &BucketName,
    expected: BucketRecord,
    record: Option<BucketRecord>,
) -> Result<bool> {
    let key = records::bucket_key(bucket);
    let Some(found) = catalog.get(&key).await? else { return Ok(false) };
    if BucketRecord::decode(&found.value)? != expected {
        return Ok(false);
    }
    let checks = vec![Check { key: key.clone(), version: Some(found.version) }];
    let writes = vec![ValueWrite { key, value: record.map(BucketRecord::encode) }];
    has_committed(catalog.commit(Transaction { checks, writes, ..Transaction::default() }).await)
}

/// Whether the checks of a transaction have held.
fn has_committed(result: forebay_catalog::Result<u64>) -> Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.kind == forebay_catalog::ErrorKind::Conflict => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn no_such_bucket(bucket: &BucketName) -> Error {
    Error::new(ErrorKind::NoSuchBucket, format!("the bucket {bucket} does not exist"))
}

fn warn_of_mark(bucket: &BucketName, error: &Error) {
    tracing::warn!(%bucket, %error, "could not remove the mark of a bucket deletion: writes to the bucket may get 503 for about two minutes, or longer if settle_time is long");
}
