//! How fast the disk under a directory is.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use forebay_env::Env;
use forebay_env::random::SeededRandom;
use rustix::fs::{Advice, OFlags};
use tokio_util::sync::CancellationToken;

use super::filesystem::present;
use super::report::{Report, Unit};

/// What is written and read back at most: more than the caches inside of disks that have no power-loss protection.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Less tells nothing of bandwidth.
const FILE_BYTES_MIN: u64 = 16 << 20;
/// Of the free space, this share may be used for a moment: a server beside must not run out of it.
const FREE_SHARE: u64 = 4;
/// Longest time for writing, for reading, and for each kind of sync.
const TIME_MAX: Duration = Duration::from_secs(2);
/// One write or read.
const BLOCK_BYTES: usize = 1 << 20;
/// O_DIRECT wants memory, offsets and lengths in multiples of the logical block, which is 4 KiB at most.
const ALIGNMENT: usize = 4096;
/// A small object with its record.
const COMMIT_BYTES: usize = 16 << 10;
/// Commits that share one sync when many clients write at once.
const GROUP: usize = 32;
/// Enough for a 99th percentile.
const SYNCS_MAX: usize = 200;
/// A sync that takes longer than this at the median is that of a spinning disk or of a far volume; the limit for one in
/// a hundred is five times as much.
const SYNC_P50_MAX: Duration = Duration::from_millis(10);
const SYNC_P99_MAX: Duration = Duration::from_millis(50);

/// What was measured.
struct Figures {
    write: f64,
    read: f64,
    /// Of one commit each, and of groups.
    single: Latencies,
    grouped: Latencies,
}

struct Latencies {
    p50: Duration,
    p99: Duration,
}

pub(super) async fn measure(directory: &Path, env: &Env, stop: &CancellationToken, report: &mut Report) {
    let name = directory.display().to_string();
    let Ok(place) = present(directory) else { return };
    let (env, stop) = (env.clone(), stop.clone());
    let measured = tokio::task::spawn_blocking(move || figures(&place, &env, &stop)).await;
    let figures = match measured {
        Ok(Ok(figures)) => figures,
        Ok(Err(error)) => return report.find("disk-not-measured", &name, error.to_string()),
        Err(error) => return report.find("disk-not-measured", &name, error.to_string()),
    };
    let Figures { write, read, single, grouped } = figures;
    report.measured("disk-write", &name, write, Unit::BytesPerSecond);
    report.measured("disk-read", &name, read, Unit::BytesPerSecond);
    for (name_p50, name_p99, latencies) in
        [("disk-sync-p50", "disk-sync-p99", &single), ("disk-group-sync-p50", "disk-group-sync-p99", &grouped)]
    {
        report.measured(name_p50, &name, latencies.p50.as_secs_f64(), Unit::Seconds);
        report.measured(name_p99, &name, latencies.p99.as_secs_f64(), Unit::Seconds);
    }
    report.measured("disk-commits", &name, GROUP as f64 / grouped.p50.as_secs_f64().max(1e-9), Unit::PerSecond);
    if single.p50 > SYNC_P50_MAX || single.p99 > SYNC_P99_MAX {
        let [p50, p99] = [single.p50, single.p99].map(|time| Unit::Seconds.show(time.as_secs_f64()));
        report.find("disk-sync-slow", &name, format!("{p50} at the median, {p99} for one in a hundred"));
    }
}

/// Whole blocks that may be written.
fn room(directory: &Path) -> io::Result<u64> {
    let space = rustix::fs::statvfs(directory)?;
    let blocks = (space.f_bavail * space.f_frsize / FREE_SHARE).min(FILE_BYTES_MAX) / BLOCK_BYTES as u64;
    let bytes = blocks * BLOCK_BYTES as u64;
    if bytes < FILE_BYTES_MIN {
        return Err(io::Error::new(io::ErrorKind::StorageFull, "too little free space to measure with"));
    }
    Ok(bytes)
}

/// The files have no names, so that they are gone whatever happens to this process.
fn figures(directory: &Path, env: &Env, stop: &CancellationToken) -> io::Result<Figures> {
    let bytes = room(directory)?;
    let run = Run { env, stop };
    let (write, read) = run.bandwidth(directory, bytes)?;
    let block = Block::random();
    let log = nameless(directory, OFlags::empty(), env)?;
    let single = run.syncs(&log, &block.bytes()[..COMMIT_BYTES])?;
    let grouped = run.syncs(&log, &block.bytes()[..COMMIT_BYTES * GROUP])?;
    Ok(Figures { write, read, single, grouped })
}

