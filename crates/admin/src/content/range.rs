//! The header `Range`.

use std::time::UNIX_EPOCH;

use forebay_cache::{IfRange, RangeRequest};
use forebay_types::ETag;
use http::{HeaderMap, header};

use crate::problem::{Answer, Problem};

/// The range that a request asks for.
///
/// # Errors
/// 400 for what is no range, and for more than one: HTTP lets a server ignore those, but a client that asks for a piece
/// and gets the whole may take it for the piece.
pub(super) fn requested(headers: &HeaderMap) -> Answer<Option<RangeRequest>> {
    let Some(value) = headers.get(header::RANGE) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(parse);
    parsed.map(Some).ok_or_else(|| Problem::bad("Range must be bytes=FIRST-LAST, bytes=FIRST- or bytes=-LENGTH"))
}

/// `If-Range`: the version that the client has a part of. A range of another one would not go with it.
pub(super) fn condition(headers: &HeaderMap) -> Option<IfRange> {
    let text = headers.get(header::IF_RANGE)?.to_str().unwrap_or_default().trim();
    let date = httpdate::parse_http_date(text).ok().and_then(|date| date.duration_since(UNIX_EPOCH).ok());
    Some(match date {
        Some(date) => IfRange::UnchangedSince(date.as_millis() as u64),
        // What is neither date nor tag is no version of any object.
        None => IfRange::Tag(ETag::new(text)),
    })
}

fn parse(text: &str) -> Option<RangeRequest> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    match (first, last) {
        ("", length) => Some(RangeRequest::Suffix { length: number(length)? }),
        (first, "") => Some(RangeRequest::From { first: number(first)?, last: None }),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(RangeRequest::From { first, last: Some(last) })
        }
    }
}

fn number(digits: &str) -> Option<u64> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_http_writes_it_or_not_at_all() {
        assert_eq!(parse("bytes=0-"), Some(RangeRequest::From { first: 0, last: None }));
        assert_eq!(parse("bytes=5-9"), Some(RangeRequest::From { first: 5, last: Some(9) }));
        assert_eq!(parse("bytes=-7"), Some(RangeRequest::Suffix { length: 7 }));
        for wrong in ["", "bytes=", "bytes=-", "bytes=9-5", "bytes=+1-2", "bytes=0-1,3-4", "lines=0-1", "bytes=a-"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
