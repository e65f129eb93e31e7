//! What an error repeats of its request, as Amazon S3 does, so that a client can see where its signature differs from
//! what the server read, or its clock from the server's.
//!
//! Only what the client has sent is repeated, and the time: nothing that is made with a secret key. Sources:
//! localstack/localstack, `test_presigned_url_signature_authentication` and `test_s3_presigned_url_expired`;
//! Fausto95/aws-s3#65 (the order of the elements, and how bytes are written).

use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use s3s::HttpResponse;
use sha2::{Digest, Sha256};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime, PrimitiveDateTime};

use super::answer::NOT_YET_VALID;
use super::credential_scope::BASIC_TIME;
use super::query_string::Query;
use crate::host::Domain;
use crate::object_url::PATH_ENCODE_SET;
use crate::record::named_in;
use crate::s3_error::{DETAILS, TEXT_BYTES_MAX, add_details, in_bytes, signed_text};

/// Headers that are kept. SDKs send up to 20.
const HEADERS_MAX: usize = 20;
/// All but what stands for itself, in the query of a canonical request.
const QUERY_ENCODE_SET: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// How far a clock may be off, as Amazon S3 writes it.
const SKEW_MS_MAX: &str = "900000";

const SESSION_TOKEN: &str = "x-amz-security-token";

type Elements = Vec<(&'static str, String)>;

/// The head of a request, kept until its answer is known. To keep it, nothing is copied but counts of references.
pub(crate) struct RequestEcho {
    method: Method,
    uri: Uri,
    headers: [Option<(HeaderName, HeaderValue)>; HEADERS_MAX],
    are_all: bool,
}

impl RequestEcho {
    pub(crate) fn of(parts: &Parts) -> Self {
        let mut kept = parts.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
        let headers = std::array::from_fn(|_| kept.next());
        Self {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            headers,
            are_all: parts.headers.len() <= HEADERS_MAX,
        }
    }

    /// Adds to an error what Amazon S3 tells of the request, where nothing has been added yet.
    pub(crate) fn explain(&self, response: &mut HttpResponse, now_ms: u64, domain: Option<&Domain>) {
        if !response.status().is_client_error() || response.headers().contains_key(DETAILS) {
            return;
        }
        let Some(document) = response.body().bytes() else { return };
        let text = String::from_utf8_lossy(&document);
        let element = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            rest.split_once(&format!("</{name}>")).map(|(value, _)| value)
        };
        let elements = match element("Code") {
            // With a message it is the signature of a chunk.
            Some("SignatureDoesNotMatch") if element("Message").is_none() => self.signature(),
            Some("AccessDenied") if element("Message") == Some("Request has expired") => self.expiry(now_ms),
            Some("RequestTimeTooSkewed") if !text.contains(NOT_YET_VALID) => self.skew(now_ms),
            Some("XAmzContentSHA256Mismatch") => self.payload_hash(),
            Some("KeyTooLongError") => self.key_length(domain),
            Some("InvalidBucketName") => self.bucket_name(domain),
            _ => Vec::new(),
        };
        if !elements.is_empty() {
            add_details(response.headers_mut(), &elements);
        }
    }

    fn header(&self, wanted: &str) -> Option<&str> {
        let mut kept = self.headers.iter().flatten();
        kept.find(|(name, _)| name.as_str() == wanted).and_then(|(_, value)| value.to_str().ok())
    }

    /// What was to be signed, by a signature of Version 4 in the header or in the query.
    fn signature(&self) -> Elements {
        self.claim().map(|claim| claim.elements(self)).unwrap_or_default()
    }

    fn claim(&self) -> Option<Claim> {
        let query = Query::parse(self.uri.query().unwrap_or_default()).ok()?;
        let claim = match self.header(AUTHORIZATION.as_str()) {
            Some(authorization) => {
                let (_, fields) = authorization.split_once(' ')?;
                let field = |name: &str| {
                    let mut fields = fields.split(',').map(str::trim);
                    fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
                };
                Claim {
                    credential: field("Credential")?,
                    signed_headers: field("SignedHeaders")?,
                    signature: field("Signature")?,
                    time: self.header("x-amz-date")?.to_owned(),
                    payload: self.header("x-amz-content-sha256")?.to_owned(),
                    query,
                }
            }
            None => {
                let given = |name: &str| query.only(name).map(str::to_owned);
                Claim {
                    credential: given("X-Amz-Credential")?,
                    signed_headers: given("X-Amz-SignedHeaders")?,
                    signature: given("X-Amz-Signature")?,
                    time: given("X-Amz-Date")?,
                    payload: "UNSIGNED-PAYLOAD".to_owned(),
                    query,
                }
            }
        };
        Some(claim)
    }

    fn expiry(&self, now_ms: u64) -> Elements {
        let Ok(query) = Query::parse(self.uri.query().unwrap_or_default()) else { return Vec::new() };
        let server_time = ("ServerTime", extended(at(now_ms)));
        let given = |name: &str| query.only(name).unwrap_or_default();
        if let Ok(seconds) = given("Expires").parse::<i64>() {
            let Ok(end) = OffsetDateTime::from_unix_timestamp(seconds) else { return vec![server_time] };
            return vec![("Expires", extended(end)), server_time];
        }
        let lifetime = given("X-Amz-Expires");
        let begin = PrimitiveDateTime::parse(given("X-Amz-Date"), BASIC_TIME).map(PrimitiveDateTime::assume_utc);
        match (begin, lifetime.parse::<u32>()) {
            (Ok(begin), Ok(seconds)) => {
                let end = begin.saturating_add(Duration::seconds(i64::from(seconds)));
                vec![("X-Amz-Expires", lifetime.to_owned()), ("Expires", extended(end)), server_time]
            }
            _ => vec![server_time],
        }
    }

    fn skew(&self, now_ms: u64) -> Elements {
        let given = self.header("x-amz-date").unwrap_or_default().to_owned();
        vec![
            ("RequestTime", given),
            ("ServerTime", extended(at(now_ms))),
            ("MaxAllowedSkewMilliseconds", SKEW_MS_MAX.to_owned()),
        ]
    }

    fn payload_hash(&self) -> Elements {
        let given = self.header("x-amz-content-sha256");
        given.map(|given| ("ClientComputedContentSHA256", given.to_owned())).into_iter().collect()
    }

    fn key_length(&self, domain: Option<&Domain>) -> Elements {
        let (_, key) = named_in(&self.uri, self.header(HOST.as_str()), domain);
        let (length, limit) = (key.map_or(0, |key| key.len()), forebay_types::limits::KEY_BYTES_MAX);
        vec![("Size", length.to_string()), ("MaxSizeAllowed", limit.to_string())]
    }

    fn bucket_name(&self, domain: Option<&Domain>) -> Elements {
        let (bucket, _) = named_in(&self.uri, self.header(HOST.as_str()), domain);
        bucket.map(|bucket| ("BucketName", bucket)).into_iter().collect()
    }
}

