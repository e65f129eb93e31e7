//! Copies inside the cache: read from wherever the source is, written like any other object.

use std::sync::Arc;

use forebay_types::limits::PUT_BYTES_MAX;
use forebay_types::{ObjectInfo, ObjectPath, SystemHeaders};
use futures::{StreamExt, TryStreamExt};

use crate::worker::Worker;
use crate::{
    Attributes, Conditions, CopyObject, Error, ErrorKind, GetObject, Incoming, PutObject, RangeRequest, Result, Written,
};

/// A source's bytes as a body, and what is known of it.
pub(crate) struct CopySource {
    pub(crate) incoming: Incoming,
    pub(crate) info: Arc<ObjectInfo>,
}

impl Worker {
    pub(crate) async fn copy(self: &Arc<Self>, request: CopyObject) -> Result<Written> {
        let source = &request.source;
        let mut from = self.copy_source(source, &request.source_conditions, None).await?;
        if from.info.size > PUT_BYTES_MAX {
            return Err(Error::new(ErrorKind::InvalidArgument, "the source is larger than 5 GiB: copy it in parts"));
        }
        let tags = match request.replace_tags {
            Some(tags) => tags,
            None => self.tags(source).await?,
        };
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
        self.put(PutObject { path: request.target, body: from.incoming, attributes, conditions: request.conditions })
            .await
    }

    /// `range` is inclusive and must lie inside the source, as UploadPartCopy wants it.
    pub(crate) async fn copy_source(
        self: &Arc<Self>,
        path: &ObjectPath,
        conditions: &Conditions,
        range: Option<(u64, u64)>,
    ) -> Result<CopySource> {
        let get = GetObject {
            path: path.clone(),
            range: range.map(|(first, last)| RangeRequest::From { first, last: Some(last) }),
            part_number: None,
            conditions: conditions.clone(),
        };
        let body = self.get(get).await.map_err(|error| match error.kind {
            // Of a copy's source, every condition that fails is a precondition.
            ErrorKind::NotModified => Error { kind: ErrorKind::PreconditionFailed, ..error },
            _ => error,
        })?;
        let info = Arc::clone(&body.head.info);
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
        Ok(CopySource { incoming, info })
    }
}

/// The source was replaced while it was read: the next try copies the new one. Not a precondition of the client's.
fn changed(error: Error) -> Error {
    match error.kind {
        ErrorKind::PreconditionFailed => {
            Error::new(ErrorKind::Unavailable, format!("the source changed while it was copied: {error}"))
        }
        _ => error,
    }
}
