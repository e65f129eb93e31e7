//! Which logs a directory must have: those that the last snapshot does not cover completely. Without this list, a start
//! that lacks one of them would lose acknowledged writes without noticing.

use std::collections::BTreeSet;

use forebay_env::Disk;

use crate::Result;
use crate::small_file::Format;

pub(crate) const FORMAT: Format = Format { name: "logs", what: "the list of logs", magic: b"FBLL", version: 1 };

/// The list of one directory, and its file.
#[derive(Default)]
pub(crate) struct LogList {
    numbers: tokio::sync::Mutex<BTreeSet<u32>>,
}

impl LogList {
    /// Reads the file. `None` when there is none: the directory has had no log yet, or none since an older release.
    ///
    /// # Errors
    /// `Corrupt` and `Invalid` as for every format. `Failed` when the disk can't read.
    pub(crate) async fn read(disk: &dyn Disk, names: &[String]) -> Result<Option<BTreeSet<u32>>> {
        FORMAT.read(disk, names).await
    }

    /// Begins with the logs that the file lists, and with those that it should list.
    pub(crate) async fn begin(&self, listed: impl Iterator<Item = u32>) {
        self.numbers.lock().await.extend(listed);
    }

    /// Adds a log that is on stable storage and has no records yet. From now on, a start notices when the log is
    /// missing.
    pub(crate) async fn add(&self, disk: &dyn Disk, number: u32) -> std::io::Result<()> {
        let mut numbers = self.numbers.lock().await;
        let with = numbers.iter().copied().chain([number]).collect();
        FORMAT.replace(disk, &with).await?;
        *numbers = with;
        Ok(())
    }

    /// Removes the logs before this number from the list: a snapshot covers all of them.
    pub(crate) async fn settle(&self, disk: &dyn Disk, before: u32) -> std::io::Result<()> {
        let mut numbers = self.numbers.lock().await;
        let rest: BTreeSet<u32> = numbers.range(before..).copied().collect();
        if rest.len() < numbers.len() {
            FORMAT.replace(disk, &rest).await?;
            *numbers = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn lists_are_read_back_and_damage_is_seen() {
        let numbers = BTreeSet::from([1, 300, u32::MAX]);
        let bytes = FORMAT.encode(&numbers);
        crate::record::tests::check_golden("logs", &bytes);
        assert_eq!(FORMAT.decode::<BTreeSet<u32>>(&bytes).unwrap(), numbers);
        let damage = |bytes: &[u8]| FORMAT.decode::<BTreeSet<u32>>(bytes).unwrap_err().kind;
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 4;
            assert_eq!(damage(&damaged), ErrorKind::Corrupt, "byte {at}");
            assert_eq!(damage(&bytes[..at]), ErrorKind::Corrupt, "{at} bytes");
        }
    }
}
