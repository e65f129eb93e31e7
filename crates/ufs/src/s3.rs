//! Under stores on S3, and on everything that speaks its protocol.
//!
//! The SDK's own retries are off. What an error means for a write is decided here; the governor and persistence decide
//! when to retry.

mod answer_check;
mod connect;
mod count;
mod direct;
mod errors;
mod listing;
mod objects;
mod roots;
mod second_look;
mod settings;
mod skew;
mod source;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::operation::RequestId;
use aws_sdk_s3::types::{ChecksumMode, Tag, Tagging};
use forebay_env::Env;
use forebay_env::sync::Mutex;
use forebay_types::limits::KEY_BYTES_MAX;
use forebay_types::{ByteRange, ETag, Generation, ObjectInfo, ObjectKey, Tags};
use futures::StreamExt;
use tokio::sync::OnceCell;

use crate::stamp::Subject;
use crate::{
    Condition, Error, ErrorKind, IsOurs, ListPage, ListRequest, RemoteBody, RemoteObject, Result, S3Target, Stored,
    UnderStore, Upload,
};
use answer_check::SecondLook;
pub use connect::{S3Client, connect};
use direct::{Direct, plain};
pub use errors::is_about_credentials;
use errors::{Effect, classify};
pub use roots::{S3EndpointRoot, S3PrefixRoot};
pub use settings::{S3Credentials, S3Settings};

const CLIMBS: &str = "a key with the component \"..\" is sent to Amazon S3 alone: gateways may take it for another key";

/// After this time, conditional writes are tried again where they were refused: something in front of the server may
/// have refused them, and be gone by now.
const UNCONDITIONAL: Duration = Duration::from_secs(3600);

/// A bucket, or what is below a prefix in it. Clones share it.
#[derive(Clone)]
pub struct S3Store {
    env: Env,
    client: S3Client,
    bucket: String,
    /// Empty, or ends with `/`.
    prefix: String,
    settings: S3Settings,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// How to reach objects without the SDK. `None` inside when that is not possible. Found with the first request.
    direct: OnceCell<Option<Direct>>,
    /// Until this time, by the monotonic clock, the server counts as one without conditional writes.
    unconditional_until: Mutex<Duration>,
}

impl S3Store {
    /// `prefix` may be empty, and may begin and end with slashes.
    pub fn new(env: Env, client: S3Client, bucket: impl Into<String>, prefix: &str, settings: S3Settings) -> Self {
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Self { env, client, bucket: bucket.into(), prefix, settings, shared: Arc::default() }
    }

    /// The same place, with every request sent by the SDK: for tests that compare the two ways.
    #[must_use]
    pub fn through_sdk(self) -> Self {
        let direct = OnceCell::new_with(Some(None));
        Self { shared: Arc::new(Shared { direct, ..Shared::default() }), ..self }
    }

    /// The way around the SDK. `None` also while the SDK itself can't tell: the request through the SDK then says what
    /// is wrong.
    async fn direct(&self) -> Option<&Direct> {
        let find = || Direct::find(&self.env, &self.client, &self.bucket, &self.settings);
        self.shared.direct.get_or_try_init(find).await.ok()?.as_ref()
    }

    /// The place one level below.
    fn below(&self, name: &str) -> Self {
        let prefix = format!("{}{name}/", self.prefix);
        Self { prefix, shared: Arc::default(), ..self.clone() }
    }

    fn remote_key(&self, key: &ObjectKey) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Whether something behind this endpoint may take the key for one in another directory. Gateways to file systems
    /// resolve `..`, so such a key could reach what its grants and the prefix of its mount do not cover. Amazon S3
    /// takes it as it is.
    fn climbs(&self, key: &ObjectKey) -> bool {
        !self.client.is_amazon && key.as_str().split('/').any(|component| component == "..")
    }

