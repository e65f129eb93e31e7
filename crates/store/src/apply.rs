//! Changes of the tables, with the accounting of each.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_types::Generation;

use crate::ValueWrite;
use crate::ids::SegmentKey;
use crate::inner::Inner;
use crate::record::object::Extent;
use crate::table::{Entry, Row, Write};

/// Objects that are assigned to groups before other tasks run.
const REGROUPED_AT_ONCE: usize = 256;

fn change(counter: &AtomicU64, by: i128) {
    let add = by.unsigned_abs() as u64;
    if by >= 0 {
        counter.fetch_add(add, Ordering::SeqCst);
    } else {
        let before = counter.fetch_sub(add, Ordering::SeqCst);
        assert!(before >= add, "what is taken off a count was added before");
    }
}

impl Inner {
    /// Adds an entry to the accounts, or removes it with `sign` -1.
    fn account(&self, entry: &Entry, sign: i128) {
        self.account_bytes(entry, entry.uses(), sign);
        change(&self.objects.count, sign);
    }

    /// The same for some of its bytes.
    fn account_bytes(&self, entry: &Entry, uses: impl Iterator<Item = (SegmentKey, u64)>, sign: i128) {
        let mut bytes: i128 = 0;
        for (key, used) in uses {
            bytes += i128::from(used);
            if let Some(segment) = self.segment(key) {
                change(&segment.live_bytes, sign * i128::from(used));
                if entry.pinned {
                    change(&segment.pinned_bytes, sign * i128::from(used));
                }
            }
        }
        change(if entry.pinned { &self.pinned_bytes } else { &self.evictable_bytes }, sign * bytes);
        if entry.group != 0 {
            let mut groups = self.groups.lock();
            let group = groups.entry(entry.group).or_default();
            let add = |counter: &mut u64| {
                let changed = counter.checked_add_signed((sign * bytes) as i64);
                *counter = changed.expect("what is taken off a group was added before");
            };
            add(&mut group.all);
            if !entry.pinned {
                add(&mut group.evictable);
            }
        }
    }

    /// Publishes a new entry, unless a newer generation is there already. Writing it counts as its first use.
    pub(crate) fn insert(&self, entry: Entry) {
        entry.last_read.store(self.objects.tick(), Ordering::Relaxed);
        let entry = Arc::new(entry);
        let mut locked = self.objects.lock(entry.key());
        if locked.get().is_some_and(|present| present.generation > entry.generation) {
            return;
        }
        self.account(&entry, 1);
        if let Some(before) = locked.put(Arc::clone(&entry)) {
            self.account(&before, -1);
        }
    }

    /// Removes an entry if `chosen` accepts it.
    pub(crate) fn remove(&self, key: &[u8], chosen: impl FnOnce(&Entry) -> bool) -> Option<Arc<Entry>> {
        let mut locked = self.objects.lock(key);
        if !locked.get().is_some_and(|entry| chosen(entry)) {
            return None;
        }
        let removed = locked.remove()?;
        self.account(&removed, -1);
        Some(removed)
    }

    /// Changes an entry of this generation. `false` when there is none, or when `edit` refuses.
    pub(crate) fn update(&self, key: &[u8], generation: Generation, edit: impl FnOnce(&mut Entry) -> bool) -> bool {
        let mut locked = self.objects.lock(key);
        let Some(present) = locked.get().filter(|entry| entry.generation == generation) else { return false };
        let mut changed = Entry::clone(present);
        if !edit(&mut changed) {
            return false;
        }
        self.account(&changed, 1);
        self.account(present, -1);
        locked.put(Arc::new(changed));
        true
    }

    pub(crate) fn annotate(&self, key: &[u8], generation: Generation, annex: &[u8], pinned: bool) -> bool {
        self.update(key, generation, |entry| {
            entry.set_annex(annex);
            entry.pinned = pinned;
            true
        })
    }

    /// A large object gets many extents, one after the other, so only the new one is counted.
    pub(crate) fn attach(&self, key: &[u8], generation: Generation, extent: Extent) -> bool {
        let mut locked = self.objects.lock(key);
        let fits = |entry: &&Arc<Entry>| entry.generation == generation && entry.has_gap_for(&extent);
        let Some(present) = locked.get().filter(fits) else { return false };
        self.account_bytes(present, std::iter::once((extent.segment, extent.bytes.into())), 1);
        // In place where nobody holds it: a copy for each extent would take quadratic time.
        locked.edit(|entry| {
            entry.add_extent(extent);
        });
        true
    }

