//! The limits of this machine's disk and processor, which measurements of a server are compared with.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crc_fast::CrcAlgorithm;
use forebay_env::Clock;
use forebay_types::ByteSize;
use hdrhistogram::Histogram;
use md5::{Digest, Md5};
use rustix::fs::{Advice, OFlags};
use serde::Serialize;
use sha2::Sha256;

use crate::cli::LimitsOptions;
use crate::failure::Failure;
use crate::payload::Payload;
use crate::report::Latency;

/// Bytes of one streaming write or read.
const BLOCK_BYTES: usize = 1 << 20;
/// Concurrent streaming writes and reads.
const DEPTH: usize = 8;
/// Most bytes that are streamed: more than the caches inside disks that have no power-loss protection.
const STREAM_BYTES_MAX: u64 = 4 << 30;
/// One part in this many of the free space may be used for a moment.
const FREE_SHARE: u64 = 4;
/// O_DIRECT requires memory, offsets and lengths in multiples of the logical block, which is at most 4 KiB.
const ALIGNMENT: usize = 4096;
/// An append is a record of a log: 64 MiB is far above any.
const APPEND_BYTES_MAX: u64 = 64 << 20;

/// Measures, and prints a line for each limit.
///
/// # Errors
/// When the directory can't be written, or an option is wrong.
pub(crate) fn run(options: &LimitsOptions) -> Result<(), Failure> {
    if !(1..=APPEND_BYTES_MAX).contains(&options.size.0) {
        return Err(Failure::Refused(format!("--obj.size {}: give 1 B to 64 MiB", options.size)));
    }
    let directory = &options.directory;
    if !directory.is_dir() {
        return Err(Failure::Refused(format!("--directory {}: is not a directory", directory.display())));
    }
    let measure = Measure { clock: forebay_env::Env::real().clock, duration: options.duration };
    let limits = measure.all(options).map_err(|error| Failure::of(directory.display(), &error))?;
    limits.print(options.size);
    if let Some(file) = &options.json {
        let json = serde_json::to_string_pretty(&limits).expect("numbers can be written");
        std::fs::write(file, json).map_err(|error| Failure::of(file.display(), &error))?;
    }
    Ok(())
}

/// Latencies in milliseconds, speeds in bytes per second.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Limits {
    append_ms: Latency,
    direct_write_bytes_per_second: f64,
    direct_read_bytes_per_second: f64,
    sha256_bytes_per_second: f64,
    md5_bytes_per_second: f64,
    crc32c_bytes_per_second: f64,
}

impl Limits {
    fn print(&self, size: ByteSize) {
        let (p50, p99) = (self.append_ms.p50 * 1e3, self.append_ms.p99 * 1e3);
        println!("append {size} and fdatasync, one at once: p50 {p50:.0} us, p99 {p99:.0} us");
        println!("O_DIRECT writes of 1 MiB, {DEPTH} at once: {:.0} MB/s", self.direct_write_bytes_per_second / 1e6);
        println!("O_DIRECT reads of 1 MiB, {DEPTH} at once: {:.0} MB/s", self.direct_read_bytes_per_second / 1e6);
        println!("SHA-256, one core: {:.0} MB/s", self.sha256_bytes_per_second / 1e6);
        println!("MD5, one core: {:.0} MB/s", self.md5_bytes_per_second / 1e6);
        println!("CRC32C, one core: {:.0} MB/s", self.crc32c_bytes_per_second / 1e6);
    }
}

struct Measure {
    clock: Arc<dyn Clock>,
    duration: Duration,
}

