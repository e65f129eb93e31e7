//! Which directories belong to the store. Each of them holds the list of all that ever did. So a start notices when one
//! is missing, no number is ever reused, and a directory that the store has continued without is never accepted again
//! as one of its own.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use forebay_env::{Disk, Env};
use serde::{Deserialize, Serialize};

use super::starts::{self, Seen, Start, Witness};
use crate::directory::{Directory, Identity, IdentityFile};
use crate::ids::DirectoryId;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, lacks_room, parse_segment_name};
use crate::small_file::Format;
use crate::{Error, ErrorKind, Result, Settings};

const FORMAT: Format = Format { name: "members", what: "the list of directories", magic: b"FBMB", version: 1 };

/// A store from before there were lists may have had up to this many directories. Their numbers are not reused.
const NUMBERS_BEFORE_LISTS: u16 = 1024;

/// A directory that belongs to the store, or did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    number: u16,
    id: DirectoryId,
    /// Where the last start that found it saw it.
    label: String,
    /// The operator has said that it is gone for good.
    is_forgotten: bool,
}

/// The list. It only grows, and a forgotten directory stays forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Members {
    store: u64,
    /// Grows with every change. After a crash, some directories may have an older list.
    version: u64,
    /// No directory has ever had this number or a higher one.
    next_number: u16,
    members: Vec<Member>,
}

impl Members {
    fn forgotten(&self) -> usize {
        self.members.iter().filter(|member| member.is_forgotten).count()
    }

    fn new(store: u64) -> Self {
        Self { store, version: 0, next_number: 0, members: Vec::new() }
    }

    /// A list for directories from before there were lists. Their numbers went up from 0, so a gap is a missing
    /// directory.
    fn before_lists(store: u64, found: &[DirectoryAtStart]) -> Self {
        let numbers = found.iter().filter_map(|found| match found.identity {
            Some(IdentityFile::BeforeLists { number, .. }) => Some((number, found.disk.label())),
            Some(IdentityFile::Listed { .. }) | None => None,
        });
        let mut labels: BTreeMap<u16, String> = numbers.collect();
        let last = labels.keys().next_back().copied().unwrap_or(0);
        let members = (0..=last).map(|number| Member {
            number,
            id: DirectoryId::before_lists(store, number),
            label: labels.remove(&number).unwrap_or_else(|| format!("directory {number} of an older release")),
            is_forgotten: false,
        });
        Self { members: members.collect(), next_number: NUMBERS_BEFORE_LISTS, ..Self::new(store) }
    }

    /// A list of the directories that are given, for when all lists were removed.
    fn rebuilt(store: u64, found: &[DirectoryAtStart]) -> Self {
        let mut members = Self { next_number: NUMBERS_BEFORE_LISTS, ..Self::new(store) };
        for found in found {
            if let Some(IdentityFile::Listed { id, number }) = found.identity {
                members.next_number = members.next_number.max(number.saturating_add(1));
                members.members.push(Member { number, id, label: found.disk.label(), is_forgotten: false });
            }
        }
        members
    }

    async fn write(&self, disk: &dyn Disk) -> Result<()> {
        let written = FORMAT.replace(disk, self).await;
        written
            .map_err(|error| Error::io(format!("could not write the list of directories to {}", disk.label()), error))
    }

