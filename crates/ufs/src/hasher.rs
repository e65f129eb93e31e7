//! Checksums over bytes as they pass.

use crc_fast::{CrcAlgorithm, Digest as Crc};
use forebay_types::{Algorithm, Checksum};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// One checksum over one stream.
pub struct Hasher {
    algorithm: Algorithm,
    state: State,
}

enum State {
    Crc(Box<Crc>),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Hasher {
    pub fn new(algorithm: Algorithm) -> Self {
        let crc = |algorithm| State::Crc(Box::new(Crc::new(algorithm)));
        let state = match algorithm {
            Algorithm::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc),
            Algorithm::Crc32C => crc(CrcAlgorithm::Crc32Iscsi),
            Algorithm::Crc64Nvme => crc(CrcAlgorithm::Crc64Nvme),
            Algorithm::Sha1 => State::Sha1(Sha1::new()),
            Algorithm::Sha256 => State::Sha256(Sha256::new()),
        };
        Self { algorithm, state }
    }

    pub fn update(&mut self, data: &[u8]) {
        match &mut self.state {
            State::Crc(crc) => crc.update(data),
            State::Sha1(sha) => sha.update(data),
            State::Sha256(sha) => sha.update(data),
        }
    }

    pub fn finish(self) -> Checksum {
        let value = match self.state {
            // The low bytes in network order.
            State::Crc(crc) => crc.finalize().to_be_bytes()[8 - self.algorithm.bytes()..].to_vec(),
            State::Sha1(sha) => sha.finalize().to_vec(),
            State::Sha256(sha) => sha.finalize().to_vec(),
        };
        Checksum { algorithm: self.algorithm, value }
    }
}
