//! Gaining keys: from what the catalog says of them to all that their home knows.

use forebay_catalog::records::{self, ObjectRecord, State};
use forebay_types::ObjectPath;

use crate::Result;
use crate::persist::Entry;
use crate::worker::Worker;
use crate::write::change::Intent;

impl Worker {
    /// Takes up what the home of all keys has to do. At a start, before the first request.
    ///
    /// # Errors
    /// Whatever the catalog answers.
    pub(crate) async fn gain(&self) -> Result<()> {
        self.load_backlog().await?;
        self.load_requests().await?;
        if self.home.doubt.is_new() {
            self.home.settle.mark_all_earlier();
        }
        self.sweep_orphans().await
    }

    /// Puts what the under store does not have back into the queue. A request that was under way when the last process
    /// ended may still land: nothing follows it before that is over.
    async fn load_backlog(&self) -> Result<()> {
        let mut range = records::all_objects_range();
        while let Some(found) = self.next_records(&mut range).await? {
            for (key, versioned) in &found {
                let Some(path) = records::parse_object_key(key) else { continue };
                let record = ObjectRecord::decode(&versioned.value)?;
                self.home.backlog.replace(None, Some(&record), &self.metrics);
                self.space.replace(&path, None, Some(&record));
                self.home.write_times.seen(record.last_modified_ms);
                self.look_for_bytes(&path, &record);
                // Transient and conflicting ones too: they may have replaced a dirty one.
                self.home.settle.mark_earlier(&path, Some(record.dirty_since));
                if matches!(record.state, State::Dirty | State::Tombstone) {
                    self.home.queue.push(path, Entry::of(&record));
                }
            }
        }
        Ok(())
    }

    /// Notes an acknowledged object whose bytes are not here any more. Reads of it fail until it is written again.
    fn look_for_bytes(&self, path: &ObjectPath, record: &ObjectRecord) {
        if record.state == State::Tombstone {
            return;
        }
        let object = self.store.peek(&Self::store_key(path)).filter(|object| object.generation() == record.generation);
        if object.is_some_and(|object| object.is_whole()) {
            return;
        }
        tracing::error!(%path, generation = record.generation.0, size = record.size, "the bytes of an acknowledged object are missing");
        self.home.missing.add(path.clone());
    }

    /// Requests of clients that were under way, or had no answer, when the last process ended.
    async fn load_requests(&self) -> Result<()> {
        let mut range = records::all_requests_range();
        while let Some(found) = self.next_records(&mut range).await? {
            for (key, versioned) in &found {
                let Some(path) = records::parse_request_key(key) else { continue };
                self.home.settle.mark_earlier_request(path, Intent::decode(&versioned.value).start);
            }
        }
        Ok(())
    }
}
