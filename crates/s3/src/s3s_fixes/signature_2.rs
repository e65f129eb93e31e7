//! Signature Version 2 of presigned URLs and forms: what boto3 and the AWS command line make in `us-east-1` and other
//! old regions as long as nobody tells them otherwise, and what Amazon S3 takes there.
//!
//! It covers the method, the path, all `x-amz-*` headers, `Content-Type`, `Content-MD5`, and of the query only the
//! names in [`SIGNED`]. Nothing else is let through in the query, so that a URL can do no more than what its maker
//! signed. In an `Authorization` header it is refused: no client signs so by default.
//!
//! `s3s` checks it too, but reads no header from the query, and compares the signature in a time that depends on it.
//! Source: "Signing and authenticating REST requests", Amazon S3 API Reference.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_auth::{Users, equal_in_constant_time};
use hmac::{Hmac, KeyInit, Mac};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, StatusCode, Uri};
use s3s::S3Error;
use s3s::host::S3Host;
use sha1::Sha1;

use super::query_string::Query;
use crate::host::Domain;
use crate::s3_error::{denied, error_with_status, signed_text, unknown_access_key, with_details};

/// The parameters that say whose signature it is.
pub(crate) const OWN: [&str; 3] = ["AWSAccessKeyId", "Expires", "Signature"];

/// As Version 4: seven days, and a quarter of an hour for a clock that goes ahead.
const EXPIRY_S_MAX: u64 = 7 * 24 * 3600 + 900;

/// The parameters that it covers, in the order in which they are signed.
const SIGNED: [&str; 34] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "delete",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "select",
    "select-type",
    "storageClass",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// Whether a query claims to be signed so.
pub(crate) fn is_claimed(query: &Query) -> bool {
    query.only("Signature").is_some() || query.only("AWSAccessKeyId").is_some()
}

/// Refuses a presigned URL that lacks a part or has one that no signature covers.
pub(crate) fn check(query: &Query) -> Result<(), S3Error> {
    for name in OWN {
        if query.only(name).is_none_or(str::is_empty) {
            let message = "Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters";
            return Err(denied(message));
        }
    }
    let unsigned = query.names().find(|name| !OWN.contains(name) && !SIGNED.contains(name) && !is_header(name));
    match unsigned {
        None => Ok(()),
        Some(name) => Err(denied(format!(
            "The query parameter {name:?} is not covered by the signature. Please use AWS4-HMAC-SHA256."
        ))),
    }
}

/// Whether a parameter stands for a header: SDKs put those that are signed into the query.
pub(crate) fn is_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("x-amz-") || name == "content-type" || name == "content-md5"
}

/// Compares the signature of a presigned URL whose headers are where they belong, and takes them out of the query.
///
/// # Errors
/// Also for one that lasts longer than one of Version 4 may, and for a value that could be read as several parameters.
pub(crate) fn verify(parts: &mut Parts, domain: Option<&Domain>, users: &Users, now_ms: u64) -> Result<(), S3Error> {
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    check_expiry(&query, now_ms)?;
    check_values(&query)?;
    let given = |name| query.only(name).unwrap_or_default();
    let text = text_to_sign(parts, &query, domain)?;
    if users.find(given("AWSAccessKeyId")).is_none() {
        return Err(unknown_access_key(given("AWSAccessKeyId")));
    }
    if !is_right(users, given("AWSAccessKeyId"), &text, given("Signature")) {
        return Err(mismatch(given("AWSAccessKeyId"), &text, given("Signature")));
    }
    parts.uri = without_headers(&parts.uri)?;
    Ok(())
}

/// Version 2 knows no limit of its own.
fn check_expiry(query: &Query, now_ms: u64) -> Result<(), S3Error> {
    let last_s = now_ms / 1000 + EXPIRY_S_MAX;
    // What is no number is refused by `s3s`.
    let is_late = query.only("Expires").and_then(|text| text.parse::<u64>().ok()).is_some_and(|given| given > last_s);
    if is_late {
        return Err(denied("Expires must be less than a week ahead"));
    }
    Ok(())
}