    /// # Errors
    /// `InvalidName`: a key that is never sent never exists.
    fn refuse_climbing(&self, key: &ObjectKey) -> Result<()> {
        let refusal = || Error::new(ErrorKind::InvalidName, format!("{}: {CLIMBS}", self.context("the key of", key)));
        if self.climbs(key) { Err(refusal()) } else { Ok(()) }
    }

    fn context(&self, operation: &str, key: &ObjectKey) -> String {
        format!("{operation} {}/{}", self.label(), key)
    }

    /// For servers without conditional writes: checks the condition first. Another writer may come in between, which is
    /// better than never writing.
    async fn check(&self, key: &ObjectKey, condition: &Condition) -> Result<()> {
        let present = match self.head(key).await {
            Ok(object) => Some(object.remote_etag),
            Err(error) if error.kind == ErrorKind::NotFound => None,
            Err(error) => return Err(Error { kind: errors::unapplied(error.kind), ..error }),
        };
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => present.is_none(),
            Condition::Matches(etag) => present.as_ref() == Some(etag),
        };
        if holds { Ok(()) } else { Err(Error::new(ErrorKind::Precondition, self.context("condition of", key))) }
    }

    /// Sends a request. If it was refused because of the time in its signature, it is sent once more: by then the
    /// server's time is known.
    async fn in_time<T, F: Future<Output = Result<T>> + Send>(&self, send: impl Fn() -> F + Send) -> Result<T> {
        let signed_ahead = self.client.skew.ahead_ms();
        match send().await {
            Err(error) if error.kind == ErrorKind::Denied && self.client.skew.ahead_ms() != signed_ahead => {
                send().await
            }
            result => result,
        }
    }

    async fn delete_if(&self, key: &ObjectKey, etag: Option<&ETag>) -> Result<()> {
        let (remote, if_match) = (self.remote_key(key), etag.map(ETag::quoted));
        let result = match self.direct().await {
            Some(direct) => direct.delete(&remote, if_match.as_deref()).await,
            None => {
                let request = self.client.sdk.delete_object().bucket(&self.bucket).key(remote).set_if_match(if_match);
                let request = request.customize().interceptor(SecondLook);
                request.send().await.map(|output| output.request_id().is_some()).map_err(plain)
            }
        };
        match result {
            Err(error) if error.code() == Some("NoSuchKey") => Ok(()),
            Err(error) => match classify(error, Effect::Write, || self.context("delete", key)) {
                // NoSuchUpload, for example, says nothing about the object.
                error if error.kind == ErrorKind::NotFound => Err(Error { kind: ErrorKind::Ambiguous, ..error }),
                error => Err(error),
            },
            Ok(speaks_s3) => self.look_at_deletion(key, speaks_s3).await,
        }
    }

    async fn put_if(&self, key: &ObjectKey, upload: Upload) -> Result<Stored> {
        if upload.condition == Condition::Always {
            return self.in_time(|| self.upload(key, &upload)).await;
        }
        if self.has_conditions() {
            match self.in_time(|| self.upload(key, &upload)).await {
                Err(error) if error.kind == ErrorKind::Unsupported => {}
                result => return result,
            }
        }
        self.check(key, &upload.condition).await?;
        let stored = self.upload(key, &Upload { condition: Condition::Always, ..upload }).await?;
        self.without_conditions();
        Ok(stored)
    }

    /// Remembers for a while that conditional writes do not work here: a write that was refused with a condition was
    /// applied without one.
    fn without_conditions(&self) {
        if self.has_conditions() {
            tracing::warn!(
                under_store = self.label(),
                "the under store does not honour conditional writes: Forebay checks the object before it writes, and may still overwrite a concurrent writer. Keep other writers away"
            );
            *self.shared.unconditional_until.lock() = self.env.clock.monotonic() + UNCONDITIONAL;
        }
    }

    /// The object of a key, with what uploads of this process have shown of the bucket's ETags.
    fn subject<'a>(&self, key: &'a ObjectKey) -> Subject<'a> {
        Subject { key: key.as_str(), has_md5: !self.client.opaque_etags.lock().contains(&self.bucket) }
    }

    fn has_conditions(&self) -> bool {
        *self.shared.unconditional_until.lock() <= self.env.clock.monotonic()
    }

    /// Requests the first byte of an object that a HEAD did not find, or was refused. Gateways that reach nobody also
    /// answer without a body, and S3 answers 400 both for expired credentials and for a bad key. So only an explicit
    /// error code counts.
    async fn confirm(&self, key: &ObjectKey, seen: Error) -> Result<RemoteObject> {
        match self.in_time(|| self.get_once(key, Some(ByteRange::new(0, 1)), None)).await {
            Err(error) if error.kind == ErrorKind::NotFound && seen.kind == ErrorKind::NotFound => Err(seen),
            Err(error) => Err(error),
            // Somebody may have written it meanwhile.
            Ok(_) => match self.in_time(|| self.head_once(key)).await {
                Err(error) if is_vague(&error) => Err(self.contradiction(key)),
                result => result,
            },
        }
    }

    fn contradiction(&self, key: &ObjectKey) -> Error {
        Error::new(ErrorKind::Unavailable, self.context("HEAD and GET contradict each other on", key))
    }
}

