//! Checksums in requests and answers: in headers, whatever `s3s` knows of them, and in the fields of what it makes of
//! documents.

use forebay_types::{Algorithm, Checksum, ChecksumKind, Checksums};
use http::{HeaderMap, HeaderValue};
use s3s::dto;
use s3s::{S3Result, s3_error};

use crate::s3_error::invalid_request;

pub(crate) fn algorithm(name: Option<&dto::ChecksumAlgorithm>) -> S3Result<Option<Algorithm>> {
    name.map(|name| named_algorithm(name.as_str())).transpose()
}

pub(crate) fn named_algorithm(name: &str) -> S3Result<Algorithm> {
    Algorithm::from_name(name).ok_or_else(|| {
        let mut names = Algorithm::ALL.map(Algorithm::name);
        names.sort_unstable();
        let message = "Checksum algorithm provided is unsupported. Please try again with any of the valid types";
        invalid_request(format!("{message}: [{}]", names.join(", ")))
    })
}

pub(crate) fn algorithm_name(algorithm: Algorithm) -> dto::ChecksumAlgorithm {
    dto::ChecksumAlgorithm::from_static(algorithm.name())
}

pub(crate) fn checksum_kind(kind: Option<&dto::ChecksumType>) -> S3Result<Option<ChecksumKind>> {
    let Some(kind) = kind else { return Ok(None) };
    let is = |known: ChecksumKind| kind.as_str().eq_ignore_ascii_case(known.name());
    match [ChecksumKind::Composite, ChecksumKind::FullObject].into_iter().find(|known| is(*known)) {
        Some(known) => Ok(Some(known)),
        None => Err(s3_error!(InvalidRequest, "Value for x-amz-checksum-type header is invalid.")),
    }
}

pub(crate) fn checksum_type(kind: ChecksumKind) -> dto::ChecksumType {
    dto::ChecksumType::from_static(kind.name())
}

/// One checksum as S3 shows it; composite ones of objects end with the number of parts.
pub(crate) fn checksum_text(checksums: &Checksums, algorithm: Algorithm, parts: usize) -> Option<String> {
    let value = checksums.get(algorithm)?.base64();
    Some(match checksums.kind {
        ChecksumKind::Composite if parts > 0 => format!("{value}-{parts}"),
        ChecksumKind::Composite | ChecksumKind::FullObject => value,
    })
}

/// A checksum that a client gave; composite ones may carry the number of parts.
pub(crate) fn given_checksum(algorithm: Algorithm, text: Option<&str>) -> S3Result<Option<Checksum>> {
    let Some(text) = text else { return Ok(None) };
    let value = text.rsplit_once('-').map_or(text, |(value, _)| value);
    let checksum = Checksum::parse(algorithm, value)
        .ok_or_else(|| s3_error!(InvalidRequest, "Value for {} header is invalid.", algorithm.header()))?;
    Ok(Some(checksum))
}

/// Puts checksums into the headers of an answer.
pub(crate) fn set_checksum_headers(headers: &mut HeaderMap, checksums: &Checksums, parts: usize) {
    for checksum in &checksums.values {
        let text =
            checksum_text(checksums, checksum.algorithm, parts).and_then(|text| HeaderValue::try_from(text).ok());
        headers.insert(checksum.algorithm.header(), text.expect("base64 makes a header, and the value is among them"));
    }
}

/// As [`set_checksum_headers`], for answers that tell the kind too.
pub(crate) fn set_checksum_and_type_headers(headers: &mut HeaderMap, checksums: &Checksums, parts: usize) {
    set_checksum_headers(headers, checksums, parts);
    set_type_header(headers, checksums, checksums.kind);
}

/// The kind, where there are checksums.
pub(crate) fn set_type_header(headers: &mut HeaderMap, checksums: &Checksums, kind: ChecksumKind) {
    if !checksums.values.is_empty() {
        headers.insert("x-amz-checksum-type", HeaderValue::from_static(kind.name()));
    }
}

/// The checksums that the headers of a request give.
pub(crate) fn given_in_headers(headers: &HeaderMap) -> S3Result<Vec<Checksum>> {
    let mut checksums = Vec::new();
    for (name, value) in headers {
        let Some(algorithm) = Algorithm::from_header(name.as_str()) else { continue };
        // What is no text is no checksum.
        checksums.extend(given_checksum(algorithm, Some(value.to_str().unwrap_or_default()))?);
    }
    Ok(checksums)
}

/// Between the values that share a field; no base64 has it.
pub(crate) const BETWEEN: char = '|';

/// Algorithms that `s3s` has no fields for.
pub(crate) fn without_field() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.into_iter().filter(|algorithm| algorithm.is_of_2026())
}

