//! Changes of data directories between two lives: they get another order or other sizes, are added, are missing for one
//! start, or are lost for good. They may also come back as older copies, or after the store has continued without them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_env::Disk;
use forebay_store::DirectoryId;
use futures::executor::block_on;

use crate::disk::SimDisk;
use crate::machine::{LIFE_MAX, Machine};
use crate::plan::{Change, EngineKind};
use crate::rules::Rules;

/// Bytes that a disk reads or fails to read as a whole.
const SECTOR: usize = 512;

/// The name and the bytes of each file of a directory.
type Contents = Vec<(String, Option<Vec<u8>>)>;

impl Machine {
    /// Makes the changes. Those that have no meaning for what the disks hold now are left out.
    pub(crate) async fn change(&self, changes: &[Change]) {
        for change in changes {
            self.world.note(format_args!("change: {change:?}"));
            match change {
                Change::Rotate { by } => {
                    let mut disks = self.disks.lock();
                    let by = by % disks.len();
                    disks.rotate_left(by);
                }
                Change::Add => {
                    let added = self.new_disk();
                    self.disks.lock().push(added);
                }
                Change::Miss { disk } => self.miss(*disk).await,
                Change::Lose { disk, is_replaced } => self.lose(*disk, *is_replaced).await,
                Change::Return => self.bring_back().await,
                Change::OlderCopy { disk } => self.put_back_older_copy(&self.disk(*disk)).await,
                Change::Remove { disk, file } => self.remove(&self.disk(*disk), *file).await,
                Change::Replace => self.replace(),
                Change::Resize(sizes) => *self.sizes.lock() = sizes.clone(),
                Change::SpoilSector { disk, file, sector } => {
                    self.spoil_sector(&self.disk(*disk), *file, *sector).await
                }
            }
        }
    }

    /// The disk of this number, or of the one that there is.
    pub(crate) fn disk(&self, number: usize) -> SimDisk {
        let disks = self.disks.lock();
        disks[number % disks.len()].clone()
    }

    fn new_disk(&self) -> SimDisk {
        let number = self.disks_made.fetch_add(1, Ordering::Relaxed);
        SimDisk::new(Arc::clone(&self.world), number, self.config.file_system)
    }

    /// At first, each write is on several machines. Later, those that are left must have made copies again.
    fn replace(&self) {
        let losses = self.world.replaced.load(Ordering::Relaxed);
        if losses > 0 && self.spare_after.load(Ordering::Relaxed) != losses {
            return;
        }
        self.world.note(format_args!("all disks of machine {} are lost", self.number));
        self.world.replaced.fetch_add(1, Ordering::Relaxed);
        let disks: Vec<_> = self.disks.lock().iter().map(|_| self.new_disk()).collect();
        *self.disks.lock() = disks;
        self.forget.lock().clear();
        self.forgotten.lock().clear();
        self.older_copy.lock().take();
        self.counter.store(0, Ordering::Relaxed);
        self.has_closed.store(false, Ordering::Relaxed);
    }

    /// Whether the last start came to its end: then each directory knows of all others.
    fn all_know_all(&self) -> bool {
        let lists = self.disks.lock().iter().map(|disk| disk.inner.contents("members")).collect::<Vec<_>>();
        lists[0].is_some() && lists.iter().all(|list| *list == lists[0])
    }

    /// A start without one directory, which is back afterwards.
    async fn miss(&self, number: usize) {
        let (missing, others) = self.without(number);
        if others.is_empty() || !self.all_know_all() {
            return;
        }
        let forget = self.forget.lock().clone();
        self.check_refused(&others, &forget, "a directory is missing").await;
        let mut replaced = others;
        replaced.push(self.new_disk());
        self.check_refused(&replaced, &forget, &format!("an empty directory stands for disk {}", missing.number)).await;
    }

    fn without(&self, number: usize) -> (SimDisk, Vec<SimDisk>) {
        let mut others = self.disks.lock().clone();
        let missing = others.remove(number % others.len());
        (missing, others)
    }