/// Whether an answer to a HEAD says too little to be believed. A 403 may be about our credentials.
fn is_vague(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::Denied) || error.kind.is_invalid()
}

/// Whether some beginning of a key has more `..` than other components. Amazon S3 answers 400 to such keys ("Naming
/// Amazon S3 objects", on relative path elements), and servers that keep objects as files might leave the prefix.
fn leads_out(key: &str) -> bool {
    let mut depth = 0_i32;
    key.split('/').any(|component| {
        depth += match component {
            "" | "." => 0,
            ".." => -1,
            _ => 1,
        };
        depth < 0
    })
}

/// Checks that a body has the bytes that were asked for. A proxy may pass on a request without its range, or answer
/// with a range that it has kept.
///
/// # Errors
/// `Unavailable`.
fn must_answer(range: Option<ByteRange>, body: &RemoteBody, context: &str) -> Result<()> {
    let ByteRange { start, end } = body.range;
    let whole = ByteRange::of_size(body.object.info.size);
    let wanted = range.map_or(Some(whole), |range| range.intersect(whole));
    // Beyond the end there is nothing, wherever that begins.
    let wanted = wanted.unwrap_or(ByteRange::new(start, start));
    if body.range == wanted {
        return Ok(());
    }
    let (from, to) = (wanted.start, wanted.end);
    let problem = format!("the under store answered with bytes {start}..{end} where {from}..{to} were asked for");
    Err(Error::new(ErrorKind::Unavailable, format!("{context}: {problem}")))
}

