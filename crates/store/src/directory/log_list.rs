//! Which logs a directory must have: those that the last snapshot does not cover completely. Without this list, a start
//! that lacks one of them would lose acknowledged writes without noticing.

use std::collections::BTreeSet;

use forebay_env::Disk;
use serde::{Deserialize, Serialize};

use crate::small_file::Format;
use crate::{ErrorKind, Result};

pub(crate) const FORMAT: Format = Format { name: "logs", what: "the list of logs", magic: b"FBLL", version: 1 };

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// The logs that the directory must have.
    pub(crate) numbers: BTreeSet<u32>,
    /// The next sequence of the snapshot for which logs were removed from the list. An older snapshot needs them.
    pub(crate) released_by: u64,
}

/// The list of one directory, and its file.
#[derive(Default)]
pub(crate) struct LogList {
    listed: tokio::sync::Mutex<Listed>,
}

impl LogList {
    /// Reads the file. `None` when there is none: the directory has had no log yet, or none since an older release.
    ///
    /// # Errors
    /// `Corrupt` and `Invalid` as for every format. `Failed` when the disk can't read.
    pub(crate) async fn read(disk: &dyn Disk, names: &[String]) -> Result<Option<Listed>> {
        match FORMAT.read(disk, names).await {
            // Older releases write the numbers only.
            Err(error) if error.kind == ErrorKind::Corrupt => {
                let numbers: Option<BTreeSet<u32>> = FORMAT.read(disk, names).await?;
                Ok(numbers.map(|numbers| Listed { numbers, released_by: 0 }))
            }
            read => read,
        }
    }

    /// Begins with the logs that the file lists, and with those that it should list.
    pub(crate) async fn begin(&self, listed: impl Iterator<Item = u32>, released_by: u64) {
        let mut now = self.listed.lock().await;
        now.numbers.extend(listed);
        now.released_by = released_by;
    }

    /// Adds a log that is on stable storage and has no records yet. From now on, a start notices when the log is
    /// missing.
    pub(crate) async fn add(&self, disk: &dyn Disk, number: u32) -> std::io::Result<()> {
        let mut listed = self.listed.lock().await;
        let mut with = listed.clone();
        with.numbers.insert(number);
        FORMAT.replace(disk, &with).await?;
        *listed = with;
        Ok(())
    }

    /// Removes the logs before this number from the list: a snapshot with the next sequence `released_by` covers all of
    /// them.
    pub(crate) async fn settle(&self, disk: &dyn Disk, before: u32, released_by: u64) -> std::io::Result<()> {
        let mut listed = self.listed.lock().await;
        let numbers: BTreeSet<u32> = listed.numbers.range(before..).copied().collect();
        if numbers.len() < listed.numbers.len() {
            let rest = Listed { numbers, released_by: listed.released_by.max(released_by) };
            FORMAT.replace(disk, &rest).await?;
            *listed = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::disk::memory::MemoryDisk;

    use super::*;

    #[test]
    fn lists_are_read_back_and_damage_is_seen() {
        let listed = Listed { numbers: BTreeSet::from([1, 300, u32::MAX]), released_by: (7 << 32) + 5 };
        let bytes = FORMAT.encode(&listed);
        crate::record::tests::check_golden("logs", &bytes);
        assert_eq!(FORMAT.decode::<Listed>(&bytes).unwrap(), listed);
        let damage = |bytes: &[u8]| FORMAT.decode::<Listed>(bytes).unwrap_err().kind;
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 4;
            assert_eq!(damage(&damaged), ErrorKind::Corrupt, "byte {at}");
            assert_eq!(damage(&bytes[..at]), ErrorKind::Corrupt, "{at} bytes");
        }
    }

    #[tokio::test]
    async fn lists_of_numbers_only_stay_readable() {
        let disk = MemoryDisk::default();
        let file = disk.create(FORMAT.name).await.unwrap();
        let bytes = include_bytes!("../../golden/logs.numbers");
        file.write_at(0, vec![bytes.as_slice().into()], true).await.unwrap();
        let listed = LogList::read(&disk, &[FORMAT.name.to_owned()]).await.unwrap().unwrap();
        assert_eq!(listed, Listed { numbers: BTreeSet::from([1, 300, u32::MAX]), released_by: 0 });
        // Older releases read the numbers, and nothing behind them.
        let now = FORMAT.encode(&Listed { released_by: 9, ..listed.clone() });
        assert_eq!(FORMAT.decode::<BTreeSet<u32>>(&now).unwrap(), listed.numbers);
    }
}
