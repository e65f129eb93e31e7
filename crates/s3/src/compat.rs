//! What S3 ignores or takes as it is, and `s3s` refuses or misreads: limits of listings that are empty, ranges that are
//! none or several, tags in conditions that are none, dates in older forms, an `Expires` or a `response-expires` that
//! is no date, references to characters and newer checksums in a document, a `+` for a blank in the source of a copy.
//!
//! Headers and bodies may be signed, so they can be corrected only after `s3s` has verified the signature. As for
//! requests that pass through, a route of `s3s` gets the request then. It corrects the request, and `s3s` parses it
//! again.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream;
use http::header::{
    CONTENT_LENGTH, CONTENT_TYPE, EXPIRES, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE,
};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use percent_encoding::percent_decode_str;
use s3s::dto::{ETagCondition, Range, Timestamp, TimestampFormat};
use s3s::route::S3Route;
use s3s::service::S3Service;
use s3s::{Body, S3Error, S3ErrorCode, S3Request, S3Response, S3Result, StdError, s3_error};

use crate::authorize::{access_denied, refuse_token};
use crate::context::{NoDocument, RequestContext, Verified};
use crate::misplaced;
use crate::pass_through::{PassThrough, without_signature};
use crate::query;
use crate::s3_error::HideSource;
use crate::s3s_fixes::checksums::without_others;
use crate::s3s_fixes::documents::{IsDocument, plain_references};
use crate::s3s_fixes::{BodyError, Refused};

const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
const COPY_SOURCE_IF_MATCH: HeaderName = HeaderName::from_static("x-amz-copy-source-if-match");
const COPY_SOURCE_IF_NONE_MATCH: HeaderName = HeaderName::from_static("x-amz-copy-source-if-none-match");
const TAG_CONDITIONS: [HeaderName; 4] = [IF_MATCH, IF_NONE_MATCH, COPY_SOURCE_IF_MATCH, COPY_SOURCE_IF_NONE_MATCH];

/// All requests that do not go to the operations as they are.
pub(crate) struct Routes {
    pub(crate) pass_through: PassThrough,
    /// The operations, for requests whose signature has been checked.
    pub(crate) operations: S3Service,
}

#[async_trait]
impl S3Route for Routes {
    fn is_match(&self, method: &Method, uri: &Uri, headers: &HeaderMap, extensions: &mut Extensions) -> bool {
        let passes = self.pass_through.is_match(method, uri, headers, extensions);
        passes
            || needs_repair(method, headers)
            || has_response_expires(method, uri)
            || has_empty_limit(method, uri)
            || self.misplaced(method, uri, headers).is_some()
            || extensions.get::<IsDocument>().is_some()
    }

    async fn check_access(&self, request: &mut S3Request<Body>) -> S3Result<()> {
        if request.credentials.is_some() {
            // What comes behind does not see it.
            refuse_token(&request.headers, &request.uri)?;
        }
        if self.passes(request) {
            return self.pass_through.check_access(request).await;
        }
        if let Some(refusal) = self.misplaced_request(request)
            && !self.may_know_of(request)
        {
            // A form has no signature in its headers. So the answer to one of another type says what it lacks, which
            // need not be hidden: localstack/localstack, `test_post_object_with_wrong_content_type`.
            let is_form = request.credentials.is_none() && request.headers.contains_key(CONTENT_TYPE);
            let is_about_type = *refusal.code() == S3ErrorCode::PreconditionFailed;
            return Err(if is_form && is_about_type { refusal } else { access_denied() });
        }
        // The operations check it.
        Ok(())
    }

