//! A disk in memory that loses, tears and corrupts data on demand.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::DerefMut;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use super::{Disk, DiskFile, DiskSpace};
use crate::random::{Random, SeededRandom};
use crate::sync::Mutex;

/// The unit that a power cut keeps or loses as a whole.
const SECTOR: usize = 512;

/// A disk in memory. Clones share it.
///
/// After [`MemoryDisk::power_loss`], everything that was synced is there. Of what was written since, any sectors may be
/// there. Names that were created, removed or renamed since the last directory sync may be in either state. A failed
/// sync behaves as on Linux: the bytes count as clean from then on, and are lost nevertheless.
#[derive(Clone)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
    held: Arc<watch::Sender<bool>>,
    held_space: Arc<watch::Sender<bool>>,
    /// If set, the only life in which this handle may be used.
    life: Option<u64>,
}

struct State {
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Changes of names since the last sync of the directory.
    unsynced_names: Vec<NameChange>,
    files: HashMap<u64, Contents>,
    /// Files that have lost their name and are still open. They take room.
    unnamed: BTreeSet<u64>,
    next_file: u64,
    /// Grows with every kill and every power loss. Handles of an earlier life are dead.
    life: u64,
    /// Bytes of the file system, and what other users leave of them.
    size: u64,
    capacity: u64,
    syncs: u64,
    fail_syncs: u32,
    fail_directory_syncs: u32,
    fail_writes: Option<io::ErrorKind>,
    fail_creates: Option<io::ErrorKind>,
    fail_removes: bool,
    /// Bytes of files that can't be read, in this life and later ones.
    unreadable: HashMap<u64, Range<usize>>,
}

/// One change of the directory, which a power cut keeps or undoes as a whole.
enum NameChange {
    Created { name: String, id: u64 },
    Removed { name: String, id: u64 },
    Renamed { from: String, to: String, id: u64 },
}

#[derive(Default)]
struct Contents {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors written since the last sync.
    unsynced: BTreeSet<usize>,
    /// Handles of this life.
    handles: usize,
}

struct MemoryFile {
    disk: MemoryDisk,
    id: u64,
    life: u64,
}

impl State {
    fn used_bytes(&self) -> u64 {
        self.names.values().chain(&self.unnamed).map(|id| self.files[id].bytes.len() as u64).sum()
    }

    /// Must be called when a file has lost its name.
    fn unname(&mut self, id: u64) {
        if self.files[&id].handles > 0 {
            self.unnamed.insert(id);
        }
    }

    /// Begins the next life: handles of the one before are dead.
    fn end_life(&mut self) {
        self.life += 1;
        self.unnamed.clear();
        self.files.values_mut().for_each(|contents| contents.handles = 0);
        self.fail_syncs = 0;
        self.fail_directory_syncs = 0;
        self.fail_writes = None;
        self.fail_creates = None;
        self.fail_removes = false;
    }
}

impl Default for MemoryDisk {
    fn default() -> Self {
        Self::new(u64::MAX / 2)
    }
}

impl MemoryDisk {
    /// A disk that takes `capacity` bytes and is full then.
    pub fn new(capacity: u64) -> Self {
        let state = State {
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            files: HashMap::new(),
            unnamed: BTreeSet::new(),
            next_file: 0,
            life: 0,
            size: capacity,
            capacity,
            syncs: 0,
            fail_syncs: 0,
            fail_directory_syncs: 0,
            fail_writes: None,
            fail_creates: None,
            fail_removes: false,
            unreadable: HashMap::new(),
        };
        let [held, held_space] = [(); 2].map(|()| Arc::new(watch::Sender::new(false)));
        Self { state: Arc::new(Mutex::new(state)), held, held_space, life: None }
    }

    /// The same disk for one process. It refuses everything after the next kill or power loss.
    pub fn for_one_life(&self) -> Self {
        Self { life: Some(self.state.lock().life), ..self.clone() }
    }

