//! A success that may not come from S3 is checked by another request. Each one is checked, however many were true
//! before: what stands in front of S3 may come and go.

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::RequestId;
use aws_sdk_s3::operation::list_objects_v2::{ListObjectsV2Error, ListObjectsV2Output};
use forebay_types::ObjectKey;

use super::S3Store;
use super::answer_check::{AnswerCheck, Doubt, Worth};
use super::listing::decode;
use crate::{Error, ErrorKind, ListRequest, ListedObject, RemoteObject, Result, Stored, UnderStore, Upload};

impl S3Store {
    /// Whether the success of an operation needs a second look. If nothing is known about the endpoint, a listing shows
    /// how it answers.
    async fn needs_look(&self, speaks_s3: bool) -> Result<bool> {
        if self.client.answers.worth(speaks_s3) == Worth::Unknown {
            match self.list(&ListRequest { limit: 2, ..ListRequest::default() }).await {
                // Where nothing can be listed, nothing can be checked. But the refusal shows whether there are ids.
                Err(error) if refuses_to_list(&error) => {
                    match listing_error(&error).and_then(|answer| answer.request_id()) {
                        Some(_) => self.client.answers.found_ids(),
                        None => self.client.answers.found_mute(),
                    }
                }
                listed => drop(listed.map_err(|error| Error { kind: ErrorKind::Unavailable, ..error })?),
            }
        }
        Ok(self.client.answers.worth(speaks_s3) == Worth::Doubted)
    }

    /// # Errors
    /// `Unavailable` when something in front of S3 may have answered, and the listing does not show this object.
    pub(super) async fn look_at(
        &self,
        operation: &str,
        key: &ObjectKey,
        object: &RemoteObject,
        speaks_s3: bool,
    ) -> Result<()> {
        // Only S3 sends a stamp.
        if object.stamp.is_some() || !self.needs_look(speaks_s3).await? {
            return Ok(());
        }
        let request = ListRequest { prefix: key.as_str().to_owned(), limit: 2, ..ListRequest::default() };
        let same = |listed: &ListedObject| {
            listed.key == key.as_str() && listed.remote_etag == object.remote_etag && listed.size == object.info.size
        };
        match self.list(&request).await {
            Ok(page) if page.objects.iter().any(same) => Ok(()),
            Err(error) if refuses_to_list(&error) && !self.client.answers.tells_id_to(operation) => Ok(()),
            Ok(_) | Err(_) => Err(self.unproven(ErrorKind::Unavailable, "read", key)),
        }
    }

    /// Returns what was stored. If the answer is doubted, so is its ETag: the object itself has the right one.
    ///
    /// # Errors
    /// `Ambiguous` when something in front of S3 may have confirmed this write, and something else is there.
    pub(super) async fn look_at_upload(
        &self,
        key: &ObjectKey,
        upload: &Upload,
        stored: Stored,
        speaks_s3: bool,
    ) -> Result<Stored> {
        let is_proven = match self.needs_look(speaks_s3).await {
            Ok(false) => return Ok(stored),
            Ok(true) => match self.head(key).await {
                Ok(object) if is_of(&object, upload, &stored) => {
                    return Ok(Stored { remote_etag: object.remote_etag });
                }
                Ok(_) => false,
                // Credentials that may write but not read.
                Err(error) => error.kind == ErrorKind::Denied && !self.client.answers.tells_id_to("PutObject"),
            },
            Err(_) => false,
        };
        if is_proven { Ok(stored) } else { Err(self.unproven(ErrorKind::Ambiguous, "put", key)) }
    }

    /// # Errors
    /// `Ambiguous` when something in front of S3 may have confirmed this deletion, and S3 itself does not.
    pub(super) async fn look_at_deletion(&self, key: &ObjectKey, speaks_s3: bool) -> Result<()> {
        let is_proven = match self.needs_look(speaks_s3).await {
            Ok(false) => true,
            Ok(true) => match self.head(key).await {
                Ok(_) => false,
                // S3 says "no such object" only to those who may list.
                Err(error) if error.kind == ErrorKind::Denied => !self.client.answers.tells_id_to("DeleteObject"),
                Err(error) => error.kind == ErrorKind::NotFound,
            },
            Err(_) => false,
        };
        if is_proven { Ok(()) } else { Err(self.unproven(ErrorKind::Ambiguous, "delete", key)) }
    }

    fn unproven(&self, kind: ErrorKind, operation: &str, key: &ObjectKey) -> Error {
        let context = self.context(operation, key);
        Error::new(kind, format!("{context}: {}, and a second request does not confirm it", Doubt::Page.text()))
    }
}

impl AnswerCheck {
    /// # Errors
    /// `Unavailable` when something in front of S3 may have sent this listing.
    pub(super) fn look_at_listing(&self, output: &ListObjectsV2Output, bucket: &str, prefix: &str) -> Result<()> {
        // A listing says what it is a listing of, which no page does.
        let of = output.prefix().unwrap_or_default();
        let is_ours = output.name() == Some(bucket) && (of == prefix || decode(of) == prefix);
        match self.worth(output.request_id().is_some()) {
            Worth::Believed => Ok(()),
            Worth::Doubted if is_ours => Ok(()),
            Worth::Doubted => Err(Error::new(ErrorKind::Unavailable, format!("list {bucket}: {}", Doubt::Page.text()))),
            // It is a listing. Servers that send no ids may leave out other things, too.
            Worth::Unknown => {
                self.found_mute();
                Ok(())
            }
        }
    }
}

fn listing_error(error: &Error) -> Option<&SdkError<ListObjectsV2Error>> {
    error.source.as_ref()?.downcast_ref()
}

/// Whether S3 itself says that listing is not possible, which says nothing about what is there.
fn refuses_to_list(error: &Error) -> bool {
    let has_code = listing_error(error).is_some_and(|answer| answer.code().is_some());
    let is_refusal = matches!(error.kind, ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::NotFound);
    has_code && (is_refusal || error.kind.is_invalid())
}

/// Whether an object is what was uploaded.
pub(super) fn is_of(object: &RemoteObject, upload: &Upload, stored: &Stored) -> bool {
    match &object.stamp {
        Some(stamp) => {
            let is_same = object.info.size == upload.info.size && object.info.etag == upload.info.etag;
            is_same && stamp.generation == upload.generation
        }
        None => object.remote_etag == stored.remote_etag && object.info.size == upload.info.size,
    }
}
