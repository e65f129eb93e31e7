//! Copies inside the cache: read from wherever the source is, and written like any other object.

use std::sync::Arc;

use forebay_types::limits::{ATTRIBUTES_BYTES_MAX, PUT_BYTES_MAX};
use forebay_types::{
    Durability, Generation, ObjectInfo, ObjectPath, PathPolicy, StorageState, SystemHeaders, Tags, WriteMode,
    header_bytes,
};
use futures::{StreamExt, TryStreamExt};

use crate::anywhere::OtherHome;
use crate::worker::Worker;
use crate::{
    Attributes, Conditions, CopyObject, Error, ErrorKind, GetObject, Incoming, PutObject, RangeRequest, Result, Written,
};

/// A source's bytes as a body, and its description.
pub(crate) struct CopySource {
    pub(crate) incoming: Incoming,
    pub(crate) info: Arc<ObjectInfo>,
    state: StorageState,
    generation: Option<Generation>,
}

/// How often a copy retries when its source changes while the source's tags are fetched.
const CHANGED_TRIES: usize = 3;

impl Worker {
    pub(crate) async fn copy(self: &Arc<Self>, request: CopyObject) -> Result<Written> {
        let copy = self.read_for_copy(request).await?;
        self.put(copy).await
    }

    /// The same, written at the home of the target. It is on stable storage, whatever the policy of the target says:
    /// the caller drops the source next.
    pub(crate) async fn copy_to_home(self: &Arc<Self>, request: CopyObject) -> Result<Written> {
        let copy = self.read_for_copy(request).await?;
        match self.other_home(&copy.path) {
            // The catalog of a cluster syncs all that it publishes.
            Some(OtherHome { others, worker }) => others.put(&worker, copy).await,
            None => {
                let policy = PathPolicy { durability: Durability::Fsync, ..self.policies.resolve(&copy.path) };
                self.put_by(copy, policy).await
            }
        }
    }

    /// The write that makes the copy.
    async fn read_for_copy(self: &Arc<Self>, request: CopyObject) -> Result<PutObject> {
        let (mut from, tags) = self.source_with_tags(&request).await?;
        let (headers, user) =
            request.replace_metadata.unwrap_or_else(|| (from.info.headers.clone(), from.info.user.clone()));
        let headers = SystemHeaders {
            storage_class: request.storage_class,
            website_redirect_location: request.website_redirect_location,
            ..headers
        };
        let kept = || from.info.checksums.values.iter().map(|checksum| checksum.algorithm).collect();
        from.incoming.compute = request.checksum_algorithm.map_or_else(kept, |algorithm| vec![algorithm]);
        let attributes = Attributes { headers, user, tags };
        self.check_copied(&request.target, from.info.size, &attributes)?;
        Ok(PutObject { path: request.target, body: from.incoming, attributes, conditions: request.conditions })
    }

    /// What a source has may be more than one request to the under store takes: tags may have been set by themselves.
    /// An upload in the background could then never succeed. Without one, the client gets the under store's answer.
    ///
    /// # Errors
    /// `InvalidRequest`.
    fn check_copied(&self, target: &ObjectPath, size: u64, attributes: &Attributes) -> Result<()> {
        let Attributes { headers, user, tags } = attributes;
        let bytes = header_bytes(headers, user, tags);
        if bytes <= ATTRIBUTES_BYTES_MAX || self.policies.resolve(target).write_mode_of(size) != WriteMode::WriteBack {
            return Ok(());
        }
        let context = format!(
            "The copy would have {bytes} bytes of headers, metadata and tags, and {ATTRIBUTES_BYTES_MAX} fit into a request. Replace the metadata or the tags."
        );
        Err(Error::new(ErrorKind::InvalidRequest, context))
    }

    /// The bytes of the source, and the tags that the copy gets. If these are the source's tags, both are of the same
    /// version.
    async fn source_with_tags(self: &Arc<Self>, request: &CopyObject) -> Result<(CopySource, Tags)> {
        let source = &request.source;
        for tries in 0..CHANGED_TRIES {
            let from = self.copy_source(source, &request.source_conditions, None, tries > 0).await?;
            if from.info.size > PUT_BYTES_MAX {
                // Of Amazon S3: hashicorp/terraform-provider-aws#38102.
                let context = format!(
                    "The specified copy source is larger than the maximum allowable size for a copy source: {PUT_BYTES_MAX}"
                );
                return Err(Error::new(ErrorKind::InvalidRequest, context));
            }
            if let Some(tags) = &request.replace_tags {
                return Ok((from, tags.clone()));
            }
            if from.state != StorageState::Clean {
                let tags = from.info.tags.clone();
                return Ok((from, tags));
            }
            // The under store returns tags on their own, without the version that they belong to.
            let tags = self.tags_anywhere(source).await?;
            // A copy here may be of an older version than the tags.
            let revalidate = GetObject { no_cache: true, ..GetObject::whole(source.clone()) };
            let now = self.head_anywhere(&revalidate).await?;
            if now.generation == from.generation && has_same_description(&now.info, &from.info) {
                return Ok((from, tags));
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "the source keeps changing while it is copied"))
    }

    /// `range` is inclusive and must lie inside the source, as UploadPartCopy requires. `no_cache`: see
    /// [`GetObject::no_cache`].
    pub(crate) async fn copy_source(
        self: &Arc<Self>,
        path: &ObjectPath,
        conditions: &Conditions,
        range: Option<(u64, u64)>,
        no_cache: bool,
    ) -> Result<CopySource> {
        let get = GetObject {
            range: range.map(|(first, last)| RangeRequest::From { first, last: Some(last) }),
            conditions: conditions.clone(),
            no_cache,
            ..GetObject::whole(path.clone())
        };
        let body = self.get_anywhere(&get).await.map_err(|error| match error.kind {
            // For the source of a copy, every failed condition is PreconditionFailed.
            ErrorKind::NotModified => Error { kind: ErrorKind::PreconditionFailed, ..error },
            _ => error,
        })?;
        let (info, state, generation) = (Arc::clone(&body.head.info), body.head.state, body.head.generation);
        if range.is_some_and(|(_, last)| last >= info.size) {
            return Err(Error::about(
                ErrorKind::InvalidRange,
                "the range of the copy lies outside of its source",
                &info,
            ));
        }
        let incoming = Incoming {
            stream: body.stream.map_err(changed).boxed(),
            size: body.head.range.len(),
            md5: None,
            sha256: None,
            checksums: Vec::new(),
            compute: Vec::new(),
            trailers: None,
        };
        Ok(CopySource { incoming, info, state, generation })
    }
}

/// Whether two descriptions show the same version, for versions that other clients wrote. Forebay's own versions are
/// distinguished by generation, because equal content may be written twice within a millisecond, or after the clock was
/// set back.
fn has_same_description(a: &ObjectInfo, b: &ObjectInfo) -> bool {
    (&a.etag, a.last_modified_ms, &a.headers, &a.user) == (&b.etag, b.last_modified_ms, &b.headers, &b.user)
}

/// The source was replaced while it was read. A retry copies the new version. The error is not PreconditionFailed,
/// because the client set no condition.
fn changed(error: Error) -> Error {
    match error.kind {
        ErrorKind::PreconditionFailed => {
            Error::new(ErrorKind::Unavailable, format!("the source changed while it was copied: {error}"))
        }
        _ => error,
    }
}
