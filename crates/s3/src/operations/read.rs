//! GetObject, HeadObject, GetObjectAttributes.

use forebay_auth::{Action, User};
use forebay_cache::{Error, ErrorKind, GetObject, ObjectHead, RangeRequest};
use forebay_types::{ChecksumKind, Checksums, ObjectInfo};
use futures::{FutureExt, StreamExt, TryStreamExt};
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES, HeaderName,
};
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::StreamBody;
use s3s::dto::{
    GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectAttributesParts, GetObjectInput, GetObjectOutput,
    HeadObjectInput, HeadObjectOutput, ObjectPart, Range, StreamingBlob,
};
use s3s::{Body, S3Request, S3Response, S3Result, s3_error};

use super::{ErrorMapper, Operations, only_null_version};
use crate::checksums::{self, set_checksums, set_checksums_and_type};
use crate::context::{caller, is_signed};
use crate::s3_error::{with_details, wrong_argument};
use crate::s3s_types;

/// What S3 calls an object that came without a type.
const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";
/// What GetObjectAttributes can be asked for.
const ATTRIBUTES: [&str; 5] = ["Checksum", "ETag", "ObjectParts", "ObjectSize", "StorageClass"];
/// Most parts that GetObjectAttributes shows at once.
const PARTS_MAX: i32 = 1000;

/// The request to the cache; both inputs have the same fields.
macro_rules! get_request {
    ($request:expr) => {{
        let input = &mut $request.input;
        only_null_version(input.version_id.as_deref())?;
        if input.range.is_some() && input.part_number.is_some() {
            return Err(s3_error!(InvalidRequest, "Cannot specify both Range header and partNumber query parameter"));
        }
        GetObject {
            path: s3s_types::path(&input.bucket, &input.key)?,
            range: input.range.map(requested_range),
            part_number: input.part_number.map(part_number).transpose()?,
            conditions: s3s_types::read_conditions(
                &$request.headers,
                "",
                input.if_modified_since.take(),
                input.if_unmodified_since.take(),
            )?,
            no_cache: s3s_types::no_cache(&$request.headers),
        }
    }};
}

/// What `response-*` parameters ask for; both inputs have the same fields.
macro_rules! overrides {
    ($request:expr) => {{
        let input = &$request.input;
        override_headers([
            (CACHE_CONTROL, input.response_cache_control.clone()),
            (CONTENT_DISPOSITION, input.response_content_disposition.clone()),
            (CONTENT_ENCODING, input.response_content_encoding.clone()),
            (CONTENT_LANGUAGE, input.response_content_language.clone()),
            (CONTENT_TYPE, input.response_content_type.clone()),
            (
                EXPIRES,
                s3s_types::response_expires(&$request.extensions)
                    .or_else(|| s3s_types::expires(input.response_expires.clone())),
            ),
        ])?
    }};
}

/// The fields that GET and HEAD share.
macro_rules! describe {
    ($output:ident, $head:expr, $part:expr) => {{
        let (head, part): (&ObjectHead, Option<u32>) = ($head, $part);
        let info = &head.info;
        $output {
            accept_ranges: Some("bytes".to_owned()),
            cache_control: info.headers.cache_control.clone(),
            content_disposition: info.headers.content_disposition.clone(),
            content_encoding: info.headers.content_encoding.clone(),
            content_language: info.headers.content_language.clone(),
            content_length: Some(s3s_types::size(head.range.len())),
            content_type: Some(info.headers.content_type.clone().unwrap_or_else(|| DEFAULT_CONTENT_TYPE.to_owned())),
            e_tag: Some(s3s_types::etag(&info.etag)),
            last_modified: Some(s3s_types::timestamp(info.last_modified_ms)),
            metadata: (!info.user.is_empty()).then(|| info.user.clone().into_iter().collect()),
            parts_count: part.filter(|_| !info.parts.is_empty()).map(|_| info.parts.len() as i32),
            storage_class: info.headers.storage_class.clone().map(Into::into),
            website_redirect_location: info.headers.website_redirect_location.clone(),
            ..$output::default()
        }
    }};
}

