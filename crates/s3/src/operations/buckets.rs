//! Buckets themselves.

use std::sync::Arc;

use forebay_cache::ErrorKind;
use forebay_types::BucketName;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use s3s::dto::{
    Bucket, BucketLocationConstraint, CreateBucketInput, CreateBucketOutput, DeleteBucketInput, DeleteBucketOutput,
    GetBucketLocationInput, GetBucketLocationOutput, HeadBucketInput, HeadBucketOutput, ListBucketsInput,
    ListBucketsOutput,
};
use s3s::{S3Error, S3Request, S3Response, S3Result};

use super::list::owner_of;
use super::{ErrorMapper, Operations, not_implemented};
use crate::access_list::check_new_bucket;
use crate::context::{RequestContext, caller};
use crate::s3_error::{error_with_status, invalid_bucket_name, with_details, wrong_argument};
use crate::s3s_types;

/// Scope of continuation tokens for buckets; no bucket has this name.
const TOKEN_SCOPE: &str = "*";
/// The first region of S3, where some things are as they were.
const FIRST_REGION: &str = "us-east-1";
/// Most buckets of one page, as S3 has it.
const BUCKETS_MAX: i32 = 10_000;

impl Operations {
    pub(super) async fn list_all_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let user = caller(&request)?;
        let mapper = ErrorMapper::of(&request, "ListBuckets");
        let input = request.input;
        // Nobody has given out an empty one: it is none.
        let after = match input.continuation_token.as_deref().filter(|token| !token.is_empty()) {
            None => String::new(),
            Some(token) => self.tokens.open(TOKEN_SCOPE, token).ok_or_else(wrong_token)?,
        };
        let max = input.max_buckets.unwrap_or(BUCKETS_MAX);
        if !(1..=BUCKETS_MAX).contains(&max) {
            let message = "Argument max-buckets must be an integer between 1 and 10000.";
            return Err(wrong_argument("max-buckets", &max.to_string(), message));
        }
        if let Some(region) = input.bucket_region.as_deref().filter(|region| *region != self.region) {
            check_region(region)?;
        }
        // A page names the region of each bucket: "Response Elements" of ListBuckets in the API Reference.
        let is_page = input.max_buckets.is_some()
            || input.prefix.is_some()
            || input.continuation_token.is_some()
            || input.bucket_region.is_some();
        let region = is_page.then(|| self.region.clone());
        let prefix = input.prefix.as_deref().unwrap_or_default();
        let mut all = self.cache.buckets().await.map_err(|error| mapper.answer(error))?;
        if input.bucket_region.is_some_and(|region| region != self.region) {
            all.clear();
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.retain(|bucket| {
            let name = bucket.name.as_str();
            name > after.as_str() && name.starts_with(prefix) && user.knows_bucket(name)
        });
        let more = all.len() > max as usize;
        all.truncate(max as usize);
        let continuation_token =
            all.last().filter(|_| more).map(|bucket| self.tokens.make(TOKEN_SCOPE, bucket.name.as_str()));
        let buckets = all.into_iter().map(|bucket| Bucket {
            bucket_region: region.clone(),
            creation_date: Some(s3s_types::timestamp(bucket.created_ms)),
            name: Some(bucket.name.as_str().to_owned()),
        });
        let output = ListBucketsOutput {
            buckets: Some(buckets.collect()),
            continuation_token,
            owner: Some(owner_of(&user)),
            prefix: input.prefix,
        };
        Ok(S3Response::new(output))
    }