    fn state(&self) -> io::Result<impl DerefMut<Target = State> + '_> {
        let state = self.state.lock();
        match self.life {
            Some(life) if life != state.life => Err(io::Error::other("the process that had the disk is dead")),
            Some(_) | None => Ok(state),
        }
    }

    /// Kills the process that uses the disk. Its handles fail from now on, and everything that it has written stays.
    pub fn kill(&self) {
        self.state.lock().end_life();
        self.hold_syncs(false);
    }

    /// Cuts the power. The seed decides which unsynced writes survive. Open handles fail from now on.
    pub fn power_loss(&self, seed: u64) {
        let random = SeededRandom::new(seed);
        let mut state = self.state.lock();
        let mut names = std::mem::take(&mut state.durable_names);
        for change in std::mem::take(&mut state.unsynced_names) {
            if random.below(2) == 0 {
                change.apply(&mut names);
            }
        }
        state.files.retain(|id, _| names.values().any(|kept| kept == id));
        let mut ids: Vec<_> = state.files.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            state.files.get_mut(&id).expect("the id comes from the table").lose_power(&random);
        }
        state.names = names.clone();
        state.durable_names = names;
        // While the lock is held: nobody may sync what was just lost and be told that it is safe.
        state.end_life();
        drop(state);
        self.hold_syncs(false);
    }

    /// The next `count` syncs of files fail with an I/O error.
    pub fn fail_syncs(&self, count: u32) {
        self.state.lock().fail_syncs = count;
    }

    /// The next `count` syncs of the directory fail with an I/O error: the changes of names stay unsynced.
    pub fn fail_directory_syncs(&self, count: u32) {
        self.state.lock().fail_directory_syncs = count;
    }

    /// All writes fail with this error until this is called with `None`.
    pub fn fail_writes(&self, error: Option<io::ErrorKind>) {
        self.state.lock().fail_writes = error;
    }

    /// Creating a file fails with this error until this is called with `None`.
    pub fn fail_creates(&self, error: Option<io::ErrorKind>) {
        self.state.lock().fail_creates = error;
    }

    /// Whether removing a file fails with an I/O error.
    pub fn fail_removes(&self, fail: bool) {
        self.state.lock().fail_removes = fail;
    }

    /// From now on, reads of these bytes of a file fail with an I/O error, as with a bad sector.
    ///
    /// # Panics
    /// When the file does not exist.
    pub fn fail_reads_of(&self, name: &str, bytes: Range<usize>) {
        let mut state = self.state.lock();
        let id = state.names[name];
        state.unreadable.insert(id, bytes);
    }

    /// Sets how many bytes other users leave.
    pub fn set_capacity(&self, capacity: u64) {
        self.state.lock().capacity = capacity;
    }

    /// Makes syncs wait until they are released.
    pub fn hold_syncs(&self, hold: bool) {
        self.held.send_replace(hold);
    }

    /// Makes those who ask how much room is left wait until they are released.
    pub fn hold_space(&self, hold: bool) {
        self.held_space.send_replace(hold);
    }

    /// Number of syncs of files that have ended, failed ones included.
    pub fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    /// Flips one bit on the disk.
    ///
    /// # Panics
    /// When the file or the byte does not exist.
    pub fn flip_bit(&self, name: &str, offset: usize, bit: u8) {
        let mut state = self.state.lock();
        let id = state.names[name];
        let contents = state.files.get_mut(&id).expect("a name has a file");
        contents.bytes[offset] ^= 1 << (bit % 8);
        if let Some(durable) = contents.durable.get_mut(offset) {
            *durable ^= 1 << (bit % 8);
        }
    }

    /// Changes the bytes of a file on the disk, as damage does, and makes them all durable.
    ///
    /// # Panics
    /// When the file does not exist.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state.lock();
        let id = state.names[name];
        let contents = state.files.get_mut(&id).expect("a name has a file");
        change(&mut contents.bytes);
        contents.durable = contents.bytes.clone();
        contents.unsynced.clear();
    }

    /// The bytes of a file, if there is one.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        state.names.get(name).map(|id| state.files[id].bytes.clone())
    }

    /// Bytes of all files, including those that have lost their name and are still open.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes()
    }

    /// Names and lengths of all files.
    pub fn lengths(&self) -> Vec<(String, u64)> {
        let state = self.state.lock();
        state.names.iter().map(|(name, id)| (name.clone(), state.files[id].bytes.len() as u64)).collect()
    }

    fn file(&self, id: u64) -> Arc<dyn DiskFile> {
        let mut state = self.state.lock();
        // The power may have been cut since the file was found.
        if let Some(contents) = state.files.get_mut(&id) {
            contents.handles += 1;
        }
        Arc::new(MemoryFile { disk: self.clone(), id, life: state.life })
    }

    async fn released(&self) {
        wait_for_release(&self.held).await;
    }
}

