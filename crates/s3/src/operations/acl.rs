//! Access control lists, as in a bucket of Amazon S3 that has them disabled (`BucketOwnerEnforced`, the default there
//! since 2023): the owner of the bucket owns all that is in it, and nothing else can be said in a list.

use forebay_cache::GetObject;
use http::HeaderMap;
use s3s::dto::{
    AccessControlPolicy, GetBucketAclInput, GetBucketAclOutput, GetBucketOwnershipControlsInput,
    GetBucketOwnershipControlsOutput, GetObjectAclInput, GetObjectAclOutput, Grant, Grantee, ObjectOwnership, Owner,
    OwnershipControls, OwnershipControlsRule, Permission, PutBucketAclInput, PutBucketAclOutput,
    PutBucketOwnershipControlsInput, PutBucketOwnershipControlsOutput, PutObjectAclInput, PutObjectAclOutput, Type,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use super::read::hide;
use super::{ErrorMapper, Operations, not_implemented, only_null_version};
use crate::access_list::{FULL_CONTROL_OF_THE_OWNER, check_headers, check_place, has_grants, not_supported};
use crate::context::caller;
use crate::s3_error::MALFORMED_XML;
use crate::s3s_types;

impl Operations {
    fn owner(&self) -> Owner {
        Owner { display_name: None, id: Some(self.owner_id.clone()) }
    }

    fn grants(&self) -> Vec<Grant> {
        let grantee = Grantee {
            display_name: None,
            email_address: None,
            id: Some(self.owner_id.clone()),
            type_: Type::from_static(Type::CANONICAL_USER),
            uri: None,
        };
        vec![Grant { grantee: Some(grantee), permission: Some(Permission::from_static(Permission::FULL_CONTROL)) }]
    }

    /// A list that says what is so already may be set, as the canned one or as a document.
    fn check_change(
        &self,
        acl: Option<&str>,
        document: Option<&AccessControlPolicy>,
        headers: &HeaderMap,
    ) -> S3Result<()> {
        check_headers(acl, headers)?;
        check_place(acl.is_some() || has_grants(headers), document.is_some())?;
        let is_so_already = |list: &AccessControlPolicy| {
            let grants = list.grants.as_deref().unwrap_or_default();
            let is_owners = |grant: &Grant| {
                grant.permission.as_ref().is_some_and(|permission| permission.as_str() == Permission::FULL_CONTROL)
                    && grant.grantee.as_ref().and_then(|grantee| grantee.id.as_ref()) == Some(&self.owner_id)
            };
            !grants.is_empty() && grants.iter().all(is_owners)
        };
        let changes_nothing = match (acl, document) {
            (Some(acl), None) => acl == FULL_CONTROL_OF_THE_OWNER,
            (None, Some(document)) => is_so_already(document),
            _ => false,
        };
        if changes_nothing && !has_grants(headers) { Ok(()) } else { Err(not_supported()) }
    }

    pub(super) async fn read_bucket_acl(
        &self,
        request: S3Request<GetBucketAclInput>,
    ) -> S3Result<S3Response<GetBucketAclOutput>> {
        self.need_bucket(&request.input.bucket, &ErrorMapper::of(&request, "GetBucketAcl")).await?;
        Ok(S3Response::new(GetBucketAclOutput { grants: Some(self.grants()), owner: Some(self.owner()) }))
    }

    pub(super) async fn write_bucket_acl(
        &self,
        request: S3Request<PutBucketAclInput>,
    ) -> S3Result<S3Response<PutBucketAclOutput>> {
        let input = &request.input;
        self.need_bucket(&input.bucket, &ErrorMapper::of(&request, "PutBucketAcl")).await?;
        let acl = input.acl.as_ref().map(|acl| acl.as_str());
        self.check_change(acl, input.access_control_policy.as_ref(), &request.headers)?;
        Ok(S3Response::new(PutBucketAclOutput::default()))
    }

    pub(super) async fn read_object_acl(
        &self,
        request: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        only_null_version(request.input.version_id.as_deref())?;
        self.need_object(&request, &request.input.bucket, &request.input.key, "GetObjectAcl").await?;
        Ok(S3Response::new(GetObjectAclOutput {
            grants: Some(self.grants()),
            owner: Some(self.owner()),
            request_charged: None,
        }))
    }

    pub(super) async fn write_object_acl(
        &self,
        request: S3Request<PutObjectAclInput>,
    ) -> S3Result<S3Response<PutObjectAclOutput>> {
        let input = &request.input;
        only_null_version(input.version_id.as_deref())?;
        self.need_object(&request, &input.bucket, &input.key, "PutObjectAcl").await?;
        let acl = input.acl.as_ref().map(|acl| acl.as_str());
        self.check_change(acl, input.access_control_policy.as_ref(), &request.headers)?;
        Ok(S3Response::new(PutObjectAclOutput::default()))
    }

    /// NoSuchKey when there is none.
    async fn need_object<T>(
        &self,
        request: &S3Request<T>,
        bucket: &str,
        key: &str,
        operation: &'static str,
    ) -> S3Result<()> {
        let (user, mapper) = (caller(request)?, ErrorMapper::of(request, operation));
        let path = s3s_types::path(bucket, key)?;
        let get = GetObject { no_cache: s3s_types::no_cache(&request.headers), ..GetObject::whole(path.clone()) };
        self.cache.head(get).await.map_err(|error| hide(error, &user, &path, &mapper))?;
        Ok(())
    }

    pub(super) async fn read_ownership(
        &self,
        request: S3Request<GetBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<GetBucketOwnershipControlsOutput>> {
        self.need_bucket(&request.input.bucket, &ErrorMapper::of(&request, "GetBucketOwnershipControls")).await?;
        let object_ownership = ObjectOwnership::from_static(ObjectOwnership::BUCKET_OWNER_ENFORCED);
        let controls = OwnershipControls { rules: vec![OwnershipControlsRule { object_ownership }] };
        Ok(S3Response::new(GetBucketOwnershipControlsOutput { ownership_controls: Some(controls) }))
    }

    pub(super) async fn write_ownership(
        &self,
        request: S3Request<PutBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<PutBucketOwnershipControlsOutput>> {
        self.need_bucket(&request.input.bucket, &ErrorMapper::of(&request, "PutBucketOwnershipControls")).await?;
        // localstack/localstack, `test_bucket_ownership_controls_exc`.
        let malformed = || s3_error!(MalformedXML, "{MALFORMED_XML}");
        let [rule] = request.input.ownership_controls.rules.as_slice() else { return Err(malformed()) };
        match rule.object_ownership.as_str() {
            ObjectOwnership::BUCKET_OWNER_ENFORCED => Ok(S3Response::new(PutBucketOwnershipControlsOutput::default())),
            ObjectOwnership::BUCKET_OWNER_PREFERRED | ObjectOwnership::OBJECT_WRITER => {
                Err(not_implemented("A bucket with ACLs"))
            }
            _ => Err(malformed()),
        }
    }
}
