//! Turns the SDK's answers into objects.

use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::operation::head_object::HeadObjectOutput;
use aws_sdk_s3::primitives::ByteStream as SdkStream;
use aws_sdk_s3::types::{ChecksumType, ServerSideEncryption, StorageClass};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_types::{
    Algorithm, ByteRange, Checksum, ChecksumKind, Checksums, ETag, Generation, ObjectInfo, SystemHeaders, UserMetadata,
};
use futures::StreamExt;

use crate::stamp::{self, STAMP_NAME, Subject};
use crate::{ByteStream, Error, ErrorKind, RemoteBody, RemoteObject};

/// Begins and ends a metadata value that is not plain ASCII, as S3 sends it (RFC 2047).
const ENCODED: (&str, &str) = ("=?UTF-8?B?", "?=");

/// An ETag as the under store sends it. Proxies that compress make it a weak one, which no condition can name.
pub(super) fn tag(text: &str) -> ETag {
    ETag::new(text.strip_prefix("W/").unwrap_or(text))
}

/// The error for an answer that can't be cached because it lacks an ETag or a length.
pub(super) fn incomplete(context: String) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{context}: the answer lacks a tag or a length"))
}

macro_rules! checksums {
    ($output:ident) => {{
        let values = [
            (&$output.checksum_crc32, Algorithm::Crc32),
            (&$output.checksum_crc32_c, Algorithm::Crc32C),
            (&$output.checksum_crc64_nvme, Algorithm::Crc64Nvme),
            (&$output.checksum_sha1, Algorithm::Sha1),
            (&$output.checksum_sha256, Algorithm::Sha256),
            (&$output.checksum_sha512, Algorithm::Sha512),
            (&$output.checksum_md5, Algorithm::Md5),
            (&$output.checksum_xxhash64, Algorithm::Xxhash64),
            (&$output.checksum_xxhash3, Algorithm::Xxhash3),
            (&$output.checksum_xxhash128, Algorithm::Xxhash128),
        ];
        checksums(values, $output.checksum_type.as_ref())
    }};
}

macro_rules! info {
    ($output:ident, $size:expr, $subject:expr) => {{
        let checksums = checksums!($output);
        let has_md5 = $subject.has_md5
            && $output.sse_customer_algorithm.is_none()
            && !$output.server_side_encryption.is_some_and(|encryption| encryption.as_str().starts_with("aws:kms"));
        let headers = SystemHeaders {
            content_type: $output.content_type,
            content_encoding: $output.content_encoding.and_then(without_framing),
            content_language: $output.content_language,
            content_disposition: $output.content_disposition,
            cache_control: $output.cache_control,
            expires: $output.expires_string,
            website_redirect_location: $output.website_redirect_location,
            storage_class: storage_class($output.storage_class.as_ref()),
        };
        let modified_ms = $output.last_modified.and_then(|at| at.to_millis().ok()).unwrap_or_default();
        let etag = tag($output.e_tag.as_deref()?);
        let info = ObjectInfo {
            headers,
            user: user_metadata($output.metadata.unwrap_or_default()),
            checksums,
            ..ObjectInfo::new($size, etag, modified_ms.max(0) as u64)
        };
        believe_stamp(info, Subject { has_md5, ..$subject })
    }};
}