    async fn call(&self, mut request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        if self.passes(&mut request) {
            return self.pass_through.call(request).await;
        }
        if let Some(refusal) = self.misplaced_request(&request) {
            return Err(refusal);
        }
        if request.extensions.remove::<IsDocument>().is_some() {
            // Of who has no keys nothing is read before the operation has checked access: thousands would hold as many
            // documents.
            if let Some(credentials) = &request.credentials {
                if let Some(context) = request.extensions.get::<Arc<RequestContext>>()
                    && let Some(user) = self.pass_through.users.find(&credentials.access_key)
                {
                    let _ = context.requester.set(user);
                }
                let read = request.input.collect().await;
                // `s3s` compares the hash of the payload, and when no byte is to come does so without asking for the
                // body.
                let document =
                    read.map_err(|error| Refused::from(BodyError::from_stream(&*error)).answer())?.to_bytes();
                request.input = if document.is_empty() && is_completion(&request.method, &request.uri) {
                    // `s3s` would refuse it before the operation has checked access.
                    request.extensions.insert(NoDocument);
                    Body::from(NO_PARTS.to_owned())
                } else {
                    Body::from(put_right(&document))
                };
                request.headers.remove(CONTENT_LENGTH);
            } else {
                request.input = put_right_when_read(request.input);
            }
        }
        let expires = repair(&mut request.headers);
        let response_expires = if has_response_expires(&request.method, &request.uri) {
            take_response_expires(&mut request.uri)
        } else {
            None
        };
        if has_empty_limit(&request.method, &request.uri) {
            remove_empty_limits(&mut request.uri);
        }
        let access_key = request.credentials.take().map(|credentials| credentials.access_key);
        if access_key.is_some() {
            // `s3s` has compared it; without a signature that is left to the operation.
            request.headers.remove("x-amz-content-sha256");
        }
        let trailing = request.trailing_headers.take();
        request.extensions.insert(Verified { access_key, trailing, expires, response_expires });
        let answer = self.operations.call(without_signature(request)?).await;
        let (parts, body) = answer.map_err(|error| s3_error!(HideSource(error.into()), InternalError))?.into_parts();
        let mut response = S3Response::with_headers(body, parts.headers);
        response.status = Some(parts.status);
        Ok(response)
    }
}

/// Stands for a list of parts that has not come.
const NO_PARTS: &str = "<CompleteMultipartUpload></CompleteMultipartUpload>";

fn is_completion(method: &Method, uri: &Uri) -> bool {
    *method == Method::POST && query::parameters(uri).any(|(name, _)| name == "uploadId")
}

/// A document without what `s3s` takes for an error.
fn put_right(document: &[u8]) -> Bytes {
    without_others(plain_references(document))
}

/// The same, of which nothing is read until somebody asks for it. Of a body that it has to read, `s3s` compares the
/// length: blanks behind the end make up for what is left out.
fn put_right_when_read(document: Body) -> Body {
    let read = async move {
        let document = document.collect().await?.to_bytes();
        let mut right = Vec::from(put_right(&document));
        right.resize(document.len().max(right.len()), b' ');
        Ok::<_, StdError>(Frame::data(Bytes::from(right)))
    };
    Body::http_body_unsync(StreamBody::new(stream::once(read)))
}

impl Routes {
    fn passes(&self, request: &mut S3Request<Body>) -> bool {
        self.pass_through.is_match(&request.method, &request.uri, &request.headers, &mut request.extensions)
    }

