//! Checksums over bytes as they pass.

use std::hash::Hasher as _;

use crc_fast::{CrcAlgorithm, Digest as Crc};
use forebay_types::{Algorithm, Checksum};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};
use twox_hash::{XxHash3_64, XxHash3_128, XxHash64};

/// One checksum over one stream.
pub struct Hasher {
    algorithm: Algorithm,
    state: State,
}

enum State {
    Crc(Box<Crc>),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
    Md5(Md5),
    Xxhash64(XxHash64),
    // In a box for their size: they hold a block of their input.
    Xxhash3(Box<XxHash3_64>),
    Xxhash128(Box<XxHash3_128>),
}

/// As Amazon S3 has it.
const XXHASH_SEED: u64 = 0;

impl Hasher {
    pub fn new(algorithm: Algorithm) -> Self {
        let crc = |algorithm| State::Crc(Box::new(Crc::new(algorithm)));
        let state = match algorithm {
            Algorithm::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc),
            Algorithm::Crc32C => crc(CrcAlgorithm::Crc32Iscsi),
            Algorithm::Crc64Nvme => crc(CrcAlgorithm::Crc64Nvme),
            Algorithm::Sha1 => State::Sha1(Sha1::new()),
            Algorithm::Sha256 => State::Sha256(Sha256::new()),
            Algorithm::Sha512 => State::Sha512(Sha512::new()),
            Algorithm::Md5 => State::Md5(Md5::new()),
            Algorithm::Xxhash64 => State::Xxhash64(XxHash64::with_seed(XXHASH_SEED)),
            Algorithm::Xxhash3 => State::Xxhash3(Box::new(XxHash3_64::with_seed(XXHASH_SEED))),
            Algorithm::Xxhash128 => State::Xxhash128(Box::new(XxHash3_128::with_seed(XXHASH_SEED))),
        };
        Self { algorithm, state }
    }

    pub fn update(&mut self, data: &[u8]) {
        match &mut self.state {
            State::Crc(crc) => crc.update(data),
            State::Sha1(sha) => sha.update(data),
            State::Sha256(sha) => sha.update(data),
            State::Sha512(sha) => sha.update(data),
            State::Md5(md5) => md5.update(data),
            State::Xxhash64(xxhash) => xxhash.write(data),
            State::Xxhash3(xxhash) => xxhash.write(data),
            State::Xxhash128(xxhash) => xxhash.write(data),
        }
    }

    pub fn finish(self) -> Checksum {
        let value = match self.state {
            // The low bytes in network order.
            State::Crc(crc) => crc.finalize().to_be_bytes()[8 - self.algorithm.bytes()..].to_vec(),
            State::Sha1(sha) => sha.finalize().to_vec(),
            State::Sha256(sha) => sha.finalize().to_vec(),
            State::Sha512(sha) => sha.finalize().to_vec(),
            State::Md5(md5) => md5.finalize().to_vec(),
            State::Xxhash64(xxhash) => xxhash.finish().to_be_bytes().to_vec(),
            State::Xxhash3(xxhash) => xxhash.finish().to_be_bytes().to_vec(),
            State::Xxhash128(xxhash) => xxhash.finish_128().to_be_bytes().to_vec(),
        };
        Checksum { algorithm: self.algorithm, value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(algorithm: Algorithm, pieces: &[&[u8]]) -> String {
        let mut hasher = Hasher::new(algorithm);
        pieces.iter().for_each(|piece| hasher.update(piece));
        hex::encode(hasher.finish().value)
    }

    /// "abc" in FIPS 180-4 and RFC 1321; the empty text in the tests of xxHash 0.8.3 and, in base64, what Amazon S3
    /// tells of empty objects: versity/versitygw#2102. Of 768 bytes, aws-crt 0.38.0, which has another implementation:
    /// they take the long way of XXH3.
    #[test]
    fn known_answers() {
        let long: Vec<u8> = (0..768_u32).map(|n| n as u8).collect();
        for (algorithm, text, value) in [
            (
                Algorithm::Sha512,
                b"abc".as_slice(),
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643c\
                 e80e2a9ac94fa54ca49f",
            ),
            (Algorithm::Md5, b"abc", "900150983cd24fb0d6963f7d28e17f72"),
            (Algorithm::Xxhash64, b"", "ef46db3751d8e999"),
            (Algorithm::Xxhash3, b"", "2d06800538d394c2"),
            (Algorithm::Xxhash128, b"", "99aa06d3014798d86001c324468d497f"),
            (Algorithm::Xxhash64, &long, "8e03c838c596036f"),
            (Algorithm::Xxhash3, &long, "4066a57f4496584a"),
            (Algorithm::Xxhash128, &long, "a9ee10cbf43517e44066a57f4496584a"),
        ] {
            assert_eq!(of(algorithm, &[text]), value, "{algorithm:?}");
            let (first, last) = text.split_at(text.len() / 3);
            assert_eq!(of(algorithm, &[first, last]), value, "{algorithm:?} in two pieces");
        }
    }

    #[test]
    fn a_value_is_as_long_as_its_algorithm_says() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Hasher::new(algorithm).finish().value.len(), algorithm.bytes(), "{algorithm:?}");
        }
    }
}
