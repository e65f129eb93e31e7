//! The last touch to an answer.

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use quick_xml::escape::{escape, unescape};
use s3s::{Body, HttpResponse, S3Error, StdError};

use super::credential_scope::WRONG_REGION;
use super::parser_words::in_words_of_s3;
use crate::context::RequestContext;
use crate::s3_error::{DETAILS, NOT_SIGNED, denied, error_with_status, read_details};

/// Seconds that a client is asked to wait before it tries again: SDKs back off from there.
const RETRY_AFTER_SECONDS: &str = "1";

/// What `s3s` says of a presigned URL from the future.
pub(crate) const NOT_YET_VALID: &str = "request date is later than server time too much";

/// Operations that read one object and write another.
const COPIES: [&str; 2] = ["CopyObject", "UploadPartCopy"];

/// Where an operation leaves the URL of the object that a form has made.
pub(crate) const FORM_LOCATION: HeaderName = HeaderName::from_static("x-forebay-location");

/// Puts the request's id on every answer, takes the body from a 304, and gives a HEAD of a part its status.
pub(crate) fn finish(mut response: HttpResponse, context: &RequestContext, region: &str) -> HttpResponse {
    if context.operation() == "HeadObject" && response.headers().contains_key(CONTENT_RANGE) {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    complete_error(&mut response, context, region);
    // "Response Elements" of HeadBucket, Amazon S3 API Reference: also where access is denied. Listings:
    // versity/versitygw#1814.
    let tells_region = match context.operation() {
        "HeadBucket" => response.status() == StatusCode::FORBIDDEN,
        "ListObjects" | "ListObjectsV2" => response.status().is_success(),
        _ => false,
    };
    if tells_region && let Ok(region) = HeaderValue::try_from(region) {
        response.headers_mut().insert("x-amz-bucket-region", region);
    }
    let is_object = context.operation() == "GetObject" && response.status().is_success();
    if !is_object {
        escape_controls(&mut response);
    }
    if response.status() == StatusCode::NOT_MODIFIED {
        *response.body_mut() = Body::empty();
        response.headers_mut().remove(CONTENT_TYPE);
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        let seconds = HeaderValue::from_static(RETRY_AFTER_SECONDS);
        response.headers_mut().entry(RETRY_AFTER).or_insert(seconds);
    }
    let headers = response.headers_mut();
    headers.insert("x-amz-request-id", HeaderValue::from_str(&context.id).expect("a request id is hex"));
    headers.insert("server", HeaderValue::from_static("Forebay"));
    // A browser must not make a page of what somebody stored as text.
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// Control characters in keys. What reads XML takes a plain carriage return for a line feed, and so for another key.
/// XML has no way to write the others: Amazon S3 writes references to them, which lax readers take, and has
/// `encoding-type=url` for all readers.
fn escape_controls(response: &mut HttpResponse) {
    let is_document = response.headers().get(CONTENT_TYPE).is_some_and(|value| value == "application/xml");
    let is_escaped = |byte: &u8| *byte < b' ' && !matches!(byte, b'\t' | b'\n');
    let Some(document) = response.body().bytes().filter(|document| is_document && document.iter().any(is_escaped))
    else {
        return;
    };
    let mut escaped = Vec::with_capacity(document.len() + 64);
    for byte in document.iter() {
        match byte {
            b'\r' => escaped.extend_from_slice(b"&#13;"),
            byte if is_escaped(byte) => escaped.extend_from_slice(format!("&#x{byte:x};").as_bytes()),
            byte => escaped.push(*byte),
        }
    }
    *response.body_mut() = Body::from(escaped);
    response.headers_mut().remove(CONTENT_LENGTH);
}

/// Every error of S3 says which request it is about, and in words what is wrong. `s3s` leaves both out where it refuses
/// itself.
fn complete_error(response: &mut HttpResponse, context: &RequestContext, region: &str) {
    let details = response.headers_mut().remove(DETAILS);
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    let Some(document) = response.body().bytes().filter(|_| is_error) else { return };
    let Some((start, code)) = std::str::from_utf8(&document).ok().and_then(|text| {
        let (start, _) = text.split_once("</Error>")?;
        let (_, code) = text.split_once("<Code>")?;
        Some((start, code.split_once("</Code>")?.0))
    }) else {
        return;
    };
    let mut completed = in_words_of_s3(start);
    if let Some((before, behind)) = start.split_once(NOT_YET_VALID) {
        // minio/minio#2638.
        let before = before.replace("<Code>RequestTimeTooSkewed<", "<Code>AccessDenied<");
        completed = format!("{before}Request is not yet valid{behind}");
    } else if code == "RequestTimeTooSkewed"
        && let Some((before, (_, behind))) =
            start.split_once("<Message>").and_then(|(before, rest)| Some((before, rest.split_once("</Message>")?)))
    {
        // `s3s` has words of its own.
        completed = format!("{before}{behind}");
    }
    if let Some((before, behind)) = start.split_once(NOT_SIGNED)
        && let Some((name, behind)) = behind.trim_start_matches([':', ' ']).split_once("</Message>")
    {
        completed = format!("{before}{NOT_SIGNED}</Message>{behind}<HeadersNotSigned>{name}</HeadersNotSigned>");
    }
    if !completed.contains("<Message>") {
        completed.push_str(&format!("<Message>{}</Message>", message_of(code)));
    }
    let mut details = details.as_ref().map(read_details).unwrap_or_default();
    let names_place = |(name, _): &(String, String)| name == "Key" || name == "BucketName";
    if !details.iter().any(names_place) {
        details.extend(place_of(code, context));
    }
    for (name, value) in &details {
        completed.push_str(&format!("<{name}>{}</{name}>", escape(value)));
    }
    if !start.contains("<RequestId>") {
        completed.push_str(&format!("<RequestId>{}</RequestId>", context.id));
    }
    // What clients look for: s3fs concludes from the condition that a file exists, boto3 and s3cmd sign again for the
    // region.
    let is_told = || details.iter().any(|(name, _)| name == "Condition");
    let is_conditional = matches!(code, "PreconditionFailed" | "ConditionalRequestConflict");
    if let Some(condition) = context.condition.get().filter(|_| is_conditional && !is_told()) {
        completed.push_str(&format!("<Condition>{condition}</Condition>"));
    }
    if start.contains(WRONG_REGION) {
        completed.push_str(&format!("<Region>{region}</Region>"));
        // To a HEAD that is all that is said.
        if let Ok(region) = HeaderValue::try_from(region) {
            response.headers_mut().insert("x-amz-bucket-region", region);
        }
    }
    completed.push_str("</Error>");
    *response.body_mut() = Body::from(completed);
    response.headers_mut().remove(CONTENT_LENGTH);
}

/// What is not there, by its name. A copy has two of each, and tells itself when it is the source's.
fn place_of(code: &str, context: &RequestContext) -> Option<(String, String)> {
    let (bucket, key) = context.target.get()?;
    match code {
        "NoSuchKey" if COPIES.contains(&context.operation()) => None,
        "NoSuchBucket"
        | "BucketNotEmpty"
        | "BucketAlreadyOwnedByYou"
        | "NoSuchBucketPolicy"
        | "NoSuchCORSConfiguration"
        | "NoSuchLifecycleConfiguration"
        | "NoSuchPublicAccessBlockConfiguration"
        | "NoSuchWebsiteConfiguration"
        | "ObjectLockConfigurationNotFoundError"
        | "ReplicationConfigurationNotFoundError"
        | "ServerSideEncryptionConfigurationNotFoundError" => {
            bucket.clone().map(|bucket| ("BucketName".to_owned(), bucket))
        }
        "NoSuchKey" | "NoSuchVersion" | "ConditionalRequestConflict" => key.clone().map(|key| ("Key".to_owned(), key)),
        _ => None,
    }
}

/// What Amazon S3 says to errors that `s3s` gives no words, and to those of a store behind, whose words stay here.
/// Sources of the latter: localstack/localstack, `TestS3BucketPolicy`, `TestS3Cors`, `TestS3BucketLifecycle`,
/// `TestS3BucketReplication`, `TestS3ObjectLockRetention` and others that ask for what is not there.
fn message_of(code: &str) -> &'static str {
    match code {
        "AccessDenied" => "Access Denied",
        "InvalidBucketName" => "The specified bucket is not valid.",
        "InvalidURI" => "Couldn't parse the specified URI.",
        "KeyTooLongError" => "Your key is too long",
        "MalformedPOSTRequest" => "The body of your POST request is not well-formed multipart/form-data.",
        "MalformedXML" => "The XML you provided was not well-formed or did not validate against our published schema",
        // aws/aws-sdk-cpp#733.
        "MissingRequestBodyError" => "Request Body is empty",
        "MethodNotAllowed" => "The specified method is not allowed against this resource.",
        "NoSuchBucket" => "The specified bucket does not exist",
        "NoSuchBucketPolicy" => "The bucket policy does not exist",
        "NoSuchConfiguration" => "The specified configuration does not exist.",
        "NoSuchCORSConfiguration" => "The CORS configuration does not exist",
        "NoSuchKey" => "The specified key does not exist.",
        "NoSuchLifecycleConfiguration" => "The lifecycle configuration does not exist",
        "NoSuchObjectLockConfiguration" => "The specified object does not have a ObjectLock configuration",
        "NoSuchPublicAccessBlockConfiguration" => "The public access block configuration was not found",
        "NoSuchVersion" => "The specified version does not exist.",
        "NoSuchWebsiteConfiguration" => "The specified bucket does not have a website configuration",
        "NotImplemented" => "A header you provided implies functionality that is not implemented",
        "ObjectLockConfigurationNotFoundError" => "Object Lock configuration does not exist for this bucket",
        "ReplicationConfigurationNotFoundError" => "The replication configuration was not found",
        "RequestTimeTooSkewed" => "The difference between the request time and the current time is too large.",
        "ServerSideEncryptionConfigurationNotFoundError" => "The server side encryption configuration was not found",
        "SignatureDoesNotMatch" => {
            "The request signature we calculated does not match the signature you provided. Check your key and signing method."
        }
        _ => "The request cannot be carried out.",
    }
}

/// The answer to a form. One that breaks its policy is AccessDenied in S3; `s3s` calls the policy's document invalid.
/// The document of a 201 says where the object is, as the header does; `s3s` leaves out the host.
pub(crate) async fn form(mut response: HttpResponse, request_id: &str) -> Result<HttpResponse, StdError> {
    if let Some(location) = response.headers_mut().remove(FORM_LOCATION)
        && response.status().is_success()
    {
        response.headers_mut().insert(LOCATION, location);
    }
    match response.status() {
        StatusCode::CREATED => locate_form(response).await,
        StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN => refuse_form(response, request_id).await,
        _ => Ok(response),
    }
}

async fn locate_form(response: HttpResponse) -> Result<HttpResponse, StdError> {
    let (mut parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body);
    let location = parts.headers.get(LOCATION).and_then(|location| location.to_str().ok());
    let located = match (location, text.split_once("<Location>"), text.split_once("</Location>")) {
        // A URL is percent-encoded: nothing in it needs escaping but the ampersand, which no path here holds.
        (Some(location), Some((before, _)), Some((_, after))) => {
            format!("{before}<Location>{location}</Location>{after}")
        }
        _ => text.into_owned(),
    };
    parts.headers.remove(CONTENT_LENGTH);
    Ok(HttpResponse::from_parts(parts, Body::from(located)))
}

async fn refuse_form(response: HttpResponse, request_id: &str) -> Result<HttpResponse, StdError> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body);
    match form_words(&text) {
        Some(error) => Ok(refuse(error, request_id)),
        None => Ok(HttpResponse::from_parts(parts, Body::from(body))),
    }
}

