//! Between `s3s`'s types and ours.

use std::collections::HashSet;
use std::time::UNIX_EPOCH;

use forebay_cache::{Attributes, Conditions, IfRange, STAMP_HEADER, TagCondition};
use forebay_types::{ETag, ObjectPath, SystemHeaders, Tags, UserMetadata, header_bytes, limits, sent_bytes};
use http::header::{CACHE_CONTROL, IF_RANGE};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode};
use s3s::dto::{self, Timestamp};
use s3s::path::check_bucket_name;
use s3s::validation::NameValidation;
use s3s::{S3Error, S3Result};
use time::OffsetDateTime;
use time::macros::format_description;

use crate::context::Verified;
use crate::s3_error::{above_limit, error_with_status, invalid_bucket_name, with_details, wrong_argument};

/// A time as S3 shows it: whole seconds.
pub(crate) fn timestamp(unix_ms: u64) -> Timestamp {
    at(unix_ms).into()
}

fn at(unix_ms: u64) -> OffsetDateTime {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(0);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// A time as HTTP headers carry it.
pub(crate) fn http_date(unix_ms: u64) -> String {
    let format =
        format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");
    at(unix_ms).format(&format).expect("a UTC time has all parts of the format")
}

pub(crate) fn unix_seconds(time: Timestamp) -> u64 {
    u64::try_from(OffsetDateTime::from(time).unix_timestamp()).unwrap_or(0)
}

fn unix_ms(time: Timestamp) -> u64 {
    unix_seconds(time).saturating_mul(1000)
}

pub(crate) fn path(bucket: &str, key: &str) -> S3Result<ObjectPath> {
    use forebay_types::InvalidName;
    ObjectPath::parse(bucket, key).map_err(|error| match error {
        InvalidName::Bucket(_) => invalid_bucket_name(bucket),
        InvalidName::LongKey(_) => {
            above_limit("KeyTooLongError", "Your key is too long", key.len(), limits::KEY_BYTES_MAX)
        }
        InvalidName::EmptyKey | InvalidName::NulInKey => invalid_argument(error.to_string()),
    })
}

/// The bucket names of requests. The library refuses the reserved `xn--` everywhere; S3 refuses it for new buckets.
pub(crate) struct BucketNames;

impl NameValidation for BucketNames {
    fn validate_bucket_name(&self, name: &str) -> bool {
        check_bucket_name(name) || name.starts_with("xn--") && bucket(name).is_ok()
    }
}

pub(crate) fn bucket(name: &str) -> S3Result<forebay_types::BucketName> {
    forebay_types::BucketName::new(name).map_err(|_| invalid_bucket_name(name))
}

pub(crate) fn invalid_argument(message: impl Into<std::borrow::Cow<'static, str>>) -> S3Error {
    error_with_status("InvalidArgument", StatusCode::BAD_REQUEST, message)
}

pub(crate) fn etag(tag: &ETag) -> dto::ETag {
    dto::ETag::Strong(tag.as_str().to_owned())
}

/// Bytes as S3's signed type; no object has more than 2^63.
pub(crate) fn size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// `If-Match` and its like: `*`, or tags in a list, with or without quotes.
pub(crate) fn tag_condition(headers: &HeaderMap, name: &str) -> S3Result<Option<TagCondition>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let value = value.to_str().map_err(|_| invalid_argument(format!("The header {name} is not valid.")))?.trim();
    if value == "*" {
        return Ok(Some(TagCondition::Any));
    }
    // A tag of S3 holds no comma.
    let mut tags: Vec<ETag> = value
        .split(',')
        .map(str::trim)
        .map(|tag| tag.strip_prefix("W/").unwrap_or(tag))
        .filter(|tag| !tag.is_empty())
        .map(ETag::new)
        .collect();
    if tags.is_empty() {
        // Of no object.
        tags.push(ETag::new(""));
    }
    Ok(Some(TagCondition::OneOf(tags)))
}

/// Conditions on writes.
pub(crate) fn write_conditions(headers: &HeaderMap) -> S3Result<Conditions> {
    Ok(Conditions {
        if_match: tag_condition(headers, "if-match")?,
        if_none_match: tag_condition(headers, "if-none-match")?,
        ..Conditions::default()
    })
}

/// Conditions on reads: tags from the headers, times as parsed.
pub(crate) fn read_conditions(
    headers: &HeaderMap,
    prefix: &str,
    modified: Option<Timestamp>,
    unmodified: Option<Timestamp>,
) -> S3Result<Conditions> {
    Ok(Conditions {
        if_match: tag_condition(headers, &format!("{prefix}if-match"))?,
        if_none_match: tag_condition(headers, &format!("{prefix}if-none-match"))?,
        if_modified_since_ms: modified.map(unix_ms),
        if_unmodified_since_ms: unmodified.map(unix_ms),
        if_range: headers.get(IF_RANGE).filter(|_| prefix.is_empty()).map(if_range),
    })
}