/// Values are joined by `&` when they are signed, and not encoded.
fn check_values(query: &Query) -> Result<(), S3Error> {
    let hides_another = |name: &str| {
        let mut more = query.only(name).unwrap_or_default().split('&').skip(1);
        more.any(|rest| SIGNED.contains(&rest.split_once('=').map_or(rest, |(name, _)| name)))
    };
    match SIGNED.into_iter().find(|name| hides_another(name)) {
        None => Ok(()),
        Some(name) => Err(denied(format!(
            "The value of {name:?} could be read as another query parameter. Please use AWS4-HMAC-SHA256."
        ))),
    }
}

/// Whether this is the signature of a text by the user with this access key. In a form, the text is its policy.
pub(crate) fn is_right(users: &Users, access_key: &str, text: &str, signature: &str) -> bool {
    equal_in_constant_time(&sign(users, access_key, text), signature) && users.find(access_key).is_some()
}

/// The signature of a text by the user with this access key. For a key that does not exist the work is the same.
pub(crate) fn sign(users: &Users, access_key: &str, text: &str) -> String {
    let user = users.find(access_key);
    let secret = user.as_ref().map_or("", |user| user.secret.expose());
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).expect("a MAC takes keys of any length");
    mac.update(text.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

fn text_to_sign(parts: &Parts, query: &Query, domain: Option<&Domain>) -> Result<String, S3Error> {
    let header = |name: &str| text_of(&parts.headers, name);
    let mut lines = vec![
        parts.method.as_str().to_owned(),
        header("content-md5"),
        header("content-type"),
        query.only("Expires").unwrap_or_default().to_owned(),
    ];
    let mut names: Vec<_> =
        parts.headers.keys().map(HeaderName::as_str).filter(|name| name.starts_with("x-amz-")).collect();
    names.sort_unstable();
    lines.extend(names.into_iter().map(|name| format!("{name}:{}", header(name))));
    let host = header("host");
    let virtual_host = domain.map(|domain| domain.parse_host_header(&host)).transpose()?;
    let bucket = virtual_host.as_ref().and_then(|host| host.bucket()).map(|bucket| format!("/{bucket}"));
    let signed: Vec<_> = SIGNED
        .into_iter()
        .filter_map(|name| Some((name, query.only(name)?)))
        .map(|(name, value)| if value.is_empty() { name.to_owned() } else { format!("{name}={value}") })
        .collect();
    let question = if signed.is_empty() { "" } else { "?" };
    lines.push(format!("{}{}{question}{}", bucket.unwrap_or_default(), parts.uri.path(), signed.join("&")));
    Ok(lines.join("\n"))
}

/// All values of a header, as they are signed.
fn text_of(headers: &HeaderMap, name: &str) -> String {
    let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned());
    values.collect::<Vec<_>>().join(",")
}

fn without_headers(uri: &Uri) -> Result<Uri, S3Error> {
    let query = uri.query().unwrap_or_default().split('&');
    let kept = query.filter(|parameter| !is_header(parameter.split_once('=').map_or(parameter, |(name, _)| name)));
    let text = format!("{}?{}", uri.path(), kept.collect::<Vec<_>>().join("&"));
    let mut changed = uri.clone().into_parts();
    changed.path_and_query = Some(PathAndQuery::try_from(text).map_err(|_| denied("The query is not valid."))?);
    Uri::from_parts(changed).map_err(|_| denied("The query is not valid."))
}

fn mismatch(access_key: &str, text: &str, signature: &str) -> S3Error {
    let message = "The request signature we calculated does not match the signature you provided. Check your key and signing method.";
    let error = error_with_status("SignatureDoesNotMatch", StatusCode::FORBIDDEN, message);
    with_details(error, &signed_text(access_key, text, signature))
}

#[cfg(test)]
mod tests {
    use forebay_auth::{RootUser, Secret};

    use super::*;

    fn users() -> Users {
        let secret_key = Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        Users::open(RootUser { access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(), secret_key }, None).unwrap()
    }

