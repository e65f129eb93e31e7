//! Small files that are replaced as a whole: magic, version, the CRC32C of everything else, and a body.

use bytes::Bytes;
use forebay_env::Disk;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::record::{crc32c, decode_body, encode_body};
use crate::{Error, ErrorKind, Result};

/// Bytes of magic, version and checksum.
const START_BYTES: usize = 12;

/// Limits what is read of such a file, whatever the disk says.
const BYTES_MAX: usize = 16 << 20;

/// The name of a kind of file, and how it begins.
pub(crate) struct Format {
    pub(crate) name: &'static str,
    /// For error messages.
    pub(crate) what: &'static str,
    pub(crate) magic: &'static [u8; 4],
    pub(crate) version: u32,
}

impl Format {
    pub(crate) fn encode<T: Serialize>(&self, body: &T) -> Bytes {
        let body = encode_body(body);
        let start = [self.magic.as_slice(), &self.version.to_le_bytes()].concat();
        let crc = crc32c(&[start.as_slice(), &body].concat());
        [start.as_slice(), &crc.to_le_bytes(), &body].concat().into()
    }

    /// # Errors
    /// `Corrupt` when it is damaged, `Invalid` when its version is newer than this code.
    pub(crate) fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let is_sound = bytes.len() >= START_BYTES
            && &bytes[..4] == self.magic
            && crc32c(&[&bytes[..8], &bytes[START_BYTES..]].concat()) == word(8);
        if !is_sound {
            return Err(Error::new(ErrorKind::Corrupt, format!("{} is damaged", self.what)));
        }
        let (found, known) = (word(4), self.version);
        if found > known {
            let problem = format!(
                "{} has the format version {found}, and this release reads up to {known}: start the newer release that wrote it",
                self.what
            );
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        decode_body(&bytes[START_BYTES..])
    }

    /// `None` when there is no such file.
    ///
    /// # Errors
    /// As [`Format::decode`]; `Failed` when the disk can't read.
    pub(crate) async fn read<T: DeserializeOwned>(&self, disk: &dyn Disk, names: &[String]) -> Result<Option<T>> {
        if !names.iter().any(|name| name == self.name) {
            return Ok(None);
        }
        let read = async { disk.open(self.name).await?.read_at(0, BYTES_MAX).await };
        let bytes = read.await.map_err(|error| Error::io(format!("could not read {}", self.what), error))?;
        self.decode(&bytes).map(Some)
    }

    pub(crate) async fn replace<T: Serialize>(&self, disk: &dyn Disk, body: &T) -> std::io::Result<()> {
        replace(disk, self.name, self.encode(body)).await
    }
}

/// Replaces a file. The new one is on stable storage when this returns. After a crash, one of the two is there.
pub(crate) async fn replace(disk: &dyn Disk, name: &str, bytes: Bytes) -> std::io::Result<()> {
    let temporary = format!("{name}.new");
    match disk.remove(&temporary).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    disk.create(&temporary).await?.write_at(0, vec![bytes], true).await?;
    disk.rename(&temporary, name).await?;
    disk.sync_directory().await
}
