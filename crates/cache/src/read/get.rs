//! Reads.

use std::sync::Arc;

use forebay_types::{ByteRange, ObjectInfo};

use crate::read::lookup::{Lookup, Wanted};
use crate::worker::Worker;
use crate::{Error, ErrorKind, GetObject, ObjectBody, ObjectHead, RangeRequest, Result};

/// How often a read looks a version up again that changes in the under store while its first page is fetched.
const CHANGED_TRIES: usize = 3;

impl Worker {
    /// The main flow of a read.
    pub(crate) async fn get(self: &Arc<Self>, request: GetObject) -> Result<ObjectBody> {
        let policy = self.policies.resolve(&request.path);
        let mut tries = 0;
        loop {
            let found = self.lookup(&request.path, &policy, Wanted::of(&request)).await?;
            request.conditions.check_read(&found.info, found.remote_etag())?;
            let head = head_of(&found, &request)?;
            let range = head.range;
            let avoids_request = found.avoids_request(range);
            match self.open(&request.path, &policy, found, range).await {
                Ok(stream) => {
                    if avoids_request {
                        self.metrics.avoided_gets.inc();
                    }
                    return Ok(ObjectBody { head, stream });
                }
                Err(error) if error.kind == ErrorKind::PreconditionFailed && tries < CHANGED_TRIES => tries += 1,
                Err(error) if error.kind == ErrorKind::PreconditionFailed => {
                    return Err(Error::new(ErrorKind::Unavailable, "the object keeps changing in the under store"));
                }
                Err(error) => return Err(error.of_read()),
            }
        }
    }

    pub(crate) async fn head(self: &Arc<Self>, request: GetObject) -> Result<ObjectHead> {
        let policy = self.policies.resolve(&request.path);
        let found = self.lookup(&request.path, &policy, Wanted::description(request.no_cache)).await?;
        if !found.asked {
            self.metrics.avoided_heads.inc();
        }
        request.conditions.check_read(&found.info, found.remote_etag())?;
        head_of(&found, &request)
    }
}

/// # Errors
/// As [`requested_range`].
pub(crate) fn head_of(found: &Lookup, request: &GetObject) -> Result<ObjectHead> {
    let info = Arc::clone(&found.info);
    let asks = request.range.is_some() || request.part_number.is_some();
    // Nothing is the end of nothing, and all of it: apache/arrow-rs-object-store#846, floci-io/floci#1141.
    let is_all = info.size == 0 && matches!(request.range, Some(RangeRequest::Suffix { length: 1.. }));
    let is_partial = asks && !is_all && request.conditions.allow_range(&info, found.remote_etag());
    let range = if is_partial { requested_range(request, &info)? } else { ByteRange::of_size(info.size) };
    let (state, cached_bytes, generation) = (found.state(), found.cached_bytes(), found.generation());
    Ok(ObjectHead { info, state, cached_bytes, range, is_partial, generation })
}

/// # Errors
/// `InvalidRange` when the range lies behind the object, `InvalidPartNumber` when it has no such part.
fn requested_range(request: &GetObject, info: &ObjectInfo) -> Result<ByteRange> {
    let outside = || Error::about(ErrorKind::InvalidRange, "the range lies outside of the object", info);
    match (request.range, request.part_number) {
        (None, None) => Ok(ByteRange::of_size(info.size)),
        (Some(RangeRequest::From { first, last }), _) => {
            let end = last.map_or(info.size, |last| last.saturating_add(1).min(info.size));
            if first < end { Ok(ByteRange::new(first, end)) } else { Err(outside()) }
        }
        (Some(RangeRequest::Suffix { length }), _) if length == 0 || info.size == 0 => Err(outside()),
        (Some(RangeRequest::Suffix { length }), _) => Ok(ByteRange::new(info.size.saturating_sub(length), info.size)),
        (None, Some(number)) => part_range(info, number)
            .ok_or_else(|| Error::about(ErrorKind::InvalidPartNumber, "the object has no such part", info)),
    }
}

/// An object from a single PUT is its own part 1.
fn part_range(info: &ObjectInfo, number: u32) -> Option<ByteRange> {
    if info.parts.is_empty() {
        return (number == 1).then(|| ByteRange::of_size(info.size));
    }
    let index = info.parts.iter().position(|part| part.number == number)?;
    let start: u64 = info.parts[..index].iter().map(|part| part.size).sum();
    Some(ByteRange::new(start, start + info.parts[index].size))
}

#[cfg(test)]
mod tests {
    use forebay_types::{Checksums, ETag, ObjectPath, PartInfo};

    use super::*;

    fn range(size: u64, range: Option<RangeRequest>, part_number: Option<u32>) -> Option<(u64, u64)> {
        let mut info = ObjectInfo::new(size, ETag::new("e"), 0);
        info.parts =
            [(1, 6), (3, 4)].map(|(number, size)| PartInfo { number, size, checksums: Checksums::none() }).into();
        let path = ObjectPath::parse("bucket", "key").unwrap();
        let request = GetObject { range, part_number, ..GetObject::whole(path) };
        requested_range(&request, &info).ok().map(|range| (range.start, range.end))
    }

    #[test]
    fn ranges_are_cut_to_the_object_as_rfc_9110_says() {
        let from = |first, last| Some(RangeRequest::From { first, last });
        let suffix = |length| Some(RangeRequest::Suffix { length });
        assert_eq!(range(10, None, None), Some((0, 10)));
        assert_eq!(range(10, from(2, Some(4)), None), Some((2, 5)));
        assert_eq!(range(10, from(2, None), None), Some((2, 10)));
        assert_eq!(range(10, from(2, Some(u64::MAX)), None), Some((2, 10)));
        assert_eq!(range(10, from(10, None), None), None);
        assert_eq!(range(10, from(5, Some(4)), None), None);
        assert_eq!(range(10, suffix(3), None), Some((7, 10)));
        assert_eq!(range(10, suffix(30), None), Some((0, 10)));
        assert_eq!(range(10, suffix(0), None), None);
        assert_eq!(range(0, suffix(3), None), None);
        assert_eq!(range(10, None, Some(1)), Some((0, 6)));
        assert_eq!(range(10, None, Some(3)), Some((6, 10)));
        assert_eq!(range(10, None, Some(2)), None);
    }
}