    /// A directory is gone for good. After a clean stop, which leaves a snapshot in two directories, what the others
    /// hold is as it was then, and what they do not hold is known to be missing. After another end older versions may
    /// be back, and what was deleted.
    async fn lose(&self, number: usize, is_replaced: bool) {
        let (lost, mut others) = self.without(number);
        let snapshot = lost.inner.contents("snapshot");
        let has_snapshot = others.iter().any(|other| {
            let held = other.inner.contents("snapshot");
            held.is_some() && (snapshot.is_none() || held == snapshot)
        });
        let id = lost.inner.contents("identity").and_then(|identity| id_of(&identity));
        let has_closed = self.has_closed.load(Ordering::Relaxed);
        let had_none = snapshot.is_none() && others.iter().all(|other| other.inner.contents("snapshot").is_none());
        let may_go = !others.is_empty() && (has_snapshot || (had_none && !has_closed));
        let Some(id) = id.filter(|_| may_go && self.all_know_all()) else { return };
        if is_replaced {
            others.push(self.new_disk());
        }
        let forget = self.forget.lock().clone();
        self.check_refused(&others, &forget, "a directory is lost").await;
        self.world.note(format_args!("disk {} is forgotten", lost.number));
        self.world.lost.store(true, Ordering::Relaxed);
        if !has_closed {
            self.world.reverted.store(true, Ordering::Relaxed);
            if self.config.engine == EngineKind::Embedded {
                // Versions of the path policies that were only there.
                *self.world.rules.lock() = Rules::default();
            }
            // It may have been the only trace of a life.
            self.counter.store(0, Ordering::Relaxed);
        }
        self.forget.lock().push(id);
        self.forgotten.lock().push(lost);
        *self.disks.lock() = others;
    }

    /// A directory that the store has continued without.
    async fn bring_back(&self) {
        let Some(back) = self.forgotten.lock().last().cloned() else { return };
        // Else the store has not continued yet.
        if self.all_know_all() && !self.has_just_lost() {
            let mut disks = self.disks.lock().clone();
            disks.push(back);
            self.check_refused(&disks, &[], "a forgotten directory is back").await;
        }
    }

    /// Whether no start has noted yet that the newest of the forgotten directories is forgotten.
    fn has_just_lost(&self) -> bool {
        let of_the_lost = self.forgotten.lock().last().and_then(|lost| lost.inner.contents("members"));
        self.disks.lock().iter().any(|disk| disk.inner.contents("members") == of_the_lost)
    }

    /// A directory as it was before the last start or an earlier one, beside the others as they are.
    async fn put_back_older_copy(&self, disk: &SimDisk) {
        let Some(copy) = self.older_copy.lock().take() else {
            *self.older_copy.lock() = Some(disk.copy());
            return;
        };
        let mut disks = self.disks.lock().clone();
        // Else it may have been damaged, or the last start did not come to its end.
        let may_tell = self.all_know_all() && is_start_known(&disks) && !self.world.is_flipped();
        let Some(newest) = disks.iter_mut().find(|disk| disk.number == copy.number).filter(|_| may_tell) else {
            return;
        };
        let is_older = newest.inner.contents("starts") != copy.inner.contents("starts");
        *newest = copy;
        if is_older && disks.len() > 1 {
            let forget = self.forget.lock().clone();
            self.check_refused(&disks, &forget, "an older copy of a directory stands beside the others").await;
        }
    }

    fn segment_of(&self, disk: &SimDisk, file: usize) -> Option<String> {
        let mut segments = names(disk);
        segments.retain(|name| name.starts_with('0'));
        segments.get(file % segments.len().max(1)).cloned()
    }

