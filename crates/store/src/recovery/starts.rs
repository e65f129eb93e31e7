//! Which start of the store each directory has seen last. This tells an older copy of a directory, which lacks later
//! changes, from the newest one, when it is given together with the others.
//!
//! A start announces itself in all directories. It then records in all of them which directories have the announcement,
//! and changes nothing before that. So when a directory has such a record, every directory that the record names either
//! has this start, or is an older copy.

use std::io;

use bytes::Bytes;
use forebay_env::{Disk, Env};
use serde::{Deserialize, Serialize};

use crate::ids::DirectoryId;
use crate::segment::lacks_room;
use crate::small_file::Format;
use crate::{Error, ErrorKind, Result};

pub(crate) const FORMAT: Format = Format { name: "starts", what: "the count of starts", magic: b"FBST", version: 1 };

/// A start, as the file holds it. With the same directories, it always has the same length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// Whether all of `directories` have recorded this start.
    is_known: bool,
    /// Grows from start to start. It is the time in milliseconds since the Unix epoch, or one more than the last number
    /// if that is higher. So it grows even when all files were removed.
    number: u64,
    /// Random, because two copies of a store may both have a start of this number.
    id: [u8; 8],
    /// Numbers of the directories that take part.
    directories: Vec<u16>,
}

/// The last start that a directory has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Start(Start),
    /// There is no file: the directory is new, or was last started by an older release.
    Nothing,
    /// The file is damaged.
    Unclear,
}

/// A directory of the store, as a start finds it.
#[derive(Debug)]
pub(crate) struct Witness {
    pub(crate) label: String,
    pub(crate) id: DirectoryId,
    pub(crate) number: u16,
    pub(crate) seen: Seen,
}

impl Seen {
    /// # Errors
    /// `Invalid` when the file's version is newer than this code; `Failed` when the disk can't read.
    pub(crate) async fn read(disk: &dyn Disk, names: &[String]) -> Result<Self> {
        match FORMAT.read(disk, names).await {
            Ok(start) => Ok(start.map_or(Self::Nothing, Self::Start)),
            Err(error) if error.kind == ErrorKind::Corrupt => {
                tracing::warn!(directory = disk.label(), %error, "this start cannot tell whether the directory is an older copy");
                Ok(Self::Unclear)
            }
            Err(error) => Err(Error { context: format!("{}: {}", disk.label(), error.context), ..error }),
        }
    }

    fn start(&self) -> Option<&Start> {
        match self {
            Self::Start(start) => Some(start),
            Self::Nothing | Self::Unclear => None,
        }
    }
}

impl Start {
    /// The start after all that any directory has seen.
    pub(crate) fn after(seen: &[Witness], directories: Vec<u16>, env: &Env) -> Self {
        let last = seen.iter().filter_map(|witness| Some(witness.seen.start()?.number)).max().unwrap_or(0);
        let number = last.saturating_add(1).max(env.clock.unix_ms());
        Self { is_known: false, number, id: env.random.next_u64().to_le_bytes(), directories }
    }

    /// The record that these directories have seen the start.
    pub(crate) fn known_to(self, directories: Vec<u16>) -> Self {
        Self { is_known: true, directories, ..self }
    }

    /// Writes the file. Needs no additional room where there is a file of the same length.
    pub(crate) async fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        match FORMAT.replace(disk, self).await {
            Err(error) if lacks_room(&error) => self.overwrite(disk).await.map_err(|_| error),
            replaced => replaced,
        }
    }

    /// Overwrites the file in place. A crash may leave it damaged, which counts as [`Seen::Unclear`].
    async fn overwrite(&self, disk: &dyn Disk) -> io::Result<()> {
        let bytes: Bytes = FORMAT.encode(self);
        let file = disk.open(FORMAT.name).await?;
        if file.len().await? != bytes.len() as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.write_at(0, vec![bytes], true).await
    }
}