impl Operations {
    pub(super) async fn read_object(
        &self,
        mut request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let get = get_request!(request);
        let user = caller(&request)?;
        let overrides = overrides!(request);
        refuse_anonymous(!is_signed(&request), &overrides)?;
        let mapper = ErrorMapper::of(&request, "GetObject");
        let mut response = self.send_object(get, &user, mapper, request.input.checksum_mode.is_some()).await?;
        response.headers.extend(overrides);
        Ok(response)
    }

    /// GetObject of a user who may do it.
    pub(crate) async fn send_object(
        &self,
        get: GetObject,
        user: &User,
        mapper: ErrorMapper,
        checksum_mode: bool,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let (path, part, range) = (get.path.clone(), get.part_number, get.range);
        let body = self.cache.get(get).await.map_err(|error| refuse(error, range, part, user, &path, &mapper))?;
        let mut output = describe!(GetObjectOutput, &body.head, part);
        output.content_range = content_range(&body.head);
        output.tag_count = (!body.head.info.tags.is_empty()).then(|| body.head.info.tags.len() as i32);
        let ErrorMapper { request_id, operation } = mapper;
        let mut stream = body.stream;
        let sent = match stream.next().now_or_never() {
            Some(Some(Ok(all))) if all.len() as u64 == body.head.range.len() => Body::from(all),
            Some(None) => Body::empty(),
            first => {
                let first = futures::stream::iter(first.flatten());
                let stream = first.chain(stream).map_ok(Frame::data).inspect_err(move |error| {
                    // The status has been sent: all that is left is to break off, and to say why in the log.
                    tracing::warn!(request_id, operation, %error, "answer broken off");
                });
                Body::http_body_unsync(StreamBody::new(stream))
            }
        };
        output.body = Some(StreamingBlob::from(sent));
        Ok(answer(output, &body.head, shown_checksums(&body.head, part).filter(|_| checksum_mode)))
    }

    pub(super) async fn describe_object(
        &self,
        mut request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let get = get_request!(request);
        let user = caller(&request)?;
        let overrides = overrides!(request);
        refuse_anonymous(!is_signed(&request), &overrides)?;
        let (path, part, range) = (get.path.clone(), get.part_number, get.range);
        let mapper = ErrorMapper::of(&request, "HeadObject");
        let head = self.cache.head(get).await.map_err(|error| refuse(error, range, part, &user, &path, &mapper))?;
        let checksum_mode = request.input.checksum_mode.is_some();
        let mut output = describe!(HeadObjectOutput, &head, part);
        output.content_range = content_range(&head);
        let mut response = answer(output, &head, shown_checksums(&head, part).filter(|_| checksum_mode));
        response.headers.extend(overrides);
        if !head.info.tags.is_empty() {
            response.headers.insert("x-amz-tagging-count", head.info.tags.len().into());
        }
        Ok(response)
    }

    pub(super) async fn describe_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        let input = &request.input;
        only_null_version(input.version_id.as_deref())?;
        // One header with commas, or one for each.
        let named = || input.object_attributes.iter().flat_map(|header| header.as_str().split(',')).map(str::trim);
        if let Some(unknown) = named().find(|name| !ATTRIBUTES.contains(name)) {
            return Err(wrong_argument("x-amz-object-attributes", unknown, "Invalid attribute name specified."));
        }
        let path = s3s_types::path(&input.bucket, &input.key)?;
        let get = GetObject { no_cache: s3s_types::no_cache(&request.headers), ..GetObject::whole(path.clone()) };
        let user = caller(&request)?;
        let mapper = ErrorMapper::of(&request, "GetObjectAttributes");
        let head = self.cache.head(get).await.map_err(|error| hide(error, &user, &path, &mapper))?;
        let info = &head.info;
        let wants = |wanted: &str| named().any(|name| name == wanted);
        let checksum = (wants("Checksum") && !info.checksums.values.is_empty()).then(|| {
            let mut checksum = s3s::dto::Checksum::default();
            set_checksums_and_type!(checksum, &info.checksums, 0);
            checksum
        });
        let output = GetObjectAttributesOutput {
            checksum,
            e_tag: wants("ETag").then(|| s3s_types::etag(&info.etag)),
            last_modified: Some(s3s_types::timestamp(info.last_modified_ms)),
            object_parts: (wants("ObjectParts") && !info.parts.is_empty())
                .then(|| attribute_parts(info, input.part_number_marker, input.max_parts)),
            object_size: wants("ObjectSize").then(|| s3s_types::size(info.size)),
            storage_class: wants("StorageClass")
                .then(|| info.headers.storage_class.clone().unwrap_or_else(|| "STANDARD".to_owned()).into()),
            ..GetObjectAttributesOutput::default()
        };
        Ok(S3Response::new(output))
    }
}

