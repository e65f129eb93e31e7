//! The additional checksums of S3 (`x-amz-checksum-*`).

use serde::{Deserialize, Serialize};

/// The algorithms of today's SDKs. Records on disk hold the index: new ones come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Algorithm {
    Crc32,
    Crc32C,
    Crc64Nvme,
    Sha1,
    Sha256,
    Sha512,
    Md5,
    Xxhash64,
    /// XXH3 of 64 bits.
    Xxhash3,
    /// XXH3 of 128 bits.
    Xxhash128,
}

impl Algorithm {
    /// What a multipart upload with this algorithm sums up when nobody says otherwise, by S3's table.
    pub fn default_kind(self) -> ChecksumKind {
        match self {
            Self::Crc64Nvme => ChecksumKind::FullObject,
            Self::Crc32
            | Self::Crc32C
            | Self::Sha1
            | Self::Sha256
            | Self::Sha512
            | Self::Md5
            | Self::Xxhash64
            | Self::Xxhash3
            | Self::Xxhash128 => ChecksumKind::Composite,
        }
    }

    /// Whether a checksum of the whole can be made of those of the parts: by S3's table, those alone have the type.
    pub fn is_crc(self) -> bool {
        match self {
            Self::Crc32 | Self::Crc32C | Self::Crc64Nvme => true,
            Self::Sha1 | Self::Sha256 | Self::Sha512 | Self::Md5 | Self::Xxhash64 | Self::Xxhash3 | Self::Xxhash128 => {
                false
            }
        }
    }

    /// Whether S3 has had the algorithm only since 2026: servers, SDKs and releases of Forebay from before do not know
    /// it.
    pub fn is_of_2026(self) -> bool {
        match self {
            Self::Crc32 | Self::Crc32C | Self::Crc64Nvme | Self::Sha1 | Self::Sha256 => false,
            Self::Sha512 | Self::Md5 | Self::Xxhash64 | Self::Xxhash3 | Self::Xxhash128 => true,
        }
    }

    pub const ALL: [Self; 10] = [
        Self::Crc32,
        Self::Crc32C,
        Self::Crc64Nvme,
        Self::Sha1,
        Self::Sha256,
        Self::Sha512,
        Self::Md5,
        Self::Xxhash64,
        Self::Xxhash3,
        Self::Xxhash128,
    ];

    /// The name that S3 uses in `x-amz-checksum-algorithm`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32C => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
            Self::Md5 => "MD5",
            Self::Xxhash64 => "XXHASH64",
            Self::Xxhash3 => "XXHASH3",
            Self::Xxhash128 => "XXHASH128",
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
            Self::Sha512 => "x-amz-checksum-sha512",
            Self::Md5 => "x-amz-checksum-md5",
            Self::Xxhash64 => "x-amz-checksum-xxhash64",
            Self::Xxhash3 => "x-amz-checksum-xxhash3",
            Self::Xxhash128 => "x-amz-checksum-xxhash128",
        }
    }

    /// The algorithm whose values a header carries, by its name in lower case.
    pub fn from_header(name: &str) -> Option<Self> {
        // Few of a request's headers begin so.
        let is_one = name.starts_with("x-amz-checksum-");
        is_one.then(|| Self::ALL.into_iter().find(|algorithm| algorithm.header() == name)).flatten()
    }

    /// Length of a value in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32C => 4,
            Self::Crc64Nvme | Self::Xxhash64 | Self::Xxhash3 => 8,
            Self::Md5 | Self::Xxhash128 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
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

    /// `None` when there are no checksums.
    pub fn names(&self) -> Option<ChecksumNames> {
        ChecksumNames::of(self.kind, self.values.iter().map(|checksum| checksum.algorithm))
    }
}

/// Which checksums an object has, without their values: what listings show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksumNames {
    pub kind: ChecksumKind,
    /// One bit for each algorithm, by its index.
    algorithms: u16,
}

impl ChecksumNames {
    /// `None` for no algorithms.
    pub fn of(kind: ChecksumKind, algorithms: impl IntoIterator<Item = Algorithm>) -> Option<Self> {
        let algorithms = algorithms.into_iter().fold(0, |all, algorithm| all | bit(algorithm));
        (algorithms != 0).then_some(Self { kind, algorithms })
    }

    pub fn algorithms(self) -> impl Iterator<Item = Algorithm> {
        Algorithm::ALL.into_iter().filter(move |algorithm| self.algorithms & bit(*algorithm) != 0)
    }
}

fn bit(algorithm: Algorithm) -> u16 {
    1 << algorithm as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_keeps_its_index_on_disk() {
        let indices: Vec<u8> =
            Algorithm::ALL.iter().flat_map(|algorithm| postcard::to_stdvec(algorithm).unwrap()).collect();
        assert_eq!(indices, (0..10).collect::<Vec<u8>>());
    }

    #[test]
    fn names_are_of_the_algorithms_and_take_three_bytes_on_disk() {
        for algorithm in Algorithm::ALL {
            let names = ChecksumNames::of(ChecksumKind::Composite, [algorithm]).unwrap();
            assert_eq!(names.algorithms().collect::<Vec<_>>(), [algorithm]);
            assert!(postcard::to_stdvec(&names).unwrap().len() <= 3);
        }
        let all = ChecksumNames::of(ChecksumKind::FullObject, Algorithm::ALL).unwrap();
        assert_eq!(all.algorithms().collect::<Vec<_>>(), Algorithm::ALL);
        assert_eq!(Checksums::none().names(), None);
    }

    #[test]
    fn base64_of_the_wrong_length_is_refused() {
        let crc = Checksum { algorithm: Algorithm::Crc32C, value: vec![1, 2, 3, 4] };
        assert_eq!(Checksum::parse(Algorithm::Crc32C, &crc.base64()), Some(crc.clone()));
        assert_eq!(Checksum::parse(Algorithm::Sha1, &crc.base64()), None);
        assert_eq!(Checksum::parse(Algorithm::Crc32C, "????"), None);
    }
}
