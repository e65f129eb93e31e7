//! Checks the part list of a completion, and describes the object that the parts form.

use forebay_catalog::records::{self, PartRecord, UploadRecord};
use forebay_store::Object;
use forebay_types::limits::OBJECT_BYTES_MAX;
use forebay_types::{Algorithm, Checksum, ChecksumKind, Checksums, ETag, ObjectInfo, PartInfo};

use super::{Upload, kind_for};
use crate::worker::Worker;
use crate::write::digests::{combine, composite, md5_of_md5s};
use crate::write::put::described;
use crate::write::receive::ALGORITHM_DEFAULT;
use crate::{Attributes, CompletePart, CompleteUpload, Detail, Error, ErrorKind, LostPart, Result};

/// Whether an upload with this algorithm must name its parts from 1 without gaps: `PartNumber` of `CompletedPart`,
/// Amazon S3 API Reference.
fn is_gapless(algorithm: Algorithm) -> bool {
    use Algorithm::{Crc32, Crc32C, Sha1, Sha256};
    matches!(algorithm, Crc32 | Crc32C | Sha1 | Sha256)
}

/// How often a part of a completion is looked up again because it is uploaded again meanwhile.
const REPLACED_TRIES: usize = 100;

/// A part was uploaded again after its record was read.
#[derive(Debug, thiserror::Error)]
#[error("a newer part was uploaded meanwhile")]
struct ReplacedPart;

/// The new object.
pub(crate) struct Assembled {
    pub(crate) objects: Vec<Object>,
    pub(crate) info: ObjectInfo,
}