async fn wait_for_release(held: &watch::Sender<bool>) {
    // The sender lives as long as the disk.
    let _ = held.subscribe().wait_for(|held| !held).await;
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Created { name, id } => {
                names.insert(name, id);
            }
            Self::Removed { name, id } => remove_if(names, &name, id),
            Self::Renamed { from, to, id } => {
                remove_if(names, &from, id);
                names.insert(to, id);
            }
        }
    }
}

/// Removes a name that belongs to the file `id`.
fn remove_if(names: &mut BTreeMap<String, u64>, name: &str, id: u64) {
    if names.get(name) == Some(&id) {
        names.remove(name);
    }
}

impl Contents {
    fn write(&mut self, offset: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len();
        if self.bytes.len() < end {
            // A gap reads as zeros, which reach the disk like any other bytes.
            self.set_len(end);
        }
        self.bytes[offset..end].copy_from_slice(data);
        self.unsynced.extend(offset / SECTOR..end.div_ceil(SECTOR));
    }

    fn set_len(&mut self, length: usize) {
        let (shorter, longer) = (self.bytes.len().min(length), self.bytes.len().max(length));
        self.bytes.resize(length, 0);
        self.unsynced.extend(shorter / SECTOR..longer.div_ceil(SECTOR));
    }

    /// Makes durable what was written since the last sync, and nothing else: what an earlier failed sync lost stays
    /// lost.
    fn sync(&mut self) {
        self.durable.resize(self.bytes.len(), 0);
        for sector in std::mem::take(&mut self.unsynced) {
            copy_sector(&self.bytes, &mut self.durable, sector);
        }
    }

    fn lose_power(&mut self, random: &SeededRandom) {
        let mut survived = std::mem::take(&mut self.durable);
        if self.bytes.len() < survived.len() && random.below(2) == 0 {
            survived.truncate(self.bytes.len());
        }
        for sector in std::mem::take(&mut self.unsynced) {
            if random.below(2) == 0 {
                copy_sector(&self.bytes, &mut survived, sector);
            }
        }
        self.durable = survived.clone();
        self.bytes = survived;
    }
}

/// Copies what `from` has of a sector; `to` grows as needed.
fn copy_sector(from: &[u8], to: &mut Vec<u8>, sector: usize) {
    let (start, end) = (sector * SECTOR, from.len().min((sector + 1) * SECTOR));
    if start < end {
        to.resize(to.len().max(end), 0);
        to[start..end].copy_from_slice(&from[start..end]);
    }
}

fn missing(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{name} does not exist"))
}