    fn verified(method: &str, uri: &str, headers: &[(&'static str, &str)]) -> Result<String, S3Error> {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        check(&Query::parse(parts.uri.query().unwrap_or_default())?)?;
        // The day of the example.
        let now_ms = (1_175_139_620 - 3600) * 1000;
        verify(&mut parts, Some(&Domain::new("s3.us-west-1.amazonaws.com")), &users(), now_ms)?;
        Ok(parts.uri.to_string())
    }

    /// The example "Query string request authentication" of the API Reference, whose signature there is of another
    /// text: this one is from `openssl dgst -sha1 -hmac`. Path and host name the same resource.
    #[test]
    fn the_example_of_amazon() {
        let query = "?AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Signature=1No4mq5ETf02z8aet9voy6gui6E%3D&Expires=1175139620";
        for (path, host) in [
            ("/photos/puppy.jpg", "awsexamplebucket1.s3.us-west-1.amazonaws.com"),
            ("/awsexamplebucket1/photos/puppy.jpg", "localhost:9700"),
        ] {
            let uri = format!("{path}{query}");
            assert_eq!(verified("GET", &uri, &[("host", host)]).unwrap(), uri, "{host}");
            for (change, to) in
                [("puppy", "kitty"), ("1175139620", "1175139621"), ("1No4", "1no4"), ("EXAMPLE&", "EXAMPLF&")]
            {
                assert!(verified("GET", &uri.replace(change, to), &[("host", host)]).is_err(), "{host} {to}");
            }
            assert!(verified("PUT", &uri, &[("host", host)]).is_err(), "{host}");
            for header in ["x-amz-acl", "content-type", "content-md5"] {
                assert!(verified("GET", &uri, &[("host", host), (header, "private")]).is_err(), "{host} {header}");
            }
            for more in ["&acl", "&versionId=7", "&response-content-type=text/html", "&prefix=a", "&partNumber=1"] {
                assert!(verified("GET", &format!("{uri}{more}"), &[("host", host)]).is_err(), "{host} {more}");
            }
        }
    }

    #[test]
    fn a_url_lives_for_a_week_at_most() {
        let now_ms = 1_700_000_000_000;
        let check = |expires: u64| {
            let query = Query::parse(&format!("Expires={expires}")).unwrap();
            check_expiry(&query, now_ms).map_err(|error| error.code().as_str().to_owned())
        };
        assert_eq!(check(1_700_000_000 + EXPIRY_S_MAX), Ok(()));
        assert_eq!(check(1_700_000_001 + EXPIRY_S_MAX), Err("AccessDenied".to_owned()));
        assert_eq!(check(u64::MAX), Err("AccessDenied".to_owned()));
    }

    /// What `a=b&c=d` signs is signed by a value `b&c=d` of `a` too.
    #[test]
    fn no_value_hides_another_parameter() {
        let check = |value: &str| {
            let value = percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC);
            check_values(&Query::parse(&format!("response-content-disposition={value}")).unwrap()).is_ok()
        };
        assert!(check("attachment; filename=\"Q&A & more.pdf\""));
        for hidden in ["a&response-content-type=text/html", "a&versionId", "&acl", "a&b&tagging=c"] {
            assert!(!check(hidden), "{hidden}");
        }
    }

    #[test]
    fn headers_leave_the_query() {
        let uri: Uri = "/b/k?x-amz-meta-a=b&Expires=1&Content-Type=text%2Fplain&tagging".parse().unwrap();
        assert_eq!(without_headers(&uri).unwrap(), "/b/k?Expires=1&tagging");
    }

    #[test]
    fn all_parts_must_be_there() {
        for query in [
            "AWSAccessKeyId=a&Signature=b",
            "AWSAccessKeyId=a&Expires=1",
            "Signature=b&Expires=1",
            "AWSAccessKeyId=&Signature=b&Expires=1",
        ] {
            let query = Query::parse(query).unwrap();
            assert!(is_claimed(&query) && check(&query).is_err());
        }
    }
}