/// A signature of Version 4 as a request gives it.
struct Claim {
    credential: String,
    signed_headers: String,
    signature: String,
    time: String,
    payload: String,
    query: Query,
}

impl Claim {
    fn elements(&self, echo: &RequestEcho) -> Elements {
        let Some((access_key, scope)) = self.credential.split_once('/') else { return Vec::new() };
        let canonical = self.canonical_request(echo).filter(|canonical| canonical.len() <= TEXT_BYTES_MAX);
        // A token for a session is as good as a key.
        let canonical = canonical.filter(|canonical| !canonical.to_ascii_lowercase().contains(SESSION_TOKEN));
        let Some(canonical) = canonical else {
            return vec![("AWSAccessKeyId", access_key.to_owned()), ("SignatureProvided", self.signature.clone())];
        };
        let hash = hex::encode(Sha256::digest(&canonical));
        let text = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{hash}", self.time);
        let mut elements = signed_text(access_key, &text, &self.signature);
        elements.push(("CanonicalRequestBytes", in_bytes(&canonical)));
        elements.insert(elements.len() - 1, ("CanonicalRequest", canonical));
        elements
    }

    /// As `s3s` reads it. `None` when a header that it covers was not kept.
    fn canonical_request(&self, echo: &RequestEcho) -> Option<String> {
        let path = percent_decode_str(echo.uri.path()).decode_utf8_lossy();
        let mut request = format!("{}\n{}\n", echo.method, utf8_percent_encode(&path, PATH_ENCODE_SET));
        let encoded = |text: &str| utf8_percent_encode(text, QUERY_ENCODE_SET).to_string();
        let parameters = self.query.parameters.iter().filter(|(name, _)| name != "X-Amz-Signature");
        let mut parameters: Vec<_> = parameters.map(|(name, value)| (encoded(name), encoded(value))).collect();
        parameters.sort_by(|(one, _), (other, _)| one.cmp(other));
        let parameters: Vec<_> = parameters.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        request.push_str(&parameters.join("&"));
        request.push('\n');
        let mut names: Vec<_> = self.signed_headers.split(';').collect();
        names.sort_unstable();
        for name in &names {
            let values: Vec<String> = echo
                .headers
                .iter()
                .flatten()
                .filter(|(header, _)| header.as_str() == *name)
                .map(|(_, value)| String::from_utf8_lossy(value.as_bytes()).into_owned())
                .map(|value| value.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect();
            match values.is_empty() {
                true if !echo.are_all => return None,
                // What is signed and did not come is left out.
                true => {}
                false => request.push_str(&format!("{name}:{}\n", values.join(","))),
            }
        }
        request.push_str(&format!("\n{}\n{}", names.join(";"), self.payload));
        Some(request)
    }
}

fn at(unix_ms: u64) -> OffsetDateTime {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(0);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn extended(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn echo(method: &str, uri: &str, headers: &[(&'static str, &str)]) -> RequestEcho {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        RequestEcho::of(&request.body(()).unwrap().into_parts().0)
    }

    fn element(elements: &Elements, wanted: &str) -> Option<String> {
        elements.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.clone())
    }

    /// The example "GET Object" of "Signature Calculations for the Authorization Header", Amazon S3 API Reference.
    #[test]
    fn the_example_of_amazon_is_explained() {
        const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let authorization = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
                             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, Signature=00";
        let mut headers = vec![
            ("authorization", authorization),
            ("x-amz-date", "20130524T000000Z"),
            ("range", " bytes=0-9 "),
            ("host", "examplebucket.s3.amazonaws.com"),
            ("x-amz-content-sha256", EMPTY),
        ];
        let elements = echo("GET", "/test.txt", &headers).signature();
        let names: Vec<_> = elements.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            [
                "AWSAccessKeyId",
                "StringToSign",
                "SignatureProvided",
                "StringToSignBytes",
                "CanonicalRequest",
                "CanonicalRequestBytes"
            ]
        );
        let text = "AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n\
                    7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972";
        assert_eq!(element(&elements, "StringToSign").as_deref(), Some(text));
        assert_eq!(element(&elements, "StringToSignBytes").unwrap()[..11], *"41 57 53 34");
        // One header too many to keep, and it may be the one that is signed.
        headers.splice(0..0, (0..HEADERS_MAX - 1).map(|_| ("x-other", "v")));
        headers.swap(0, HEADERS_MAX - 1);
        let elements = echo("GET", "/test.txt", &headers).signature();
        assert_eq!(element(&elements, "CanonicalRequest"), None);
    }

    #[test]
    fn a_presigned_url_is_explained() {
        let uri = "/b/a%20b%2Bc?X-Amz-Credential=key%2F20200101%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20200101T000000Z\
                   &X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=00&X-Amz-Algorithm=AWS4-HMAC-SHA256&tagging";
        let echo = echo("PUT", uri, &[("host", "localhost")]);
        let canonical = "PUT\n/b/a%20b%2Bc\nX-Amz-Algorithm=AWS4-HMAC-SHA256&\
                         X-Amz-Credential=key%2F20200101%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20200101T000000Z&\
                         X-Amz-Expires=60&X-Amz-SignedHeaders=host&tagging=\nhost:localhost\n\nhost\nUNSIGNED-PAYLOAD";
        assert_eq!(element(&echo.signature(), "CanonicalRequest").as_deref(), Some(canonical));
        let times = [
            ("X-Amz-Expires", "60".to_owned()),
            ("Expires", "2020-01-01T00:01:00Z".to_owned()),
            ("ServerTime", "2020-01-01T00:02:00Z".to_owned()),
        ];
        assert_eq!(echo.expiry(1_577_836_920_999), times);
    }

    #[test]
    fn a_token_is_not_repeated() {
        let uri = "/b/k?X-Amz-Credential=key%2F20200101%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20200101T000000Z\
                   &X-Amz-SignedHeaders=host&X-Amz-Signature=00&X-Amz-Security-Token=token";
        let names = echo("GET", uri, &[("host", "localhost")]).signature().into_iter().map(|(name, _)| name);
        assert_eq!(names.collect::<Vec<_>>(), ["AWSAccessKeyId", "SignatureProvided"]);
    }

    #[test]
    fn what_is_too_long_is_not_repeated() {
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        let names: Vec<_> = signed_text("key", &long, "00").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["AWSAccessKeyId", "SignatureProvided"]);
    }
}
