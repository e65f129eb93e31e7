//! From a directory to the disk under it, and how much of its time that has had work to do.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Device {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl Device {
    fn of(number: u64) -> Self {
        Self { major: rustix::fs::major(number), minor: rustix::fs::minor(number) }
    }

    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

/// Milliseconds for which each device had requests in flight: the tenth number behind the name in `/proc/diskstats`
/// (kernel documentation, admin-guide/iostats).
pub(super) fn ticks_ms(diskstats: &str) -> HashMap<Device, u64> {
    let device = |line: &str| {
        let mut fields = line.split_whitespace();
        let major = fields.next()?.parse().ok()?;
        let minor = fields.next()?.parse().ok()?;
        Some((Device { major, minor }, fields.nth(10)?.parse().ok()?))
    };
    diskstats.lines().filter_map(device).collect()
}

/// The disk that a directory is on. Partitions count as their whole disk, since they share it; of device mappers and
/// RAIDs the first disk stands for all. `None` where no single device is behind it, as with overlay and network file
/// systems. `root` is `/` but for tests.
pub(crate) fn device_of(directory: &Path, root: &Path) -> Option<Device> {
    let number = fs::metadata(directory).ok()?.dev();
    let device = Device::of(number);
    if device.major != 0 {
        return disk_under(device, root);
    }
    // File systems over several devices, such as btrfs, have numbers of their own; the mount names a real one.
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let source = source_of(&mounts, device)?;
    let number = fs::metadata(source).ok()?.rdev();
    (number != 0).then(|| Device::of(number)).and_then(|device| disk_under(device, root))
}

/// The source of a mount, where it is a device node. proc_pid_mountinfo(5).
fn source_of(mountinfo: &str, device: Device) -> Option<PathBuf> {
    let source = |line: &str| {
        let (mount, rest) = line.split_once(" - ")?;
        let number = Device::parse(mount.split(' ').nth(2)?)?;
        let source = rest.split(' ').nth(1)?;
        (number == device && source.starts_with("/dev/")).then(|| PathBuf::from(source))
    };
    mountinfo.lines().find_map(source)
}

/// How many layers of mappers are looked through: encryption over LVM over RAID over a partition are four.
const LAYERS_MAX: usize = 8;

fn disk_under(mut device: Device, root: &Path) -> Option<Device> {
    for _ in 0..LAYERS_MAX {
        let place = root.join(format!("sys/dev/block/{}:{}", device.major, device.minor));
        let below = if place.join("partition").exists() { whole_disk(&place) } else { first_slave(&place) };
        match below {
            Some(below) => device = below,
            None => return place.exists().then_some(device),
        }
    }
    None
}

/// A partition's directory in sysfs is inside that of its disk.
fn whole_disk(partition: &Path) -> Option<Device> {
    let real = fs::canonicalize(partition).ok()?;
    Device::parse(&fs::read_to_string(real.parent()?.join("dev")).ok()?)
}

fn first_slave(place: &Path) -> Option<Device> {
    let mut slaves: Vec<_> =
        fs::read_dir(place.join("slaves")).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    slaves.sort();
    Device::parse(&fs::read_to_string(slaves.first()?.join("dev")).ok()?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const NVME: Device = Device { major: 259, minor: 0 };

    #[test]
    fn busy_time_is_read_from_lines_of_all_kernels() {
        let stats = " 259       0 nvme0n1 1 2 3 4 5 6 7 8 0 1234 12 0 0 0 0 5 6\n   8       1 sda1 1 2 3 4 5 6 7 8 0 77 12\nshort 1\n";
        let ticks = ticks_ms(stats);
        assert_eq!(ticks.get(&NVME), Some(&1234));
        assert_eq!(ticks.get(&Device { major: 8, minor: 1 }), Some(&77));
        assert_eq!(ticks.len(), 2);
    }

    /// A sysfs with an NVMe disk, its partition, and an encrypted volume over that.
    fn sysfs() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("sys/devices/nvme0n1");
        let (partition, mapper) = (disk.join("nvme0n1p1"), root.path().join("sys/devices/dm-0"));
        fs::create_dir_all(&partition).unwrap();
        fs::create_dir_all(mapper.join("slaves")).unwrap();
        fs::write(disk.join("dev"), "259:0\n").unwrap();
        fs::write(partition.join("dev"), "259:1\n").unwrap();
        fs::write(partition.join("partition"), "1\n").unwrap();
        symlink(&partition, mapper.join("slaves/nvme0n1p1")).unwrap();
        let numbers = root.path().join("sys/dev/block");
        fs::create_dir_all(&numbers).unwrap();
        symlink(&disk, numbers.join("259:0")).unwrap();
        symlink(&partition, numbers.join("259:1")).unwrap();
        symlink(&mapper, numbers.join("253:0")).unwrap();
        root
    }

    #[test]
    fn partitions_and_mappers_lead_to_the_disk_below() {
        let root = sysfs();
        let disk = |major, minor| disk_under(Device { major, minor }, root.path());
        assert_eq!(disk(259, 0), Some(NVME));
        assert_eq!(disk(259, 1), Some(NVME));
        assert_eq!(disk(253, 0), Some(NVME));
        assert_eq!(disk(8, 0), None, "unknown");
    }

    #[test]
    fn a_mount_names_its_device_and_an_overlay_has_none() {
        let mounts = "36 35 0:45 / /data rw,noatime shared:1 - btrfs /dev/nvme0n1p1 rw\n37 35 0:46 / / rw - overlay overlay rw\n";
        let source = |minor| source_of(mounts, Device { major: 0, minor });
        assert_eq!(source(45), Some("/dev/nvme0n1p1".into()));
        assert_eq!((source(46), source(47)), (None, None));
    }
}
