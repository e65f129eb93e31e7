//! Who may do what: the one place that every operation passes.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_auth::{Action, User, Users};
use http::{Extensions, HeaderMap, HeaderName, Method, StatusCode, Uri};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::PostObjectInput;
use s3s::path::S3Path;
use s3s::{S3Request, S3Result, s3_error};

use crate::context::{Caller, RequestContext, Verified, caller};
use crate::query;
use crate::s3_error::{denied, error_with_status, invalid_token, unknown_access_key, wrong_argument};
use crate::s3s_fixes::documents::Expectations;
use crate::shares::ConnectionPermit;
use crate::trace;

/// What an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// This on the object that the path names.
    Object(Action),
    /// To list somewhere in the bucket; the operation checks the prefix.
    ListInBucket,
    /// To write somewhere in the bucket; the operation checks each key of the body.
    WriteInBucket,
    /// Any grant in the bucket; without a signature, the right to list in it.
    KnowBucket,
    /// Administration of what the path names.
    Admin,
    /// A signature of anybody.
    Signature,
}

/// The operations of the cache, by `s3s`'s names. What is not here needs administration of the path.
const OPERATIONS: [(&str, Need); 35] = [
    ("GetObject", Need::Object(Action::Read)),
    ("HeadObject", Need::Object(Action::Read)),
    ("GetObjectAttributes", Need::Object(Action::Read)),
    ("GetObjectAcl", Need::Object(Action::Read)),
    ("GetObjectTagging", Need::Object(Action::Read)),
    ("PutObject", Need::Object(Action::Write)),
    ("CopyObject", Need::Object(Action::Write)),
    ("DeleteObject", Need::Object(Action::Write)),
    ("PutObjectAcl", Need::Object(Action::Write)),
    ("PutObjectTagging", Need::Object(Action::Write)),
    ("DeleteObjectTagging", Need::Object(Action::Write)),
    ("CreateMultipartUpload", Need::Object(Action::Write)),
    ("UploadPart", Need::Object(Action::Write)),
    ("UploadPartCopy", Need::Object(Action::Write)),
    ("CompleteMultipartUpload", Need::Object(Action::Write)),
    ("AbortMultipartUpload", Need::Object(Action::Write)),
    ("ListParts", Need::Object(Action::Write)),
    // Each key has an answer of its own, which may be that it is denied.
    ("DeleteObjects", Need::KnowBucket),
    ("PostObject", Need::WriteInBucket),
    ("ListObjects", Need::ListInBucket),
    ("ListObjectsV2", Need::ListInBucket),
    ("ListObjectVersions", Need::ListInBucket),
    ("ListMultipartUploads", Need::ListInBucket),
    ("HeadBucket", Need::KnowBucket),
    ("GetBucketAcl", Need::KnowBucket),
    ("GetBucketLocation", Need::KnowBucket),
    ("GetBucketOwnershipControls", Need::KnowBucket),
    ("CreateBucket", Need::Admin),
    ("DeleteBucket", Need::Admin),
    ("PutBucketAcl", Need::Admin),
    ("PutBucketOwnershipControls", Need::Admin),
    ("GetBucketTagging", Need::Admin),
    ("PutBucketTagging", Need::Admin),
    ("DeleteBucketTagging", Need::Admin),
    ("ListBuckets", Need::Signature),
];

/// What Amazon S3 refuses without a signature, even where everybody may write: an upload and a copy need an owner.
/// Sources: awsdocs/amazon-s3-userguide#91, scylladb/scylladb#13425.
const NEVER_ANONYMOUS: [(&str, &str); 3] = [
    ("CreateMultipartUpload", "Anonymous users cannot initiate multipart uploads.  Please authenticate."),
    ("CopyObject", "Anonymous users cannot copy objects.  Please authenticate."),
    ("UploadPartCopy", "Anonymous users cannot copy objects.  Please authenticate."),
];

/// Secrets for `s3s`'s signature check.
pub(crate) struct Authentication {
    pub(crate) users: Users,
}

#[async_trait]
impl S3Auth for Authentication {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let user = self.users.find(access_key).ok_or_else(|| unknown_access_key(access_key))?;
        Ok(user.secret.expose().into())
    }
}

/// Checks grants, and notes the user for the operation.
pub(crate) struct Authorization {
    pub(crate) users: Users,
    pub(crate) account_id: Option<String>,
}

