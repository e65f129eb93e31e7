//! Requests that are refused before their signature is looked at.

use forebay_types::Algorithm;
use http::header::{
    ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, TRANSFER_ENCODING,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use s3s::S3Error;
use time::OffsetDateTime;

use super::XML_BYTES_MAX;
use super::chunks::{Framing, NO_TRAILER};
use super::credential_scope::{BASIC_TIME, CredentialSource, check_scope, is_basic_time};
use super::documents::{Expected, Kind};
use super::query_string::Query;
use super::{forms, signature_2};
use crate::s3_error::{
    NOT_SIGNED, denied, error_with_status, invalid_digest, invalid_request, invalid_token, method_not_allowed,
    missing_length, no_streaming, with_details, wrong_argument,
};

/// Longest validity of a presigned URL: 7 days, in seconds, as Amazon S3 has it.
const EXPIRES_SECONDS_MAX: u32 = 604_800;
/// Headers besides `x-amz-*` that mean one thing only and must not come twice.
const SINGLE_HEADERS: [&str; 9] = [
    "authorization",
    "host",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "range",
    "if-match",
    "if-none-match",
];

/// `x-amz-*` headers that hold lists, and that SDKs send one value at a time.
const LIST_HEADERS: [&str; 2] = ["x-amz-object-attributes", "x-amz-optional-object-attributes"];

/// Parameters of presigned URLs that are not headers of the request, or only of its transfer, in lower case.
const NOT_HOISTED: [&str; 11] = [
    "x-amz-algorithm",
    "x-amz-content-sha256",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-expires",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-security-token",
    "x-amz-signature",
    "x-amz-signedheaders",
    "x-amz-trailer",
];

/// Begins the names of user metadata.
const METADATA: &str = "x-amz-meta-";

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const DECODED_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");
const PAYLOAD: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");

type Check<T = ()> = Result<T, S3Error>;

/// What the checks found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checked {
    /// The body's framing, when it is aws-chunked.
    pub(crate) framing: Option<Framing>,
    /// What the body must turn out to be, when it is a document.
    pub(crate) document: Option<Expected>,
    /// Headers that the request has elsewhere: in the query of a presigned URL, the time in `Date`, the length in front
    /// of a body that `s3s` does not decode, and that no trailer is announced.
    pub(crate) hoisted: HeaderMap,
    /// Whether the URL is presigned with Signature Version 2.
    pub(crate) is_version_2: bool,
    /// The boundary of the body, when it is a form.
    pub(crate) form: Option<String>,
}

/// Refuses what must not reach the signature check.
pub(crate) fn check(parts: &Parts, region: &str) -> Check<Checked> {
    check_method(parts)?;
    check_headers(&parts.headers)?;
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    let in_header = parts.headers.contains_key(AUTHORIZATION);
    let is_version_2 = signature_2::is_claimed(&query);
    let presigned = query.has_signature_parameters();
    if usize::from(in_header) + usize::from(presigned) + usize::from(is_version_2) > 1 {
        return Err(two_mechanisms());
    }
    let mut time = None;
    if in_header {
        check_mechanism(&parts.headers)?;
        time = Some(check_header_signature(&parts.headers, region)?);
    } else if is_version_2 {
        signature_2::check(&query)?;
        if query.names().any(|name| name.eq_ignore_ascii_case("x-amz-security-token")) {
            return Err(invalid_token());
        }
    } else if presigned {
        check_presigned(&query, &parts.headers, region)?;
    }
    let form = form(parts, &query)?;
    check_document_size(parts, &query, form.is_some())?;
    let framing = match (in_header || presigned, is_version_2) {
        (true, _) => framing(&parts.headers)?,
        (false, true) => framing_of_version_2(&parts.headers)?,
        (false, false) => framing_of_nobody(&parts.headers)?,
    };
    let mut hoisted =
        if presigned || is_version_2 { hoisted(&query, &parts.headers, is_version_2)? } else { HeaderMap::new() };
    if let Some(time) = time.filter(|_| !parts.headers.contains_key(DATE)) {
        hoisted.insert(DATE, time);
    }
    if let Some(length) = parts.headers.get(DECODED_LENGTH).filter(|_| framing == Some(Framing::Anonymous)) {
        hoisted.insert(CONTENT_LENGTH, length.clone());
    }
    if framing.is_some() {
        if parts.method != Method::PUT {
            return Err(no_streaming());
        }
        if may_have_trailer(&parts.headers) && !parts.headers.contains_key(TRAILER) {
            hoisted.insert(TRAILER, HeaderValue::from_static(NO_TRAILER));
        }
    }
    Ok(Checked { framing, document: document(parts, &query, framing, &hoisted)?, hoisted, is_version_2, form })
}

