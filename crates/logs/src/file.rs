//! A file of whole lines. When it reaches its size, it is renamed, and a new one is begun.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Only for the user that the server runs as: the lines contain names of people and of what they keep.
const MODE: u32 = 0o600;

/// Where a log is, and how much of it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSettings {
    pub path: PathBuf,
    /// A file that would grow beyond this is renamed, and a new one begun. 0 means never, because another program does
    /// it.
    pub bytes_max: u64,
    /// Renamed files that are kept: `path.1` is the newest.
    pub files_max: u32,
}

/// The outcome of writing some lines.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Lines that are in no file.
    pub(crate) lost: usize,
    /// The first error.
    pub(crate) error: Option<io::Error>,
}

/// The open file. All calls block on the disk.
pub(crate) struct RotatingFile {
    settings: FileSettings,
    file: File,
    length: u64,
    /// The last write may have left a part of a line that could not be cut off.
    torn: bool,
}

impl RotatingFile {
    /// Opens the file for appending, and creates it if necessary.
    pub(crate) fn open(settings: FileSettings) -> io::Result<Self> {
        let (file, length, torn) = open(&settings.path)?;
        Ok(Self { settings, file, length, torn })
    }

    /// Opens the file again, after another program has renamed it.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.length, self.torn) = open(&self.settings.path)?;
        Ok(())
    }

    /// Appends whole lines. A full file is renamed between two of them. If that fails, the lines go to the old file:
    /// one that is too long is better than none.
    pub(crate) fn write(&mut self, lines: &[String]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut buffer = Vec::new();
        let mut buffered = 0;
        for line in lines {
            let length = self.length + buffer.len() as u64;
            if self.settings.bytes_max > 0 && length > 0 && length + line.len() as u64 > self.settings.bytes_max {
                self.append(&mut buffer, &mut buffered, &mut outcome);
                if let Err(error) = self.rotate() {
                    outcome.error.get_or_insert(error);
                }
            }
            buffer.extend_from_slice(line.as_bytes());
            buffered += 1;
        }
        self.append(&mut buffer, &mut buffered, &mut outcome);
        outcome
    }

    /// Returns when what was written survives a power cut.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Appends the buffer as a whole or not at all, as far as the disk allows.
    fn append(&mut self, buffer: &mut Vec<u8>, buffered: &mut usize, outcome: &mut Outcome) {
        if self.torn && !buffer.is_empty() {
            // The torn part becomes a line of its own, and the next line stays whole.
            buffer.insert(0, b'\n');
        }
        match self.file.write_all(buffer) {
            Ok(()) => {
                self.length += buffer.len() as u64;
                self.torn &= buffer.is_empty();
            }
            Err(error) => {
                self.torn = self.file.set_len(self.length).is_err() || self.torn;
                outcome.lost += *buffered;
                outcome.error.get_or_insert(error);
            }
        }
        buffer.clear();
        *buffered = 0;
    }

    fn rotate(&mut self) -> io::Result<()> {
        let path = self.settings.path.clone();
        // An earlier try may have renamed it and then failed to create the new one. Doing it twice would drop the
        // oldest file twice.
        if path.try_exists()? {
            for number in (1..self.settings.files_max).rev() {
                rename_if_present(&numbered(&path, number), &numbered(&path, number + 1))?;
            }
            rename_if_present(&path, &numbered(&path, 1))?;
        }
        self.reopen()
    }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn rename_if_present(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The file, its length, and whether it ends in the middle of a line, as it may after a crash.
fn open(path: &Path) -> io::Result<(File, u64, bool)> {
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        // Opening a pipe would wait for its reader.
        return Err(io::Error::new(ErrorKind::InvalidInput, "is no regular file"));
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(MODE).open(path)?;
    let length = file.seek(SeekFrom::End(0))?;
    let mut last = [b'\n'];
    if length > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    Ok((file, length, last != [b'\n']))
}

#[cfg(test)]
mod tests;
