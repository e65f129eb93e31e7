//! A disk that is slow, completes in any order, and fails on request.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_env::disk::memory::MemoryDisk;
use forebay_env::{Clock, Disk, DiskFile, DiskSpace};
use futures::executor::block_on;
use parking_lot::Mutex;

use crate::world::World;

/// What happens to the next operations.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DiskFaults {
    pub(crate) slow: bool,
    /// How many fail with an I/O error.
    pub(crate) reads: u32,
    pub(crate) writes: u32,
    /// How many files can't be created because no descriptor is left.
    pub(crate) creates: u32,
}

/// One simulated disk, shared by clones.
#[derive(Clone)]
pub(crate) struct SimDisk {
    pub(crate) inner: MemoryDisk,
    pub(crate) faults: Arc<Mutex<DiskFaults>>,
    world: Arc<World>,
    pub(crate) number: usize,
    /// Bytes that the file system has when nobody else takes any.
    file_system: u64,
}

struct SimFile {
    inner: Arc<dyn DiskFile>,
    disk: SimDisk,
    name: String,
}

impl SimDisk {
    pub(crate) fn new(world: Arc<World>, number: usize, file_system: u64) -> Self {
        Self { inner: MemoryDisk::new(file_system), faults: Arc::default(), world, number, file_system }
    }

    /// Another disk with the same files and the same number.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new(Arc::clone(&self.world), self.number, self.file_system);
        let copy_files = async {
            for name in self.inner.list().await? {
                let bytes = self.inner.contents(&name).unwrap_or_default();
                copy.inner.create(&name).await?.write_at(0, vec![bytes.into()], true).await?;
            }
            copy.inner.sync_directory().await
        };
        block_on(copy_files).expect("disks in memory");
        copy
    }

    /// Ends all that was wrong, as a new disk controller would.
    pub(crate) fn mend(&self) {
        *self.faults.lock() = DiskFaults::default();
        self.inner.fail_syncs(0);
        self.inner.set_capacity(self.file_system);
    }

    /// Others take all of the file system but `room` bytes, or with `None` nothing any more.
    pub(crate) async fn leave_room(&self, room: Option<u64>) {
        self.inner.set_capacity(self.file_system);
        if let (Some(room), Ok(space)) = (room, self.inner.space().await) {
            self.inner.set_capacity((space.total - space.free).saturating_add(room).min(self.file_system));
        }
    }

    /// Flips a bit of some segment or snapshot; says which.
    pub(crate) async fn flip_bit(&self) -> Option<String> {
        let names = self.inner.list().await.ok()?;
        let name = names.get(self.world.below(names.len().max(1) as u64) as usize)?;
        let length = self.inner.contents(name)?.len() as u64;
        if length == 0 {
            return None;
        }
        let offset = self.world.below(length) as usize;
        self.inner.flip_bit(name, offset, self.world.below(8) as u8);
        Some(format!("disk {} {name} at {offset}", self.number))
    }

    /// Takes up to `micros` microseconds. A slow disk takes a thousand times as long, and stands still now and then.
    async fn delay(&self, micros: u64) {
        let is_slow = self.faults.lock().slow;
        let micros = self.world.below(micros) * if is_slow { 1000 } else { 1 };
        if is_slow && self.world.once_in(50) {
            let stands_still = Duration::from_secs(self.world.below(60));
            self.world.clock.sleep(stands_still).await;
        }
        self.world.clock.sleep(Duration::from_micros(micros)).await;
    }

    fn done<T>(&self, what: &str, name: &str, result: io::Result<T>) -> io::Result<T> {
        let error = result.as_ref().err().map(io::Error::kind);
        self.world.note(format_args!("disk {} {what} {name} {error:?}", self.number));
        result
    }

    fn wrap(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(SimFile { inner: file, disk: self.clone(), name: name.to_owned() })
    }
}

/// Takes one failure off a count.
fn fails(count: &mut u32) -> io::Result<()> {
    if *count == 0 {
        return Ok(());
    }
    *count -= 1;
    Err(io::Error::other("the disk failed"))
}

#[async_trait]
impl Disk for SimDisk {
    async fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.delay(300).await;
        let failed = fails(&mut self.faults.lock().creates);
        let result = match failed {
            Ok(()) => self.inner.create(name).await.map(|file| self.wrap(name, file)),
            Err(_) => Err(io::ErrorKind::ResourceBusy.into()),
        };
        self.done("create", name, result)
    }

    async fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let result = self.inner.open(name).await.map(|file| self.wrap(name, file));
        self.done("open", name, result)
    }

    async fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list().await
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        self.delay(300).await;
        let result = self.inner.remove(name).await;
        self.done("remove", name, result)
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.delay(300).await;
        let result = self.inner.rename(from, to).await;
        self.done("rename", from, result)
    }

    async fn sync_directory(&self) -> io::Result<()> {
        self.delay(2000).await;
        let result = self.inner.sync_directory().await;
        self.done("sync directory", "", result)
    }

    async fn space(&self) -> io::Result<DiskSpace> {
        self.inner.space().await
    }

    fn label(&self) -> String {
        format!("disk {}", self.number)
    }
}

#[async_trait]
impl DiskFile for SimFile {
    /// Bytes are there at once or only at the end: concurrent reads and syncs must not count on either.
    async fn write_at(&self, offset: u64, data: Vec<Bytes>, sync: bool) -> io::Result<()> {
        let length: usize = data.iter().map(Bytes::len).sum();
        if self.disk.world.once_in(2) {
            self.disk.delay(300).await;
        }
        let failed = fails(&mut self.disk.faults.lock().writes);
        let result = match failed {
            Ok(()) => self.inner.write_at(offset, data, false).await,
            Err(error) => Err(error),
        };
        self.disk.delay(300).await;
        self.disk.done("write", &format!("{} {offset}+{length}", self.name), result)?;
        if sync { self.sync_data().await } else { Ok(()) }
    }

    async fn read_at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        self.disk.delay(200).await;
        let failed = fails(&mut self.disk.faults.lock().reads);
        let result = match failed {
            Ok(()) => self.inner.read_at(offset, length).await,
            Err(error) => Err(error),
        };
        self.disk.done("read", &format!("{} {offset}+{length}", self.name), result)
    }

    /// Takes what was written when it begins, or when it ends.
    async fn sync_data(&self) -> io::Result<()> {
        let early = self.disk.world.once_in(2);
        if !early {
            self.disk.delay(3000).await;
        }
        let result = self.inner.sync_data().await;
        if early {
            self.disk.delay(3000).await;
        }
        self.disk.done("sync", &self.name, result)
    }

    async fn set_len(&self, length: u64) -> io::Result<()> {
        self.disk.delay(300).await;
        let result = self.inner.set_len(length).await;
        self.disk.done("set length", &self.name, result)
    }

    async fn len(&self) -> io::Result<u64> {
        self.inner.len().await
    }
}
