//! Buckets: their under stores, and which of them exist.

mod requests;
pub(crate) mod stranded;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::records;
use forebay_catalog::{Catalog, Transaction};
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_env::{Env, Requester};
use forebay_store::ValueWrite;
use forebay_types::{BucketName, ObjectPath};
use forebay_ufs::BucketRoot;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use crate::fair_share::Tenant;
use crate::{Error, ErrorKind, Mount, Mounts, Result};

/// How long the existence of a bucket is assumed without checking again. Creation and deletion through this worker take
/// effect at once.
const BUCKET_TTL: Duration = Duration::from_secs(60);

/// Resolves buckets. The catalog holds those that have been seen, so they serve reads and accept writes while the under
/// store is out of reach. Checking again never delays a request.
pub(crate) struct Buckets {
    env: Env,
    catalog: Arc<dyn Catalog>,
    mounts: Mounts,
    known: Arc<Mutex<HashMap<BucketName, Known>>>,
    /// Gates of buckets that this process has written to or deleted.
    gates: Mutex<HashMap<BucketName, Arc<RwLock<()>>>>,
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
}

impl Buckets {
    /// Starts with the buckets that the catalog knows.
    pub(crate) async fn load(env: Env, catalog: Arc<dyn Catalog>, mounts: Mounts) -> Result<Self> {
        let buckets = Self {
            env,
            catalog,
            mounts,
            known: Arc::default(),
            gates: Mutex::default(),
            deletions: AtomicU64::new(0),
            noting: RwLock::default(),
        };
        buckets.follow().await?;
        Ok(buckets)
    }

    /// Makes the known buckets those of the catalog, after other workers have created or deleted some.
    pub(crate) async fn follow(&self) -> Result<()> {
        let Some(root) = &self.mounts.root else { return Ok(()) };
        let _nothing_is_noted = self.noting.write().await;
        let (from, to) = records::all_buckets_range();
        let found = self.catalog.scan(&from, &to, usize::MAX).await?;
        let found: BTreeSet<_> = found.iter().filter_map(|(key, _)| records::parse_bucket_key(key)).collect();
        let mut known = self.known.lock();
        known.retain(|bucket, _| found.contains(bucket));
        for bucket in found {
            let new = || Known { mount: mount_of(&self.mounts, root, &bucket), until: Duration::ZERO };
            known.entry(bucket.clone()).or_insert_with(new);
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
    /// As [`Buckets::mount`].
    pub(crate) async fn keep(&self, bucket: &BucketName) -> Result<OwnedRwLockReadGuard<()>> {
        let kept = self.gate(bucket).read_owned().await;
        self.mount(bucket).await?;
        Ok(kept)
    }

    /// # Errors
    /// `NoSuchBucket`, or what the under store answers.
    pub(crate) async fn mount(&self, bucket: &BucketName) -> Result<Mount> {
        self.find(bucket).await?.ok_or_else(|| no_such_bucket(bucket))
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

    async fn find(&self, bucket: &BucketName) -> Result<Option<Mount>> {
        if let Some(mount) = self.mounts.mounts.get(bucket) {
            return Ok(Some(mount.clone()));
        }
        let Some(root) = &self.mounts.root else { return Ok(None) };
        let now = self.env.clock.monotonic();
        if let Some(known) = self.known.lock().get_mut(bucket) {
            if known.until <= now {
                known.until = now + BUCKET_TTL;
                self.look_again(Arc::clone(root), bucket.clone());
            }
            return Ok(Some(known.mount.clone()));
        }
        loop {
            let deletions = self.deletions.load(Ordering::SeqCst);
            if root.open(bucket).await?.is_none() {
                return Ok(None);
            }
            if let Some(mount) = self.note(root, bucket, deletions).await? {
                return Ok(Some(mount));
            }
        }
    }

    /// Forgets the bucket if it is gone. Its data here stays: the bucket may come back, and nothing else has its dirty
    /// objects.
    fn look_again(&self, root: Arc<dyn BucketRoot>, bucket: BucketName) {
        let (known, catalog) = (Arc::clone(&self.known), Arc::clone(&self.catalog));
        forebay_env::spawn(async move {
            if let Ok(None) = root.open(&bucket).await {
                tracing::warn!(%bucket, "the bucket is gone from the under store");
                known.lock().remove(&bucket);
                if let Err(error) = write_record(catalog.as_ref(), &bucket, None).await {
                    tracing::warn!(%bucket, %error, "the catalog still knows the bucket");
                }
            }
        });
    }

    /// Records a bucket that existed after `deletions` deletions. `None` if there were more since: the bucket may be
    /// gone, and nobody may write to it until that is known.
    async fn note(&self, root: &Arc<dyn BucketRoot>, bucket: &BucketName, deletions: u64) -> Result<Option<Mount>> {
        let _nothing_is_deleted = self.noting.read().await;
        if self.deletions.load(Ordering::SeqCst) != deletions {
            return Ok(None);
        }
        write_record(self.catalog.as_ref(), bucket, Some(Bytes::new())).await?;
        let mount = mount_of(&self.mounts, root, bucket);
        let until = self.env.clock.monotonic() + BUCKET_TTL;
        self.known.lock().insert(bucket.clone(), Known { mount: mount.clone(), until });
        Ok(Some(mount))
    }

    /// Forgets a bucket and then deletes it. In this order, a crash leaves no deleted bucket that accepts writes.
    async fn delete(&self, root: &Arc<dyn BucketRoot>, bucket: &BucketName) -> Result<()> {
        let _nothing_is_noted = self.noting.write().await;
        self.known.lock().remove(bucket);
        write_record(self.catalog.as_ref(), bucket, None).await?;
        let deleted = root.delete(bucket).await;
        // Requests that have found the bucket so far wait to record it, and now check again.
        self.deletions.fetch_add(1, Ordering::SeqCst);
        Ok(deleted?)
    }
}

fn mount_of(mounts: &Mounts, root: &Arc<dyn BucketRoot>, bucket: &BucketName) -> Mount {
    let background = mounts.background_root.as_ref().unwrap_or(root);
    Mount { foreground: root.assume(bucket), background: background.assume(bucket) }
}

async fn write_record(catalog: &dyn Catalog, bucket: &BucketName, value: Option<Bytes>) -> Result<()> {
    let writes = vec![ValueWrite { key: records::bucket_key(bucket), value }];
    catalog.commit(Transaction { writes, ..Transaction::default() }).await?;
    Ok(())
}

fn no_such_bucket(bucket: &BucketName) -> Error {
    Error::new(ErrorKind::NoSuchBucket, format!("the bucket {bucket} does not exist"))
}