    fn member(&self, id: DirectoryId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Whether `newer` comes from this list: it has all members of this list, and whatever is forgotten here is
    /// forgotten there.
    fn is_part_of(&self, newer: &Self) -> bool {
        self.members.iter().all(|member| {
            let now = newer.member(member.id);
            now.is_some_and(|now| now.number == member.number && (now.is_forgotten || !member.is_forgotten))
        })
    }

    /// Adds a new directory, under a number that no other ever had.
    fn join(&mut self, env: &Env, label: String) -> Result<Member> {
        let number = self.next_number;
        let all_used = || Error::new(ErrorKind::Invalid, "the store has had as many directories as it can number");
        self.next_number = number.checked_add(1).ok_or_else(all_used)?;
        let mut id = DirectoryId(env.random.next_u64());
        while self.member(id).is_some() {
            id = DirectoryId(env.random.next_u64());
        }
        let member = Member { number, id, label, is_forgotten: false };
        self.members.push(member.clone());
        Ok(member)
    }
}

/// A directory as a start finds it.
struct DirectoryAtStart {
    disk: Arc<dyn Disk>,
    /// `None` when it is new.
    identity: Option<IdentityFile>,
    members: Option<Members>,
    is_list_damaged: bool,
    /// It has neither a list nor a segment. If no other directory knows it, a crash interrupted its creation.
    is_blank: bool,
    /// The store that its segments name.
    store_of_segments: Option<u64>,
    seen: Seen,
}

/// The store that the first sound segment header names.
async fn store_of_segments(disk: &dyn Disk, names: &[String]) -> Option<u64> {
    for name in names.iter().filter(|name| parse_segment_name(name).is_some()) {
        let read = async { disk.open(name).await?.read_at(0, SEGMENT_HEADER_BYTES as usize).await };
        if let Some(header) = read.await.ok().and_then(|bytes| SegmentHeader::decode(&bytes).ok()) {
            return Some(header.store);
        }
    }
    None
}

impl DirectoryAtStart {
    async fn read(disk: Arc<dyn Disk>) -> Result<Self> {
        let identity = IdentityFile::read(disk.as_ref()).await?;
        let listed = disk.list().await;
        let names = listed.map_err(|error| Error::io(format!("could not list {}", disk.label()), error))?;
        let is_blank = !names.iter().any(|name| name == FORMAT.name || parse_segment_name(name).is_some());
        let store_of_segments = store_of_segments(disk.as_ref(), &names).await;
        let (members, is_list_damaged) = match FORMAT.read(disk.as_ref(), &names).await {
            Ok(members) => (members, false),
            // The other directories have the list, too.
            Err(error) if error.kind == ErrorKind::Corrupt => {
                tracing::warn!(directory = disk.label(), %error, "another data directory must have a sound list of directories");
                (None, true)
            }
            Err(error) => return Err(Error { context: format!("{}: {}", disk.label(), error.context), ..error }),
        };
        let seen = Seen::read(disk.as_ref(), &names).await?;
        Ok(Self { disk, identity, members, is_list_damaged, is_blank, store_of_segments, seen })
    }

    fn id(&self) -> Option<DirectoryId> {
        self.identity.map(|identity| match identity {
            IdentityFile::BeforeLists { store, number } => DirectoryId::before_lists(store, number),
            IdentityFile::Listed { id, .. } => id,
        })
    }

    fn number(&self) -> Option<u16> {
        self.identity.map(|identity| match identity {
            IdentityFile::BeforeLists { number, .. } | IdentityFile::Listed { number, .. } => number,
        })
    }

    fn witness(&self) -> Option<Witness> {
        let (label, seen) = (self.disk.label(), self.seen.clone());
        Some(Witness { label, id: self.id()?, number: self.number()?, seen })
    }

    fn refused(&self, problem: &str) -> Error {
        Error::new(ErrorKind::Invalid, format!("{}: {problem}", self.disk.label()))
    }
}

/// The directories of a start, before anything is changed.
pub(crate) struct Roll {
    pub(crate) directories: Vec<Arc<Directory>>,
    found: Vec<DirectoryAtStart>,
    members: Members,
    start: Start,
    /// Whether this start leaves out a directory that the previous one had.
    pub(crate) has_forgotten: bool,
    /// Number of directories that were forgotten before.
    forgotten_before: usize,
}

/// Number of directories that are gone for good, according to the list of directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten {
    /// Forgotten by earlier starts.
    pub before: usize,
    /// Forgotten by this start.
    pub now: usize,
    /// Whether the directories forgotten now may have known more than the last snapshot, because there was no clean
    /// stop before; or whether a directory was ever forgotten, and there is no snapshot. What they knew is lost,
    /// deletes included: older objects and values may be back.
    pub has_lost_changes: bool,
}

