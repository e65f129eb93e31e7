//! The query parameters that each operation knows.
//!
//! `s3s` routes a request by those that it knows: a sub-resource that S3 has got since would run as the plain PUT, GET
//! or DELETE of the object or bucket. What an operation does not know is refused, so that the next sub-resource is no
//! danger either.

use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use s3s::{S3Error, S3Result, s3_error};

use crate::s3_error::{method_not_allowed, wrong_argument};
use crate::s3s_fixes::signature_2;

pub(crate) const VERSION: &str = "versionId";

pub(crate) const EMPTY_VERSION: &str = "Version id cannot be the empty string";

/// What S3 says of an id that is none of the bucket's.
pub(crate) const INVALID_VERSION: &str = "Invalid version id specified";

/// Parameters of requests to read objects.
const READ: &[&str] = &[
    "partNumber",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    VERSION,
];

/// The operations of the cache.
const OPERATIONS: [(&str, &[&str]); 35] = [
    ("AbortMultipartUpload", &["uploadId"]),
    ("CompleteMultipartUpload", &["uploadId"]),
    ("CopyObject", &[]),
    ("CreateBucket", &[]),
    ("CreateMultipartUpload", &["uploads"]),
    ("DeleteBucket", &[]),
    ("DeleteBucketTagging", &["tagging"]),
    ("DeleteObject", &[VERSION]),
    ("DeleteObjectTagging", &["tagging", VERSION]),
    ("DeleteObjects", &["delete"]),
    ("GetBucketAcl", &["acl"]),
    ("GetBucketLocation", &["location"]),
    ("GetBucketOwnershipControls", &["ownershipControls"]),
    ("GetBucketTagging", &["tagging"]),
    ("GetObject", READ),
    ("GetObjectAcl", &["acl", VERSION]),
    ("GetObjectAttributes", &["attributes", VERSION]),
    ("GetObjectTagging", &["tagging", VERSION]),
    ("HeadBucket", &[]),
    ("HeadObject", READ),
    ("ListBuckets", &["bucket-region", "continuation-token", "max-buckets", "prefix"]),
    (
        "ListMultipartUploads",
        &["delimiter", "encoding-type", "key-marker", "max-uploads", "prefix", "upload-id-marker", "uploads"],
    ),
    (
        "ListObjectVersions",
        &["delimiter", "encoding-type", "key-marker", "max-keys", "prefix", "version-id-marker", "versions"],
    ),
    ("ListObjects", &["delimiter", "encoding-type", "marker", "max-keys", "prefix"]),
    (
        "ListObjectsV2",
        &[
            "continuation-token",
            "delimiter",
            "encoding-type",
            "fetch-owner",
            "list-type",
            "max-keys",
            "prefix",
            "start-after",
        ],
    ),
    ("ListParts", &["max-parts", "part-number-marker", "uploadId"]),
    ("PostObject", &[]),
    ("PutBucketAcl", &["acl"]),
    ("PutBucketOwnershipControls", &["ownershipControls"]),
    ("PutBucketTagging", &["tagging"]),
    ("PutObject", &[]),
    ("PutObjectAcl", &["acl", VERSION]),
    ("PutObjectTagging", &["tagging", VERSION]),
    ("UploadPart", &["partNumber", "uploadId"]),
    ("UploadPartCopy", &["partNumber", "uploadId"]),
];

/// Operations that write an object, whose parameters without a meaning S3 ignores.
const WRITES: [&str; 4] = ["CopyObject", "PutObject", "UploadPart", "UploadPartCopy"];

/// Names that have a meaning in S3, beside those of [`OPERATIONS`]. A write with one of them is not the plain write.
const MEANT: [&str; 43] = [
    "abac",
    "accelerate",
    "analytics",
    "annotation",
    "annotation-prefix",
    "annotationName",
    "cors",
    "encryption",
    "id",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "logging",
    "max-annotation-results",
    "max-directory-buckets",
    "metadataAnnotationTable",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "select-type",
    "session",
    "storageClass",
    "torrent",
    "versioning",
    "website",
    "append",
    "object-lambda",
    "position",
    "writeOffsetBytes",
];

/// What stands beside the sub-resource in requests that pass through.
const BESIDE_SUBRESOURCES: &[&str] = &["continuation-token", "id", "select-type", VERSION];