/// What an answer's headers say, as the SDK would read them.
macro_rules! output {
    ($output:ty, $headers:expr) => {{
        let headers = $headers;
        let text = |name: &str| headers.get(name).map(str::to_owned);
        let date = |name: &str| DateTime::from_str(headers.get(name)?, Format::HttpDate).ok();
        let metadata = headers
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix("x-amz-meta-")?.to_owned(), value.to_owned())));
        <$output>::builder()
            .set_content_length(headers.get("content-length").and_then(|length| length.parse().ok()))
            .set_content_range(text("content-range"))
            .set_content_type(text("content-type"))
            .set_content_encoding(text("content-encoding"))
            .set_content_language(text("content-language"))
            .set_content_disposition(text("content-disposition"))
            .set_cache_control(text("cache-control"))
            .set_expires_string(text("expires"))
            .set_website_redirect_location(text("x-amz-website-redirect-location"))
            .set_storage_class(headers.get("x-amz-storage-class").map(StorageClass::from))
            .set_checksum_crc32(text("x-amz-checksum-crc32"))
            .set_checksum_crc32_c(text("x-amz-checksum-crc32c"))
            .set_checksum_crc64_nvme(text("x-amz-checksum-crc64nvme"))
            .set_checksum_sha1(text("x-amz-checksum-sha1"))
            .set_checksum_sha256(text("x-amz-checksum-sha256"))
            .set_checksum_sha512(text("x-amz-checksum-sha512"))
            .set_checksum_md5(text("x-amz-checksum-md5"))
            .set_checksum_xxhash64(text("x-amz-checksum-xxhash64"))
            .set_checksum_xxhash3(text("x-amz-checksum-xxhash3"))
            .set_checksum_xxhash128(text("x-amz-checksum-xxhash128"))
            .set_checksum_type(headers.get("x-amz-checksum-type").map(ChecksumType::from))
            .set_last_modified(date("last-modified"))
            .set_e_tag(text("etag"))
            .set_server_side_encryption(headers.get("x-amz-server-side-encryption").map(ServerSideEncryption::from))
            .set_sse_customer_algorithm(text("x-amz-server-side-encryption-customer-algorithm"))
            .set_metadata(Some(metadata.collect()))
    }};
}

/// The answer to a HEAD that did not go through the SDK.
pub(super) fn head_output(response: &HttpResponse) -> HeadObjectOutput {
    output!(HeadObjectOutput, response.headers()).build()
}

/// The answer to a GET that did not go through the SDK.
pub(super) fn get_output(mut response: HttpResponse) -> GetObjectOutput {
    let body = SdkStream::new(response.take_body());
    output!(GetObjectOutput, response.headers()).body(body).build()
}

/// [`Subject::has_md5`] is about objects that are not encrypted with a key of KMS or of the client.
pub(super) fn from_head(output: HeadObjectOutput, subject: Subject<'_>) -> Option<RemoteObject> {
    let size = u64::try_from(output.content_length?).ok()?;
    Some(info!(output, size, subject))
}

/// `subject` as for [`from_head`].
pub(super) fn from_get(output: GetObjectOutput, subject: Subject<'_>, context: String) -> Option<RemoteBody> {
    let length = u64::try_from(output.content_length?).ok()?;
    let (start, size) = match &output.content_range {
        Some(range) => content_range(range)?,
        None => (0, length),
    };
    let stream = body(output.body, length, context);
    Some(RemoteBody { object: info!(output, size, subject), range: ByteRange::new(start, start + length), stream })
}

/// A checksum over all bytes of the object, as the under store computed it.
pub(super) fn full_checksum(output: &GetObjectOutput) -> Option<Checksum> {
    let Checksums { kind, values } = checksums!(output);
    values.into_iter().next().filter(|_| kind == ChecksumKind::FullObject)
}

/// The start and the object's size in `bytes 5-9/100`.
fn content_range(text: &str) -> Option<(u64, u64)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, size.parse().ok()?))
}

/// A body that ends early is an error, whatever the HTTP library says.
fn body(body: SdkStream, length: u64, context: String) -> ByteStream {
    let failed = move |problem: String| Error::new(ErrorKind::Unavailable, format!("{context}: {problem}"));
    let stream = futures::stream::unfold(Some((body, length)), move |state| {
        let failed = failed.clone();
        async move {
            let (mut body, remaining) = state?;
            match body.next().await {
                Some(Ok(bytes)) if bytes.len() as u64 <= remaining => {
                    let remaining = remaining - bytes.len() as u64;
                    Some((Ok(bytes), Some((body, remaining))))
                }
                Some(Ok(_)) => Some((Err(failed("the body is longer than announced".into())), None)),
                Some(Err(error)) => Some((Err(failed(format!("the body broke off: {error}"))), None)),
                None if remaining > 0 => Some((Err(failed(format!("the body lacks {remaining} bytes"))), None)),
                None => None,
            }
        }
    });
    stream.boxed()
}

