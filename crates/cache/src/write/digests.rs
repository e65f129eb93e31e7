//! Hashes of incoming bytes.

use crc_fast::CrcAlgorithm;
use forebay_types::{Algorithm, Checksum};
use forebay_ufs::Hasher;
use md5::{Digest as _, Md5};
use sha2::Sha256;

/// MD5 and any set of checksums over one stream.
pub(crate) struct Digests {
    md5: Md5,
    /// Whether the checksums include MD5. It is computed only once.
    is_md5_checksum: bool,
    payload_sha256: Option<Sha256>,
    checksums: Vec<Hasher>,
}

/// The values after the last byte.
pub(crate) struct Digested {
    pub(crate) md5: [u8; 16],
    pub(crate) payload_sha256: Option<[u8; 32]>,
    pub(crate) checksums: Vec<Checksum>,
}

impl Digests {
    /// `payload_sha256`: whether to compute the hash of `x-amz-content-sha256` as well.
    pub(crate) fn new(algorithms: &[Algorithm], payload_sha256: bool) -> Self {
        let others = algorithms.iter().filter(|algorithm| **algorithm != Algorithm::Md5);
        Self {
            md5: Md5::new(),
            is_md5_checksum: algorithms.contains(&Algorithm::Md5),
            payload_sha256: payload_sha256.then(Sha256::new),
            checksums: others.map(|algorithm| Hasher::new(*algorithm)).collect(),
        }
    }

    pub(crate) fn update(&mut self, data: &[u8]) {
        self.md5.update(data);
        if let Some(sha) = &mut self.payload_sha256 {
            sha.update(data);
        }
        for hasher in &mut self.checksums {
            hasher.update(data);
        }
    }

    pub(crate) fn finish(self) -> Digested {
        let md5: [u8; 16] = self.md5.finalize().into();
        let of_md5 = self.is_md5_checksum.then(|| Checksum { algorithm: Algorithm::Md5, value: md5.to_vec() });
        Digested {
            md5,
            payload_sha256: self.payload_sha256.map(|sha| sha.finalize().into()),
            checksums: self.checksums.into_iter().map(Hasher::finish).chain(of_md5).collect(),
        }
    }
}

/// The checksum of several pieces together, from the checksums and sizes of the pieces. `None` for algorithms that
/// cannot be combined.
pub(crate) fn combine(pieces: &[(Checksum, u64)]) -> Option<Checksum> {
    let algorithm = pieces.first()?.0.algorithm;
    let crc = match algorithm {
        Algorithm::Crc32 => CrcAlgorithm::Crc32IsoHdlc,
        Algorithm::Crc32C => CrcAlgorithm::Crc32Iscsi,
        Algorithm::Crc64Nvme => CrcAlgorithm::Crc64Nvme,
        Algorithm::Sha1
        | Algorithm::Sha256
        | Algorithm::Sha512
        | Algorithm::Md5
        | Algorithm::Xxhash64
        | Algorithm::Xxhash3
        | Algorithm::Xxhash128 => return None,
    };
    let number = |checksum: &Checksum| checksum.value.iter().fold(0_u64, |n, byte| (n << 8) | u64::from(*byte));
    let mut combined = number(&pieces[0].0);
    for (checksum, size) in &pieces[1..] {
        combined = crc_fast::checksum_combine(crc, combined, number(checksum), *size);
    }
    // The low bytes, in network byte order.
    Some(Checksum { algorithm, value: combined.to_be_bytes()[8 - algorithm.bytes()..].to_vec() })
}

/// The checksum of the pieces' checksums, which S3 calls COMPOSITE.
pub(crate) fn composite(pieces: &[Checksum]) -> Option<Checksum> {
    let algorithm = pieces.first()?.algorithm;
    let mut hasher = Hasher::new(algorithm);
    pieces.iter().for_each(|checksum| hasher.update(&checksum.value));
    Some(hasher.finish())
}

/// The MD5 of the binary MD5s of the parts.
pub(crate) fn md5_of_md5s(md5s: impl Iterator<Item = [u8; 16]>) -> [u8; 16] {
    let mut md5 = Md5::new();
    md5s.for_each(|part| md5.update(part));
    md5.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksum_of(algorithm: Algorithm, data: &[u8]) -> Checksum {
        let mut digests = Digests::new(&[algorithm], false);
        digests.update(data);
        digests.finish().checksums.remove(0)
    }

    /// The check values of the CRC catalogue for "123456789", and the hashes of that text by SHA (FIPS 180), MD5 (RFC
    /// 1321) and xxHash (xxhsum 0.8.3).
    #[test]
    fn known_answers() {
        for (algorithm, value) in [
            (Algorithm::Crc32, "cbf43926"),
            (Algorithm::Crc32C, "e3069283"),
            (Algorithm::Crc64Nvme, "ae8b14860a799888"),
            (Algorithm::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
            (Algorithm::Sha256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
            (
                Algorithm::Sha512,
                "d9e6762dd1c8eaf6d61b3c6192fc408d4d6d5f1176d0c29169bc24e71c3f274ad27fcd5811b313d681f7e55ec02d73d499c95455b6b5\
                 bb503acf574fba8ffe85",
            ),
            (Algorithm::Md5, "25f9e794323b453885f5181f1b624d0b"),
            (Algorithm::Xxhash64, "8cb841db40e6ae83"),
            (Algorithm::Xxhash3, "72dcb18b67a17dff"),
            (Algorithm::Xxhash128, "33119477ede5dcd5e9716427681d5860"),
        ] {
            assert_eq!(hex::encode(checksum_of(algorithm, b"123456789").value), value, "{algorithm:?}");
        }
    }

    #[test]
    fn an_md5_is_made_once_for_the_tag_and_the_checksum() {
        let mut digests = Digests::new(&[Algorithm::Crc32, Algorithm::Md5], false);
        assert_eq!(digests.checksums.len(), 1);
        digests.update(b"123456789");
        let digested = digests.finish();
        assert_eq!(digested.checksums[1], Checksum { algorithm: Algorithm::Md5, value: digested.md5.to_vec() });
    }

    #[test]
    fn crcs_of_pieces_combine_to_the_crc_of_the_whole() {
        let data: Vec<u8> = (0..10_000_u32).map(|n| (n * 7 % 251) as u8).collect();
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32C, Algorithm::Crc64Nvme] {
            let pieces: Vec<_> =
                data.chunks(3_333).map(|piece| (checksum_of(algorithm, piece), piece.len() as u64)).collect();
            assert_eq!(combine(&pieces), Some(checksum_of(algorithm, &data)), "{algorithm:?}");
        }
        for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| !algorithm.is_crc()) {
            assert_eq!(combine(&[(checksum_of(algorithm, b"a"), 1)]), None, "{algorithm:?}");
        }
    }
}
