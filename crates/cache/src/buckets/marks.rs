//! Whether a bucket is found where its changes were sent before.
//!
//! A directory gets a mark before the first change is sent there, and the catalog holds it. When another directory has
//! its place, which may be the mount point of a disk that is not mounted, changes would count as done and be gone after
//! the next mount. So none is sent there. The start looks at the marks, too.
//!
//! The under store itself recognises a directory that is replaced while this process runs: what it accepts gets a mark
//! of its own.

use std::collections::HashSet;

use forebay_catalog::Transaction;
use forebay_catalog::records::{self, MarkRecord};
use forebay_store::ValueWrite;
use forebay_types::{BucketName, Durability};
use forebay_ufs::{ErrorKind as UfsKind, Mark, UnderStore};
use futures::FutureExt;

use super::Buckets;
use crate::persist::PersistError;
use crate::{Error, Result};

impl Buckets {
    /// Called before a change is sent to a bucket. Usually takes no request. `is_delete`: the change needs no space.
    ///
    /// # Errors
    /// `OtherPlace`; what the under store or the catalog answers.
    pub(crate) async fn check_mark(
        &self,
        bucket: &BucketName,
        under_store: &dyn UnderStore,
        is_delete: bool,
    ) -> Result<(), PersistError> {
        let is_checked = match under_store.known_mark() {
            Some(Mark::NotNeeded) => true,
            Some(Mark::Id(mark)) => self.marks.lock().get(bucket) == Some(&mark),
            Some(Mark::None) | None => false,
        };
        if is_checked {
            return Ok(());
        }
        // Boxed: this is rare, and would make the future of every upload larger.
        self.look_at_mark(bucket, under_store, is_delete).boxed().await
    }

    async fn look_at_mark(
        &self,
        bucket: &BucketName,
        under_store: &dyn UnderStore,
        is_delete: bool,
    ) -> Result<(), PersistError> {
        let (key, place) = (records::mark_key(bucket), under_store.label());
        self.catalog.follow_shared().await.map_err(Error::from)?;
        // Before the place is looked at: another task gives it a mark first, and then records that.
        let found = self.catalog.get(&key).await.map_err(Error::from)?;
        let record = found.map(|found| MarkRecord::decode(&found.value)).transpose().map_err(Error::from)?;
        let record = record.filter(|record| record.place == place);
        let had_mark = record.is_some();
        if let Some(record) = record {
            let found = under_store.mark().await.map_err(PersistError::UnderStore)?;
            if matches!(&found, Mark::Id(mark) if *mark == record.mark) {
                self.marks.lock().insert(bucket.clone(), record.mark);
                return Ok(());
            }
            // Otherwise the under store has accepted another directory since.
            if !self.marks.lock().contains_key(bucket) {
                return Err(PersistError::OtherPlace(other_place(bucket, &place)));
            }
        }
        let made = match under_store.make_mark().await {
            // A full disk has no room for a mark, and deletes make room.
            Err(error) if is_delete && !had_mark && matches!(error.kind, UfsKind::Unavailable | UfsKind::NoSpace) => {
                return Ok(());
            }
            made => made.map_err(PersistError::UnderStore)?,
        };
        let Mark::Id(mark) = made else { return Ok(()) };
        let record = MarkRecord { place, mark: mark.clone() };
        let writes = vec![ValueWrite { key, value: Some(record.encode()) }];
        let transaction = Transaction { writes, durability: Durability::Fsync, ..Transaction::default() };
        self.catalog.commit(transaction).await.map_err(Error::from)?;
        self.marks.lock().insert(bucket.clone(), mark);
        Ok(())
    }

    pub(super) async fn has_mark(&self, bucket: &BucketName) -> Result<bool> {
        self.catalog.follow_shared().await?;
        Ok(self.catalog.get(&records::mark_key(bucket)).await?.is_some())
    }

    /// A bucket is about to be made, or deleted: the next change gives its place a mark.
    pub(super) async fn forget_mark(&self, bucket: &BucketName) -> Result<()> {
        self.catalog.follow_shared().await?;
        let key = records::mark_key(bucket);
        if self.catalog.get(&key).await?.is_some() {
            let writes = vec![ValueWrite { key, value: None }];
            self.catalog.commit(Transaction { writes, ..Transaction::default() }).await?;
        }
        self.marks.lock().remove(bucket);
        Ok(())
    }

    /// Forgets the marks that another worker has removed.
    pub(super) async fn follow_marks(&self) -> Result<()> {
        let (from, to) = records::all_marks_range();
        let found = self.catalog.scan(&from, &to, usize::MAX).await?;
        let marked: HashSet<_> = found.iter().filter_map(|(key, _)| records::parse_mark_key(key)).collect();
        self.marks.lock().retain(|bucket, _| marked.contains(bucket));
        Ok(())
    }
}

fn other_place(bucket: &BucketName, place: &str) -> String {
    format!(
        "{place} is not the one that earlier changes of the bucket {bucket} went to, so its disk is probably not mounted, and nothing is sent there: mount the disk, and restart the server. If it was replaced on purpose, restart with the bucket in under_store.moved_buckets"
    )
}
