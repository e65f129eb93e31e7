//! What Amazon's access logs call an operation, and what it is about. Both come from the request alone, so that one
//! that was refused before it was routed has them too.

use http::request::Parts;
use http::{HeaderMap, Method, Request, Uri};
use percent_encoding::percent_decode_str;
use s3s::host::S3Host;

use crate::host::Domain;
use crate::query;

/// What a request names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestTarget {
    pub(super) bucket: Option<String>,
    pub(super) key: Option<String>,
}

impl RequestTarget {
    pub(super) fn of(uri: &Uri, headers: &HeaderMap, domain: Option<&Domain>) -> Self {
        Self::at(uri, headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default(), domain)
    }

    fn at(uri: &Uri, host: &str, domain: Option<&Domain>) -> Self {
        let path = percent_decode_str(uri.path()).decode_utf8_lossy();
        let path = path.strip_prefix('/').unwrap_or(&path);
        let virtual_host = domain.and_then(|domain| domain.parse_host_header(host).ok());
        let in_host = virtual_host.as_ref().and_then(|host| host.bucket());
        let (bucket, key) = match in_host {
            Some(bucket) => (bucket, path),
            None => path.split_once('/').unwrap_or((path, "")),
        };
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Self { bucket: given(bucket), key: given(key) }
    }
}

/// The bucket and the key that a URL names, sent to this host.
pub(crate) fn named_in(uri: &Uri, host: Option<&str>, domain: Option<&Domain>) -> (Option<String>, Option<String>) {
    let target = RequestTarget::at(uri, host.unwrap_or_default(), domain);
    (target.bucket, target.key)
}

/// The bucket and the key of a request for an object or an upload.
pub(crate) fn path_of<B>(request: &Request<B>, domain: Option<&Domain>) -> Option<(String, String)> {
    let target = RequestTarget::of(request.uri(), request.headers(), domain);
    target.bucket.zip(target.key)
}

/// Sub-resources by the parameter that names them, where that is not simply the parameter in capitals.
const RESOURCES: [(&str, &str); 16] = [
    ("policy", "BUCKETPOLICY"),
    ("versions", "BUCKETVERSIONS"),
    ("logging", "LOGGING_STATUS"),
    ("requestPayment", "REQUEST_PAYMENT"),
    ("object-lock", "OBJECT_LOCK_CONFIGURATION"),
    ("retention", "OBJECT_LOCK_RETENTION"),
    ("legal-hold", "OBJECT_LOCK_LEGALHOLD"),
    ("publicAccessBlock", "PUBLIC_ACCESS_BLOCK"),
    ("policyStatus", "BUCKETPOLICYSTATUS"),
    ("ownershipControls", "OWNERSHIP_CONTROLS"),
    ("intelligent-tiering", "INTELLIGENT_TIERING"),
    ("attributes", "OBJECT_ATTRIBUTES"),
    ("select", "SELECT"),
    ("delete", "MULTI_OBJECT_DELETE"),
    ("uploads", "UPLOADS"),
    ("metadataTable", "METADATA_TABLE"),
];

/// Sub-resources whose names are their parameters in capitals.
const PLAIN: [&str; 14] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "encryption",
    "inventory",
    "lifecycle",
    "location",
    "metrics",
    "notification",
    "replication",
    "restore",
    "torrent",
    "versioning",
];

/// Whether a request is for a new bucket, and not for a sub-resource of one, known or not.
pub(crate) fn makes_bucket(parts: &Parts, domain: Option<&Domain>) -> bool {
    // Most writes are of objects, and have one more name in their path.
    if parts.method != Method::PUT || parts.uri.path().trim_matches('/').contains('/') {
        return false;
    }
    let target = RequestTarget::of(&parts.uri, &parts.headers, domain);
    let is_known = query::check("CreateBucket", &parts.method, &parts.uri).is_ok();
    target.bucket.is_some() && target.key.is_none() && is_known
}

/// `REST.GET.OBJECT`
pub(super) fn operation(method: &Method, target: &RequestTarget, query: &str, headers: &HeaderMap) -> String {
    let is_copy = *method == Method::PUT && target.key.is_some() && headers.contains_key("x-amz-copy-source");
    let verb = if is_copy { "COPY" } else { method.as_str() };
    format!("REST.{verb}.{}", resource(method, target, query))
}

