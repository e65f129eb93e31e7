//! The additional checksums of S3 (`x-amz-checksum-*`).

use serde::{Deserialize, Serialize};

/// The algorithms of today's SDKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Algorithm {
    Crc32,
    Crc32C,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    /// What a multipart upload with this algorithm sums up when nobody says otherwise, by S3's table.
    pub fn default_kind(self) -> ChecksumKind {
        match self {
            Self::Crc64Nvme => ChecksumKind::FullObject,
            Self::Crc32 | Self::Crc32C | Self::Sha1 | Self::Sha256 => ChecksumKind::Composite,
        }
    }

    pub const ALL: [Self; 5] = [Self::Crc32, Self::Crc32C, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// The name that S3 uses in `x-amz-checksum-algorithm`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32C => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// The header that carries a value of this algorithm, in lower case.
    pub fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32C => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// Length of a value in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32C => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }
}

/// Whether a value covers the object's bytes, or the checksums of its parts (`COMPOSITE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChecksumKind {
    FullObject,
    /// The checksum of the parts' checksums; S3 writes it with `-` and the number of parts behind.
    Composite,
}

impl ChecksumKind {
    /// As S3 writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::FullObject => "FULL_OBJECT",
            Self::Composite => "COMPOSITE",
        }
    }
}

/// One checksum, as bytes in network order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    pub algorithm: Algorithm,
    pub value: Vec<u8>,
}

impl Checksum {
    /// The value in base64, as S3 sends it.
    pub fn base64(&self) -> String {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(&self.value)
    }

    /// Parses base64; `None` when it is not base64 or has the wrong length for the algorithm.
    pub fn parse(algorithm: Algorithm, base64: &str) -> Option<Self> {
        use base64::Engine as _;
        let value = base64::engine::general_purpose::STANDARD.decode(base64).ok()?;
        (value.len() == algorithm.bytes()).then_some(Self { algorithm, value })
    }
}

/// The checksums stored with an object, all of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksums {
    pub kind: ChecksumKind,
    pub values: Vec<Checksum>,
}

impl Checksums {
    pub fn none() -> Self {
        Self { kind: ChecksumKind::FullObject, values: Vec::new() }
    }

    pub fn get(&self, algorithm: Algorithm) -> Option<&Checksum> {
        self.values.iter().find(|checksum| checksum.algorithm == algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_wrong_length_is_refused() {
        let crc = Checksum { algorithm: Algorithm::Crc32C, value: vec![1, 2, 3, 4] };
        assert_eq!(Checksum::parse(Algorithm::Crc32C, &crc.base64()), Some(crc.clone()));
        assert_eq!(Checksum::parse(Algorithm::Sha1, &crc.base64()), None);
        assert_eq!(Checksum::parse(Algorithm::Crc32C, "????"), None);
    }
}