/// Of files outside of the range in the policy.
const FORM_SIZES: [(&str, &str); 2] = [
    ("EntityTooLarge", "Your proposed upload exceeds the maximum allowed size"),
    ("EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size"),
];

/// What Amazon S3 says of a form and its policy: CulturalMe/meteor-slingshot#80, benefitcloud/ember-uploader#43,
/// sivchari/kumo#936, ryuzee/SlideHub#213, moxiecode/moxie#165 (a field too many); localstack/localstack,
/// `test_post_object_policy_validation_size`.
fn form_words(document: &str) -> Option<S3Error> {
    for (code, message) in FORM_SIZES {
        if document.contains(&format!("<Code>{code}<")) {
            return Some(error_with_status(code, StatusCode::BAD_REQUEST, message));
        }
    }
    let (_, rest) = document.split_once("<Message>")?;
    let message = unescape(rest.split_once("</Message>")?.0).ok()?;
    if document.contains("<Code>AccessDenied<") {
        let extra = message.strip_prefix("Each form field that you specify in a form must appear in the list");
        let extra = extra.and_then(|rest| rest.split('"').nth(1));
        return match extra {
            Some(field) => Some(denied(format!("Invalid according to Policy: Extra input fields: {field}"))),
            None if message == "Request has expired" => Some(denied("Invalid according to Policy: Policy expired.")),
            None => None,
        };
    }
    if !document.contains("<Code>InvalidPolicyDocument<") {
        return None;
    }
    // "Policy condition 'eq' for field 'key' failed: expected 'a', got 'b'"
    let (condition, wanted) = message.split_once(" failed: ")?;
    let (kind, field) = condition.strip_prefix("Policy condition '")?.split_once("' for field '")?;
    let field = field.strip_suffix('\'')?;
    let value = wanted.split_once('\'').and_then(|(_, value)| value.split_once("', got '")).map(|(value, _)| value);
    let told = match value {
        Some(value) => {
            let [kind, field, value] = [kind, &format!("${field}"), value].map(|word| serde_json::json!(word));
            format!(": Policy Condition failed: [{kind}, {field}, {value}]")
        }
        None => format!(": Policy Condition failed on {field}"),
    };
    Some(denied(format!("Invalid according to Policy{told}")))
}