/// Identifies the directories, gives numbers to new ones, and notices missing ones.
///
/// # Errors
/// `Invalid` when a directory is missing that nobody has said to forget. Also when one is given twice, is an older
/// copy, does not belong to the store, or no longer does. `Corrupt` when an identity is damaged, or no directory has a
/// sound list.
pub(crate) async fn call_roll(env: &Env, disks: Vec<Arc<dyn Disk>>, settings: &Settings) -> Result<Roll> {
    let mut found = Vec::new();
    for disk in disks {
        found.push(DirectoryAtStart::read(disk).await?);
    }
    let mut members = newest_list(env, &found)?;
    let is_upgrade = found.iter().all(|found| found.members.is_none()) && !members.members.is_empty();
    for found in &mut found {
        let is_known = found.id().is_some_and(|id| members.member(id).is_some());
        if found.is_blank && !is_known {
            found.identity = None;
        }
    }
    let before = members.clone();
    check_known(&found, &members)?;
    let witnesses: Vec<_> = found.iter().filter_map(DirectoryAtStart::witness).collect();
    starts::check(&witnesses)?;
    if let (true, Some(new)) = (is_upgrade, found.iter().find(|found| found.identity.is_none())) {
        // It may be in place of a missing one that no list names yet.
        return Err(new.refused(
            "a new directory can't be added while the store gets its list of directories: add it at the next start",
        ));
    }
    let has_forgotten = check_missing(&found, &mut members, settings)?;
    let mut directories = Vec::new();
    for (found, capacity) in found.iter().zip(&settings.capacity_bytes) {
        let label = found.disk.label();
        let known = found.id().and_then(|id| members.members.iter_mut().find(|member| member.id == id));
        let member = match known {
            Some(member) => {
                member.label = label;
                member.clone()
            }
            None => members.join(env, label)?,
        };
        let identity = Identity { store: members.store, number: member.number, id: member.id };
        let (disk, clock) = (Arc::clone(&found.disk), Arc::clone(&env.clock));
        directories.push(Arc::new(Directory::new(disk, identity, *capacity, settings.lengths(), clock)));
    }
    if members != before {
        members.version += 1;
    }
    let numbers = directories.iter().map(|directory: &Arc<Directory>| directory.identity.number).collect();
    let start = Start::after(&witnesses, numbers, env);
    Ok(Roll { directories, found, members, start, has_forgotten, forgotten_before: before.forgotten() })
}