/// A list may come in several headers of the same name (aws-sdk-rust sends `Content-Encoding` so); `s3s` refuses them.
/// What is signed is the same: the values with commas between.
///
/// User metadata of one name is such a list, too: "Working with object metadata", Amazon S3 User Guide.
pub(crate) fn join_lists(headers: &mut HeaderMap) {
    if headers.len() == headers.keys_len() {
        return;
    }
    let metadata: Vec<_> = headers.keys().filter(|name| name.as_str().starts_with(METADATA)).cloned().collect();
    for name in [CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LANGUAGE].into_iter().chain(metadata) {
        let values: Vec<&[u8]> = headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
        if values.len() > 1 {
            let joined = HeaderValue::from_bytes(&values.join(&b','));
            headers.insert(name, joined.expect("what is between commas was valid in a header"));
        }
    }
}

fn check_method(parts: &Parts) -> Check {
    match parts.method {
        Method::GET | Method::HEAD | Method::PUT | Method::POST | Method::DELETE => Ok(()),
        // What a browser asks before it sends a request of another origin. Rules for that are not evaluated here.
        Method::OPTIONS if parts.headers.contains_key(ORIGIN) => {
            let message = "CORSResponse: CORS is not enabled for this bucket.";
            let error = error_with_status("AccessForbidden", StatusCode::FORBIDDEN, message);
            // localstack/localstack, `test_cors_http_options_no_config`.
            let asked = parts.headers.get(ACCESS_CONTROL_REQUEST_METHOD).and_then(|method| method.to_str().ok());
            Err(with_details(error, &[("Method", asked.unwrap_or("OPTIONS")), ("ResourceType", "BUCKET")]))
        }
        Method::OPTIONS => Err(error_with_status(
            "BadRequest",
            StatusCode::BAD_REQUEST,
            "Insufficient information. Origin request header needed.",
        )),
        // Methods that S3 has, but not for this path, get their errors later.
        _ => Err(method_not_allowed(&parts.method, if parts.uri.path() == "/" { "SERVICE" } else { "OBJECT" })),
    }
}

/// Of Amazon S3: versity/versitygw, `UnsignedStreamingPayloadTrailer_no_trailer_should_calculate_crc64nvme`.
fn may_have_trailer(headers: &HeaderMap) -> bool {
    headers.get(PAYLOAD).is_some_and(|payload| payload.as_bytes().ends_with(b"-TRAILER"))
}

fn check_headers(headers: &HeaderMap) -> Check {
    for name in headers.keys() {
        let single = name.as_str().starts_with("x-amz-") && !LIST_HEADERS.contains(&name.as_str())
            || SINGLE_HEADERS.contains(&name.as_str());
        if single && headers.get_all(name).iter().nth(1).is_some() {
            return Err(invalid_request(format!("The header {name} was given twice.")));
        }
    }
    check_checksum_headers(headers)?;
    check_transfer(headers)?;
    check_copy_source(headers)?;
    // scality/cloudserver#281, ceph/s3-tests (`test_object_create_bad_md5_empty`).
    if headers.get("content-md5").is_some_and(|digest| digest.as_bytes().trim_ascii().is_empty()) {
        return Err(invalid_digest(""));
    }
    if !headers.contains_key(HOST) {
        return Err(invalid_request("The Host header is missing."));
    }
    if let Some(length) = headers.get(DECODED_LENGTH)
        && !(length.len() <= 15 && !length.is_empty() && length.as_bytes().iter().all(u8::is_ascii_digit))
    {
        // versity/versitygw, `UnsignedStreamingPayloadTrailer_missing_invalid_dec_content_length`.
        return Err(missing_length());
    }
    Ok(())
}