fn resource(method: &Method, target: &RequestTarget, query: &str) -> String {
    if *method == Method::OPTIONS {
        return "PREFLIGHT".to_owned();
    }
    let has = |name: &str| query.split('&').any(|part| part.split_once('=').map_or(part, |(name, _)| name) == name);
    let (in_bucket, in_object) = (target.bucket.is_some(), target.key.is_some());
    if in_object && has("uploadId") {
        return if *method == Method::PUT { "PART" } else { "UPLOAD" }.to_owned();
    }
    if in_bucket && has("tagging") {
        return if in_object { "OBJECT_TAGGING" } else { "TAGGING" }.to_owned();
    }
    if in_bucket && let Some((_, resource)) = RESOURCES.iter().find(|(parameter, _)| has(parameter)) {
        return (*resource).to_owned();
    }
    if in_bucket && let Some(parameter) = PLAIN.iter().find(|parameter| has(parameter)) {
        return parameter.to_ascii_uppercase();
    }
    let resource = match (in_bucket, in_object) {
        (false, _) => "SERVICE",
        // A form makes an object.
        (true, false) if *method == Method::POST => "OBJECT",
        (true, false) => "BUCKET",
        (true, true) => "OBJECT",
    };
    resource.to_owned()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn name(request: &str, headers: &[(&'static str, &'static str)]) -> String {
        let (method, uri) = request.split_once(' ').unwrap();
        let uri: Uri = uri.parse().unwrap();
        let headers =
            headers.iter().map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
        let headers: HeaderMap = headers.collect();
        let domain = Domain::new("s3.example.com");
        let target = RequestTarget::of(&uri, &headers, Some(&domain));
        operation(&method.parse().unwrap(), &target, uri.query().unwrap_or_default(), &headers)
    }

    #[test]
    fn operations_have_the_names_that_amazon_gives_them() {
        for (request, expected) in [
            ("GET /", "REST.GET.SERVICE"),
            ("GET /b", "REST.GET.BUCKET"),
            ("GET /b/?list-type=2&prefix=acl", "REST.GET.BUCKET"),
            ("GET /b?versions", "REST.GET.BUCKETVERSIONS"),
            ("GET /b?location", "REST.GET.LOCATION"),
            ("GET /b?policy", "REST.GET.BUCKETPOLICY"),
            ("GET /b?tagging", "REST.GET.TAGGING"),
            ("GET /b?uploads", "REST.GET.UPLOADS"),
            ("HEAD /b", "REST.HEAD.BUCKET"),
            ("PUT /b", "REST.PUT.BUCKET"),
            ("DELETE /b", "REST.DELETE.BUCKET"),
            ("POST /b?delete", "REST.POST.MULTI_OBJECT_DELETE"),
            ("POST /b", "REST.POST.OBJECT"),
            ("GET /b/k", "REST.GET.OBJECT"),
            ("GET /b/k?X-Amz-Signature=0", "REST.GET.OBJECT"),
            ("HEAD /b/k", "REST.HEAD.OBJECT"),
            ("PUT /b/k", "REST.PUT.OBJECT"),
            ("DELETE /b/k", "REST.DELETE.OBJECT"),
            ("GET /b/k?tagging", "REST.GET.OBJECT_TAGGING"),
            ("GET /b/k?acl", "REST.GET.ACL"),
            ("GET /b/k?attributes", "REST.GET.OBJECT_ATTRIBUTES"),
            ("POST /b/k?uploads", "REST.POST.UPLOADS"),
            ("PUT /b/k?partNumber=1&uploadId=u", "REST.PUT.PART"),
            ("POST /b/k?uploadId=u", "REST.POST.UPLOAD"),
            ("GET /b/k?uploadId=u", "REST.GET.UPLOAD"),
            ("DELETE /b/k?uploadId=u", "REST.DELETE.UPLOAD"),
            ("OPTIONS /b/k", "REST.OPTIONS.PREFLIGHT"),
        ] {
            assert_eq!(name(request, &[]), expected, "{request}");
        }
        let copy = [("x-amz-copy-source", "/b/other")];
        assert_eq!(name("PUT /b/k", &copy), "REST.COPY.OBJECT");
        assert_eq!(name("PUT /b/k?partNumber=1&uploadId=u", &copy), "REST.COPY.PART");
        let virtual_host = [("host", "b.s3.example.com")];
        assert_eq!(name("GET /", &virtual_host), "REST.GET.BUCKET");
        assert_eq!(name("GET /k", &virtual_host), "REST.GET.OBJECT");
    }

    #[test]
    fn bucket_and_key_are_decoded() {
        let target = RequestTarget::of(&"/b/a%20b/%C3%A9+".parse().unwrap(), &HeaderMap::new(), None);
        assert_eq!((target.bucket.as_deref(), target.key.as_deref()), (Some("b"), Some("a b/\u{e9}+")));
        let target = RequestTarget::of(&"/b/".parse().unwrap(), &HeaderMap::new(), None);
        assert_eq!((target.bucket.as_deref(), target.key), (Some("b"), None));
    }
}