    pub(super) async fn describe_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        let name = self.need_bucket(&request.input.bucket, &ErrorMapper::of(&request, "HeadBucket")).await?;
        let output = HeadBucketOutput {
            access_point_alias: Some(false),
            bucket_region: Some(self.region.clone()),
            ..HeadBucketOutput::default()
        };
        Ok(S3Response::with_headers(output, arn_header(&name)))
    }

    pub(super) async fn locate_bucket(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        self.need_bucket(&request.input.bucket, &ErrorMapper::of(&request, "GetBucketLocation")).await?;
        // It has the empty name here.
        let region = if self.region == FIRST_REGION { String::new() } else { self.region.clone() };
        let location_constraint = Some(BucketLocationConstraint::from(region));
        Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
    }

    pub(super) async fn make_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let mapper = ErrorMapper::of(&request, "CreateBucket");
        let input = request.input;
        if input.object_lock_enabled_for_bucket == Some(true) {
            return Err(not_implemented("Object lock"));
        }
        check_new_bucket(input.acl.as_ref().map(|acl| acl.as_str()), &request.headers)?;
        check_ownership(&request.headers)?;
        let configuration = input.create_bucket_configuration.unwrap_or_default();
        if configuration.bucket.is_some() || configuration.location.is_some() {
            return Err(not_implemented("A directory bucket"));
        }
        let wanted = configuration.location_constraint.as_ref().map_or("", |wanted| wanted.as_str());
        check_location(wanted, &self.region)?;
        let name = s3s_types::bucket(&input.bucket)?;
        if is_reserved(name.as_str()) {
            return Err(invalid_bucket_name(name.as_str()));
        }
        if request.extensions.get::<Arc<RequestContext>>().is_some_and(|context| context.bucket_tags.get().is_some()) {
            // localstack/localstack, `test_create_bucket_with_tags_us_east_1_idempotency`.
            return Err(match self.cache.bucket_exists(&name).await {
                Ok(true) => {
                    mapper.answer(forebay_cache::Error::new(ErrorKind::BucketAlreadyExists, "it has other tags"))
                }
                Ok(false) => not_implemented("A bucket with tags"),
                Err(error) => mapper.answer(error),
            });
        }
        if let Err(error) = self.cache.create_bucket(&name).await {
            // There, and nowhere else, it succeeds once more: "Errors" of CreateBucket, Amazon S3 API Reference. A name
            // that only others have in the store behind is none of ours.
            let is_again = error.kind == ErrorKind::BucketAlreadyExists && self.region == FIRST_REGION;
            if !(is_again && matches!(self.cache.bucket_exists(&name).await, Ok(true))) {
                return Err(mapper.answer(error));
            }
        }
        let output = CreateBucketOutput { location: Some(format!("/{name}")) };
        Ok(S3Response::with_headers(output, arn_header(&name)))
    }

    pub(super) async fn remove_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        let mapper = ErrorMapper::of(&request, "DeleteBucket");
        let name = s3s_types::bucket(&request.input.bucket)?;
        self.cache.delete_bucket(&name).await.map_err(|error| mapper.answer(error))?;
        Ok(S3Response::new(DeleteBucketOutput::default()))
    }

    /// NoSuchBucket when there is none.
    pub(super) async fn need_bucket(&self, bucket: &str, mapper: &ErrorMapper) -> S3Result<forebay_types::BucketName> {
        let name = s3s_types::bucket(bucket)?;
        match self.cache.bucket_exists(&name).await {
            Ok(true) => Ok(name),
            Ok(false) => {
                Err(mapper
                    .answer(forebay_cache::Error::new(ErrorKind::NoSuchBucket, format!("there is no bucket {name}"))))
            }
            Err(error) => Err(mapper.answer(error)),
        }
    }
}

/// What `s3s` has no field for: localstack/localstack, `test_create_bucket_head_bucket`.
fn arn_header(name: &BucketName) -> HeaderMap {
    let arn = HeaderValue::try_from(format!("arn:aws:s3:::{name}")).expect("a bucket's name has no odd characters");
    HeaderMap::from_iter([(HeaderName::from_static("x-amz-bucket-arn"), arn)])
}

/// Lists are disabled in all buckets. Source: localstack/localstack, `test_bucket_ownership_controls_exc`.
fn check_ownership(headers: &HeaderMap) -> S3Result<()> {
    const HEADER: &str = "x-amz-object-ownership";
    match headers.get(HEADER).map(|owner| owner.as_bytes()) {
        None | Some(b"BucketOwnerEnforced") => Ok(()),
        Some(b"BucketOwnerPreferred" | b"ObjectWriter") => Err(not_implemented("A bucket with ACLs")),
        Some(other) => {
            let error =
                s3s_types::invalid_argument(format!("Invalid {HEADER} header: {}", String::from_utf8_lossy(other)));
            Err(with_details(error, &[("ArgumentName", HEADER)]))
        }
    }
}

/// The regions of Amazon S3: "Amazon Simple Storage Service endpoints and quotas", AWS General Reference. One that is
/// newer than this list is refused.
const REGIONS: [&str; 39] = [
    "af-south-1",
    "ap-east-1",
    "ap-east-2",
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-northeast-3",
    "ap-south-1",
    "ap-south-2",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-southeast-3",
    "ap-southeast-4",
    "ap-southeast-5",
    "ap-southeast-6",
    "ap-southeast-7",
    "ca-central-1",
    "ca-west-1",
    "cn-north-1",
    "cn-northwest-1",
    "eu-central-1",
    "eu-central-2",
    "eu-north-1",
    "eu-south-1",
    "eu-south-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "eusc-de-east-1",
    "il-central-1",
    "me-central-1",
    "me-south-1",
    "mx-central-1",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-gov-east-1",
    "us-gov-west-1",
    "us-west-1",
    "us-west-2",
];