/// paws-r/paws#819, versity/versitygw#1401; versity/versitygw, its `s3err` (an empty one, which `s3s` takes for none).
fn check_copy_source(headers: &HeaderMap) -> Check {
    const NAME: &str = "x-amz-copy-source";
    let Some(source) = headers.get(NAME) else { return Ok(()) };
    if source.as_bytes().trim_ascii().is_empty() {
        return Err(wrong_argument(NAME, NAME, "Invalid copy source bucket name"));
    }
    let mut encoded = source.as_bytes().split(|byte| *byte == b'%').skip(1);
    if encoded.all(|code| code.len() >= 2 && code[..2].iter().all(u8::is_ascii_hexdigit)) {
        return Ok(());
    }
    let source = String::from_utf8_lossy(source.as_bytes());
    Err(wrong_argument(NAME, &source, "Invalid copy source encoding"))
}

/// `chunked`, once, is the only transfer coding that every reader between the client and us takes for the same. After
/// anything else the connection ends: what follows may be another request to one and the rest of this one to another.
fn check_transfer(headers: &HeaderMap) -> Check {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let wrong = match (codings.next(), codings.next()) {
        (None, _) => return Ok(()),
        (Some(_), _) if headers.contains_key(CONTENT_LENGTH) => {
            "Transfer-Encoding and Content-Length must not come together."
        }
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => return Ok(()),
        (Some(_), _) => "Transfer-Encoding must be chunked, and nothing else.",
    };
    let mut error = invalid_request(wrong);
    // `s3s` replaces all headers by these.
    error.set_headers(HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/xml")),
        (CONNECTION, HeaderValue::from_static("close")),
    ]));
    Err(error)
}

/// The boundary of a form. It is the only signature of its request, and makes an object and nothing else: `s3s` would
/// route by the query, with the form's signature and without a look at its policy.
fn form(parts: &Parts, query: &Query) -> Check<Option<String>> {
    let content_type = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if parts.method != Method::POST || !content_type.to_ascii_lowercase().starts_with(b"multipart/form-data") {
        return Ok(None);
    }
    let text = std::str::from_utf8(content_type).ok().filter(|text| text.is_ascii());
    let Some(boundary) = text.and_then(forms::boundary) else {
        return Err(error_with_status(
            "MalformedPOSTRequest",
            StatusCode::BAD_REQUEST,
            "The boundary of the form is not valid.",
        ));
    };
    if parts.headers.contains_key(AUTHORIZATION) || query.has_signature_parameters() || signature_2::is_claimed(query) {
        return Err(two_mechanisms());
    }
    match query.names().find(|name| !name.to_ascii_lowercase().starts_with("x-")) {
        None => Ok(Some(boundary)),
        Some(name) => Err(not_implemented(&format!("A form with the query parameter {name:?}"))),
    }
}

/// `s3s` reads a document up to its limit and then answers InternalError.
fn check_document_size(parts: &Parts, query: &Query, is_form: bool) -> Check {
    let is_document = (parts.method == Method::POST && !is_form) || query.only("tagging").is_some();
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if is_document && length.is_some_and(|length| length > XML_BYTES_MAX as u64) {
        let message = "Your request was too big.";
        let error = error_with_status("MaxMessageLengthExceeded", StatusCode::BAD_REQUEST, message);
        return Err(with_details(error, &[("MaxMessageLengthBytes", XML_BYTES_MAX.to_string())]));
    }
    Ok(())
}

