//! Requests whose path does not have their method or their sub-resource.
//!
//! `s3s` calls them unknown. Sources, compared with Amazon S3: localstack/localstack, `TestS3PresignedPost` (a POST of
//! a bucket that is no form), versity/versitygw, `s3err` (sub-resources of a key).

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use s3s::S3Error;
use s3s::path::S3Path;

use crate::s3_error::{error_with_status, invalid_request, method_not_allowed, with_details};

/// Whether a request may be one of these, for which its path must be read.
pub(crate) fn may_be(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    match *method {
        // `s3s` has read the body of a form by then, and answers it itself.
        Method::POST => !headers.get(CONTENT_TYPE).is_some_and(is_form) && names(uri).all(is_anybodys),
        Method::GET => names(uri).any(|name| matches!(name, "uploads" | "versions")),
        _ => uri.path() == "/",
    }
}

/// How S3 refuses it; `None` when it is none of these.
pub(crate) fn refusal(method: &Method, uri: &Uri, path: &S3Path) -> Option<S3Error> {
    let has = |wanted: &str| names(uri).any(|name| name == wanted);
    match (path, method) {
        (S3Path::Root, &Method::GET) => None,
        (S3Path::Root, method) => Some(method_not_allowed(method, "SERVICE")),
        (S3Path::Bucket { .. }, &Method::POST) => {
            let message = "At least one of the pre-conditions you specified did not hold";
            let error = error_with_status("PreconditionFailed", StatusCode::PRECONDITION_FAILED, message);
            let condition = "Bucket POST must be of the enclosure-type multipart/form-data";
            Some(with_details(error, &[("Condition", condition)]))
        }
        (S3Path::Object { .. }, &Method::POST) => Some(method_not_allowed(method, "OBJECT")),
        (S3Path::Object { .. }, &Method::GET) if has("versions") => {
            Some(invalid_request("There is no such thing as the ?versions sub-resource for a key"))
        }
        (S3Path::Object { .. }, &Method::GET) if has("uploads") => {
            Some(invalid_request("Key is not expected for the GET method ?uploads subresource"))
        }
        _ => None,
    }
}

fn is_form(content_type: &HeaderValue) -> bool {
    content_type.as_bytes().to_ascii_lowercase().starts_with(b"multipart/form-data")
}

/// Parameters that make no sub-resource of a request.
fn is_anybodys(name: &str) -> bool {
    matches!(name, "AWSAccessKeyId" | "Expires" | "Signature")
        || name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("x-"))
}

fn names(uri: &Uri) -> impl Iterator<Item = &str> {
    let query = uri.query().unwrap_or_default().split('&').filter(|parameter| !parameter.is_empty());
    query.map(|parameter| parameter.split_once('=').map_or(parameter, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use s3s::path::parse_path_style;

    use super::*;

    fn code(method: Method, target: &'static str) -> Option<String> {
        let uri = Uri::from_static(target);
        if !may_be(&method, &uri, &HeaderMap::new()) {
            return None;
        }
        let error = refusal(&method, &uri, &parse_path_style(uri.path()).unwrap());
        error.map(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn what_a_path_does_not_have_is_refused() {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::HEAD] {
            assert_eq!(code(method.clone(), "/").as_deref(), Some("MethodNotAllowed"), "{method}");
        }
        assert_eq!(code(Method::POST, "/bucket?x-id=a&X-Amz-Signature=0").as_deref(), Some("PreconditionFailed"));
        assert_eq!(code(Method::POST, "/bucket/key").as_deref(), Some("MethodNotAllowed"));
        for query in ["versions", "versions=", "uploads=1"] {
            let target: &'static str = format!("/bucket/key?{query}").leak();
            assert_eq!(code(Method::GET, target).as_deref(), Some("InvalidRequest"), "{query}");
        }
    }

    #[test]
    fn what_it_has_is_left_alone() {
        for (method, target) in [
            (Method::GET, "/"),
            (Method::GET, "/bucket?versions"),
            (Method::GET, "/bucket?uploads"),
            (Method::GET, "/bucket/versions"),
            (Method::POST, "/bucket?delete"),
            (Method::POST, "/bucket/key?uploads"),
            (Method::POST, "/bucket/key?uploadId=1"),
            (Method::PUT, "/bucket"),
            (Method::HEAD, "/bucket"),
            (Method::DELETE, "/bucket/key"),
        ] {
            assert_eq!(code(method.clone(), target), None, "{method} {target}");
        }
    }
}