/// Who may not list must not learn which names there are.
pub(super) fn hide(
    error: forebay_cache::Error,
    user: &User,
    path: &forebay_types::ObjectPath,
    mapper: &ErrorMapper,
) -> s3s::S3Error {
    if error.kind == ErrorKind::NotFound && !user.may(Action::List, &format!("/{path}")) {
        return s3_error!(AccessDenied, "Access Denied");
    }
    mapper.answer(error)
}

/// The answer for a failed read. Sources: localstack/localstack, `test_invalid_range_error` and `test_get_object_part`.
fn refuse(
    error: forebay_cache::Error,
    range: Option<RangeRequest>,
    part: Option<u32>,
    user: &User,
    path: &forebay_types::ObjectPath,
    mapper: &ErrorMapper,
) -> s3s::S3Error {
    let details = match (&error, range, part) {
        (Error { kind: ErrorKind::InvalidRange, object: Some(found), .. }, Some(range), _) => {
            vec![("RangeRequested", range_text(range)), ("ActualObjectSize", found.size.to_string())]
        }
        (Error { kind: ErrorKind::InvalidPartNumber, object: Some(found), .. }, _, Some(part)) => {
            // An object from a single PUT is its own part.
            vec![("PartNumberRequested", part.to_string()), ("ActualPartCount", found.parts.len().max(1).to_string())]
        }
        _ => Vec::new(),
    };
    with_details(hide(error, user, path, mapper), &details)
}

fn range_text(range: RangeRequest) -> String {
    match range {
        RangeRequest::From { first, last: None } => format!("bytes={first}-"),
        RangeRequest::From { first, last: Some(last) } => format!("bytes={first}-{last}"),
        RangeRequest::Suffix { length } => format!("bytes=-{length}"),
    }
}

pub(crate) fn requested_range(range: Range) -> RangeRequest {
    match range {
        Range::Int { first, last } => RangeRequest::From { first, last },
        Range::Suffix { length } => RangeRequest::Suffix { length },
    }
}

pub(super) fn part_number(number: i32) -> S3Result<u32> {
    u32::try_from(number)
        .ok()
        .filter(|number| (1..=forebay_types::limits::PART_NUMBER_MAX).contains(number))
        .ok_or_else(|| {
            let message = "Part number must be an integer between 1 and 10000, inclusive";
            wrong_argument("partNumber", &number.to_string(), message)
        })
}

/// The headers of the answer that a request asks for.
fn override_headers(given: [(HeaderName, Option<String>); 6]) -> S3Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let Some(value) = value else { continue };
        let wrong = |_| s3s_types::invalid_argument(format!("The response header {name} is not valid."));
        let value = match value.is_ascii() {
            true => HeaderValue::try_from(value).map_err(wrong)?,
            false => HeaderValue::from_bytes(&latin_1(&name, &value)?).map_err(wrong)?,
        };
        headers.insert(name, value);
    }
    Ok(headers)
}