fn document(parts: &Parts, query: &Query, framing: Option<Framing>, hoisted: &HeaderMap) -> Check<Option<Expected>> {
    let kind = match parts.method {
        Method::POST if query.only("delete").is_some() => Kind::Delete,
        Method::POST if query.only("uploadId").is_some() => Kind::Complete,
        Method::PUT if query.only("tagging").is_some() => Kind::Tagging,
        Method::PUT if query.only("acl").is_some() => Kind::Acl,
        Method::PUT if query.only("ownershipControls").is_some() => Kind::Ownership,
        _ => return Ok(None),
    };
    if framing.is_some() {
        return Err(no_streaming());
    }
    let mut headers = parts.headers.clone();
    headers.extend(hoisted.clone());
    Expected::of(kind, &headers).map(Some)
}

/// SDKs put headers of presigned requests into the query, where the signature covers them (aws-sdk-js: all `x-amz-*`).
///
/// Checksums among them are those of the empty body that was there when the URL was made. Amazon S3 compares them with
/// nothing: aws/aws-sdk-go-v2#2610, localstack/localstack#12164 (checked against it).
fn hoisted(query: &Query, headers: &HeaderMap, is_version_2: bool) -> Check<HeaderMap> {
    let mut hoisted = HeaderMap::new();
    for (name, value) in &query.parameters {
        let name = name.to_ascii_lowercase();
        let is_header = if is_version_2 { signature_2::is_header(&name) } else { name.starts_with("x-amz-") };
        let is_setting = ["algorithm", "mode", "type"].iter().any(|setting| name.ends_with(setting));
        let is_old_checksum = !is_version_2 && name.starts_with("x-amz-checksum-") && !is_setting;
        if !is_header || is_old_checksum || NOT_HOISTED.contains(&name.as_str()) {
            continue;
        }
        let wrong = || invalid_request(format!("The query parameter {name:?} is not valid as a header."));
        let header = HeaderName::try_from(&name).map_err(|_| wrong())?;
        if is_version_2 && headers.get(&header).is_some_and(|given| given == value.as_str()) {
            continue;
        }
        if headers.contains_key(&header) || hoisted.contains_key(&header) {
            return Err(invalid_request(format!("The header {name} was given twice.")));
        }
        hoisted.insert(header, HeaderValue::try_from(value).map_err(|_| wrong())?);
    }
    check_checksum_headers(&hoisted)?;
    Ok(hoisted)
}

/// A checksum that nobody compares would be worse than none.
fn check_checksum_headers(headers: &HeaderMap) -> Check {
    let unknown = headers.keys().find(|name| {
        let rest = name.as_str().strip_prefix("x-amz-checksum-");
        rest.is_some_and(|rest| {
            !["algorithm", "mode", "type"].contains(&rest)
                && !Algorithm::ALL.iter().any(|algorithm| algorithm.header() == name.as_str())
        })
    });
    match unknown {
        None => Ok(()),
        // versity/versitygw#1593.
        Some(_) => Err(invalid_request("The algorithm type you specified in x-amz-checksum- header is invalid.")),
    }
}

/// As Amazon S3 says it: catalyst/moodle-tool_objectfs#303, lukejacksonn/react-slack-clone#77.
fn two_mechanisms() -> S3Error {
    let message = "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string parameter or the \
                   Authorization header should be specified";
    error_with_status("InvalidArgument", StatusCode::BAD_REQUEST, message)
}

/// Signature Version 4 is the only one that is taken in a header.
fn check_mechanism(headers: &HeaderMap) -> Check {
    let value = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    // Amazon S3 repeats the value too, which may be somebody's password.
    let invalid = |message| {
        let error = error_with_status("InvalidArgument", StatusCode::BAD_REQUEST, message);
        with_details(error, &[("ArgumentName", "Authorization")])
    };
    let Some(end) = value.iter().position(|byte| *byte == b' ') else {
        return Err(invalid("Authorization header is invalid -- one and only one ' ' (space) required."));
    };
    match &value[..end] {
        b"AWS4-HMAC-SHA256" => Ok(()),
        b"AWS" => Err(invalid_request(
            "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.",
        )),
        _ => Err(invalid("Unsupported Authorization Type")),
    }
}

