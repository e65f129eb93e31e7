//! Bodies on their way into the cache.

use forebay_cache::{Error, ErrorKind, Incoming};
use forebay_types::{Algorithm, Checksum, limits};
use futures::StreamExt;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use s3s::dto::StreamingBlob;
use s3s::stream::ByteStream;
use s3s::{S3Result, s3_error};

use crate::checksums;
use crate::context::Trailing;
use crate::s3_error::{invalid_digest, invalid_request, missing_length, too_large};
use crate::s3s_fixes::BodyError;
use crate::s3s_fixes::chunks::NO_TRAILER;

/// What a request says of its body.
pub(crate) struct Announced {
    pub(crate) content_length: Option<i64>,
    pub(crate) content_md5: Option<String>,
    pub(crate) checksums: Vec<Checksum>,
    pub(crate) trailing: Option<Trailing>,
    /// Whether a signature covers the request; `s3s` then compares the hash of the payload.
    pub(crate) signed: bool,
}

/// The body with everything that it must turn out to be.
///
/// The SHA-256 of a signed request is not handed on: `s3s` compares it before it lets go of the last bytes, and
/// hashing twice would cost as much as all the rest.
pub(crate) fn incoming(body: Option<StreamingBlob>, headers: &HeaderMap, announced: Announced) -> S3Result<Incoming> {
    let trailer_names = trailer_names(headers)?;
    // One in front of the body and one behind it are two.
    if announced.checksums.len() + trailer_names.len() > 1 {
        let message = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.";
        return Err(s3_error!(InvalidRequest, "{}", message));
    }
    let size = size(body.as_ref(), headers, &announced)?;
    let compute: Vec<Algorithm> = trailer_names.iter().map(|(algorithm, _)| *algorithm).collect();
    check_named_algorithm(headers, &announced.checksums, &compute)?;
    let stream = match body {
        Some(body) => body.map(|bytes| bytes.map_err(|error| Error::body(BodyError::from_stream(&*error)))).boxed(),
        None => futures::stream::empty().boxed(),
    };
    let trailing = announced.trailing;
    if trailing.is_none() && !trailer_names.is_empty() {
        return Err(s3_error!(InvalidRequest, "x-amz-trailer was given without a streaming payload."));
    }
    Ok(Incoming {
        stream,
        size,
        md5: announced.content_md5.as_deref().map(md5).transpose()?,
        sha256: if announced.signed { None } else { payload_hash(headers) },
        checksums: announced.checksums,
        compute,
        trailers: (!trailer_names.is_empty() || announces_none(headers))
            .then(|| -> forebay_cache::Trailers { Box::new(move || read_trailers(trailing, &trailer_names)) }),
    })
}

/// What an SDK says that it has made must be there, and be that. Of Amazon S3: versity/versitygw#1593, #1598 and #1659.
fn check_named_algorithm(headers: &HeaderMap, given: &[Checksum], trailing: &[Algorithm]) -> S3Result<()> {
    let Some(name) = headers.get("x-amz-sdk-checksum-algorithm") else { return Ok(()) };
    let named = checksums::named_algorithm(name.to_str().unwrap_or_default())?;
    let mut made = given.iter().map(|checksum| checksum.algorithm).chain(trailing.iter().copied()).peekable();
    if made.peek().is_none() {
        let message = "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.";
        return Err(invalid_request(message));
    }
    match made.all(|algorithm| algorithm == named) {
        true => Ok(()),
        false => Err(invalid_request("Value for x-amz-sdk-checksum-algorithm header is invalid.")),
    }
}

fn size(body: Option<&StreamingBlob>, headers: &HeaderMap, announced: &Announced) -> S3Result<u64> {
    // To HTTP a request that does not say how long its body is has none; nobody means to store that.
    let says = [CONTENT_LENGTH.as_str(), "x-amz-decoded-content-length"].iter().any(|name| headers.contains_key(*name));
    let exact = body.and_then(|body| body.remaining_length().exact()).map(|length| length as u64);
    let given = announced.content_length.and_then(|length| u64::try_from(length).ok());
    let Some(size) = exact.or(given).filter(|_| says) else {
        return Err(missing_length());
    };
    if size > limits::PUT_BYTES_MAX {
        return Err(too_large(size, limits::PUT_BYTES_MAX));
    }
    Ok(size)
}

