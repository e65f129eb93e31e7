//! Redirects to the home of an object, for clients that sign a request again when they follow one.

use http::header::{AUTHORIZATION, LOCATION, ORIGIN, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request};
use s3s::{S3Error, S3ErrorCode};
use serde::Deserialize;

use crate::host::Domain;
use crate::record::path_of;

/// How the AWS SDK for Java 1 begins its name, alone or behind that of a program. It takes the endpoint and the path of
/// an answer with status 307, and signs the request again (`AmazonHttpClient`, `redirectedURI`).
const KNOWN_CLIENT: &str = "aws-sdk-java/1.";

/// Which clients are redirected to the home of an object, instead of having their requests passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Redirect {
    Never,
    /// Those that are known to sign the request again.
    KnownClients,
    /// All that sign headers. Others can't sign again.
    Always,
}

impl Redirect {
    /// Where a request should go instead, whose home is reached at `address`. `None`: it is passed on.
    pub(crate) fn location<B>(
        self,
        request: &Request<B>,
        domain: Option<&Domain>,
        scheme: &str,
        address: &str,
    ) -> Option<HeaderValue> {
        if !self.is_for(request.headers()) {
            return None;
        }
        let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        // The SDK decodes the path, and encodes it again in its own way.
        let path_alone = request.uri().path();
        // Others resolve dots.
        if path_alone.contains('%') || path_alone.split('/').any(|name| matches!(name, "." | "..")) {
            return None;
        }
        let found = path_of(request, domain)?;
        // The address has no names of buckets below it.
        let bucket =
            if path_of(request, None).as_ref() == Some(&found) { String::new() } else { format!("/{}", found.0) };
        HeaderValue::try_from(format!("{scheme}://{address}{bucket}{path}")).ok()
    }

    fn is_for(self, headers: &HeaderMap) -> bool {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
        // Presigned requests have none, and what a browser sends cannot be signed again.
        let is_signed = text(AUTHORIZATION).starts_with("AWS") && !headers.contains_key(ORIGIN);
        match self {
            Self::Never => false,
            Self::KnownClients => is_signed && text(USER_AGENT).contains(KNOWN_CLIENT),
            Self::Always => is_signed,
        }
    }
}

/// The answer that says so, in the words of Amazon S3.
pub(crate) fn redirect(location: HeaderValue) -> S3Error {
    let message = "Please re-send this request to the specified temporary endpoint. \
        Continue to use the original request endpoint for future requests.";
    let mut error = S3Error::with_message(S3ErrorCode::TemporaryRedirect, message);
    error.set_headers([(LOCATION, location)].into_iter().collect());
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED: (&str, &str) = ("authorization", "AWS4-HMAC-SHA256 Credential=a");
    const JAVA: (&str, &str) = ("user-agent", "Hadoop 3.3.1, aws-sdk-java/1.12.797 Linux/6.1");

    fn location(redirect: Redirect, uri: &str, headers: &[(&str, &str)]) -> Option<String> {
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        let location = redirect.location(&request, Some(&Domain::new("s3.example.com")), "http", "home:9700");
        location.map(|location| location.to_str().expect("text").to_owned())
    }

    #[test]
    fn who_signs_again_is_told_where_the_home_is() {
        let path = "/bucket/key?partNumber=1";
        let there = Some("http://home:9700/bucket/key?partNumber=1".to_owned());
        let (browser, other) = (("origin", "https://a.example"), ("user-agent", "Boto3/1.40"));
        for (headers, known, always) in [
            (&[SIGNED, JAVA][..], &there, &there),
            (&[SIGNED, other], &None, &there),
            (&[JAVA], &None, &None),
            (&[SIGNED, JAVA, browser], &None, &None),
        ] {
            assert_eq!(location(Redirect::Never, path, headers), None);
            assert_eq!(location(Redirect::KnownClients, path, headers), *known, "{headers:?}");
            assert_eq!(location(Redirect::Always, path, headers), *always, "{headers:?}");
        }
    }

    #[test]
    fn the_address_of_a_worker_is_that_of_no_bucket() {
        for (host, uri, expected) in [
            ("bucket.s3.example.com", "/key/", Some("http://home:9700/bucket/key/")),
            ("bucket.s3.example.com", "/bucket/key", Some("http://home:9700/bucket/bucket/key")),
            ("s3.example.com", "/bucket/key", Some("http://home:9700/bucket/key")),
            ("10.0.0.1:9700", "/bucket/a%20b", None),
            ("10.0.0.1:9700", "/bucket", None),
            ("10.0.0.1:9700", "/bucket/a/../b", None),
        ] {
            let found = location(Redirect::KnownClients, uri, &[SIGNED, JAVA, ("host", host)]);
            assert_eq!(found.as_deref(), expected, "{host}{uri}");
        }
    }
}