    /// Drops damaged bytes of a clean object: one extent, or the whole object when its record is damaged.
    pub(crate) fn drop_damaged(&self, key: &[u8], seen: &Entry, extent: Option<Extent>) {
        match extent {
            Some(damaged) => {
                self.update(key, seen.generation, |entry| {
                    let (before, pinned) = (entry.extents().len(), entry.pinned);
                    entry.retain_extents(|extent| *extent != damaged || pinned);
                    entry.extents().len() < before
                });
            }
            None => {
                let same =
                    |entry: &Entry| !entry.pinned && entry.generation == seen.generation && entry.record == seen.record;
                self.remove(key, same);
            }
        }
    }

    pub(crate) fn write_values(&self, writes: Vec<ValueWrite>, version: u64, segment: SegmentKey) {
        let write_of = |write: ValueWrite| match write.value {
            Some(value) => Write::Put(Row::new(&write.key, &value, version, segment)),
            None => Write::Delete(write.key),
        };
        // Rows are made before the table is locked, and counted before anybody can find them. So a commit that
        // overwrites them can take them off the count.
        let writes: Vec<Write> = writes.into_iter().map(write_of).collect();
        let rows = writes.iter().filter_map(|write| if let Write::Put(row) = write { Some(row) } else { None });
        self.count_value(segment, rows.map(|row| i128::from(row.log_bytes())).sum());
        for before in self.values.apply(writes) {
            self.count_value(before.segment, -i128::from(before.log_bytes()));
            // Reclaim carried the older value to a newer segment while this commit was in flight.
            if let Some(holder) = self.segment(before.segment).filter(|holder| holder.header.sequence > version) {
                holder.holds_stale(before.version);
            }
        }
    }

    /// Counts deletes and annotations that were written to a log.
    pub(crate) fn count_changes(&self, segment: SegmentKey, bytes: u64) {
        if bytes > 0
            && let Some(segment) = self.segment(segment)
        {
            segment.change_bytes.fetch_add(bytes, Ordering::SeqCst);
        }
    }

    fn count_value(&self, segment: SegmentKey, bytes: i128) {
        if let Some(segment) = self.segment(segment) {
            change(&segment.value_bytes, bytes);
        }
    }

    /// Moves a value to the log where reclaim has written it again.
    pub(crate) fn move_value(&self, key: &[u8], version: u64, from: SegmentKey, to: SegmentKey) {
        let moved = self.values.moved(key, version, to, |row| {
            self.count_value(to, row.log_bytes().into());
            self.count_value(from, -i128::from(row.log_bytes()));
        });
        if let (false, Some(holder)) = (moved, self.segment(to)) {
            holder.holds_stale(version);
        }
    }

    /// Accounts for everything that recovery found. Returns whether all values are in logs that exist.
    pub(crate) fn account_all(&self) -> bool {
        for shard in self.objects.shards() {
            shard.read().iter().for_each(|entry| self.account(entry, 1));
        }
        let mut written: HashMap<SegmentKey, i128> = HashMap::new();
        self.values.for_each(|row| *written.entry(row.segment).or_default() += i128::from(row.log_bytes()));
        let mut has_all = true;
        for (segment, bytes) in written {
            match self.segment(segment) {
                Some(segment) => change(&segment.value_bytes, bytes),
                None => has_all = false,
            }
        }
        has_all
    }

    /// Looks for the groups while nothing is locked, and lets others run: there may be many objects, and many rules for
    /// each.
    pub(crate) async fn regroup(&self, group_of: &(dyn Fn(&[u8]) -> u32 + Sync)) {
        for shard in self.objects.shards() {
            let entries: Vec<_> = shard.read().iter().cloned().collect();
            for some in entries.chunks(REGROUPED_AT_ONCE) {
                for entry in some {
                    let group = group_of(entry.key());
                    if group != entry.group {
                        self.set_group(entry.key(), entry.generation, group);
                    }
                }
                tokio::task::yield_now().await;
            }
        }
    }

    pub(crate) fn set_group(&self, key: &[u8], generation: Generation, group: u32) {
        self.update(key, generation, |entry| {
            entry.group = group;
            true
        });
    }
}
