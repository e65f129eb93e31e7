//! Losing slots: nothing more is done with their keys here, and nothing of them is kept that only their home may know.

use forebay_catalog::SlotSet;
use forebay_catalog::records::{self, ObjectRecord};
use forebay_env::sync::atomic::Ordering;

use crate::worker::Worker;
use crate::{Error, ErrorKind, Result};

impl Worker {
    /// Ends all work on the keys of these slots. What has begun goes to its end, requests to the under store included.
    ///
    /// # Errors
    /// Whatever the catalog answers. Nothing is done with the keys any more, and another try is safe.
    pub(crate) async fn lose(&self, slots: &SlotSet) -> Result<()> {
        self.home.losses.fetch_add(1, Ordering::SeqCst);
        // In the order in which they are taken, so that whoever has the first gets the others.
        self.home.part_locks.close(slots).await;
        self.home.upload_locks.close(slots).await;
        self.home.locks.close(slots).await;
        let mut lost = Vec::new();
        let mut range = records::all_objects_range();
        while let Some(found) = self.next_records(&mut range).await? {
            for (key, versioned) in &found {
                if let Some(path) = records::parse_object_key(key).filter(|path| slots.has_path(path)) {
                    lost.push((path, ObjectRecord::decode(&versioned.value)?));
                }
            }
        }
        self.forget_parts(slots).await?;
        // From here on nothing fails.
        self.home.fence.advance_all();
        self.home.queue.drop_all(|path| slots.has_path(path));
        self.home.settle.forget_all(|path| slots.has_path(path));
        // Others may change what a page shows that comes later.
        self.home.positions.forget_all();
        for (path, record) in lost {
            self.home.changed(&path, Some(&record), None, &self.metrics);
            self.space.replace(&path, Some(&record), None);
        }
        Ok(())
    }

    /// The parts of uploads to these slots take no space here.
    pub(crate) async fn forget_parts(&self, slots: &SlotSet) -> Result<()> {
        let mut range = records::all_uploads_range();
        while let Some(found) = self.next_records(&mut range).await? {
            for (path, upload_id) in found.iter().filter_map(|(key, _)| records::parse_upload_key(key)) {
                if slots.has_path(&path) {
                    self.space.drop_upload(&upload_id);
                    self.home.missing.remove_upload(&upload_id);
                }
            }
        }
        Ok(())
    }

    /// How often slots were lost. As long as this answers the same, all keys are at home here.
    ///
    /// # Errors
    /// `Unavailable` while keys are at home elsewhere, or nowhere: what they hold is not known here.
    pub(crate) fn all_at_home(&self) -> Result<u64> {
        let losses = self.home.losses.load(Ordering::SeqCst);
        if self.home.part_locks.has_all() && self.home.locks.has_all() { Ok(losses) } else { Err(not_all_at_home()) }
    }
}

pub(crate) fn not_all_at_home() -> Error {
    Error::new(ErrorKind::Unavailable, "some keys are not at home at this worker")
}