/// Refuses parameters that an operation of the cache does not know, and versions other than `null`.
///
/// # Errors
/// `NotImplemented`; `InvalidArgument` and `MethodNotAllowed` for parameters that a write does not take.
pub(crate) fn check(operation: &str, method: &Method, uri: &Uri) -> S3Result<()> {
    let known = known_to(operation).ok_or_else(|| s3_error!(NotImplemented, "{operation} is not implemented."))?;
    if WRITES.contains(&operation) && uri.query().is_some() {
        check_write(method, uri)?;
    }
    let means_nothing = |name: &str, value: &str| WRITES.contains(&operation) && !value.is_empty() && !is_meant(name);
    check_names(method, uri, |name, value| {
        (known.contains(&name) && (name != VERSION || value == "null")) || means_nothing(name, value)
    })
}

/// A write makes a version of its own, and a part belongs to an upload. Of Amazon S3: versity/versitygw, its `s3err`.
fn check_write(method: &Method, uri: &Uri) -> S3Result<()> {
    let given = |wanted: &str| parameters(uri).find(|(name, _)| name == wanted).map(|(_, value)| value);
    if let Some(version) = given(VERSION) {
        return check_version(&version, method, uri);
    }
    match (given("partNumber"), given("uploadId")) {
        (Some(number), None) => {
            let message = "This operation does not accept partNumber without uploadId";
            Err(wrong_argument("partNumber", &number, message))
        }
        (None, Some(_)) => Err(method_not_allowed(method, "OBJECT")),
        _ => Ok(()),
    }
}

/// The version that a request names.
pub(crate) fn version_of(uri: &Uri) -> Option<String> {
    parameters(uri).find(|(name, _)| name == VERSION).map(|(_, version)| version)
}

/// Refuses the version of a request that can have none. An empty one is no version: taken for none given, it would
/// have the newest one deleted.
pub(crate) fn check_version(version: &str, method: &Method, uri: &Uri) -> S3Result<()> {
    let is_write = |name: &str| [VERSION, "partNumber", "uploadId", "uploads"].contains(&name) || is_ignored(name);
    let writes = matches!(*method, Method::PUT | Method::POST) && parameters(uri).all(|(name, _)| is_write(&name));
    let message = match version {
        _ if writes => "This operation does not accept a version-id.",
        "" => EMPTY_VERSION,
        _ => return Ok(()),
    };
    Err(wrong_argument(VERSION, version, message))
}

pub(crate) fn invalid_version(version: &str) -> S3Error {
    wrong_argument(VERSION, version, INVALID_VERSION)
}

/// Whether a request is about an object and what the cache itself knows of it.
pub(crate) fn is_of_plain_object(uri: &Uri) -> bool {
    let is_plain = |name: &str| READ.contains(&name) || ["acl", "attributes", "tagging"].contains(&name);
    parameters(uri).all(|(name, _)| is_plain(&name) || is_ignored(&name))
}

/// Whether S3 has a use for a parameter of this name. A sub-resource that it gets next year has no value.
fn is_meant(name: &str) -> bool {
    MEANT.contains(&name) || OPERATIONS.iter().any(|(_, known)| known.contains(&name))
}

/// The same for requests that pass through; `s3s` must have found the operation by the sub-resource that made it one of
/// them.
pub(crate) fn check_passed(operation: &str, method: &Method, uri: &Uri, subresources: &[&str]) -> S3Result<()> {
    if let Some(known) = known_to(operation) {
        return check_names(method, uri, |name, _| known.contains(&name));
    }
    let count = parameters(uri).filter(|(name, _)| subresources.contains(&name.as_str())).count();
    if count > 1 {
        return Err(s3_error!(InvalidRequest, "Conflicting query string parameters"));
    }
    check_names(method, uri, |name, _| subresources.contains(&name) || BESIDE_SUBRESOURCES.contains(&name))
}

fn known_to(operation: &str) -> Option<&'static [&'static str]> {
    OPERATIONS.into_iter().find(|(name, _)| *name == operation).map(|(_, known)| known)
}

fn check_names(method: &Method, uri: &Uri, is_known: impl Fn(&str, &str) -> bool) -> S3Result<()> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let refused = parameters(uri).find(|(name, value)| {
        let ignored = is_ignored(name) || (reads && !value.is_empty() && name != VERSION);
        !ignored && !is_known(name, value)
    });
    match refused {
        None => Ok(()),
        Some((name, _)) => Err(s3_error!(
            NotImplemented,
            "A header or parameter you provided implies functionality that is not implemented: the query parameter {name:?}."
        )),
    }
}