/// What reading brings when no cache helps, in bytes per second.
pub(super) async fn read_bandwidth(directory: &Path, env: &Env, stop: &CancellationToken) -> Option<f64> {
    let (directory, env, stop) = (directory.to_owned(), env.clone(), stop.clone());
    let measured = tokio::task::spawn_blocking(move || {
        let (_, read) = Run { env: &env, stop: &stop }.bandwidth(&directory, room(&directory)?)?;
        Ok::<_, io::Error>(read)
    });
    measured.await.ok()?.ok()
}

/// Opens a file that no directory names: by O_TMPFILE, else by taking the name away at once.
fn nameless(directory: &Path, more: OFlags, env: &Env) -> io::Result<File> {
    let open = |flags: OFlags, options: &mut OpenOptions, path: &Path| {
        options.read(true).write(true).mode(0o600).custom_flags(flags.bits() as i32).open(path)
    };
    if let Ok(file) = open(OFlags::TMPFILE | more, &mut OpenOptions::new(), directory) {
        return Ok(file);
    }
    let path = directory.join(format!("forebay-doctor-{}", env.random.hex_id()));
    let file = open(more, OpenOptions::new().create_new(true), &path);
    // Where a flag is refused, the file may have been made nevertheless.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => file,
    }
}

/// Memory that O_DIRECT takes, with content that no disk can compress.
struct Block {
    memory: Vec<u8>,
    start: usize,
}

impl Block {
    fn random() -> Self {
        let memory = SeededRandom::new(0xf0_2e_ba_11).bytes(BLOCK_BYTES + ALIGNMENT);
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        assert!(start < ALIGNMENT, "bytes can be aligned");
        Self { memory, start }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + BLOCK_BYTES]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + BLOCK_BYTES]
    }
}

struct Run<'a> {
    env: &'a Env,
    stop: &'a CancellationToken,
}

impl Run<'_> {
    fn check(&self) -> io::Result<()> {
        if self.stop.is_cancelled() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }

    /// Of writing and of reading back, past the page cache where the file system lets us; else honest by a sync at the
    /// end.
    fn bandwidth(&self, directory: &Path, bytes: u64) -> io::Result<(f64, f64)> {
        let mut block = Block::random();
        let (file, is_direct) = match nameless(directory, OFlags::DIRECT, self.env) {
            Ok(file) if file.write_all_at(block.bytes(), 0).is_ok() => (file, true),
            Ok(_) | Err(_) => (nameless(directory, OFlags::empty(), self.env)?, false),
        };
        let (written, write) = self.blocks(bytes, |at| file.write_all_at(block.bytes(), at), || file.sync_data())?;
        if !is_direct {
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        let (_, read) = self.blocks(written, |at| file.read_exact_at(block.bytes_mut(), at), || Ok(()))?;
        Ok((write, read))
    }

    /// Does a block after the other until `bytes` or the time is over; returns the bytes and bytes per second.
    fn blocks(
        &self,
        bytes: u64,
        mut one: impl FnMut(u64) -> io::Result<()>,
        end: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<(u64, f64)> {
        let began = self.env.clock.monotonic();
        let mut done = 0;
        while done < bytes && self.env.clock.monotonic() - began < TIME_MAX {
            self.check()?;
            one(done)?;
            done += BLOCK_BYTES as u64;
        }
        end()?;
        let took = self.env.clock.monotonic() - began;
        Ok((done, done as f64 / took.as_secs_f64().max(1e-9)))
    }

    /// Appends and syncs, one after the other.
    fn syncs(&self, file: &File, data: &[u8]) -> io::Result<Latencies> {
        let began = self.env.clock.monotonic();
        let mut at = file.metadata()?.len();
        let mut times = Vec::with_capacity(SYNCS_MAX);
        while times.len() < SYNCS_MAX && (times.is_empty() || self.env.clock.monotonic() - began < TIME_MAX) {
            self.check()?;
            let start = self.env.clock.monotonic();
            file.write_all_at(data, at)?;
            file.sync_data()?;
            times.push(self.env.clock.monotonic() - start);
            at += data.len() as u64;
        }
        times.sort();
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        Ok(Latencies { p50: at(0.5), p99: at(0.99) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_examination_ends_and_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        stop.cancel();
        let refused = figures(directory.path(), &Env::real(), &stop).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::Interrupted);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn files_without_a_name_are_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = nameless(directory.path(), OFlags::empty(), &Env::real()).unwrap();
        file.write_all_at(b"text", 0).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_written_is_told() {
        let mut report = Report::default();
        measure(Path::new("/proc/forebay"), &Env::real(), &CancellationToken::new(), &mut report).await;
        assert_eq!(report.findings[0].id, "disk-not-measured");
    }
}