#[async_trait]
impl Disk for MemoryDisk {
    async fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let id = {
            let mut state = self.state()?;
            if let Some(kind) = state.fail_creates.or(state.fail_writes) {
                return Err(kind.into());
            }
            if state.names.contains_key(name) {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{name} exists")));
            }
            let id = state.next_file;
            state.next_file += 1;
            state.names.insert(name.to_owned(), id);
            state.unsynced_names.push(NameChange::Created { name: name.to_owned(), id });
            state.files.insert(id, Contents::default());
            id
        };
        Ok(self.file(id))
    }

    async fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let id = self.state()?.names.get(name).copied();
        Ok(self.file(id.ok_or_else(|| missing(name))?))
    }

    async fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state()?.names.keys().cloned().collect())
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state()?;
        let id = state.names.get(name).copied().ok_or_else(|| missing(name))?;
        if state.fail_removes {
            return Err(io::Error::other("the disk could not remove a file"));
        }
        state.names.remove(name);
        state.unname(id);
        state.unsynced_names.push(NameChange::Removed { name: name.to_owned(), id });
        Ok(())
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state()?;
        let id = state.names.remove(from).ok_or_else(|| missing(from))?;
        if let Some(replaced) = state.names.insert(to.to_owned(), id) {
            state.unname(replaced);
        }
        state.unsynced_names.push(NameChange::Renamed { from: from.to_owned(), to: to.to_owned(), id });
        Ok(())
    }

    async fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.state()?;
        if state.fail_directory_syncs > 0 {
            state.fail_directory_syncs -= 1;
            return Err(io::Error::other("the disk could not sync the directory"));
        }
        state.durable_names = state.names.clone();
        state.unsynced_names.clear();
        Ok(())
    }

    async fn space(&self) -> io::Result<DiskSpace> {
        wait_for_release(&self.held_space).await;
        let state = self.state()?;
        let used = state.used_bytes();
        Ok(DiskSpace { total: state.size.max(state.capacity), free: state.capacity.saturating_sub(used) })
    }

    fn label(&self) -> String {
        "memory".to_owned()
    }
}

impl MemoryFile {
    fn with<T>(&self, work: impl FnOnce(&mut State, u64) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state.lock();
        if state.life != self.life || !state.files.contains_key(&self.id) {
            return Err(io::Error::other("the power went"));
        }
        work(&mut state, self.id)
    }

    async fn sync(&self) -> io::Result<()> {
        self.disk.released().await;
        self.with(|state, id| {
            state.syncs += 1;
            let failed = state.fail_syncs > 0;
            state.fail_syncs = state.fail_syncs.saturating_sub(1);
            let contents = state.files.get_mut(&id).expect("looked up before");
            if failed {
                contents.unsynced.clear();
                return Err(io::Error::other("the disk could not sync"));
            }
            contents.sync();
            Ok(())
        })
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.life != self.life {
            return;
        }
        let Some(contents) = state.files.get_mut(&self.id) else { return };
        contents.handles -= 1;
        if contents.handles == 0 {
            state.unnamed.remove(&self.id);
        }
    }
}

#[async_trait]
impl DiskFile for MemoryFile {
    async fn write_at(&self, offset: u64, data: Vec<Bytes>, sync: bool) -> io::Result<()> {
        self.with(|state, id| {
            if let Some(kind) = state.fail_writes {
                return Err(kind.into());
            }
            let mut free = state.capacity.saturating_sub(state.used_bytes());
            let contents = state.files.get_mut(&id).expect("looked up before");
            let mut offset = offset as usize;
            for buffer in data {
                let grown = (offset + buffer.len()).saturating_sub(contents.bytes.len()) as u64;
                free = free.checked_sub(grown).ok_or(io::ErrorKind::StorageFull)?;
                contents.write(offset, &buffer);
                offset += buffer.len();
            }
            Ok(())
        })?;
        if sync { self.sync().await } else { Ok(()) }
    }

    async fn read_at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        self.with(|state, id| {
            let bytes = &state.files[&id].bytes;
            let start = (offset as usize).min(bytes.len());
            let end = (start + length).min(bytes.len());
            if state.unreadable.get(&id).is_some_and(|bad| bad.start < end && start < bad.end) {
                return Err(io::Error::other("the disk could not read"));
            }
            Ok(Bytes::copy_from_slice(&bytes[start..end]))
        })
    }

    async fn sync_data(&self) -> io::Result<()> {
        self.sync().await
    }

    async fn set_len(&self, length: u64) -> io::Result<()> {
        self.with(|state, id| {
            let contents = state.files.get_mut(&id).expect("looked up before");
            contents.set_len(length as usize);
            Ok(())
        })
    }

    async fn len(&self) -> io::Result<u64> {
        self.with(|state, id| Ok(state.files[&id].bytes.len() as u64))
    }
}

#[cfg(test)]
mod tests;
