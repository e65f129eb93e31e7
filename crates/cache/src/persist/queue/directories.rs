//! The uploads of a bucket are shared by its directories, as those of an under store are by its buckets: a tenant, or a
//! job, that leaves a long backlog must not hold up the others. A directory is what comes before the first slash of a
//! key; keys without one have one of their own. Directories are told apart by a short hash, so that there are never
//! many groups: two that share one also share its turns.

use std::collections::{BTreeMap, BTreeSet};

use forebay_types::{Generation, ObjectPath};

/// By age.
pub(super) type Ready = BTreeSet<(Generation, ObjectPath)>;

/// The group of a directory.
pub(super) type GroupId = u8;

/// All groups are looked at for each upload.
pub(super) const GROUPS_MAX: GroupId = 64;

#[derive(Default)]
struct Group {
    ready: Ready,
    /// Uploads under way.
    running: usize,
}

/// What is ready in a bucket.
#[derive(Default)]
pub(super) struct Directories {
    groups: BTreeMap<GroupId, Group>,
}

/// The directory of a key.
pub(super) fn directory_of(path: &ObjectPath) -> &str {
    path.key.as_str().split_once('/').map_or("", |(directory, _)| directory)
}

impl Directories {
    pub(super) fn insert(&mut self, id: GroupId, place: (Generation, ObjectPath)) {
        self.groups.entry(id).or_default().ready.insert(place);
    }

    pub(super) fn remove(&mut self, id: GroupId, place: &(Generation, ObjectPath)) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.ready.remove(place);
        }
        self.drop_idle(id);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.values().all(|group| group.ready.is_empty())
    }

    /// The one whose turn it is: the oldest of the group that has least under way. Or the newest of all.
    pub(super) fn next(&self, is_newest: bool) -> Option<(GroupId, &(Generation, ObjectPath))> {
        let groups = self.groups.iter();
        if is_newest {
            return groups.filter_map(|(id, group)| Some((*id, group.ready.last()?))).max_by_key(|(_, place)| *place);
        }
        let first = groups.filter_map(|(id, group)| Some((group.running, group.ready.first()?, *id)));
        first.min().map(|(_, place, id)| (id, place))
    }

    /// Takes what [`Directories::next`] shows.
    pub(super) fn take(&mut self, is_newest: bool) -> Option<ObjectPath> {
        let (id, place) = self.next(is_newest)?;
        let place = place.clone();
        let group = self.groups.get_mut(&id).expect("it has just been looked at");
        group.ready.remove(&place);
        group.running += 1;
        Some(place.1)
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
