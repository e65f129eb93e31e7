//! Records, the contents of segments. The layout is documented in `docs/on-disk-format.md`.
//!
//! A record is a head and a payload. The head is a fixed header, a body that depends on the kind, and a table of CRC32C
//! values, one per block of the payload. One CRC32C covers the whole head. So a reader of any part of the payload reads
//! the head and the blocks that it touches, and verifies both.

pub(crate) mod abort;
pub(crate) mod commit;
pub(crate) mod extent;
pub(crate) mod location;
pub(crate) mod object;
pub(crate) mod scan;

use bytes::{BufMut, Bytes, BytesMut};
use crc_fast::CrcAlgorithm;

use crate::{Error, ErrorKind, Result};

/// "FBR1" as it stands in a file.
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"FBR1");

/// Version of the format of records. Readers refuse a newer one.
pub(crate) const VERSION: u8 = 1;

/// Bytes of the fixed header.
pub(crate) const HEADER_BYTES: usize = 48;

/// Bytes of payload that one checksum covers. Small, so that a range read verifies little more than it returns.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;

/// Bytes of the checksum of one block.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// Records begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;

/// Limits what a reader allocates for a head, whatever the disk says.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 20;

/// Limits the payload of one record in the same way.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Object = 1,
    Extent = 2,
    Commit = 3,
    Abort = 4,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Object, Self::Extent, Self::Commit, Self::Abort].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A record that has no place in a segment yet.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) kind: Kind,
    pub(crate) body: Bytes,
    pub(crate) payload: Bytes,
}

/// The fixed header, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) head_bytes: usize,
    pub(crate) payload_bytes: usize,
    /// Binds the record to its segment, so that left-over bytes of an earlier file are never taken for it.
    pub(crate) segment: u64,
    pub(crate) sequence: u64,
    /// Everything before this offset of the segment was durable when the record was written.
    pub(crate) durable_before: u64,
    body_bytes: usize,
}

/// A verified head.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) header: Header,
    pub(crate) body: Bytes,
    checksums: Bytes,
}

pub(crate) fn crc32c(data: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, data) as u32
}

fn corrupt(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, problem)
}

impl Draft {
    /// A record with a longer head would be written, and never be read.
    ///
    /// # Errors
    /// `TooLarge`.
    pub(crate) fn check(&self) -> Result<()> {
        match self.head_bytes() {
            bytes if bytes <= HEAD_BYTES_MAX => Ok(()),
            bytes => {
                let problem =
                    format!("a record of {bytes} bytes beside its data is longer than {HEAD_BYTES_MAX} bytes");
                Err(Error::new(ErrorKind::TooLarge, problem))
            }
        }
    }

    pub(crate) fn head_bytes(&self) -> usize {
        HEADER_BYTES + self.body.len() + CHECKSUM_BYTES * self.payload.len().div_ceil(BLOCK_BYTES)
    }

    /// Bytes in the segment, with padding.
    pub(crate) fn total_bytes(&self) -> usize {
        (self.head_bytes() + self.payload.len()).next_multiple_of(ALIGNMENT)
    }

    /// The record's buffers, in order.
    pub(crate) fn encode(&self, segment: u64, sequence: u64, durable_before: u64) -> Vec<Bytes> {
        let mut head = BytesMut::with_capacity(self.head_bytes());
        head.put_u32_le(MAGIC);
        head.put_u8(self.kind as u8);
        head.put_u8(VERSION);
        head.put_u16_le(0);
        head.put_u32_le(self.head_bytes() as u32);
        head.put_u32_le(self.payload.len() as u32);
        head.put_u32_le(self.body.len() as u32);
        head.put_u32_le(0);
        head.put_u64_le(segment);
        head.put_u64_le(sequence);
        head.put_u64_le(durable_before);
        head.put_slice(&self.body);
        self.payload.chunks(BLOCK_BYTES).for_each(|block| head.put_u32_le(crc32c(block)));
        let crc = crc32c(&head);
        head[20..24].copy_from_slice(&crc.to_le_bytes());
        let padding = self.total_bytes() - self.head_bytes() - self.payload.len();
        vec![head.freeze(), self.payload.clone(), Bytes::from_static(&[0; ALIGNMENT][..padding])]
    }
}