/// A weak tag, or what is neither tag nor date, is no version of any object.
fn if_range(value: &HeaderValue) -> IfRange {
    let text = value.to_str().unwrap_or_default().trim();
    let date = httpdate::parse_http_date(text).ok().and_then(|date| date.duration_since(UNIX_EPOCH).ok());
    match date {
        Some(date) => IfRange::UnchangedSince(date.as_millis() as u64),
        None => IfRange::Tag(ETag::new(text)),
    }
}

/// Whether a client wants an answer of the under store: `Cache-Control: no-cache`.
pub(crate) fn no_cache(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|directive| directive.trim().eq_ignore_ascii_case("no-cache"))
}

/// User metadata within its limits.
pub(crate) fn user_metadata(metadata: Option<dto::Metadata>) -> S3Result<UserMetadata> {
    let mut metadata: UserMetadata =
        metadata.unwrap_or_default().into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    // A client that copies objects from the bucket behind brings the stamps of other writes.
    metadata.retain(|name, _| STAMP_HEADER.strip_prefix("x-amz-meta-") != Some(name));
    // A form may name what no header can.
    if metadata.keys().any(|name| HeaderName::try_from(format!("x-amz-meta-{name}")).is_err()) {
        return Err(invalid_argument("The name of user metadata must be one of a header."));
    }
    if metadata.values().any(|value| value.chars().any(|c| c.is_control() && c != '\t')) {
        return Err(invalid_argument("User metadata must not hold control characters."));
    }
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + sent_bytes(value)).sum();
    if bytes > limits::USER_METADATA_BYTES_MAX {
        let message = "Your metadata headers exceed the maximum allowed metadata size";
        return Err(above_limit("MetadataTooLarge", message, bytes, limits::USER_METADATA_BYTES_MAX));
    }
    Ok(metadata)
}

/// Refuses what together would not fit into the headers of a request to S3.
pub(crate) fn check_attributes(attributes: Attributes) -> S3Result<Attributes> {
    let Attributes { headers, user, tags } = &attributes;
    if header_bytes(headers, user, tags) <= limits::ATTRIBUTES_BYTES_MAX {
        return Ok(attributes);
    }
    let message = "Your request header section exceeds the maximum allowed request header section size.";
    Err(error_with_status("RequestHeaderSectionTooLarge", StatusCode::BAD_REQUEST, message))
}

/// The coding of the object itself: `aws-chunked` is the transfer's.
pub(crate) fn content_encoding(encoding: Option<String>) -> Option<String> {
    let codings: Vec<&str> =
        encoding.as_deref()?.split(',').map(str::trim).filter(|c| !c.is_empty() && *c != "aws-chunked").collect();
    (!codings.is_empty()).then(|| codings.join(","))
}

pub(crate) fn expires(expires: Option<Timestamp>) -> Option<String> {
    expires.map(|time| http_date(unix_ms(time)))
}

/// `response-expires` comes back as it was given.
pub(crate) fn response_expires(extensions: &Extensions) -> Option<String> {
    extensions.get::<Verified>().and_then(|verified| verified.response_expires.clone())
}

/// `Expires` is stored as it was given, whether it is a date or not.
pub(crate) fn given_expires(expires: Option<Timestamp>, extensions: &Extensions) -> Option<String> {
    let text = || extensions.get::<Verified>().and_then(|verified| verified.expires.clone());
    self::expires(expires).or_else(text)
}

/// The classes that an object of a bucket may be put into.
const STORAGE_CLASSES: [&str; 7] =
    ["DEEP_ARCHIVE", "GLACIER", "GLACIER_IR", "INTELLIGENT_TIERING", "ONEZONE_IA", "REDUCED_REDUNDANCY", "STANDARD_IA"];

pub(crate) fn storage_class(class: Option<dto::StorageClass>) -> S3Result<Option<String>> {
    match class.as_ref().map(dto::StorageClass::as_str) {
        None | Some("STANDARD") => Ok(None),
        Some(class) if STORAGE_CLASSES.contains(&class) => Ok(Some(class.to_owned())),
        Some(class) => {
            let message = "The storage class you specified is not valid";
            let error = error_with_status("InvalidStorageClass", StatusCode::BAD_REQUEST, message);
            Err(with_details(error, &[("StorageClassRequested", class)]))
        }
    }
}

/// Longest redirect location, in bytes, by the documentation of Amazon S3.
const REDIRECT_BYTES_MAX: usize = 2048;