    /// A segment is gone. Where that is noticed, it is put back.
    async fn remove(&self, disk: &SimDisk, file: usize) {
        let Some(name) = self.segment_of(disk, file) else { return };
        let bytes = disk.inner.contents(&name).expect("it was listed");
        let remove = async {
            disk.inner.remove(&name).await?;
            disk.inner.sync_directory().await
        };
        block_on(remove).expect("a disk in memory");
        if self.is_noticed(&format!("disk {} {name} is gone", disk.number)).await {
            let put_back = async {
                disk.inner.create(&name).await?.write_at(0, vec![bytes.into()], true).await?;
                disk.inner.sync_directory().await
            };
            block_on(put_back).expect("a disk in memory");
        }
    }

    /// A sector of a segment can't be read any more. Where that is noticed, it can be read again.
    async fn spoil_sector(&self, disk: &SimDisk, file: usize, sector: usize) {
        let Some(name) = self.segment_of(disk, file) else { return };
        let sectors = disk.inner.contents(&name).expect("it was listed").len().div_ceil(SECTOR);
        let from = sector % sectors.max(1) * SECTOR;
        disk.inner.fail_reads_of(&name, from..from + SECTOR);
        if self.is_noticed(&format!("disk {} {name} can't be read at {from}", disk.number)).await {
            disk.inner.fail_reads_of(&name, 0..0);
        } else {
            self.world.spoiled.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a start is refused after such damage; then it must have changed nothing. Else what the segment held may
    /// be missing, and nothing else.
    async fn is_noticed(&self, damage: &str) -> bool {
        let disks = self.disks.lock().clone();
        let forget = self.forget.lock().clone();
        let before = contents(&disks);
        let mut is_refused = false;
        let start = async {
            if let Err(error) = self.open_store(&disks, &forget).await {
                self.world.note(format_args!("refused, since {damage}: {error}"));
                is_refused = true;
            }
        };
        self.process(LIFE_MAX, start).await;
        if !is_refused {
            self.world.note(format_args!("not refused, although {damage}"));
            self.world.lost.store(true, Ordering::Relaxed);
            // It may have been the only trace of a life.
            self.counter.store(0, Ordering::Relaxed);
        } else if contents(&disks) != before {
            self.world.broken(format!("a start that is refused, since {damage}, has changed something"));
        }
        is_refused
    }

    /// A start that must be refused, and change nothing.
    async fn check_refused(&self, disks: &[SimDisk], forget: &[DirectoryId], why: &str) {
        let before = contents(disks);
        let start = async {
            match self.open_store(disks, forget).await {
                Ok(_) => self.world.broken(format!("a start is not refused although {why}")),
                Err(error) => self.world.note(format_args!("refused: {error}")),
            }
        };
        self.process(LIFE_MAX, start).await;
        if contents(disks) != before {
            self.world.broken(format!("a start that is refused since {why} has changed something"));
        }
    }
}

fn contents(disks: &[SimDisk]) -> Vec<Contents> {
    let of_disk =
        |disk: &SimDisk| names(disk).into_iter().map(|name| (name.clone(), disk.inner.contents(&name))).collect();
    disks.iter().map(of_disk).collect()
}

/// Whether each directory has the mark that all know of the last start.
fn is_start_known(disks: &[SimDisk]) -> bool {
    let counts: Vec<_> = disks.iter().map(|disk| disk.inner.contents("starts")).collect();
    // As `docs/on-disk-format.md` has it: known, and of all directories.
    let is_known = |count: &Vec<u8>| count[12] == 1 && usize::from(count[count.len() - 1 - disks.len()]) == disks.len();
    counts[0].as_ref().is_some_and(is_known) && counts.iter().all(|count| *count == counts[0])
}

fn names(disk: &SimDisk) -> Vec<String> {
    block_on(disk.inner.list()).expect("a disk in memory")
}

/// As `docs/on-disk-format.md` has it.
fn id_of(identity: &[u8]) -> Option<DirectoryId> {
    let id = u64::from_le_bytes(identity.get(8..16)?.try_into().ok()?);
    format!("{id:016x}").parse().ok()
}