/// A header of an answer in ISO-8859-1: localstack/localstack,
/// `test_get_response_overrides_unicode_metadata_with_sig_s3`.
fn latin_1(name: &HeaderName, value: &str) -> S3Result<Vec<u8>> {
    let bytes: Result<_, _> = value.chars().map(u8::try_from).collect();
    let message = "Header value cannot be represented using ISO-8859-1.";
    bytes.map_err(|_| wrong_argument(&format!("response-{name}"), value, message))
}

fn refuse_anonymous(anonymous: bool, overrides: &HeaderMap) -> S3Result<()> {
    if anonymous && !overrides.is_empty() {
        let message = "Request specific response headers cannot be used for anonymous GET requests.";
        return Err(s3_error!(InvalidRequest, "{}", message));
    }
    Ok(())
}

fn content_range(head: &ObjectHead) -> Option<String> {
    let range = head.range;
    (head.is_partial && !range.is_empty())
        .then(|| format!("bytes {}-{}/{}", range.start, range.end - 1, head.info.size))
}

/// The checksums that fit the bytes of the answer, the number of parts that a composite one covers, and the kind, which
/// is always the object's: localstack/localstack, `test_get_object_part_checksum`.
fn shown_checksums(head: &ObjectHead, part: Option<u32>) -> Option<(&Checksums, usize, ChecksumKind)> {
    let info = &head.info;
    match part {
        // Of several parts only those of a composite checksum show one: localstack/localstack#12842.
        Some(_) if info.parts.len() > 1 && info.checksums.kind == ChecksumKind::FullObject => None,
        Some(number) if !info.parts.is_empty() => {
            let found = info.parts.iter().find(|part| part.number == number);
            found.map(|part| (&part.checksums, 0, info.checksums.kind))
        }
        _ if head.range.len() == info.size => Some((&info.checksums, info.parts.len(), info.checksums.kind)),
        _ => None,
    }
}

/// The output with the headers that `s3s` has no field for, and with the checksums, of which it knows only some.
fn answer<T>(output: T, head: &ObjectHead, checksums: Option<(&Checksums, usize, ChecksumKind)>) -> S3Response<T> {
    let mut headers = HeaderMap::new();
    if let Some((checksums, parts, kind)) = checksums {
        checksums::set_checksum_headers(&mut headers, checksums, parts);
        checksums::set_type_header(&mut headers, checksums, kind);
    }
    let state = format!("{}; cached={}/{}", head.state.as_str(), head.cached_bytes, head.info.size);
    let expires = head.info.headers.expires.as_deref();
    for (name, value) in [("x-forebay-state", Some(state.as_str())), ("expires", expires)] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    S3Response::with_headers(output, headers)
}

fn attribute_parts(info: &ObjectInfo, marker: Option<i32>, max: Option<i32>) -> GetObjectAttributesParts {
    let has_composite_checksum = info.checksums.kind == ChecksumKind::Composite
        && info.parts.iter().any(|part| !part.checksums.values.is_empty());
    let total_parts_count = Some(info.parts.len() as i32);
    // S3 shows the parts themselves only when the object's checksum is of theirs: localstack/localstack#12764.
    if !has_composite_checksum {
        return GetObjectAttributesParts { total_parts_count, ..GetObjectAttributesParts::default() };
    }
    let marker = marker.unwrap_or(0);
    let max = max.unwrap_or(PARTS_MAX).clamp(0, PARTS_MAX);
    let mut rest = info.parts.iter().filter(|part| i64::from(part.number) > i64::from(marker));
    let parts: Vec<ObjectPart> = rest
        .by_ref()
        .take(max as usize)
        .map(|part| {
            let mut shown = ObjectPart {
                part_number: Some(part.number as i32),
                size: Some(s3s_types::size(part.size)),
                ..ObjectPart::default()
            };
            set_checksums!(shown, &part.checksums, 0);
            shown
        })
        .collect();
    GetObjectAttributesParts {
        is_truncated: Some(rest.next().is_some()),
        max_parts: Some(max),
        next_part_number_marker: parts.last().and_then(|part| part.part_number),
        part_number_marker: Some(marker),
        parts: Some(parts),
        total_parts_count,
    }
}
