//! Which start of the store a directory has seen last. So an older copy of a directory is told from the newest one, whose changes it
//! lacks, when it stands beside the others.
//!
//! A start announces itself in all directories, then marks itself as known to all of them, and changes nothing before. So beside a
//! directory that has the mark, none can have an earlier start but an older copy.

use forebay_env::{Disk, Env};
use serde::{Deserialize, Serialize};

use crate::small_file::Format;
use crate::{Error, ErrorKind, Result};

pub(crate) const FORMAT: Format = Format { name: "starts", what: "the count of starts", magic: b"FBST", version: 1 };

/// A start, as the file has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    number: u64,
    /// Random: two copies of a store may both have a start of this number.
    id: u64,
    is_known_to_all: bool,
}

impl Start {
    /// What a directory has seen last. `None` when it does not tell: it has seen none since an older release, or the file is damaged.
    ///
    /// # Errors
    /// `Invalid` when the file's version is newer than this code; `Failed` when the disk can't read.
    pub(crate) async fn read(disk: &dyn Disk, names: &[String]) -> Result<Option<Self>> {
        match FORMAT.read(disk, names).await {
            Err(error) if error.kind == ErrorKind::Corrupt => {
                tracing::warn!(directory = disk.label(), %error, "an older copy of the directory would not be noticed");
                Ok(None)
            }
            read => read.map_err(|error| Error { context: format!("{}: {}", disk.label(), error.context), ..error }),
        }
    }

    /// The one after all that any directory has seen.
    pub(crate) fn after(seen: impl Iterator<Item = Self>, env: &Env) -> Self {
        let last = seen.map(|start| start.number).max().unwrap_or(0);
        Self { number: last.saturating_add(1), id: env.random.next_u64(), is_known_to_all: false }
    }

    pub(crate) fn known_to_all(self) -> Self {
        Self { is_known_to_all: true, ..self }
    }

    pub(crate) async fn write(&self, disk: &dyn Disk) -> std::io::Result<()> {
        FORMAT.replace(disk, self).await
    }
}

/// What directories of the store, by their labels, have seen last.
///
/// # Errors
/// `Invalid` when one of them is an older copy, or two were started without each other.
pub(crate) fn check(seen: &[(String, Option<Start>)]) -> Result<()> {
    let known_to_all =
        seen.iter().filter_map(|(label, start)| Some((label, start.filter(|start| start.is_known_to_all)?)));
    let Some((newest, last)) = known_to_all.max_by_key(|(_, start)| start.number) else { return Ok(()) };
    for (label, start) in seen {
        let Some(start) = start else {
            tracing::warn!(
                directory = label,
                file = FORMAT.name,
                "the directory does not tell which start it has seen last: an older copy would not be noticed"
            );
            continue;
        };
        let problem = if start.number < last.number {
            format!(
                "{label}: an older copy of this directory: the last start that it has seen is {}, and {newest} has seen start {}. What was written since is in the newest copy: put that back. If it is gone for good, empty this one and start with --forget-directory and its id; what only it held is then lost",
                start.number, last.number
            )
        } else if start.number == last.number && start.id != last.id {
            format!(
                "{label}: {newest} belongs to the same store, and each of them was started without the other. Take out the one whose data is out of date"
            )
        } else {
            continue;
        };
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Start = Start { number: 300, id: 0x1234_5678_9abc_def0, is_known_to_all: true };

    fn check_all(seen: &[Option<Start>]) -> Option<String> {
        let labels = ["a", "b", "c"].map(str::to_owned);
        let seen: Vec<_> = labels.into_iter().zip(seen.iter().copied()).collect();
        check(&seen).err().map(|error| error.to_string())
    }

    #[test]
    fn counts_are_read_back_and_damage_is_seen() {
        let bytes = FORMAT.encode(&START);
        crate::record::tests::check_golden("starts", &bytes);
        assert_eq!(FORMAT.decode::<Start>(&bytes).unwrap(), START);
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 4;
            assert_eq!(FORMAT.decode::<Start>(&damaged).unwrap_err().kind, ErrorKind::Corrupt, "byte {at}");
        }
    }

    #[test]
    fn only_what_lacks_a_start_that_all_knew_is_an_older_copy() {
        let announced = Start { number: 301, id: 7, is_known_to_all: false };
        for fine in [
            vec![None, None],
            vec![Some(START), None],
            vec![Some(START), Some(START)],
            // A crash while a start announced itself, and while it marked itself as known.
            vec![Some(announced), Some(START), Some(START)],
            vec![Some(announced), Some(announced.known_to_all())],
            // A directory that could not be written at that start.
            vec![Some(announced), Some(announced), Some(Start { number: 17, is_known_to_all: false, ..START })],
        ] {
            assert_eq!(check_all(&fine), None, "{fine:?}");
        }
        let older = check_all(&[Some(START), Some(START), Some(announced.known_to_all())]).expect("a is older");
        assert!(older.starts_with("a: an older copy") && older.contains("is 300, and c has seen start 301"), "{older}");
        let apart = check_all(&[Some(START), Some(Start { id: 8, ..START })]).expect("of another copy");
        assert!(apart.contains("each of them was started without the other"), "{apart}");
    }
}