/// The length of the head that begins here, according to its first bytes. Later versions keep magic, version, this
/// length, the checksum and the binding at the same offsets, so damage is never taken for a newer format.
fn head_bytes_of(bytes: &[u8]) -> Result<usize> {
    if bytes.len() < HEADER_BYTES || word(bytes, 0) != MAGIC {
        return Err(corrupt("no record begins here"));
    }
    let head_bytes = word(bytes, 8) as usize;
    let is_possible = (HEADER_BYTES..=HEAD_BYTES_MAX).contains(&head_bytes);
    if is_possible { Ok(head_bytes) } else { Err(corrupt("a record's head has an impossible length")) }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Header {
    /// Decodes the fixed header of a head whose checksum was verified.
    fn decode(bytes: &[u8]) -> Result<Self> {
        let word = |at| word(bytes, at);
        let long = |at| long(bytes, at);
        if bytes[5] > VERSION {
            let problem = format!(
                "a record has the format version {}, and this release reads up to {VERSION}: start the newer release that wrote it",
                bytes[5]
            );
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        let kind = Kind::from_byte(bytes[4]).ok_or_else(|| corrupt(format!("unknown kind of record {}", bytes[4])))?;
        let (head_bytes, payload_bytes, body_bytes) = (word(8) as usize, word(12) as usize, word(16) as usize);
        let sizes_fit = payload_bytes <= PAYLOAD_BYTES_MAX
            && head_bytes == HEADER_BYTES + body_bytes + CHECKSUM_BYTES * payload_bytes.div_ceil(BLOCK_BYTES);
        if !sizes_fit {
            return Err(corrupt("the sizes of a record do not fit each other"));
        }
        let (segment, sequence, durable_before) = (long(24), long(32), long(40));
        Ok(Self { kind, head_bytes, payload_bytes, segment, sequence, durable_before, body_bytes })
    }

    /// Bytes in the segment, with padding.
    pub(crate) fn total_bytes(&self) -> u64 {
        (self.head_bytes + self.payload_bytes).next_multiple_of(ALIGNMENT) as u64
    }
}

impl Head {
    /// How many bytes [`Head::decode`] needs, according to the first [`HEADER_BYTES`].
    ///
    /// # Errors
    /// `Corrupt` when no record begins here.
    pub(crate) fn bytes_needed(first: &[u8]) -> Result<usize> {
        head_bytes_of(first)
    }

    /// Whether a record that is bound to this segment may begin here, according to the first [`HEADER_BYTES`]. Clients
    /// do not know bindings, so the bytes of an object do not look like this.
    pub(crate) fn may_begin(first: &[u8], segment: u64) -> bool {
        first.len() >= HEADER_BYTES && word(first, 0) == MAGIC && long(first, 24) == segment
    }

    /// Verifies a head.
    ///
    /// # Errors
    /// `Corrupt` when no sound head begins here. `Invalid` when it is sound, but its version is newer than this code.
    pub(crate) fn decode(bytes: &Bytes) -> Result<Self> {
        let head_bytes = head_bytes_of(bytes)?;
        if bytes.len() < head_bytes {
            return Err(corrupt("the head of a record is cut off"));
        }
        let bytes = bytes.slice(..head_bytes);
        let mut checked = bytes.to_vec();
        checked[20..24].fill(0);
        if crc32c(&checked) != word(&bytes, 20) {
            return Err(corrupt("the checksum of a record's head does not hold"));
        }
        let header = Header::decode(&bytes)?;
        let body_end = HEADER_BYTES + header.body_bytes;
        Ok(Self { body: bytes.slice(HEADER_BYTES..body_end), checksums: bytes.slice(body_end..), header })
    }

    /// Verifies whole blocks of the payload. `data` begins at block `first`.
    ///
    /// # Errors
    /// `Corrupt` when the checksum of a block does not match.
    pub(crate) fn verify(&self, first: usize, data: &[u8]) -> Result<()> {
        for (index, block) in data.chunks(BLOCK_BYTES).enumerate() {
            let at = CHECKSUM_BYTES * (first + index);
            let expected = self
                .checksums
                .get(at..at + CHECKSUM_BYTES)
                .map(|crc| u32::from_le_bytes(crc.try_into().expect("four bytes")));
            if expected != Some(crc32c(block)) {
                return Err(corrupt(format!("the checksum of block {} of a record does not hold", first + index)));
            }
        }
        Ok(())
    }
}

/// Encodes a body.
pub(crate) fn encode_body<T: serde::Serialize>(body: &T) -> Bytes {
    postcard::to_stdvec(body).expect("memory takes every body").into()
}

/// Decodes a body whose checksum was verified.
pub(crate) fn decode_body<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|error| corrupt(format!("the body of a record can't be decoded: {error}")))
}

#[cfg(test)]
pub(crate) mod tests;