#[async_trait]
impl S3Access for Authorization {
    async fn check(&self, request: &mut S3AccessContext<'_>) -> S3Result<()> {
        let (name, need) = need_of(request.s3_op().name());
        if let Some(context) = request.extensions_mut().get::<Arc<RequestContext>>() {
            let _ = context.operation.set(name);
        }
        let permit = request.s3_path();
        let (bucket, key) = (permit.get_bucket_name().map(str::to_owned), permit.get_object_key().map(str::to_owned));
        trace::routed(name, bucket.as_deref(), key.as_deref());
        if let Some(context) = request.extensions_mut().get::<Arc<RequestContext>>() {
            let _ = context.target.set((bucket, key));
        }
        let verified = request.extensions_mut().get::<Verified>().and_then(|verified| verified.access_key.clone());
        let access_key = request.credentials().map(|credentials| credentials.access_key.clone()).or(verified);
        let user = match &access_key {
            None => self.users.anonymous(),
            Some(access_key) => self.users.find(access_key).ok_or_else(|| s3_error!(AccessDenied))?,
        };
        if let Some(context) = request.extensions_mut().get::<Arc<RequestContext>>() {
            let _ = context.requester.set(Arc::clone(&user));
        }
        admit(request.extensions_mut(), &user)?;
        check_signer(access_key.is_some(), name, request.headers(), request.uri())?;
        if !is_allowed(&user, need, request.s3_path(), access_key.is_some()) {
            return Err(access_denied());
        }
        query::check(request.s3_op().name(), request.method(), request.uri())?;
        refuse_headers(request.headers())?;
        check_copy_header(request.method(), request.headers())?;
        // Of a bucket that is yet to be, or of all of them, S3 expects nobody to be the owner.
        if !matches!(name, "CreateBucket" | "ListBuckets") {
            check_expected_owner(request.headers(), self.account_id.as_deref())?;
        }
        if name == "DeleteObjects" && !Expectations::of(request.headers()).is_ok_and(|digests| !digests.is_empty()) {
            // S3 asks for it because of what a damaged list would do.
            let message = "Missing required header for this request: Content-MD5 OR x-amz-checksum-*";
            return Err(s3_error!(InvalidRequest, "{}", message));
        }
        if name == "GetObjectAttributes"
            && !request.headers().get_all("x-amz-object-attributes").iter().any(|value| !value.is_empty())
        {
            let message = "The x-amz-object-attributes header specifying the attributes to be retrieved is either missing or empty";
            return Err(s3_error!(InvalidRequest, "{}", message));
        }
        request.extensions_mut().insert(Caller(user));
        Ok(())
    }

    /// The key of a POST form is known only now.
    async fn post_object(&self, request: &mut S3Request<PostObjectInput>) -> S3Result<()> {
        let path = format!("/{}/{}", request.input.bucket, request.input.key);
        if let Some(context) = request.extensions.get::<Arc<RequestContext>>() {
            let _ = context.form_key.set(request.input.key.clone());
        }
        require(&*caller(request)?, Action::Write, &path)
    }
}

/// Refuses a token of those who have signed, and of those who have not what they can never do.
fn check_signer(signed: bool, operation: &str, headers: &HeaderMap, uri: &Uri) -> S3Result<()> {
    if signed {
        return refuse_token(headers, uri);
    }
    match NEVER_ANONYMOUS.into_iter().find(|(name, _)| *name == operation) {
        None => Ok(()),
        Some((_, message)) => Err(denied(message)),
    }
}

/// Refuses the token of a key for a session, which nobody here has.
pub(crate) fn refuse_token(headers: &HeaderMap, uri: &Uri) -> S3Result<()> {
    let is_token = |name: &str| name.eq_ignore_ascii_case("x-amz-security-token");
    let in_query =
        |parameter: &str| parameter.split_once('=').is_some_and(|(name, token)| is_token(name) && !token.is_empty());
    let in_header = headers.get("x-amz-security-token").is_some_and(|token| !token.is_empty());
    match in_header || uri.query().unwrap_or_default().split('&').any(in_query) {
        true => Err(invalid_token()),
        false => Ok(()),
    }
}

/// Prefixes of headers that ask for features that are not implemented: clients that send them rely on these.
const REFUSED_HEADERS: [(&str, &str); 4] = [
    ("x-amz-server-side-encryption", "Server-side encryption"),
    ("x-amz-copy-source-server-side-encryption", "Server-side encryption"),
    ("x-amz-object-lock-", "Object lock"),
    ("x-amz-bucket-namespace", "A namespace for buckets"),
];