/// Those of the signature, and those that Amazon S3 ignores so that users can leave something in its logs.
pub(crate) fn is_ignored(name: &str) -> bool {
    signature_2::OWN.contains(&name) || name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("x-"))
}

/// As `s3s` decodes them. What it can't decode, it has refused.
pub(crate) fn parameters(uri: &Uri) -> impl Iterator<Item = (String, String)> {
    let query = uri.query().unwrap_or_default();
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    query.split('&').filter(|parameter| !parameter.is_empty()).map(move |parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        (decode(name), decode(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(operation: &str, method: Method, query: &str) -> bool {
        check(operation, &method, &format!("/b/k?{query}").parse().unwrap()).is_ok()
    }

    #[test]
    fn an_operation_runs_only_with_parameters_that_it_knows() {
        for query in ["", "x-id=PutObject", "X-Amz-Signature=0", "x-amz-meta-a=b", "x-user=me", "foo=bar", "a+b=1"] {
            assert!(allowed("PutObject", Method::PUT, query), "{query}");
        }
        for query in [
            "annotation",
            "annotation=",
            "renameObject",
            "encryption=1",
            "partNumber=1",
            "%61cl",
            "a+b",
            "versionId=7",
            "foo",
            "foo=",
        ] {
            assert!(!allowed("PutObject", Method::PUT, query), "{query}");
            assert!(!allowed("CopyObject", Method::PUT, query), "{query}");
        }
        assert!(allowed("DeleteObject", Method::DELETE, "versionId=null"));
        assert!(!allowed("DeleteObject", Method::DELETE, "ver%73ionId=7"));
        assert!(!allowed("DeleteObject", Method::DELETE, "annotation&annotationName=a"));
        assert!(!allowed("DeleteBucket", Method::DELETE, "abac="));
        assert!(!allowed("DeleteObject", Method::DELETE, "foo=bar"));
        assert!(!allowed("CreateBucket", Method::PUT, "foo=bar"));
        assert!(!allowed("NextYearsOperation", Method::GET, ""));
    }

    #[test]
    fn a_write_is_told_what_it_does_not_take() {
        let told = |query: &str| {
            let error = check("PutObject", &Method::PUT, &format!("/b/k?{query}").parse().unwrap()).unwrap_err();
            error.message().unwrap_or_default().to_owned()
        };
        for query in ["versionId=null", "versionId", "x-id=PutObject&versionId=7"] {
            assert_eq!(told(query), "This operation does not accept a version-id.", "{query}");
        }
        assert_eq!(told("partNumber=1"), "This operation does not accept partNumber without uploadId");
        assert_eq!(told("uploadId=a"), "The specified method is not allowed against this resource.");
        let version = |version: &str, method, query: &str| {
            check_version(version, &method, &format!("/b/k?{query}").parse().unwrap()).is_ok()
        };
        assert!(!version("", Method::DELETE, "versionId="));
        assert!(!version("", Method::PUT, "tagging&versionId="));
        assert!(!version("7", Method::PUT, "partNumber=1&uploadId=a&versionId=7"));
        assert!(version("7", Method::PUT, "acl&versionId=7"));
        assert!(version("7", Method::GET, "versionId=7"));
    }

    /// Readers put something of their own there so that no cache between has the answer.
    #[test]
    fn reads_may_carry_values_that_nobody_knows() {
        assert!(allowed("GetObject", Method::GET, "t=1700000000&partNumber=1"));
        for query in ["annotation", "annotation=&annotationName=a", "versionId=7"] {
            assert!(!allowed("GetObject", Method::GET, query), "{query}");
        }
        assert!(!allowed("ListObjects", Method::GET, "abac"));
    }

    #[test]
    fn what_passes_through_is_what_its_subresource_says() {
        let passes = |operation, method, query: &str| {
            check_passed(
                operation,
                &method,
                &format!("/b/k?{query}").parse().unwrap(),
                &["acl", "encryption", "policy"],
            )
            .is_ok()
        };
        assert!(passes("PutObjectAcl", Method::PUT, "acl&versionId=7"));
        assert!(passes("DeleteObject", Method::DELETE, "versionId=7"));
        assert!(!passes("PutObject", Method::PUT, "encryption"), "it would replace the object by the document");
        assert!(!passes("PutObject", Method::PUT, "versionId=7"));
        assert!(!passes("DeleteObject", Method::DELETE, "acl&versionId=7"));
        assert!(!passes("PutObjectAcl", Method::PUT, "acl&annotation"));
        assert!(!passes("PutBucketPolicy", Method::PUT, "acl&policy"));
    }
}