/// Of buckets in another region there are none. Source: localstack/localstack, `test_list_buckets_region_validation`.
fn check_region(region: &str) -> S3Result<()> {
    if REGIONS.contains(&region) {
        return Ok(());
    }
    let error = s3s_types::invalid_argument(format!("Argument value {region} is not a valid AWS Region"));
    Err(with_details(error, &[("ArgumentName", "bucket-region")]))
}

/// Refuses a new bucket in another region. `us-east-1` may be named here, which Amazon S3 does not allow: older
/// releases of the AWS SDK for JavaScript send it to every endpoint of one's own. Nothing need be named: most clients
/// of other stores never do.
fn check_location(wanted: &str, region: &str) -> S3Result<()> {
    let is_here = wanted.is_empty() || wanted == region || (wanted == "EU" && region == "eu-west-1");
    let refuse = |code, message: String| Err(error_with_status(code, StatusCode::BAD_REQUEST, message));
    match is_here {
        true => Ok(()),
        // aws/aws-parallelcluster#1190.
        false if is_region(wanted) => refuse(
            "IllegalLocationConstraintException",
            format!(
                "The {wanted} location constraint is incompatible for the region specific endpoint this request was sent to."
            ),
        ),
        false => refuse("InvalidLocationConstraint", "The specified location-constraint is not valid".to_owned())
            .map_err(|error| with_details(error, &[("LocationConstraint", wanted)])),
    }
}

/// Whether it is written as the regions of Amazon S3 are: `eu-west-1`.
fn is_region(text: &str) -> bool {
    let words: Vec<&str> = text.split('-').collect();
    let is_word = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
    match words.as_slice() {
        [names @ .., number] if names.len() >= 2 => {
            names.iter().all(is_word) && (1..=2).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit())
        }
        _ => false,
    }
}

/// What Amazon S3 keeps for itself: "General purpose bucket naming rules", Amazon S3 User Guide. An SDK takes a bucket
/// that ends in `--x-s3` for one of another kind, and asks another service for it. Only new buckets are refused.
fn is_reserved(name: &str) -> bool {
    const BEGINNINGS: [&str; 3] = ["xn--", "sthree-", "amzn-s3-demo-"];
    const ENDS: [&str; 5] = ["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"];
    BEGINNINGS.iter().any(|start| name.starts_with(start)) || ENDS.iter().any(|end| name.ends_with(end))
}

impl Operations {
    /// A token that was not made here is the client's mistake.
    pub(super) fn open_token(&self, bucket: &str, token: &str) -> S3Result<String> {
        let position = self.tokens.open(bucket, token);
        position.ok_or_else(wrong_token)
    }
}

/// Amazon S3 does not repeat the token: localstack/localstack, `test_list_objects_v2_continuation_start_after`.
fn wrong_token() -> S3Error {
    let error = s3s_types::invalid_argument("The continuation token provided is incorrect");
    with_details(error, &[("ArgumentName", "continuation-token")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_made_here_or_nowhere() {
        for (wanted, region) in [("", "eu-west-1"), ("us-east-1", "us-east-1"), ("EU", "eu-west-1")] {
            assert!(check_location(wanted, region).is_ok(), "{wanted} {region}");
        }
        let code = |wanted, region| check_location(wanted, region).unwrap_err().code().as_str().to_owned();
        for (wanted, region) in [("eu-west-1", "us-east-1"), ("us-gov-east-1", "us-east-1"), ("us-east-1", "eu-west-1")]
        {
            assert_eq!(code(wanted, region), "IllegalLocationConstraintException", "{wanted} {region}");
        }
        for wanted in ["nowhere", "US-EAST-1", " ", "EU", "eu-west", "eu--1", "-1"] {
            assert_eq!(code(wanted, "us-east-1"), "InvalidLocationConstraint", "{wanted}");
        }
    }

    #[test]
    fn reserved_names_are_known_by_their_ends() {
        for name in ["xn--a", "sthree-a", "amzn-s3-demo-a", "a-s3alias", "a--ol-s3", "a.mrap", "a--x-s3", "a--table-s3"]
        {
            assert!(is_reserved(name), "{name}");
        }
        for name in ["a-xn--a", "three", "a-x-s3", "mrap", "s3alias"] {
            assert!(!is_reserved(name), "{name}");
        }
    }
}