/// The SHA-256 and, behind it, the checksums without fields, until [`crate::s3s_fixes::checksums`] gives them elements
/// of their own.
pub(crate) fn with_others(sha256: Option<String>, checksums: &Checksums, parts: usize) -> Option<String> {
    let text = |algorithm| checksum_text(checksums, algorithm, parts).map(|text| (algorithm, text));
    without_field().filter_map(text).fold(sha256, |before, (algorithm, text)| {
        Some(format!("{}{BETWEEN}{}:{text}", before.unwrap_or_default(), algorithm.name()))
    })
}

/// Sets the checksum fields of an `s3s` output that becomes a document.
macro_rules! set_checksums {
    ($output:expr, $checksums:expr, $parts:expr) => {{
        use forebay_types::Algorithm;
        let (checksums, parts) = ($checksums, $parts);
        $output.checksum_crc32 = $crate::checksums::checksum_text(checksums, Algorithm::Crc32, parts);
        $output.checksum_crc32c = $crate::checksums::checksum_text(checksums, Algorithm::Crc32C, parts);
        $output.checksum_crc64nvme = $crate::checksums::checksum_text(checksums, Algorithm::Crc64Nvme, parts);
        $output.checksum_sha1 = $crate::checksums::checksum_text(checksums, Algorithm::Sha1, parts);
        $output.checksum_sha256 = $crate::checksums::with_others(
            $crate::checksums::checksum_text(checksums, Algorithm::Sha256, parts),
            checksums,
            parts,
        );
    }};
}
pub(crate) use set_checksums;

/// As [`set_checksums`], for outputs that tell the kind too.
macro_rules! set_checksums_and_type {
    ($output:expr, $checksums:expr, $parts:expr) => {{
        let checksums = $checksums;
        $crate::checksums::set_checksums!($output, checksums, $parts);
        $output.checksum_type =
            (!checksums.values.is_empty()).then(|| $crate::checksums::checksum_type(checksums.kind));
    }};
}
pub(crate) use set_checksums_and_type;

/// The checksums in the five fields of an `s3s` input that was a document or a form.
macro_rules! given_checksums {
    ($input:expr) => {{
        use forebay_types::Algorithm;
        let given = [
            (Algorithm::Crc32, $input.checksum_crc32.as_deref()),
            (Algorithm::Crc32C, $input.checksum_crc32c.as_deref()),
            (Algorithm::Crc64Nvme, $input.checksum_crc64nvme.as_deref()),
            (Algorithm::Sha1, $input.checksum_sha1.as_deref()),
            (Algorithm::Sha256, $input.checksum_sha256.as_deref()),
        ];
        let parsed: s3s::S3Result<Vec<Option<forebay_types::Checksum>>> =
            given.into_iter().map(|(algorithm, text)| $crate::checksums::given_checksum(algorithm, text)).collect();
        parsed.map(|checksums| checksums.into_iter().flatten().collect::<Vec<_>>())
    }};
}
pub(crate) use given_checksums;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composite_checksums_carry_the_number_of_parts() {
        let checksum = Checksum { algorithm: Algorithm::Crc32, value: vec![1, 2, 3, 4] };
        let checksums = Checksums { kind: ChecksumKind::Composite, values: vec![checksum.clone()] };
        let text = checksum_text(&checksums, Algorithm::Crc32, 3).unwrap();
        assert_eq!(text, "AQIDBA==-3");
        assert_eq!(given_checksum(Algorithm::Crc32, Some(&text)).unwrap(), Some(checksum));
        assert!(given_checksum(Algorithm::Sha256, Some(&text)).is_err());
    }

    #[test]
    fn headers_carry_the_checksums_of_all_algorithms() {
        for algorithm in Algorithm::ALL {
            let checksum = Checksum { algorithm, value: vec![7; algorithm.bytes()] };
            let checksums = Checksums { kind: ChecksumKind::FullObject, values: vec![checksum.clone()] };
            let mut headers = HeaderMap::new();
            set_checksum_and_type_headers(&mut headers, &checksums, 0);
            assert_eq!(headers["x-amz-checksum-type"], "FULL_OBJECT");
            assert_eq!(given_in_headers(&headers).unwrap(), [checksum], "{algorithm:?}");
            headers.insert(algorithm.header(), HeaderValue::from_static("AAAA"));
            assert_eq!(given_in_headers(&headers).unwrap_err().code().as_str(), "InvalidRequest");
            headers.insert(algorithm.header(), HeaderValue::from_bytes(b"\xff").unwrap());
            assert_eq!(given_in_headers(&headers).unwrap_err().code().as_str(), "InvalidRequest");
        }
    }
}