/// The newest list, or one for a store that has none.
fn newest_list(env: &Env, found: &[DirectoryAtStart]) -> Result<Members> {
    let stores: HashSet<u64> = found
        .iter()
        .flat_map(|found| {
            let before_lists = match found.identity {
                Some(IdentityFile::BeforeLists { store, .. }) => Some(store),
                Some(IdentityFile::Listed { .. }) | None => None,
            };
            before_lists.into_iter().chain(found.members.as_ref().map(|members| members.store))
        })
        .collect();
    if stores.len() > 1 {
        let labels: Vec<String> = found.iter().map(|found| found.disk.label()).collect();
        let problem = format!(
            "the data directories belong to different stores: {}. Give only those of one store (store.data_dirs)",
            labels.join(", ")
        );
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    let mut by_id = HashMap::new();
    for directory in found {
        let Some(other) = directory.id().and_then(|id| by_id.insert(id, directory)) else { continue };
        let problem = format!(
            "a data directory is given twice: {} and {} are the same, or copies of one. Take out the copy",
            other.disk.label(),
            directory.disk.label()
        );
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    if let Some(newest) = found.iter().filter_map(|found| found.members.as_ref()).max_by_key(|members| members.version)
    {
        return Ok(newest.clone());
    }
    if let Some(store) = stores.iter().next() {
        return Ok(Members::before_lists(*store, found));
    }
    if !found.iter().any(|found| found.identity.is_some() && !found.is_blank) {
        tracing::info!("the data directories are empty: a new store begins");
        return Ok(Members::new(env.random.next_u64()));
    }
    let Some(damaged) = found.iter().find(|found| found.is_list_damaged) else {
        tracing::warn!(
            "no data directory has a list of directories: a new list is made of those that are given. Check that none is missing"
        );
        let store = found.iter().find_map(|found| found.store_of_segments);
        return Ok(Members::rebuilt(store.unwrap_or_else(|| env.random.next_u64()), found));
    };
    let problem = format!(
        "{}: the list of directories is damaged, and no directory has a sound one. Remove the file `{}` from all directories and give all of them: then the list is made again",
        damaged.disk.label(),
        FORMAT.name
    );
    Err(Error::new(ErrorKind::Corrupt, problem))
}

/// Refuses a directory that the store has continued without: it is out of date, and knows nothing of later deletes and
/// overwrites.
fn check_known(found: &[DirectoryAtStart], members: &Members) -> Result<()> {
    // When two directories were each started without the other, nobody can tell which one is out of date.
    let lists = || found.iter().filter_map(|found| Some((found, found.members.as_ref()?)));
    if let Some((one, _)) = lists().find(|(_, list)| !list.is_part_of(members)) {
        let newest =
            lists().find(|(_, list)| *list == members).map_or_else(String::new, |(found, _)| found.disk.label());
        return Err(one.refused(&format!(
            "{newest} belongs to the same store, and each of them was started without the other. Remove the one whose data is out of date from store.data_dirs; emptied, it can be added again"
        )));
    }
    for directory in found {
        let Some(id) = directory.id() else { continue };
        match members.member(id) {
            Some(member) if !member.is_forgotten => {}
            Some(_) | None => {
                return Err(directory.refused(
                    "the store has continued without this directory, so what it holds is out of date, but for writes that never got to the under store. Empty it to use it again, as a new one",
                ));
            }
        }
    }
    Ok(())
}

/// Forgets the missing directories that the operator says are gone. Returns whether there are any.
fn check_missing(found: &[DirectoryAtStart], members: &mut Members, settings: &Settings) -> Result<bool> {
    let here: HashSet<DirectoryId> = found.iter().filter_map(DirectoryAtStart::id).collect();
    if let Some(id) = settings.forget.iter().find(|id| here.contains(id)) {
        let problem = format!(
            "the directory {id} is to be forgotten, and is given: remove it from store.data_dirs, or its id from --forget-directory"
        );
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    let mut absent = Vec::new();
    let mut has_forgotten = false;
    for member in members.members.iter_mut().filter(|member| !member.is_forgotten && !here.contains(&member.id)) {
        if settings.forget.contains(&member.id) {
            member.is_forgotten = true;
            has_forgotten = true;
        } else {
            absent.push(format!("{} (last seen as {})", member.id, member.label));
        }
    }
    if absent.is_empty() {
        return Ok(has_forgotten);
    }
    let empty: Vec<String> =
        found.iter().filter(|found| found.identity.is_none()).map(|found| found.disk.label()).collect();
    let empty = if empty.is_empty() { String::new() } else { format!("; empty: {}", empty.join(", ")) };
    Err(Error::new(ErrorKind::Invalid, missing(&absent.join(", "), &empty)))
}

/// The error message about missing directories.
fn missing(absent: &str, empty: &str) -> String {
    format!(
        "data directories are missing: {absent}{empty}. Mount them and start again. If one is gone for good, start with --forget-directory and its id; what only it held is then lost"
    )
}

impl Roll {
    /// `was_closed`: whether a clean stop came before.
    pub(crate) fn forgotten(&self, was_closed: bool, has_snapshot: bool) -> Forgotten {
        let now = self.members.forgotten() - self.forgotten_before;
        let has_lost_changes = (now > 0 && !was_closed) || (self.is_incomplete() && !has_snapshot);
        Forgotten { before: self.forgotten_before, now, has_lost_changes }
    }

    /// Whether a directory was ever forgotten, by this start or an earlier one. The remaining segments may then show
    /// older versions than the snapshot.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.members.forgotten() > 0
    }

    /// Looks for directories that a snapshot or a record names but no list. They were already missing when a release
    /// with lists was first started.
    ///
    /// # Errors
    /// `Invalid` when there is one that the operator did not say to forget.
    pub(crate) fn check_named(&mut self, named: impl Iterator<Item = u16>, forget: &[DirectoryId]) -> Result<()> {
        for number in named {
            if self.members.members.iter().any(|member| member.number == number) {
                continue;
            }
            let id = DirectoryId::before_lists(self.members.store, number);
            let label = format!("directory {number} of an older release");
            if !forget.contains(&id) {
                return Err(Error::new(ErrorKind::Invalid, missing(&format!("{id} ({label})"), "")));
            }
            self.members.members.push(Member { number, id, label, is_forgotten: true });
            self.has_forgotten = true;
        }
        Ok(())
    }

    /// Records this start in all directories. No change may come before.
    ///
    /// # Errors
    /// As [`Self::note_members`].
    pub(crate) async fn note(&self) -> Result<()> {
        // New directories have it before they become members.
        let told = self.note_start(&self.start).await;
        self.note_members().await?;
        self.note_start(&self.start.clone().known_to(told)).await;
        Ok(())
    }

    /// Returns the numbers of the directories that have recorded it.
    async fn note_start(&self, start: &Start) -> Vec<u16> {
        let mut told = Vec::new();
        for directory in &self.directories {
            let Err(error) = start.write(directory.disk.as_ref()).await else {
                told.push(directory.identity.number);
                continue;
            };
            let label = directory.disk.label();
            if error.kind() == std::io::ErrorKind::ResourceBusy || lacks_room(&error) {
                tracing::warn!(directory = label, %error, "could not count a start: an older copy of this directory may not be noticed");
            } else {
                directory.fail(&format!("could not count a start: {error}"));
            }
        }
        told
    }

    /// Writes down which directories belong to the store. After a crash at any point, every directory that a list names
    /// has its identity, and every directory that has a list is in the newest one.
    ///
    /// # Errors
    /// `Failed` when a directory can't record that another was added or removed: it would not miss that one later.
    async fn note_members(&self) -> Result<()> {
        self.tell_who_is_gone();
        let both = || self.directories.iter().zip(&self.found);
        for (directory, found) in both().filter(|(_, found)| found.identity.is_none()) {
            directory.identity.write(found.disk.as_ref()).await?;
        }
        for (_, found) in both().filter(|(_, found)| found.identity.is_none()) {
            self.members.write(found.disk.as_ref()).await?;
        }
        for (directory, found) in both().filter(|(_, found)| found.identity.is_some()) {
            let Err(error) = self.note_again(directory, found).await else { continue };
            if self.is_news_to(found) {
                return Err(error);
            }
            match &error.source {
                // Only the path of a directory or the format has changed. The next start writes it.
                Some(source) if lacks_room(source) => {
                    tracing::warn!(%error, "the list of directories could not be updated, because the disk is full: make room. The next start tries again")
                }
                Some(_) | None => directory.fail(&error.to_string()),
            }
        }
        Ok(())
    }

    fn tell_who_is_gone(&self) {
        if !self.has_forgotten {
            return;
        }
        for member in self.members.members.iter().filter(|member| member.is_forgotten) {
            let Member { id, label, .. } = member;
            tracing::warn!(%id, last_seen_as = label, "a data directory is forgotten: what only it held is lost");
        }
    }

    /// Whether a directory does not know yet which directories belong to the store.
    fn is_news_to(&self, found: &DirectoryAtStart) -> bool {
        match &found.members {
            Some(list) => !self.members.is_part_of(list),
            None => {
                let is_listed = matches!(found.identity, Some(IdentityFile::Listed { .. }));
                is_listed || self.members.members.iter().any(|member| member.is_forgotten)
            }
        }
    }

    async fn note_again(&self, directory: &Directory, found: &DirectoryAtStart) -> Result<()> {
        let disk = found.disk.as_ref();
        if found.members.as_ref() != Some(&self.members) {
            self.members.write(disk).await?;
        }
        match found.identity {
            Some(IdentityFile::BeforeLists { .. }) => directory.identity.write(disk).await,
            // A process that died while it wrote these files may have left names that a power cut takes back.
            Some(IdentityFile::Listed { .. }) | None => {
                let synced = disk.sync_directory().await;
                synced.map_err(|error| Error::io("could not sync the directory", error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_list() -> Members {
        let member = |number: u16, is_forgotten| Member {
            number,
            id: DirectoryId(0x1111_2222_3333_4444 * (u64::from(number) + 1)),
            label: format!("/mnt/nvme{number}"),
            is_forgotten,
        };
        let members = vec![member(0, false), member(1, true)];
        Members { store: 0x1234_5678_9abc_def0, version: 7, next_number: 2, members }
    }

    #[test]
    fn lists_are_read_back_and_damage_is_seen() {
        let bytes = FORMAT.encode(&a_list());
        crate::record::tests::check_golden("members", &bytes);
        assert_eq!(FORMAT.decode::<Members>(&bytes).unwrap(), a_list());
        let damage = |bytes: &[u8]| FORMAT.decode::<Members>(bytes).unwrap_err().kind;
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 4;
            assert_eq!(damage(&damaged), ErrorKind::Corrupt, "byte {at}");
            assert_eq!(damage(&bytes[..at]), ErrorKind::Corrupt, "{at} bytes");
        }
    }
}
