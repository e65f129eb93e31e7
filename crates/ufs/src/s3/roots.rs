//! Buckets of an endpoint, and buckets below a prefix of one bucket.

use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_s3::operation::RequestId;
use aws_sdk_s3::types::{BucketLocationConstraint, CreateBucketConfiguration};
use forebay_env::Env;
use forebay_types::BucketName;

use super::answer_check::{SecondLook, Worth};
use super::errors::{Effect, classify};
use super::listing::must_go_on;
use super::{S3Client, S3Settings, S3Store};
use crate::{BucketInfo, BucketRoot, Error, ErrorKind, ListRequest, Result, UnderStore};

/// The region whose buckets carry no location constraint.
const NO_CONSTRAINT: &str = "us-east-1";

/// The buckets of an endpoint.
pub struct S3EndpointRoot {
    env: Env,
    client: S3Client,
    settings: S3Settings,
}

impl S3EndpointRoot {
    pub fn new(env: Env, client: S3Client, settings: S3Settings) -> Self {
        Self { env, client, settings }
    }

    /// Whether a bucket that a HEAD did not find, or was refused, can be listed. Gateways that reach nobody also answer
    /// without a body, and so does S3 when our credentials are wrong. So only an explicit code means that there is no
    /// such bucket.
    async fn has_listing(&self, name: &BucketName) -> Result<bool> {
        let request = self.client.sdk.list_objects_v2().bucket(name.as_str()).max_keys(1);
        let result = request.customize().interceptor(SecondLook).send().await;
        let result = result.map_err(|error| classify(error, Effect::Read, || format!("look for the bucket {name}")));
        match result.and_then(|output| self.client.answers.look_at_listing(&output, name.as_str(), "")) {
            Ok(()) => Ok(true),
            Err(error) if error.kind == ErrorKind::NoBucket => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl BucketRoot for S3EndpointRoot {
    async fn list(&self) -> Result<Vec<BucketInfo>> {
        let (mut buckets, mut token) = (Vec::new(), None);
        loop {
            let result = self.client.sdk.list_buckets().set_continuation_token(token.clone()).send().await;
            let page = result.map_err(|error| classify(error, Effect::Read, || "list buckets".to_owned()))?;
            for bucket in page.buckets() {
                let created_ms =
                    bucket.creation_date().and_then(|at| at.to_millis().ok()).unwrap_or_default().max(0) as u64;
                // Old names that today's rules refuse can't be served.
                if let Some(Ok(name)) = bucket.name().map(BucketName::new) {
                    buckets.push(BucketInfo { name, created_ms });
                }
            }
            let before = std::mem::replace(&mut token, page.continuation_token().map(str::to_owned));
            if token.is_none() {
                buckets.sort_by(|a, b| a.name.cmp(&b.name));
                return Ok(buckets);
            }
            must_go_on(&before, &token, || "list buckets".to_owned())?;
        }
    }

    async fn create(&self, name: &BucketName) -> Result<()> {
        let region =
            self.client.sdk.config().region().map(AsRef::as_ref).filter(|region: &&str| *region != NO_CONSTRAINT);
        let place = region.map(|region| {
            CreateBucketConfiguration::builder().location_constraint(BucketLocationConstraint::from(region)).build()
        });
        let request = self.client.sdk.create_bucket().bucket(name.as_str()).set_create_bucket_configuration(place);
        let result = request.send().await;
        result.map(drop).map_err(|error| classify(error, Effect::Write, || format!("create the bucket {name}")))
    }

    async fn delete(&self, name: &BucketName) -> Result<()> {
        let result = self.client.sdk.delete_bucket().bucket(name.as_str()).send().await;
        result.map(drop).map_err(|error| {
            let error = classify(error, Effect::Write, || format!("delete the bucket {name}"));
            let kind = if error.kind == ErrorKind::NoBucket { ErrorKind::NotFound } else { error.kind };
            Error { kind, ..error }
        })
    }

    async fn open(&self, name: &BucketName) -> Result<Option<Arc<dyn UnderStore>>> {
        let request = self.client.sdk.head_bucket().bucket(name.as_str());
        let result = request.customize().interceptor(SecondLook).send().await;
        match result.map_err(|error| classify(error, Effect::Look, || format!("look for the bucket {name}"))) {
            Ok(output) if self.client.answers.worth(output.request_id().is_some()) == Worth::Believed => {
                Ok(Some(self.assume(name)))
            }
            Ok(_) => Ok(self.has_listing(name).await?.then(|| self.assume(name))),
            Err(error)
                if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NoBucket | ErrorKind::Denied)
                    || error.kind.is_invalid() =>
            {
                Ok(self.has_listing(name).await?.then(|| self.assume(name)))
            }
            Err(error) => Err(error),
        }
    }

    fn assume(&self, name: &BucketName) -> Arc<dyn UnderStore> {
        Arc::new(S3Store::new(self.env.clone(), self.client.clone(), name.as_str(), "", self.settings.clone()))
    }

    fn label(&self) -> String {
        "s3://".to_owned()
    }
}

/// Buckets as directories below a place: `place/name/`. An object with exactly this key marks an empty one.
pub struct S3PrefixRoot {
    place: S3Store,
}

impl S3PrefixRoot {
    pub fn new(place: S3Store) -> Self {
        Self { place }
    }

    fn marker(&self, name: &BucketName) -> String {
        format!("{}{name}/", self.place.prefix)
    }

    /// Whether the bucket exists.
    async fn exists(&self, name: &BucketName) -> Result<bool> {
        let (client, bucket, marker) = (&self.place.client, &self.place.bucket, self.marker(name));
        let request = client.sdk.list_objects_v2().bucket(bucket).prefix(&marker).max_keys(1);
        let result = request.customize().interceptor(SecondLook).send().await;
        let page = result.map_err(|error| classify(error, Effect::Read, || format!("look for the bucket {name}")))?;
        client.answers.look_at_listing(&page, bucket, &marker)?;
        Ok(!page.contents().is_empty())
    }
}

#[async_trait]
impl BucketRoot for S3PrefixRoot {
    async fn list(&self) -> Result<Vec<BucketInfo>> {
        let mut buckets = Vec::new();
        let mut request = ListRequest { delimiter: Some("/".to_owned()), limit: 1000, ..ListRequest::default() };
        loop {
            let page = self.place.list(&request).await?;
            let names = page.prefixes.iter().filter_map(|prefix| BucketName::new(prefix.trim_end_matches('/')).ok());
            // S3 keeps no time for a prefix.
            buckets.extend(names.map(|name| BucketInfo { name, created_ms: 0 }));
            match page.next {
                Some(next) => (request.start_after, request.token) = (Some(next), page.token),
                None => return Ok(buckets),
            }
        }
    }

    async fn create(&self, name: &BucketName) -> Result<()> {
        if self.exists(name).await? {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("the bucket {name} exists")));
        }
        let request = self.place.client.sdk.put_object().bucket(&self.place.bucket).key(self.marker(name));
        let result = request.body(Default::default()).send().await;
        result.map(drop).map_err(|error| classify(error, Effect::Write, || format!("create the bucket {name}")))
    }

    async fn delete(&self, name: &BucketName) -> Result<()> {
        if !self.exists(name).await? {
            return Err(Error::new(ErrorKind::NotFound, format!("the bucket {name} does not exist")));
        }
        let page = self.place.below(name.as_str()).list(&ListRequest { limit: 1, ..ListRequest::default() }).await?;
        if !page.objects.is_empty() {
            return Err(Error::new(ErrorKind::NotEmpty, format!("the bucket {name} is not empty")));
        }
        let request = self.place.client.sdk.delete_object().bucket(&self.place.bucket).key(self.marker(name));
        let result = request.send().await;
        result.map(drop).map_err(|error| classify(error, Effect::Write, || format!("delete the bucket {name}")))
    }

    async fn open(&self, name: &BucketName) -> Result<Option<Arc<dyn UnderStore>>> {
        Ok(self.exists(name).await?.then(|| self.assume(name)))
    }

    fn assume(&self, name: &BucketName) -> Arc<dyn UnderStore> {
        Arc::new(self.place.below(name.as_str()))
    }

    fn label(&self) -> String {
        self.place.label()
    }
}