/// Gives each bucket of a list its ARN, for which `s3s` has no field.
pub(crate) async fn bucket_arns(response: HttpResponse) -> Result<HttpResponse, StdError> {
    if !response.status().is_success() {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body);
    let mut told = String::with_capacity(2 * text.len());
    // Nothing else in the list has a name, and the names of buckets need no escaping.
    for (number, piece) in text.split("<Name>").enumerate() {
        match piece.split_once("</Name>").filter(|_| number > 0) {
            Some((name, rest)) => {
                told.push_str(&format!("<BucketArn>arn:aws:s3:::{name}</BucketArn><Name>{name}</Name>{rest}"));
            }
            None => told.push_str(piece),
        }
    }
    parts.headers.remove(CONTENT_LENGTH);
    Ok(HttpResponse::from_parts(parts, Body::from(told)))
}

/// In this one document, S3 writes the tag without quotes.
pub(crate) async fn bare_etag(response: HttpResponse) -> Result<HttpResponse, StdError> {
    let (mut parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body).replace("<ETag>&quot;", "<ETag>").replace("&quot;</ETag>", "</ETag>");
    let text = text.replace("<ETag>\"", "<ETag>").replace("\"</ETag>", "</ETag>");
    parts.headers.remove(CONTENT_LENGTH);
    Ok(HttpResponse::from_parts(parts, Body::from(text)))
}

/// The answer for an error that did not come from `s3s`.
pub(crate) fn refuse(mut error: S3Error, request_id: &str) -> HttpResponse {
    error.set_request_id(request_id);
    error.to_http_response().unwrap_or_else(|_| {
        let mut response = HttpResponse::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}