/// Returns the time of the request.
fn check_header_signature(headers: &HeaderMap, region: &str) -> Check<HeaderValue> {
    let malformed = |what: &str| CredentialSource::Header.malformed(what);
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let fields = text("authorization").and_then(|value| value.strip_prefix("AWS4-HMAC-SHA256 ")).unwrap_or_default();
    let fields: Vec<&str> = fields.split(',').map(str::trim).filter(|field| !field.is_empty()).collect();
    if fields.len() != 3 {
        let needed = "the authorization header requires three components: Credential, SignedHeaders, and Signature.";
        return Err(malformed(needed));
    }
    if let Some(field) = fields.iter().find(|field| !field.contains('=')) {
        return Err(malformed(&format!("the authorization component \"{field}\" is malformed.")));
    }
    // Of three none can be there twice, and so mean one thing here and another in the signature check.
    let field = |name: &str| {
        let found = fields.iter().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        found.ok_or_else(|| malformed(&format!("missing {name}.")))
    };
    let (credential, signed_headers) = (field("Credential")?, field("SignedHeaders")?);
    field("Signature")?;
    let time = time_of(headers, signed_headers);
    check_scope(credential, time.as_deref(), region, CredentialSource::Header)?;
    check_signed_headers(signed_headers, headers)?;
    let time = time.and_then(|time| HeaderValue::try_from(time).ok());
    let time = time.ok_or_else(|| denied("AWS authentication requires a valid Date or x-amz-date header"))?;
    if !headers.contains_key(PAYLOAD) {
        // versity/versitygw#1427.
        return Err(invalid_request("Missing required header for this request: x-amz-content-sha256"));
    }
    Ok(time)
}

/// The time that a request says it was signed at, as `x-amz-date` has it. Without that header it is in a `Date` that is
/// signed, in the same form or in that of HTTP.
fn time_of(headers: &HeaderMap, signed: &str) -> Option<String> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    if headers.contains_key(DATE) {
        return text(DATE.as_str()).filter(|text| is_basic_time(text)).map(str::to_owned);
    }
    let date = text("date").filter(|_| signed.split(';').any(|name| name == "date"))?;
    if is_basic_time(date) {
        return Some(date.to_owned());
    }
    OffsetDateTime::from(httpdate::parse_http_date(date).ok()?).format(BASIC_TIME).ok()
}

/// What a presigned URL of Version 4 cannot do without.
const PRESIGNED: [&str; 6] =
    ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "X-Amz-Date", "X-Amz-SignedHeaders", "X-Amz-Expires"];