impl Worker {
    /// # Errors
    /// `InvalidPart` (with [`LostPart`] where the server has lost it), `InvalidPartOrder`, `EntityTooSmall`,
    /// `EntityTooLarge`, `ChecksumMismatch`, `InvalidArgument`, `InvalidRequest`.
    pub(super) async fn assemble(&self, request: &CompleteUpload, found: &Upload) -> Result<Assembled> {
        let upload = &request.upload;
        check_checksums(request, &found.record)?;
        if request.parts.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "a completion must name at least one part"));
        }
        if request.parts.windows(2).any(|pair| pair[0].number >= pair[1].number) {
            return Err(Error::new(ErrorKind::InvalidPartOrder, "the parts are not in ascending order"));
        }
        let has_gaps = request.parts.iter().zip(1..).any(|(part, number)| part.number != number);
        if has_gaps && found.record.checksum_algorithm.is_some_and(is_gapless) {
            return Err(Error::new(ErrorKind::InvalidPartOrder, "the parts are not numbered from 1 without gaps"));
        }
        let stored = self.parts_of(upload, 0, usize::MAX).await?;
        let mut parts = Vec::with_capacity(request.parts.len());
        for wanted in &request.parts {
            let part = stored.binary_search_by_key(&wanted.number, |(number, _)| *number);
            let record = part.ok().map(|index| &stored[index].1).filter(|record| matches(wanted, record));
            parts.push((wanted.number, record.ok_or_else(|| invalid_part(wanted))?.clone()));
        }
        self.check_sizes(&parts, request.size)?;
        let mut objects = Vec::with_capacity(parts.len());
        for (wanted, (number, record)) in request.parts.iter().zip(&mut parts) {
            if self.may_be_elsewhere(&record.holders) && self.is_lost(&upload.upload_id, *number, record) {
                // A worker that has them may have come back since they were last asked for.
                self.home.missing.remove_part(&upload.upload_id, *number);
                match self.await_bytes(records::part_key(&upload.upload_id, *number), &upload.path).await {
                    // Nobody has them: the client must upload the part again.
                    Err(_) if self.home.missing.has_part(&upload.upload_id, *number) => {}
                    result => result?,
                }
            }
            objects.push(self.newest_part(&upload.upload_id, wanted, record).await?);
        }
        let info = describe(request, found, &parts)?;
        Ok(Assembled { objects, info })
    }

    /// The bytes of a part. When it is uploaded again as it was, `record` becomes the one of the newer bytes.
    async fn newest_part(&self, upload_id: &str, wanted: &CompletePart, record: &mut PartRecord) -> Result<Object> {
        let is_replaced = |error: &Error| error.source.as_ref().is_some_and(|source| source.is::<ReplacedPart>());
        for _ in 0..REPLACED_TRIES {
            match self.part_object(upload_id, wanted.number, record) {
                Err(error) if is_replaced(&error) => {}
                result => return result,
            }
            // The newer bytes may be shown a moment before their record.
            tokio::task::yield_now().await;
            let found = self.catalog.get(&records::part_key(upload_id, wanted.number)).await?;
            let newest = found.map(|found| PartRecord::decode(&found.value)).transpose()?;
            *record = newest.filter(|newest| matches(wanted, newest)).ok_or_else(|| invalid_part(wanted))?;
        }
        // For whatever reason, it is not the part that the client means.
        Err(invalid_part(wanted))
    }

    fn check_sizes(&self, parts: &[(u32, PartRecord)], expected: Option<u64>) -> Result<()> {
        let smallest = self.settings.part_size_min.0;
        if let Some((number, part)) = parts[..parts.len() - 1].iter().find(|(_, part)| part.size < smallest) {
            let context = format!("part {number} is smaller than {smallest} bytes and not the last");
            let (etag, size) = (part.etag.clone(), part.size);
            let detail = Detail::SmallPart { number: *number, etag, size, limit: smallest };
            return Err(Error::new(ErrorKind::EntityTooSmall, context).with(detail));
        }
        let size: u64 = parts.iter().map(|(_, part)| part.size).sum();
        if size > OBJECT_BYTES_MAX {
            let context = format!("an object of {size} bytes is above 5 TiB");
            let detail = Detail::AboveLimit { size, limit: OBJECT_BYTES_MAX };
            return Err(Error::new(ErrorKind::EntityTooLarge, context).with(detail));
        }
        match expected {
            Some(expected) if expected != size => Err(Error::new(
                ErrorKind::InvalidRequest,
                format!(
                    "The provided 'x-amz-mp-object-size' header value {expected} does not match what was computed: {size}"
                ),
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn part_object(&self, upload_id: &str, number: u32, record: &PartRecord) -> Result<Object> {
        let key = records::part_key(upload_id, number);
        let find = || {
            let object = self.store.peek(&key).filter(|object| object.generation() == record.generation);
            object.filter(Object::is_whole)
        };
        // A part that was committed between the two lookups becomes visible soon.
        let found = find().or_else(|| {
            self.store.await_shown();
            find()
        });
        // A newer one was uploaded after this completion read the records.
        let is_replaced = || self.store.peek(&key).is_some_and(|object| object.generation() > record.generation);
        found.ok_or_else(|| match is_replaced() {
            true => Error {
                source: Some(Box::new(ReplacedPart)),
                ..Error::new(ErrorKind::InvalidPart, format!("part {number} was replaced meanwhile"))
            },
            false => Error {
                source: Some(Box::new(LostPart)),
                ..Error::new(
                    ErrorKind::InvalidPart,
                    format!("Part {number} has been lost by the server. Upload it again."),
                )
            },
        })
    }

    /// Whether the bytes of a part are lost: a directory was forgotten, or a file was removed.
    pub(crate) fn is_lost(&self, upload_id: &str, number: u32, record: &PartRecord) -> bool {
        let object = self.part_object(upload_id, number, record);
        object.is_err_and(|error| error.source.is_some_and(|source| source.is::<LostPart>()))
    }
}

/// A completion must match the parameters with which its upload was created. What Amazon S3 answers is recorded in
/// localstack/localstack, `test_multipart_parts_checksum_exceptions_*` and `test_complete_multipart_parts_checksum_*`.
fn check_checksums(request: &CompleteUpload, upload: &UploadRecord) -> Result<()> {
    let invalid = |context| Err(Error::new(ErrorKind::InvalidRequest, context));
    let created = upload.checksum_algorithm.map(|_| upload.checksum_kind.unwrap_or(ChecksumKind::FullObject));
    if request.checksum_kind.is_some() && request.checksum_kind != created {
        return invalid(format!(
            "The upload was created using the {} checksum mode. The complete request must use the same checksum mode.",
            created.map_or("null", ChecksumKind::name)
        ));
    }
    let Some(algorithm) = upload.checksum_algorithm else {
        // Amazon S3 ignores one of another algorithm. Here it is refused: it would be compared with nothing.
        let other = request.checksums.iter().find(|checksum| checksum.algorithm != ALGORITHM_DEFAULT);
        return other.map_or(Ok(()), |other| {
            invalid(format!(
                "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
                ALGORITHM_DEFAULT.name().to_ascii_lowercase(),
                other.algorithm.name().to_ascii_lowercase()
            ))
        });
    };
    if request.checksums.iter().any(|checksum| checksum.algorithm != algorithm) {
        return Err(Error::completion_mismatch(algorithm));
    }
    let lacks = |part: &CompletePart| !part.checksums.iter().any(|checksum| checksum.algorithm == algorithm);
    let of_other = |part: &CompletePart| {
        let first = part.checksums.first().filter(|_| lacks(part))?;
        Some((first.algorithm, part.number))
    };
    if let Some((other, number)) = request.parts.iter().find_map(of_other) {
        let other = other.name().to_ascii_lowercase();
        let context = format!("The {other} you specified for part {number} did not match what we received.");
        return Err(Error::new(ErrorKind::ChecksumMismatch, context));
    }
    if created != Some(ChecksumKind::Composite) {
        return Ok(());
    }
    match request.parts.iter().find(|part| lacks(part)) {
        None => Ok(()),
        Some(part) => invalid(format!(
            "The upload was created using a {} checksum. The complete request must include the checksum for each part. \
             It was missing for part {} in the request.",
            algorithm.name().to_ascii_lowercase(),
            part.number
        )),
    }
}

/// A part is identified by its ETag, and by its checksums if the client gives them.
fn matches(wanted: &CompletePart, record: &PartRecord) -> bool {
    let checksum_holds = |checksum: &Checksum| match record.checksums.get(checksum.algorithm) {
        Some(stored) => stored == checksum,
        None => false,
    };
    wanted.etag == record.etag && wanted.checksums.iter().all(checksum_holds)
}

fn invalid_part(wanted: &CompletePart) -> Error {
    let context = format!("part {} was not uploaded, or has another tag or checksum", wanted.number);
    let detail = Detail::Part { number: wanted.number, etag: wanted.etag.clone() };
    Error::new(ErrorKind::InvalidPart, context).with(detail)
}

fn describe(request: &CompleteUpload, found: &Upload, parts: &[(u32, PartRecord)]) -> Result<ObjectInfo> {
    let record = &found.record;
    let md5s = parts.iter().map(|(_, part)| part.etag.md5().expect("the tag of a part is its MD5"));
    let etag = ETag::from_parts(md5_of_md5s(md5s), parts.len());
    let algorithm = record.checksum_algorithm.unwrap_or(ALGORITHM_DEFAULT);
    let kind = kind_for(record.checksum_algorithm, record.checksum_kind)?;
    let of_parts: Option<Vec<(Checksum, u64)>> =
        parts.iter().map(|(_, part)| Some((part.checksums.get(algorithm)?.clone(), part.size))).collect();
    let whole = of_parts.and_then(|pieces| match kind {
        ChecksumKind::FullObject => combine(&pieces),
        ChecksumKind::Composite => composite(&pieces.into_iter().map(|(checksum, _)| checksum).collect::<Vec<_>>()),
    });
    let checksums = Checksums { kind, values: whole.into_iter().collect() };
    let differs = |given: &Checksum| checksums.get(given.algorithm).is_some_and(|computed| computed != given);
    if let Some(wrong) = request.checksums.iter().find(|given| differs(given)) {
        return Err(Error::completion_mismatch(wrong.algorithm));
    }
    let size = parts.iter().map(|(_, part)| part.size).sum();
    let attributes =
        Attributes { headers: record.headers.clone(), user: record.user.clone(), tags: record.tags.clone() };
    let mut info = described(size, etag, checksums, attributes);
    info.parts = parts.iter().map(|(number, part)| part_info(*number, part, found)).collect();
    Ok(info)
}

/// Like S3, returns the checksums of parts only if the client chose the algorithm.
pub(super) fn part_info(number: u32, part: &PartRecord, upload: &Upload) -> PartInfo {
    let shown = upload.record.checksum_algorithm.and_then(|algorithm| part.checksums.get(algorithm)).cloned();
    let checksums = Checksums { kind: ChecksumKind::FullObject, values: shown.into_iter().collect() };
    PartInfo { number, size: part.size, checksums }
}
