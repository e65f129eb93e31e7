//! The directories of a bucket share its uploads, just as the buckets of an under store share theirs. A tenant or a job
//! that leaves a long backlog must not delay the others. A directory is the part of a key before its first slash. Keys
//! without a slash form one directory of their own. Directories are grouped by a short hash, which limits the number of
//! groups. Two directories in one group share its turns.

use std::collections::{BTreeMap, BTreeSet};

use forebay_types::{Generation, ObjectPath};

/// Sorted by age.
pub(super) type Ready = BTreeSet<(Generation, ObjectPath)>;

/// The group of a directory.
pub(super) type GroupId = u8;

/// Each upload examines all groups.
pub(super) const GROUPS_MAX: GroupId = 64;

#[derive(Default)]
struct Group {
    ready: Ready,
    /// Uploads in flight.
    running: usize,
}

/// The ready objects of a bucket.
#[derive(Default)]
pub(super) struct Directories {
    groups: BTreeMap<GroupId, Group>,
}

/// The directory of a key.
pub(super) fn directory_of(path: &ObjectPath) -> &str {
    path.key.as_str().split_once('/').map_or("", |(directory, _)| directory)
}

impl Directories {
    pub(super) fn insert(&mut self, id: GroupId, entry: (Generation, ObjectPath)) {
        self.groups.entry(id).or_default().ready.insert(entry);
    }

    pub(super) fn remove(&mut self, id: GroupId, entry: &(Generation, ObjectPath)) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.ready.remove(entry);
        }
        self.drop_idle(id);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.values().all(|group| group.ready.is_empty())
    }

    /// The next object: the oldest of the group with the fewest uploads in flight, or the newest of all.
    pub(super) fn next(&self, is_newest: bool) -> Option<(GroupId, &(Generation, ObjectPath))> {
        let groups = self.groups.iter();
        if is_newest {
            return groups.filter_map(|(id, group)| Some((*id, group.ready.last()?))).max_by_key(|(_, entry)| *entry);
        }
        let first = groups.filter_map(|(id, group)| Some((group.running, group.ready.first()?, *id)));
        first.min().map(|(_, entry, id)| (id, entry))
    }

    /// Takes the object that [`Directories::next`] returns.
    pub(super) fn take(&mut self, is_newest: bool) -> Option<ObjectPath> {
        let (id, entry) = self.next(is_newest)?;
        let entry = entry.clone();
        let group = self.groups.get_mut(&id).expect("it has just been looked at");
        group.ready.remove(&entry);
        group.running += 1;
        Some(entry.1)
    }

    /// An upload has ended.
    pub(super) fn stop(&mut self, id: GroupId) {
        let group = self.groups.get_mut(&id).expect("a group stays while it has uploads");
        group.running -= 1;
        self.drop_idle(id);
    }

    fn drop_idle(&mut self, id: GroupId) {
        if self.groups.get(&id).is_some_and(|group| group.ready.is_empty() && group.running == 0) {
            self.groups.remove(&id);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.groups.values().map(|group| group.ready.len()).sum()
    }
}
