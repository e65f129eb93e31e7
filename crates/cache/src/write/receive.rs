//! Incoming bodies: hashed, verified and appended to the store as they arrive.

use bytes::Bytes;
use forebay_store::{Class, Writer};
use forebay_types::limits::PUT_BYTES_MAX;
use forebay_types::{Algorithm, Checksum};
use futures::StreamExt;

use crate::worker::Worker;
use crate::write::digests::{Digested, Digests};
use crate::{Detail, Error, ErrorKind, Incoming, Result};

/// A verified body. Its bytes are in the store, and not visible yet.
pub(crate) struct Received {
    pub(crate) writer: Writer,
    pub(crate) size: u64,
    pub(crate) md5: [u8; 16],
    pub(crate) checksums: Vec<Checksum>,
    /// The bytes, if they are few enough for the memory tier. The writer has the same bytes.
    pub(crate) small: Option<Bytes>,
}

/// The algorithm that S3 uses when a client names none.
pub(crate) const ALGORITHM_DEFAULT: Algorithm = Algorithm::Crc64Nvme;

/// # Errors
/// `EntityTooLarge`, before room is made for the body.
pub(crate) fn check_size(body: &Incoming) -> Result<()> {
    if body.size <= PUT_BYTES_MAX {
        return Ok(());
    }
    let context = format!("a body of {} bytes is above 5 GiB", body.size);
    let detail = Detail::AboveLimit { size: body.size, limit: PUT_BYTES_MAX };
    Err(Error::new(ErrorKind::EntityTooLarge, context).with(detail))
}

impl Worker {
    /// Holds only the bytes that have arrived, and at most one extent of a large body, because the client may be slow.
    ///
    /// # Errors
    /// What is wrong with the body: `IncompleteBody`, `BadDigest`, `PayloadHashMismatch`, `ChecksumMismatch`, `Body`.
    pub(crate) async fn receive(&self, mut body: Incoming, also: Option<Algorithm>) -> Result<Received> {
        let mut writer = self.store.writer(Class::Durable, body.size).await?;
        let mut digests = Digests::new(&algorithms(&body, also), body.sha256.is_some());
        if self.memory.takes(body.size) {
            writer.keep_whole();
        }
        let mut size = 0;
        while let Some(data) = body.stream.next().await {
            let data = data?;
            size += data.len() as u64;
            if size > body.size {
                break;
            }
            digests.update(&data);
            writer.append(data).await?;
        }
        if size != body.size {
            let context = format!("the request announced {} bytes and sent {size}", body.size);
            return Err(Error::new(ErrorKind::IncompleteBody, context));
        }
        let digested = digests.finish();
        verify(body, &digested)?;
        let small = writer.whole();
        Ok(Received { writer, size, md5: digested.md5, checksums: digested.checksums, small })
    }
}

/// The algorithms to compute: those that the client gives or announces, or S3's default if there are none.
fn algorithms(body: &Incoming, also: Option<Algorithm>) -> Vec<Algorithm> {
    let given = body.checksums.iter().map(|checksum| checksum.algorithm);
    let mut algorithms: Vec<_> = given.chain(body.compute.iter().copied()).chain(also).collect();
    if algorithms.is_empty() {
        algorithms.push(ALGORITHM_DEFAULT);
    }
    algorithms.sort_unstable();
    algorithms.dedup();
    algorithms
}

fn verify(body: Incoming, digested: &Digested) -> Result<()> {
    if body.sha256.is_some() && body.sha256 != digested.payload_sha256 {
        return Err(Error::new(ErrorKind::PayloadHashMismatch, "the body does not match x-amz-content-sha256"));
    }
    let mut expected = body.checksums;
    if let Some(trailers) = body.trailers {
        expected.extend(trailers()?);
    }
    compare(digested, body.md5, &expected)
}

fn compare(digested: &Digested, md5: Option<[u8; 16]>, checksums: &[Checksum]) -> Result<()> {
    if let Some(given) = md5.filter(|md5| *md5 != digested.md5) {
        let detail = Detail::Md5 { given, calculated: digested.md5 };
        return Err(Error::new(ErrorKind::BadDigest, "the body does not match Content-MD5").with(detail));
    }
    match checksums.iter().find(|checksum| !digested.checksums.contains(checksum)) {
        None => Ok(()),
        Some(wrong) => Err(Error::checksum_mismatch(wrong.algorithm)),
    }
}

/// Digests of a body that does not go into the cache.
pub struct BodyDigests(Digests);

impl BodyDigests {
    pub fn new(algorithms: &[Algorithm]) -> Self {
        Self(Digests::new(algorithms, false))
    }

    pub fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    /// # Errors
    /// `BadDigest`, `ChecksumMismatch`.
    pub fn verify(self, md5: Option<[u8; 16]>, checksums: &[Checksum]) -> Result<()> {
        compare(&self.0.finish(), md5, checksums)
    }
}