#[async_trait]
impl UnderStore for S3Store {
    /// S3's limit includes the prefix of the place. The SDK refuses keys of white space alone, because it takes them
    /// for missing.
    fn check_key(&self, key: &ObjectKey) -> Result<()> {
        let remote = self.remote_key(key);
        let problem = if remote.len() > KEY_BYTES_MAX {
            format!("{} bytes are more than S3's {KEY_BYTES_MAX}, with the prefix {:?}", remote.len(), self.prefix)
        } else if remote.trim().is_empty() {
            "a key of white space alone cannot be sent to S3".to_owned()
        } else if leads_out(key.as_str()) {
            "S3 takes no key whose \"..\" lead out of its bucket".to_owned()
        } else if self.climbs(key) {
            CLIMBS.to_owned()
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Invalid, format!("{}: {problem}", self.context("the key of", key))))
    }

    fn has_room_for_stamp(&self, key: &ObjectKey, generation: Generation, info: &ObjectInfo) -> bool {
        objects::stamp_of(self.subject(key), generation, info).is_some()
    }

    async fn head(&self, key: &ObjectKey) -> Result<RemoteObject> {
        self.refuse_climbing(key)?;
        match self.in_time(|| self.head_once(key)).await {
            Err(error) if is_vague(&error) => self.confirm(key, error).await,
            result => result,
        }
    }

    async fn get(&self, key: &ObjectKey, range: Option<ByteRange>, if_match: Option<&ETag>) -> Result<RemoteBody> {
        self.refuse_climbing(key)?;
        self.in_time(|| self.get_once(key, range, if_match)).await
    }

    async fn put(&self, key: &ObjectKey, upload: Upload) -> Result<Stored> {
        self.refuse_climbing(key)?;
        let needs_object = matches!(upload.condition, Condition::Matches(_));
        self.put_if(key, upload).await.map_err(|error| match error.kind {
            // Amazon S3 answers like this to If-Match on a key that has no object. Other servers say that the condition
            // does not hold.
            ErrorKind::NotFound if needs_object => Error { kind: ErrorKind::Precondition, ..error },
            _ => error,
        })
    }

    async fn delete(&self, key: &ObjectKey, condition: Condition) -> Result<()> {
        self.refuse_climbing(key)?;
        if condition == Condition::Always {
            return self.in_time(|| self.delete_if(key, None)).await;
        }
        // Servers that don't know If-Match on DELETE ignore it, so Forebay looks first in any case.
        self.check(key, &condition).await?;
        if self.has_conditions()
            && let Condition::Matches(etag) = &condition
        {
            match self.delete_if(key, Some(etag)).await {
                Err(error) if error.kind == ErrorKind::Unsupported => {
                    self.delete_if(key, None).await?;
                    self.without_conditions();
                    return Ok(());
                }
                result => return result,
            }
        }
        self.delete_if(key, None).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        self.in_time(|| self.list_page(request)).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        self.refuse_climbing(key)?;
        let request = self.client.sdk.get_object_tagging().bucket(&self.bucket).key(self.remote_key(key));
        let result = request.send().await;
        let output = result.map_err(|error| classify(error, Effect::Read, || self.context("tags of", key)))?;
        Ok(output.tag_set.into_iter().map(|tag| (tag.key, tag.value)).collect())
    }

    async fn set_tags(&self, key: &ObjectKey, tags: &Tags) -> Result<()> {
        self.refuse_climbing(key)?;
        let (bucket, remote) = (&self.bucket, self.remote_key(key));
        let failed = || self.context("set tags of", key);
        if tags.is_empty() {
            let result = self.client.sdk.delete_object_tagging().bucket(bucket).key(remote).send().await;
            return result.map(drop).map_err(|error| classify(error, Effect::Write, failed));
        }
        let tag = |(name, value): (&String, &String)| Tag::builder().key(name).value(value).build();
        let set = tags.iter().map(tag).collect::<Result<Vec<_>, _>>();
        let tagging = set.and_then(|set| Tagging::builder().set_tag_set(Some(set)).build());
        let tagging = tagging.map_err(|error| Error::new(ErrorKind::Invalid, format!("{}: {error}", failed())))?;
        let result = self.client.sdk.put_object_tagging().bucket(bucket).key(remote).tagging(tagging).send().await;
        result.map(drop).map_err(|error| classify(error, Effect::Write, failed))
    }

    async fn sweep(&self, age: Duration, is_ours: IsOurs<'_>) -> Result<u64> {
        if self.settings.sweep_uploads { self.sweep_uploads(age, is_ours).await } else { Ok(0) }
    }

    fn lists_by_token(&self) -> bool {
        true
    }

    fn s3(&self) -> Option<S3Target> {
        let (client, bucket, prefix) = (self.client.sdk.clone(), self.bucket.clone(), self.prefix.clone());
        Some(S3Target::new(client, bucket, prefix))
    }

    fn label(&self) -> String {
        let place = format!("s3://{}/{}", self.bucket, self.prefix);
        place.trim_end_matches('/').to_owned()
    }
}