impl Measure {
    fn all(&self, options: &LimitsOptions) -> io::Result<Limits> {
        let append = self.appends(&options.directory, options.size.0 as usize)?;
        let (write, read) = self.streams(&options.directory)?;
        Ok(Limits {
            append_ms: Latency::of(&append),
            direct_write_bytes_per_second: write,
            direct_read_bytes_per_second: read,
            sha256_bytes_per_second: self.hashing(|data| {
                std::hint::black_box(Sha256::digest(data));
            }),
            md5_bytes_per_second: self.hashing(|data| {
                std::hint::black_box(Md5::digest(data));
            }),
            crc32c_bytes_per_second: self.hashing(|data| {
                std::hint::black_box(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, data));
            }),
        })
    }

    /// Latencies, in nanoseconds, of appends that are each synced before the next one.
    fn appends(&self, directory: &Path, size: usize) -> io::Result<Histogram<u64>> {
        let file = nameless(directory, OFlags::empty())?;
        let payload = bytes(size);
        let mut latencies = Histogram::new(3).expect("three digits are valid");
        let start = self.clock.monotonic();
        let (mut now, mut offset) = (start, 0);
        while now < start + self.duration {
            file.write_all_at(&payload, offset)?;
            file.sync_data()?;
            offset += size as u64;
            let end = self.clock.monotonic();
            latencies.record((end - now).as_nanos() as u64).expect("the histogram grows");
            now = end;
        }
        Ok(latencies)
    }

    /// Bytes per second, written and read, bypassing the page cache.
    fn streams(&self, directory: &Path) -> io::Result<(f64, f64)> {
        let file = nameless(directory, OFlags::DIRECT)?;
        let space = rustix::fs::statvfs(directory)?;
        let blocks = (space.f_bavail * space.f_frsize / FREE_SHARE).min(STREAM_BYTES_MAX) / BLOCK_BYTES as u64;
        if blocks < DEPTH as u64 {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "too little free space to measure with"));
        }
        let (write, written) = self.stream(blocks, |block, offset| file.write_all_at(block, offset))?;
        file.sync_data()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        let (read, _) = self.stream(written, |block, offset| file.read_exact_at(block, offset))?;
        Ok((write, read))
    }

    /// Moves blocks, [`DEPTH`] at once, until all are moved or the time is over. Returns bytes per second, and how many
    /// blocks were moved.
    fn stream(&self, blocks: u64, moved: impl Fn(&mut [u8], u64) -> io::Result<()> + Sync) -> io::Result<(f64, u64)> {
        let mut memory = vec![bytes(BLOCK_BYTES + ALIGNMENT); DEPTH];
        let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let start = self.clock.monotonic();
        // Each thread moves at least one block.
        let work = |memory: &mut [u8]| -> io::Result<()> {
            let aligned = memory.as_ptr().align_offset(ALIGNMENT);
            let block = &mut memory[aligned..aligned + BLOCK_BYTES];
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= blocks {
                    return Ok(());
                }
                moved(block, number * BLOCK_BYTES as u64)?;
                done.fetch_add(1, Ordering::Relaxed);
                if self.clock.monotonic() >= start + self.duration {
                    return Ok(());
                }
            }
        };
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = memory.iter_mut().map(|memory| scope.spawn(move || work(memory))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<_>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().try_for_each(join)
        })?;
        let seconds = (self.clock.monotonic() - start).as_secs_f64();
        let blocks = done.into_inner();
        Ok(((blocks * BLOCK_BYTES as u64) as f64 / seconds, blocks))
    }

    /// Bytes per second of one thread.
    fn hashing(&self, hash: impl Fn(&[u8])) -> f64 {
        let data = bytes(BLOCK_BYTES);
        let (start, mut total) = (self.clock.monotonic(), 0);
        loop {
            // Otherwise the compiler may see that the result is always the same.
            hash(std::hint::black_box(&data));
            total += data.len();
            let elapsed = self.clock.monotonic() - start;
            if elapsed >= self.duration {
                return total as f64 / elapsed.as_secs_f64();
            }
        }
    }
}

/// Bytes that no disk can compress.
fn bytes(length: usize) -> Vec<u8> {
    let payload = Payload::new(1);
    let content = Payload::content("", 0, length as u64);
    payload.slices(content, 0, length as u64).flatten().copied().collect()
}

/// Opens a file without a name, so that it is gone whatever happens to this process.
fn nameless(directory: &Path, more: OFlags) -> io::Result<File> {
    let flags = (OFlags::TMPFILE | more).bits() as i32;
    OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_measured_and_nothing_is_left() {
        // Next to the binary, because a file system in memory may not support O_DIRECT.
        let directory =
            std::env::current_exe().unwrap().parent().unwrap().join(format!("limits-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let measure = Measure { clock: forebay_env::Env::real().clock, duration: Duration::from_millis(50) };
        let appends = measure.appends(&directory, 100).unwrap();
        // Two system calls are not done in a microsecond.
        assert!(appends.value_at_percentile(50.0) > 1000 && appends.max() < 60_000_000_000, "{appends:?}");
        let (write, read) = measure.streams(&directory).unwrap();
        assert!(write > 0.0 && read > 0.0);
        assert!(
            measure.hashing(|data| {
                std::hint::black_box(Sha256::digest(data));
            }) > 1e6
        );
        // This fails when the directory is not empty.
        std::fs::remove_dir(&directory).unwrap();
    }
}