/// Looks for older copies of directories.
///
/// # Errors
/// `Invalid` when there is one, or when two directories were each started without the other.
pub(crate) fn check(witnesses: &[Witness]) -> Result<()> {
    let known =
        witnesses.iter().filter_map(|witness| Some((witness, witness.seen.start().filter(|start| start.is_known)?)));
    let Some((newest, last)) = known.max_by_key(|(_, start)| start.number) else { return Ok(()) };
    for Witness { label, id, seen, .. } in witnesses.iter().filter(|one| last.directories.contains(&one.number)) {
        let has_seen = match seen {
            Seen::Unclear => continue,
            Seen::Start(start) if start.number > last.number => continue,
            Seen::Start(start) if start.number == last.number && start.id == last.id => continue,
            Seen::Start(start) if start.number == last.number => {
                let newest = &newest.label;
                let problem = format!(
                    "{label}: {newest} belongs to the same store, and each of them was started without the other. Remove the one whose data is out of date from store.data_dirs; emptied, it can be added again"
                );
                return Err(Error::new(ErrorKind::Invalid, problem));
            }
            Seen::Start(start) => format!("the last start that it has seen is {}", start.number),
            Seen::Nothing => format!("it has no file `{}`", FORMAT.name),
        };
        let problem = format!(
            "{label}: an older copy of this directory: {has_seen}, and {} has seen that it took part in start {}. What was written since is in the newest copy: put that back. If it is gone for good, empty this one and start with --forget-directory {id}; what only it held is then lost",
            newest.label, last.number
        );
        return Err(Error::new(ErrorKind::Invalid, problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(number: u64) -> Start {
        Start { is_known: true, number, id: number.to_le_bytes(), directories: vec![0, 1, 300] }
    }

    fn announced(number: u64) -> Start {
        Start { is_known: false, ..known(number) }
    }

    /// The problem, if any, when the directories 0, 1 and 300 have seen this.
    fn problem(seen: [Seen; 3]) -> Option<String> {
        let witness = |(number, seen): (u16, Seen)| Witness {
            label: format!("d{number}"),
            id: DirectoryId(u64::from(number)),
            number,
            seen,
        };
        let witnesses: Vec<_> = [0, 1, 300].into_iter().zip(seen).map(witness).collect();
        check(&witnesses).err().map(|error| error.to_string())
    }

    #[test]
    fn counts_are_read_back_and_damage_is_seen() {
        let start = known(1_800_000_000_000);
        let bytes = FORMAT.encode(&start);
        crate::record::tests::check_golden("starts", &bytes);
        assert_eq!(FORMAT.decode::<Start>(&bytes).unwrap(), start);
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 4;
            assert_eq!(FORMAT.decode::<Start>(&damaged).unwrap_err().kind, ErrorKind::Corrupt, "byte {at}");
        }
        assert_eq!(FORMAT.encode(&announced(1_800_000_000_001)).len(), bytes.len());
    }

    #[test]
    fn only_what_lacks_a_start_that_it_took_part_in_is_an_older_copy() {
        use Seen::{Nothing, Start, Unclear};
        let without_first = |start: super::Start| super::Start { directories: vec![1, 300], ..start };
        for fine in [
            [Nothing, Nothing, Nothing],
            [Unclear, Start(known(300)), Start(known(300))],
            [Start(known(300)), Start(known(300)), Start(known(300))],
            // A crash while a start announced itself, and one while it recorded which directories have the
            // announcement.
            [Start(announced(301)), Start(known(300)), Start(known(300))],
            [Start(announced(301)), Start(known(301)), Start(announced(301))],
            // One directory could not be written at that start, or was added later.
            [Start(known(299)), Start(without_first(known(300))), Start(without_first(known(300)))],
            [Nothing, Start(without_first(known(300))), Start(announced(301))],
            [
                Start(super::Start { id: [1; 8], ..announced(300) }),
                Start(without_first(known(300))),
                Start(announced(300)),
            ],
        ] {
            assert_eq!(problem(fine.clone()), None, "{fine:?}");
        }
        let older = problem([Start(known(300)), Start(known(300)), Start(known(301))]).expect("d0 is older");
        assert!(older.starts_with("d0: an older copy") && older.contains("is 300, and d300 has seen"), "{older}");
        assert!(older.contains("--forget-directory 0000000000000000;"), "{older}");
        let older = problem([Start(without_first(known(300))), Nothing, Start(announced(301))]).expect("d1 is older");
        assert!(older.starts_with("d1: an older copy") && older.contains("no file `starts`"), "{older}");
        let apart = problem([Start(known(300)), Start(super::Start { id: [8; 8], ..known(300) }), Start(known(300))]);
        assert!(apart.expect("of another copy").contains("each of them was started without the other"));
    }
}