/// Refuses header values that would break a later answer, or that S3 would not take when the object gets there.
pub(crate) fn check_headers(headers: SystemHeaders) -> S3Result<SystemHeaders> {
    let values = [
        &headers.content_type,
        &headers.content_encoding,
        &headers.content_language,
        &headers.content_disposition,
        &headers.cache_control,
        &headers.website_redirect_location,
    ];
    if values.into_iter().flatten().any(|value| value.chars().any(char::is_control)) {
        return Err(invalid_argument("Headers must not hold control characters."));
    }
    let leads_somewhere = |location: &String| {
        ["/", "http://", "https://"].iter().any(|start| location.starts_with(start))
            && location.len() <= REDIRECT_BYTES_MAX
    };
    if !headers.website_redirect_location.as_ref().is_none_or(leads_somewhere) {
        let message = "The website redirect location must have a prefix of 'http://' or 'https://' or '/'.";
        return Err(error_with_status("InvalidRedirectLocation", StatusCode::BAD_REQUEST, message));
    }
    Ok(headers)
}

/// `x-amz-tagging`: `a=1&b=2`, percent-encoded.
pub(crate) fn tags_of_header(header: Option<&str>) -> S3Result<Tags> {
    let Some(header) = header else { return Ok(Tags::new()) };
    let pairs = header.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // In a query, a `=` in a value is encoded: localstack/localstack, `test_object_tagging_exc`.
        if value.contains('=') {
            return None;
        }
        Some((decoded(key).filter(|key| !key.is_empty())?, decoded(value)?))
    });
    let pairs: Option<Vec<(String, String)>> = pairs.collect();
    let pairs = pairs.filter(|pairs| has_each_key_once(pairs)).ok_or_else(|| {
        let message = "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates.";
        wrong_argument("x-amz-tagging", header, message)
    })?;
    tags(pairs)
}

/// Text of a query. `None` when it is not encoded as one.
fn decoded(text: &str) -> Option<String> {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let mut encoded = text.bytes().enumerate().filter(|(_, byte)| *byte == b'%').map(|(place, _)| place);
    let bytes = text.as_bytes();
    if !encoded.all(|place| is_digit(bytes.get(place + 1)) && is_digit(bytes.get(place + 2))) {
        return None;
    }
    let spaced = text.replace('+', " ");
    percent_encoding::percent_decode_str(&spaced).decode_utf8().ok().map(|text| text.into_owned())
}

fn has_each_key_once(pairs: &[(String, String)]) -> bool {
    let keys: HashSet<&str> = pairs.iter().map(|(key, _)| key.as_str()).collect();
    keys.len() == pairs.len()
}

/// Tags within their limits, each key once.
pub(crate) fn tags(pairs: Vec<(String, String)>) -> S3Result<Tags> {
    if pairs.len() > limits::TAGS_MAX {
        return Err(error_with_status("BadRequest", StatusCode::BAD_REQUEST, "Object tags cannot be greater than 10"));
    }
    check_tags(&pairs)?;
    Ok(pairs.into_iter().collect())
}

/// Sources: localstack/localstack, `test_tagging_validation` and `test_object_tagging_exc`.
fn check_tags(pairs: &[(String, String)]) -> S3Result<()> {
    match fault_of_tags(pairs) {
        None => Ok(()),
        Some(TagFault { message, details }) => {
            Err(with_details(error_with_status("InvalidTag", StatusCode::BAD_REQUEST, message), &details))
        }
    }
}

/// What S3 says of a tag, and the elements in which it repeats it.
pub(crate) struct TagFault<'a> {
    pub(crate) message: &'static str,
    pub(crate) details: Vec<(&'static str, &'a str)>,
}

/// Of objects and buckets.
pub(crate) fn fault_of_tags(pairs: &[(String, String)]) -> Option<TagFault<'_>> {
    let mut keys = HashSet::new();
    for (key, value) in pairs {
        let is_length = (1..=limits::TAG_KEY_CHARS_MAX).contains(&key.chars().count());
        if key.starts_with("aws:") {
            let message = "Your TagKey cannot be prefixed with aws:";
            return Some(TagFault { message, details: vec![("TagKey", key)] });
        }
        if !is_length || !key.chars().all(is_tag_char) {
            let message = "The TagKey you have provided is invalid";
            return Some(TagFault { message, details: vec![("TagKey", key)] });
        }
        if value.chars().count() > limits::TAG_VALUE_CHARS_MAX || !value.chars().all(is_tag_char) {
            let message = "The TagValue you have provided is invalid";
            return Some(TagFault { message, details: vec![("TagKey", key), ("TagValue", value)] });
        }
        if !keys.insert(key.as_str()) {
            let message = "Cannot provide multiple Tags with the same key";
            return Some(TagFault { message, details: vec![("TagKey", key)] });
        }
    }
    None
}

/// Letters, digits, spaces and `+ - = . _ : / @`, by the documentation of Amazon S3.
fn is_tag_char(c: char) -> bool {
    c.is_alphabetic() || c.is_numeric() || (c.is_whitespace() && !c.is_control()) || "+-=._:/@".contains(c)
}

#[cfg(test)]
mod tests;
