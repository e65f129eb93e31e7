//! Losing slots: this worker does nothing more with their keys, and keeps no state that only their home may have.

use forebay_catalog::SlotSet;
use forebay_catalog::records::{self, ObjectRecord, Scope};
use forebay_env::sync::atomic::Ordering;

use crate::worker::Worker;
use crate::{Error, ErrorKind, Result};

impl Worker {
    /// Ends all work on the keys of these slots. Work in flight runs to its end, including requests to the under store.
    ///
    /// # Errors
    /// Those of the catalog. Nothing is done with the keys any more, and a retry is safe.
    pub(crate) async fn lose(&self, slots: &SlotSet) -> Result<()> {
        self.home.losses.fetch_add(1, Ordering::SeqCst);
        // What is refused from here on is not an error of a job.
        self.jobs.lose(slots);
        for locks in self.home.all_locks() {
            locks.close(slots).await;
        }
        // Passes may have begun meanwhile.
        self.jobs.lose(slots);
        self.save_shares().await;
        self.end_warm_up(slots);
        self.end_leases_of(slots).await;
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
        // Nothing fails from here on.
        self.home.fence.advance_all();
        self.home.queue.drop_all(|path| slots.has_path(path));
        self.home.copies.drop_all(|path| slots.has_path(path));
        let is_lost = |key: &[u8]| matches!(records::scope(key), Scope::Path(hash) if slots.has_hash(hash));
        self.home.damaged.drop_all(is_lost);
        self.home.settle.forget_all(|path| slots.has_path(path));
        self.ask_for_lost(slots);
        // Other workers may change the contents of later pages.
        self.forget_listings();
        for (path, record) in lost {
            // So they may of the keys.
            self.home.odd_etags.forget_base(record.dirty_since);
            self.home.changed(&path, Some(&record), None, &self.metrics);
            self.space.replace(&path, Some(&record), None);
        }
        Ok(())
    }

    /// See [`crate::Cache::idle`].
    pub(crate) fn idle(&self, slots: &SlotSet) -> SlotSet {
        let mut idle = slots.clone();
        for locks in self.home.all_locks() {
            idle.take_off(&locks.held_of(slots));
        }
        idle
    }

    /// Uploads to these slots and their parts no longer count as space here, and how long the uploads were idle is not
    /// known.
    pub(crate) async fn forget_parts(&self, slots: &SlotSet) -> Result<()> {
        let mut range = records::all_uploads_range();
        while let Some(found) = self.next_records(&mut range).await? {
            for (path, upload_id) in found.iter().filter_map(|(key, _)| records::parse_upload_key(key)) {
                if slots.has_path(&path) {
                    self.space.drop_upload(&upload_id);
                    self.home.missing.remove_upload(&upload_id);
                    self.home.activity.forget(&upload_id);
                }
            }
        }
        Ok(())
    }

    /// How often slots were lost. While the answer stays the same, what was at home here still is.
    pub(crate) fn losses(&self) -> u64 {
        self.home.losses.load(Ordering::SeqCst)
    }

    /// The same, while all keys are at home here.
    ///
    /// # Errors
    /// `Unavailable` while some keys are at home elsewhere, or nowhere. This worker does not know their contents.
    pub(crate) fn all_at_home(&self) -> Result<u64> {
        let losses = self.home.losses.load(Ordering::SeqCst);
        if self.home.part_locks.has_all() && self.home.locks.has_all() { Ok(losses) } else { Err(not_all_at_home()) }
    }
}

pub(crate) fn not_all_at_home() -> Error {
    Error::new(ErrorKind::Unavailable, "some keys move between workers at present; try again")
}