    /// How a request is refused whose path does not have its method or sub-resource.
    fn misplaced(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<S3Error> {
        if !misplaced::may_be(method, uri, headers) {
            return None;
        }
        misplaced::refusal(method, uri, &self.pass_through.path(uri, headers).ok()?)
    }

    /// Whether a user with a grant in the bucket has signed the request. Others only learn that access is denied.
    fn may_know_of(&self, request: &S3Request<Body>) -> bool {
        let access_key = request.credentials.as_ref().map(|credentials| &credentials.access_key);
        let Some(user) = access_key.and_then(|access_key| self.pass_through.users.find(access_key)) else {
            return false;
        };
        let path = self.pass_through.path(&request.uri, &request.headers);
        path.is_ok_and(|path| path.get_bucket_name().is_none_or(|bucket| user.knows_bucket(bucket)))
    }

    fn misplaced_request(&self, request: &S3Request<Body>) -> Option<S3Error> {
        self.misplaced(&request.method, &request.uri, &request.headers)
    }
}

/// Numbers in a query that count as not given when they are empty.
const LIMITS: [&str; 5] = ["max-buckets", "max-keys", "max-parts", "max-uploads", "part-number-marker"];

fn is_empty_limit(parameter: &str) -> bool {
    let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
    value.is_empty() && LIMITS.contains(&name)
}

fn has_empty_limit(method: &Method, uri: &Uri) -> bool {
    *method == Method::GET && uri.query().unwrap_or_default().split('&').any(is_empty_limit)
}

fn remove_empty_limits(uri: &mut Uri) {
    let rest = uri.query().unwrap_or_default().split('&').filter(|parameter| !is_empty_limit(parameter));
    let text = format!("{}?{}", uri.path(), rest.collect::<Vec<_>>().join("&"));
    if let Ok(changed) = text.parse() {
        *uri = changed;
    }
}

/// The parameter of reads that `s3s` takes for a date, and S3 for any text.
const RESPONSE_EXPIRES: &str = "response-expires";

fn is_response_expires(parameter: &str) -> bool {
    let name = parameter.split('=').next().unwrap_or_default();
    percent_decode_str(name).eq(RESPONSE_EXPIRES.bytes())
}

fn has_response_expires(method: &Method, uri: &Uri) -> bool {
    matches!(*method, Method::GET | Method::HEAD) && uri.query().unwrap_or_default().split('&').any(is_response_expires)
}

/// Its value, which the URI has no more afterwards.
fn take_response_expires(uri: &mut Uri) -> Option<String> {
    let (given, rest): (Vec<&str>, Vec<&str>) = uri.query()?.split('&').partition(|name| is_response_expires(name));
    let value = given.first()?.split_once('=').map_or("", |(_, value)| value).replace('+', " ");
    let value = percent_decode_str(&value).decode_utf8().ok()?.into_owned();
    *uri = format!("{}?{}", uri.path(), rest.join("&")).parse().ok()?;
    Some(value)
}

fn needs_repair(method: &Method, headers: &HeaderMap) -> bool {
    let is_wrong = |name: &HeaderName, is_right: fn(&str) -> bool| {
        headers.get(name).is_some_and(|value| !value.to_str().is_ok_and(is_right))
    };
    let is_form = *method == Method::POST && headers.get(CONTENT_TYPE).is_some_and(is_form);
    if !is_form && TAG_CONDITIONS.iter().any(|name| headers.get(name).is_some_and(|value| !is_tag(value))) {
        return true;
    }
    match *method {
        Method::GET | Method::HEAD => {
            is_wrong(&RANGE, is_range)
                || is_wrong(&IF_MODIFIED_SINCE, is_date)
                || is_wrong(&IF_UNMODIFIED_SINCE, is_date)
        }
        Method::PUT => is_wrong(&EXPIRES, is_date) || is_wrong(&COPY_SOURCE, has_no_plus),
        // The body of a form is parsed by now.
        Method::POST => is_wrong(&EXPIRES, is_date) && !is_form,
        _ => false,
    }
}

fn is_form(content_type: &HeaderValue) -> bool {
    content_type.as_bytes().to_ascii_lowercase().starts_with(b"multipart/")
}

fn is_range(text: &str) -> bool {
    range(text).is_some()
}

/// A range that is one. A suffix without a length is none.
pub(crate) fn range(text: &str) -> Option<Range> {
    Range::parse(text).ok().filter(|_| !text.trim_end().ends_with("=-"))
}

fn has_no_plus(text: &str) -> bool {
    !text.contains('+')
}

/// As `s3s` has it: one tag, with quotes or of letters and digits alone.
fn is_tag(value: &HeaderValue) -> bool {
    ETagCondition::parse_http_header(value.as_bytes()).is_ok()
}

/// Any text is a tag, if of no object.
fn as_tag(value: &HeaderValue) -> HeaderValue {
    let text = String::from_utf8_lossy(value.as_bytes());
    // Without what would end the tag, so that nothing becomes the tag of an object by it.
    let plain = text.trim().replace(|c: char| !c.is_ascii() || c.is_ascii_control() || c == '"', "?");
    HeaderValue::try_from(format!("\"{plain}\"")).expect("visible characters")
}

fn is_date(text: &str) -> bool {
    Timestamp::parse(TimestampFormat::HttpDate, text).is_ok()
}

/// Leaves what `s3s` understands. Returns the text of an `Expires` that is no date.
fn repair(headers: &mut HeaderMap) -> Option<String> {
    let text = |headers: &HeaderMap, name: &HeaderName| headers.get(name)?.to_str().map(str::to_owned).ok();
    if !text(headers, &RANGE).is_some_and(|range| is_range(&range)) {
        headers.remove(RANGE);
    }
    for name in TAG_CONDITIONS {
        let Some(tag) = headers.get(&name).filter(|value| !is_tag(value)).map(as_tag) else { continue };
        headers.insert(name, tag);
    }
    for name in [IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE] {
        let Some(given) = headers.remove(&name) else { continue };
        // RFC 9110, section 5.6.7: three forms are read; section 13.1.3: what is no date is ignored.
        let date =
            given.to_str().ok().and_then(|text| httpdate::parse_http_date(text).ok()).map(httpdate::fmt_http_date);
        if let Some(date) = date.and_then(|date| HeaderValue::try_from(date).ok()) {
            headers.insert(name, date);
        }
    }
    // A query's encoding, as url.QueryEscape of Go writes it: awsdocs/aws-doc-sdk-examples#4780, rclone/rclone#2001.
    if let Some(source) = text(headers, &COPY_SOURCE).filter(|source| !has_no_plus(source))
        && let Ok(source) = HeaderValue::try_from(source.replace('+', "%20"))
    {
        headers.insert(COPY_SOURCE, source);
    }
    let expires = text(headers, &EXPIRES).filter(|expires| !is_date(expires))?;
    headers.remove(EXPIRES);
    Some(expires)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repaired(name: &HeaderName, value: &str) -> (bool, Option<String>, Option<String>) {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::try_from(value).unwrap());
        let method = if *name == EXPIRES { Method::PUT } else { Method::GET };
        let needed = needs_repair(&method, &headers);
        let expires = repair(&mut headers);
        (needed, headers.get(name).map(|value| value.to_str().unwrap().to_owned()), expires)
    }