/// The stamp, if there is room for it next to the user metadata.
pub(super) fn stamp_of(subject: Subject<'_>, generation: Generation, info: &ObjectInfo) -> Option<String> {
    let used = info.user.iter().map(|(name, value)| name.len() + encode_value(value).len()).sum();
    stamp::write(generation, info, subject, used)
}

fn believe_stamp(mut info: ObjectInfo, subject: Subject<'_>) -> RemoteObject {
    let remote_etag = info.etag.clone();
    let stamp = info.user.remove(STAMP_NAME).and_then(|text| stamp::read(&text, &mut info, subject));
    RemoteObject { info, remote_etag, stamp }
}

/// Some servers store the framing of the upload as if it were an encoding of the object.
fn without_framing(encoding: String) -> Option<String> {
    let kept: Vec<&str> =
        encoding.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "aws-chunked").collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

/// `None` is STANDARD.
pub(super) fn storage_class(class: Option<&StorageClass>) -> Option<String> {
    class.filter(|class| **class != StorageClass::Standard).map(|class| class.as_str().to_owned())
}

fn checksums(values: [(&Option<String>, Algorithm); 10], kind: Option<&ChecksumType>) -> Checksums {
    // A composite checksum is written with its number of parts: `value-3`.
    let composite = kind == Some(&ChecksumType::Composite)
        || values.iter().any(|(text, _)| text.as_ref().is_some_and(|t| t.contains('-')));
    let parse = |(text, algorithm): (&Option<String>, Algorithm)| {
        let text = text.as_ref()?;
        Checksum::parse(algorithm, text.split_once('-').map_or(text.as_str(), |(value, _)| value))
    };
    let kind = if composite { ChecksumKind::Composite } else { ChecksumKind::FullObject };
    Checksums { kind, values: values.into_iter().filter_map(parse).collect() }
}

fn user_metadata(raw: std::collections::HashMap<String, String>) -> UserMetadata {
    raw.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), decode_value(value))).collect()
}

/// A value that a header can carry as it is was not encoded by anybody: it only looks encoded.
fn decode_value(value: String) -> String {
    let encoded = value.strip_prefix(ENCODED.0).and_then(|rest| rest.strip_suffix(ENCODED.1));
    let bytes = encoded.and_then(|text| BASE64.decode(text).ok());
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|decoded| !is_plain(decoded)).unwrap_or(value)
}

/// A metadata value as a header can carry it.
pub(super) fn encode_value(value: &str) -> String {
    if is_plain(value) {
        return value.to_owned();
    }
    format!("{}{}{}", ENCODED.0, BASE64.encode(value), ENCODED.1)
}

fn is_plain(value: &str) -> bool {
    value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && value.trim() == value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_of_any_script_survives_headers() {
        for value in ["plain", "", "gr\u{fc}n", "\u{1f600}", " edges ", "=?UTF-8?B?YQ==?=", "=?UTF-8?B?", "?="] {
            let header = encode_value(value);
            assert!(header.is_ascii(), "{header}");
            assert_eq!(decode_value(header), value);
        }
    }

    #[test]
    fn framing_is_no_encoding() {
        assert_eq!(without_framing("aws-chunked".into()), None);
        assert_eq!(without_framing("gzip,aws-chunked".into()).as_deref(), Some("gzip"));
    }

    #[test]
    fn a_content_range_names_start_and_size() {
        assert_eq!(content_range("bytes 5-9/100"), Some((5, 100)));
        assert_eq!(content_range("bytes */100"), None);
    }

    #[tokio::test]
    async fn a_body_that_ends_early_is_an_error() {
        let pieces: Vec<_> = body(SdkStream::from_static(b"abc"), 5, "get x".into()).collect().await;
        assert!(pieces.last().is_some_and(Result::is_err));
        let pieces: Vec<_> = body(SdkStream::from_static(b"abc"), 3, "get x".into()).collect().await;
        assert!(pieces.iter().all(Result::is_ok));
    }
}