fn refuse_headers(headers: &HeaderMap) -> S3Result<()> {
    let refused = |name: &HeaderName| REFUSED_HEADERS.into_iter().find(|(start, _)| name.as_str().starts_with(start));
    match headers.keys().find_map(refused) {
        None => Ok(()),
        Some((_, what)) => Err(s3_error!(NotImplemented, "{what} is not implemented.")),
    }
}

/// versity/versitygw, its `s3err`.
fn check_copy_header(method: &Method, headers: &HeaderMap) -> S3Result<()> {
    const COPY_SOURCE: &str = "x-amz-copy-source";
    match headers.get(COPY_SOURCE).filter(|_| *method != Method::PUT) {
        None => Ok(()),
        Some(source) => {
            let message = "You can only specify a copy source header for copy requests.";
            Err(wrong_argument(COPY_SOURCE, &String::from_utf8_lossy(source.as_bytes()), message))
        }
    }
}

/// Headers that say whose the buckets must be, as a safeguard against a bucket of somebody else under the name.
pub(crate) const EXPECTED_OWNERS: [&str; 2] = ["x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"];

/// All buckets are of one account. What can be no account is refused even where none is configured to compare it with:
/// a safeguard that is misspelt guards nothing.
pub(crate) fn check_expected_owner(headers: &HeaderMap, account_id: Option<&str>) -> S3Result<()> {
    let is_account = |owner: &[u8]| owner.len() == 12 && owner.iter().all(u8::is_ascii_digit);
    let mut given = EXPECTED_OWNERS.iter().filter_map(|name| headers.get(*name));
    if let Some(owner) = given.find(|owner| !is_account(owner.as_bytes())) {
        // localstack/localstack, `test_get_bucket_policy_invalid_account_id`.
        let message = format!(
            "The value of the expected bucket owner parameter must be an AWS Account ID... [{}]",
            String::from_utf8_lossy(owner.as_bytes())
        );
        return Err(error_with_status("InvalidBucketOwnerAWSAccountID", StatusCode::BAD_REQUEST, message));
    }
    let Some(account_id) = account_id else { return Ok(()) };
    let is_other = |name: &&str| headers.get(*name).is_some_and(|expected| expected != account_id);
    if EXPECTED_OWNERS.iter().any(is_other) { Err(access_denied()) } else { Ok(()) }
}

/// Refuses a user with more than a fair share of the connections.
pub(crate) fn admit(extensions: &Extensions, user: &User) -> S3Result<()> {
    match (extensions.get::<Arc<ConnectionPermit>>(), extensions.get::<Arc<RequestContext>>()) {
        (Some(permit), Some(context)) => permit.admit(user, context),
        _ => Ok(()),
    }
}

/// Refuses what no grant allows.
pub(crate) fn require(user: &User, action: Action, path: &str) -> S3Result<()> {
    if user.may(action, path) { Ok(()) } else { Err(access_denied()) }
}

pub(crate) fn access_denied() -> s3s::S3Error {
    s3_error!(AccessDenied, "Access Denied")
}

fn need_of(operation: &str) -> (&'static str, Need) {
    OPERATIONS.into_iter().find(|(name, _)| *name == operation).unwrap_or(("Other", Need::Admin))
}

fn is_allowed(user: &User, need: Need, path: &S3Path, signed: bool) -> bool {
    let named = match path {
        S3Path::Root => "/".to_owned(),
        S3Path::Bucket { bucket } => format!("/{bucket}"),
        S3Path::Object { bucket, key } => format!("/{bucket}/{key}"),
    };
    let bucket = path.get_bucket_name();
    match need {
        Need::Object(action) => user.may(action, &named),
        Need::ListInBucket => bucket.is_some_and(|bucket| user.may_in_bucket(Action::List, bucket)),
        Need::WriteInBucket => bucket.is_some_and(|bucket| user.may_in_bucket(Action::Write, bucket)),
        Need::KnowBucket if signed => bucket.is_some_and(|bucket| user.knows_bucket(bucket)),
        Need::KnowBucket => bucket.is_some_and(|bucket| user.may_in_bucket(Action::List, bucket)),
        Need::Admin => user.may(Action::Admin, &named),
        Need::Signature => signed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_its_parameters() {
        for (operation, _) in OPERATIONS {
            assert!(query::check(operation, &Method::PUT, &Uri::from_static("/b")).is_ok(), "{operation}");
        }
    }
}