fn check_presigned(query: &Query, headers: &HeaderMap, region: &str) -> Check {
    let malformed = |message: &'static str| {
        error_with_status("AuthorizationQueryParametersError", StatusCode::BAD_REQUEST, message)
    };
    let given = |name: &str| {
        query.only(name).ok_or_else(|| {
            malformed(
                "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, \
                 X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.",
            )
        })
    };
    for name in PRESIGNED {
        given(name)?;
    }
    if given("X-Amz-Algorithm")? != "AWS4-HMAC-SHA256" {
        return Err(malformed("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
    }
    // JustinM1/S3SignerAWS#12.
    if !is_basic_time(given("X-Amz-Date")?) {
        return Err(malformed("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\""));
    }
    check_expires(given("X-Amz-Expires")?, malformed)?;
    check_scope(given("X-Amz-Credential")?, query.only("X-Amz-Date"), region, CredentialSource::Query)?;
    check_signed_headers(given("X-Amz-SignedHeaders")?, headers)
}

fn check_expires(text: &str, malformed: impl Fn(&'static str) -> S3Error) -> Check {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed("X-Amz-Expires should be a number"));
    }
    match (text.starts_with('-'), digits.parse::<u32>()) {
        // Of Amazon S3: fog/fog#3528, fog/fog-aws#188.
        (true, _) => Err(malformed("X-Amz-Expires must be non-negative")),
        // It was over before it began.
        (false, Ok(0)) => Err(denied("Request has expired")),
        (false, Ok(1..=EXPIRES_SECONDS_MAX)) => Ok(()),
        (false, _) => Err(malformed(
            "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 \
             seconds",
        )),
    }
}

fn check_signed_headers(signed: &str, headers: &HeaderMap) -> Check {
    let is_signed = |name: &str| signed.split(';').any(|signed| signed == name);
    let mut names: Vec<_> = signed.split(';').collect();
    names.sort_unstable();
    // `s3s` would write the value of a header as often as it is named, for megabytes of one head.
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(denied("SignedHeaders must name each header once."));
    }
    // `s3s` leaves such values out of what it compares with the signature, and an operation would still see them.
    let is_text = |value: &HeaderValue| std::str::from_utf8(value.as_bytes()).is_ok();
    if let Some((name, _)) = headers.iter().find(|(name, value)| is_signed(name.as_str()) && !is_text(value)) {
        return Err(invalid_request(format!("The value of the signed header {name} is not UTF-8.")));
    }
    let unsigned = headers.keys().map(HeaderName::as_str).filter(|name| name.starts_with("x-amz-") && !is_signed(name));
    match unsigned.collect::<Vec<_>>().as_slice() {
        names @ [_, ..] => Err(denied(format!("{NOT_SIGNED}: {}", names.join(", ")))),
        [] if !is_signed("host") => Err(denied("The Host header must be signed.")),
        [] => Ok(()),
    }
}

/// Sources: irods/irods_resource_plugin_s3#1833 (a value that is none), versity/versitygw#1554 (without a signature).
fn framing(headers: &HeaderMap) -> Check<Option<Framing>> {
    let Some(value) = headers.get(PAYLOAD) else { return Ok(None) };
    let framing = match value.as_bytes() {
        b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD" | b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => Some(Framing::Signed),
        b"STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Some(Framing::Unsigned),
        b"UNSIGNED-PAYLOAD" => None,
        b"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD" | b"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER" => {
            return Err(not_implemented("A signature of AWS4-ECDSA-P256-SHA256"));
        }
        hash if hash.len() == 64 && hash.iter().all(u8::is_ascii_hexdigit) => None,
        wrong => {
            let message = "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
                           STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, \
                           STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD, STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER or \
                           a valid sha256 value.";
            return Err(wrong_argument(PAYLOAD.as_str(), &String::from_utf8_lossy(wrong), message));
        }
    };
    Ok(framing)
}

/// Nobody signs with Version 2 and sends a body in chunks.
fn framing_of_version_2(headers: &HeaderMap) -> Check<Option<Framing>> {
    match framing(headers)? {
        None => Ok(None),
        Some(_) => Err(denied("A streaming payload needs a request that is signed with AWS4-HMAC-SHA256.")),
    }
}

/// Who has no keys cannot sign chunks. SDKs send unsigned ones over TLS (minio/minio#21005).
fn framing_of_nobody(headers: &HeaderMap) -> Check<Option<Framing>> {
    match framing(headers)? {
        None => Ok(None),
        Some(Framing::Unsigned) if !headers.contains_key(DECODED_LENGTH) => Err(missing_length()),
        Some(Framing::Unsigned | Framing::Anonymous) => Ok(Some(Framing::Anonymous)),
        Some(Framing::Signed) => Err(invalid_request(
            "Anonymous requests don't support this x-amz-content-sha256 value. Please use UNSIGNED-PAYLOAD or \
             STREAMING-UNSIGNED-PAYLOAD-TRAILER.",
        )),
    }
}

fn not_implemented(what: &str) -> S3Error {
    error_with_status("NotImplemented", StatusCode::NOT_IMPLEMENTED, format!("{what} is not implemented."))
}

#[cfg(test)]
mod tests;