    #[test]
    fn a_plus_in_the_source_of_a_copy_is_a_blank() {
        for (given, needed, read) in [
            ("b/a+b", true, "b/a%20b"),
            ("b%2Fa+b%2Bc", true, "b%2Fa%20b%2Bc"),
            ("/b/a%20b%2Bc", false, "/b/a%20b%2Bc"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(COPY_SOURCE, HeaderValue::from_static(given));
            assert_eq!(needs_repair(&Method::PUT, &headers), needed, "{given}");
            repair(&mut headers);
            assert_eq!(headers[COPY_SOURCE], read);
        }
    }

    #[test]
    fn a_condition_names_a_tag_whatever_it_says() {
        for (given, read) in [
            ("no tag", "\"no tag\""),
            ("\"open", "\"?open\""),
            ("", "\"\""),
            ("a,b c", "\"a,b c\""),
            ("\u{fc}", "\"?\""),
            ("W/abc", "\"W/abc\""),
        ] {
            for name in TAG_CONDITIONS {
                for method in [Method::GET, Method::PUT, Method::DELETE, Method::POST] {
                    let mut headers = HeaderMap::from_iter([(name.clone(), HeaderValue::try_from(given).unwrap())]);
                    assert!(needs_repair(&method, &headers), "{given}");
                    repair(&mut headers);
                    assert_eq!(headers[&name], read);
                    assert!(!needs_repair(&method, &headers), "{given}");
                }
            }
        }
    }

    #[test]
    fn the_expiry_of_an_answer_is_any_text() {
        let mut uri = Uri::from_static("/b/k?a=1&response-expires=in+two%20days&b");
        assert!(has_response_expires(&Method::GET, &uri) && !has_response_expires(&Method::PUT, &uri));
        assert_eq!(take_response_expires(&mut uri).unwrap(), "in two days");
        assert_eq!(uri, "/b/k?a=1&b");
        assert!(!has_response_expires(&Method::GET, &uri));
        let mut uri = Uri::from_static("/b/k?response%2Dexpires");
        assert!(has_response_expires(&Method::HEAD, &uri));
        assert_eq!(take_response_expires(&mut uri).unwrap(), "");
    }

    #[test]
    fn an_empty_limit_is_not_given() {
        let mut uri = Uri::from_static("/b?list-type=2&max-keys=&prefix=&max-parts");
        assert!(has_empty_limit(&Method::GET, &uri));
        remove_empty_limits(&mut uri);
        assert_eq!(uri, "/b?list-type=2&prefix=");
        assert!(!has_empty_limit(&Method::GET, &uri));
        assert!(!has_empty_limit(&Method::GET, &Uri::from_static("/b?max-keys=1&max-uploads=0")));
    }

    #[test]
    fn what_is_right_is_left_alone() {
        for (name, value) in [
            (RANGE, "bytes=0-1"),
            (RANGE, "bytes=-1"),
            (IF_MATCH, "*"),
            (IF_MATCH, "0123abc-2"),
            (IF_NONE_MATCH, "\"a\", \"b\""),
            (IF_MODIFIED_SINCE, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (EXPIRES, "Sun, 06 Nov 1994 08:49:37 GMT"),
        ] {
            assert_eq!(repaired(&name, value), (false, Some(value.to_owned()), None), "{name}");
        }
        assert!(!needs_repair(&Method::GET, &HeaderMap::new()));
    }

    #[test]
    fn the_rest_is_read_as_s3_reads_it() {
        for range in ["bytes=0-1,3-4", "bytes=abc", "items=0-1", "bytes=9-0", ""] {
            assert_eq!(repaired(&RANGE, range), (true, None, None), "{range}");
        }
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT".to_owned());
        for old in ["Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(repaired(&IF_MODIFIED_SINCE, old), (true, date.clone(), None), "{old}");
            assert_eq!(repaired(&IF_UNMODIFIED_SINCE, old), (true, date.clone(), None), "{old}");
        }
        assert_eq!(repaired(&IF_MODIFIED_SINCE, "yesterday"), (true, None, None));
        for expires in ["0", "-1", "2030-01-01"] {
            assert_eq!(repaired(&EXPIRES, expires), (true, None, Some(expires.to_owned())));
        }
    }
}