impl S3Store {
    async fn head_once(&self, key: &ObjectKey) -> Result<RemoteObject> {
        let remote = self.remote_key(key);
        let result = match self.direct().await {
            Some(direct) => direct.head(&remote).await,
            None => {
                let request = self.client.sdk.head_object().bucket(&self.bucket).key(remote);
                let request = request.checksum_mode(ChecksumMode::Enabled).customize().interceptor(SecondLook);
                request.send().await.map(|output| (output.request_id().is_some(), output)).map_err(plain)
            }
        };
        let result = result.map_err(|error| classify(error, Effect::Look, || self.context("head", key)));
        let (speaks_s3, output) = result.map_err(errors::of_no_condition)?;
        let object = objects::from_head(output, self.subject(key));
        let object = object.ok_or_else(|| objects::incomplete(self.context("head", key)))?;
        self.look_at("HeadObject", key, &object, speaks_s3).await?;
        Ok(object)
    }

    async fn get_once(&self, key: &ObjectKey, range: Option<ByteRange>, if_match: Option<&ETag>) -> Result<RemoteBody> {
        if range.is_some_and(|range| range.is_empty()) {
            return self.nothing_of(self.head(key).await?, key, if_match);
        }
        let (remote, wanted) = (self.remote_key(key), if_match.map(ETag::quoted));
        let bytes = range.map(|range| format!("bytes={}-{}", range.start, range.end - 1));
        // A checksum covers the whole object, so it is of no use for a part of it.
        let checksums = range.is_none();
        let direct = self.direct().await;
        let result = match direct {
            Some(direct) => direct.get(&remote, bytes.as_deref(), wanted.as_deref(), checksums).await,
            None => {
                let request = self.client.sdk.get_object().bucket(&self.bucket).key(remote).set_range(bytes);
                let request = request.set_checksum_mode(checksums.then_some(ChecksumMode::Enabled));
                let request = request.set_if_match(wanted).customize().interceptor(SecondLook);
                request.send().await.map(|output| (output.request_id().is_some(), output)).map_err(plain)
            }
        };
        match result {
            Ok((speaks_s3, output)) => {
                let context = self.context("get", key);
                let checksum = if checksums { objects::full_checksum(&output) } else { None };
                let body = objects::from_get(output, self.subject(key), context.clone());
                let body = body.ok_or_else(|| objects::incomplete(context.clone()))?;
                self.look_at("GetObject", key, &body.object, speaks_s3).await?;
                must_answer(range, &body, &context)?;
                // The SDK checks its own bodies.
                let stream = match direct {
                    Some(direct) => direct.watched(body.stream, checksum, context),
                    None => body.stream,
                };
                Ok(RemoteBody { stream, ..body })
            }
            // 416: the range begins beyond the end.
            Err(error) if range.is_some() && error.raw_response().is_some_and(|raw| raw.status().as_u16() == 416) => {
                // So there is an object, whatever a HEAD says.
                let object = self.head_once(key).await.map_err(|error| match error.kind {
                    ErrorKind::NotFound => self.contradiction(key),
                    _ => error,
                })?;
                self.nothing_of(object, key, if_match)
            }
            Err(error) => {
                let error = classify(error, Effect::Read, || self.context("get", key));
                Err(if if_match.is_none() { errors::of_no_condition(error) } else { error })
            }
        }
    }

    /// The answer to an empty range, which HTTP can't express.
    fn nothing_of(&self, object: RemoteObject, key: &ObjectKey, if_match: Option<&ETag>) -> Result<RemoteBody> {
        if if_match.is_some_and(|etag| *etag != object.remote_etag) {
            return Err(Error::new(ErrorKind::Precondition, self.context("get", key)));
        }
        Ok(RemoteBody { object, range: ByteRange::new(0, 0), stream: futures::stream::empty().boxed() })
    }
}