pub(crate) fn md5(base64: &str) -> S3Result<[u8; 16]> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64).ok();
    let md5 = bytes.and_then(|bytes| bytes.try_into().ok());
    md5.ok_or_else(|| invalid_digest(base64))
}

pub(crate) fn payload_hash(headers: &HeaderMap) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    hex::decode_to_slice(headers.get("x-amz-content-sha256")?.as_bytes(), &mut hash).ok()?;
    Some(hash)
}

/// Whether a body may have a trailer, and the request announces none: then none may come.
fn announces_none(headers: &HeaderMap) -> bool {
    headers.get("x-amz-trailer").is_some_and(|names| names == NO_TRAILER)
}

/// The trailing checksums that the request announces.
fn trailer_names(headers: &HeaderMap) -> S3Result<Vec<(Algorithm, String)>> {
    let Some(value) = headers.get("x-amz-trailer").filter(|names| *names != NO_TRAILER) else { return Ok(Vec::new()) };
    let names = value.to_str().unwrap_or_default().split(',').map(|name| name.trim().to_ascii_lowercase());
    let known = |name: String| {
        let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.header() == name);
        let message = "The value specified in the x-amz-trailer header is not supported";
        algorithm.map(|algorithm| (algorithm, name)).ok_or_else(|| invalid_request(message))
    };
    names.map(known).collect()
}

/// The checksums behind the body: exactly those announced.
fn read_trailers(trailing: Option<Trailing>, names: &[(Algorithm, String)]) -> forebay_cache::Result<Vec<Checksum>> {
    let refuse = || Error::body(BodyError::Trailers);
    let headers = match trailing.and_then(|trailing| trailing.take()) {
        Some(headers) => headers,
        // A body without a trailer leaves nothing.
        None if names.is_empty() => return Ok(Vec::new()),
        None => return Err(refuse()),
    };
    if headers.len() != names.len() {
        return Err(refuse());
    }
    let checksum = |(algorithm, name): &(Algorithm, String)| {
        let value = headers.get(name.as_str()).ok_or_else(refuse)?.to_str().unwrap_or_default();
        let wrong = || Error::new(ErrorKind::InvalidRequest, format!("Value for {name} trailing header is invalid."));
        Checksum::parse(*algorithm, value).ok_or_else(wrong)
    };
    names.iter().map(checksum).collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn announced(length: Option<i64>) -> Announced {
        Announced { content_length: length, content_md5: None, checksums: Vec::new(), trailing: None, signed: true }
    }

    #[track_caller]
    fn refused(headers: &[(&'static str, &'static str)], announced: Announced, code: &str) {
        let mut headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        if announced.content_length.is_some() {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("1"));
        }
        let error = incoming(None, &headers, announced).err().expect(code);
        assert_eq!(error.code().as_str(), code);
    }

    #[test]
    fn a_body_must_say_what_it_is() {
        refused(&[], announced(None), "MissingContentLength");
        refused(&[], announced(Some(-1)), "MissingContentLength");
        refused(&[], announced(Some(5 << 30 | 1)), "EntityTooLarge");
        refused(&[("x-amz-trailer", "x-amz-meta-a")], announced(Some(1)), "InvalidRequest");
        refused(&[("x-amz-trailer", "")], announced(Some(1)), "InvalidRequest");
        refused(&[("x-amz-trailer", "x-amz-checksum-crc32")], announced(Some(1)), "InvalidRequest");
        refused(&[("x-amz-sdk-checksum-algorithm", "MD4")], announced(Some(1)), "InvalidRequest");
        refused(&[("x-amz-sdk-checksum-algorithm", "CRC32")], announced(Some(1)), "InvalidRequest");
        let sha1 = Checksum { algorithm: Algorithm::Sha1, value: vec![0; 20] };
        let other = Announced { checksums: vec![sha1], ..announced(Some(1)) };
        refused(&[("x-amz-sdk-checksum-algorithm", "CRC32")], other, "InvalidRequest");
        let bad_md5 = Announced { content_md5: Some("abc".to_owned()), ..announced(Some(1)) };
        refused(&[], bad_md5, "InvalidDigest");
    }

    #[test]
    fn trailers_that_did_not_come_are_missed() {
        let names = [(Algorithm::Crc32, "x-amz-checksum-crc32".to_owned())];
        let error = read_trailers(None, &names).unwrap_err();
        assert_eq!(error.source.unwrap().downcast_ref(), Some(&BodyError::Trailers));
    }
}
