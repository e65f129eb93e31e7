//! What the access log and the audit log say of a request, gathered on its way and written when its answer has ended,
//! however it ends.

mod claims;
mod names;

use std::sync::Arc;
use std::time::Duration;

use forebay_env::Env;
use forebay_logs::{AccessEntry, AuditEntry, Logs, Source};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HOST, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body::Body as _;
use s3s::HttpResponse;

use crate::connection::Connection;
use crate::context::{Deletion, RequestContext};
use crate::host::Domain;
use claims::Claims;
use names::RequestTarget;
pub(crate) use names::{makes_bucket, named_in, path_of};

/// The status of a request whose connection ended before there was an answer, as nginx and others write it. What it
/// asked for may have been done.
const CLIENT_GONE: u16 = 499;
const CLIENT_GONE_CODE: &str = "ClientClosedRequest";

/// What all requests of an endpoint share.
pub(crate) struct Recorder {
    pub(crate) logs: Logs,
    /// The canonical id that buckets belong to.
    pub(crate) bucket_owner: String,
}

/// The record of one request; empty when no log wants it.
pub(crate) struct Record(Option<Box<Content>>);

struct Content {
    logs: Logs,
    bucket_owner: String,
    context: Arc<RequestContext>,
    env: Env,
    began: Duration,
    time_ms: u64,
    connection: Arc<Connection>,
    method: Method,
    request_line: String,
    operation: String,
    target: RequestTarget,
    claims: Claims,
    host: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    /// Bytes that the body of the request is said to hold.
    announced: Option<u64>,
    answer: Option<Answer>,
    bytes_sent: u64,
}

struct Answer {
    status: u16,
    after: Duration,
    error_code: Option<String>,
    object_size: Option<u64>,
}

impl Recorder {
    /// The request has come.
    pub(crate) fn begin<B>(
        &self,
        request: &Request<B>,
        context: &Arc<RequestContext>,
        env: &Env,
        connection: &Arc<Connection>,
        domain: Option<&Domain>,
    ) -> Record {
        if !self.logs.are_on() {
            return Record::none();
        }
        let headers = request.headers();
        let target = RequestTarget::of(request.uri(), headers, domain);
        let content = Content {
            logs: self.logs.clone(),
            bucket_owner: self.bucket_owner.clone(),
            context: Arc::clone(context),
            env: env.clone(),
            began: env.clock.monotonic(),
            time_ms: env.clock.unix_ms(),
            connection: Arc::clone(connection),
            method: request.method().clone(),
            request_line: format!("{} {} {:?}", request.method(), request.uri(), request.version()),
            operation: names::operation(request.method(), &target, request.uri().query().unwrap_or_default(), headers),
            target,
            claims: Claims::of(request.uri(), headers),
            host: headers.get(HOST).cloned(),
            referer: headers.get(REFERER).cloned(),
            user_agent: headers.get(USER_AGENT).cloned(),
            announced: number(headers, "x-amz-decoded-content-length").or_else(|| number(headers, CONTENT_LENGTH)),
            answer: None,
            bytes_sent: 0,
        };
        Record(Some(Box::new(content)))
    }
}

impl Record {
    /// Nobody wants it.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// There is an answer, whose first byte has yet to be sent.
    pub(crate) fn answered(&mut self, response: &HttpResponse) {
        let Some(content) = &mut self.0 else { return };
        let status = response.status();
        let is_error = status.is_client_error() || status.is_server_error();
        let document = response.body().bytes().filter(|_| is_error);
        content.answer = Some(Answer {
            status: status.as_u16(),
            after: content.env.clock.monotonic(),
            error_code: document.as_deref().and_then(error_code),
            object_size: if is_error { None } else { content.object_size(response) },
        });
    }

    pub(crate) fn sent(&mut self, bytes: &[u8]) {
        let Some(content) = &mut self.0 else { return };
        content.bytes_sent += bytes.len() as u64;
        // An answer that took long has begun with 200 and blanks. Other bodies may be anybody's.
        let took_long =
            matches!(content.context.operation(), "CompleteMultipartUpload" | "CopyObject" | "UploadPartCopy");
        let Some(answer) = &mut content.answer else { return };
        if took_long
            && answer.status == 200
            && answer.error_code.is_none()
            && bytes.trim_ascii_start().starts_with(b"<Error")
        {
            answer.error_code = error_code(bytes);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(content) = &self.0 {
            content.write_access();
            content.write_audit();
        }
    }
}

impl Content {
    /// The size of the object that the request is about, where it says so.
    fn object_size(&self, response: &HttpResponse) -> Option<u64> {
        match self.context.operation() {
            "GetObject" | "HeadObject" => {
                let range = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
                match range.and_then(|range| range.rsplit_once('/')) {
                    Some((_, size)) => size.parse().ok(),
                    None => number(response.headers(), CONTENT_LENGTH).or_else(|| response.body().size_hint().exact()),
                }
            }
            "PutObject" | "UploadPart" => self.announced,
            _ => None,
        }
    }

    fn status(&self) -> u16 {
        self.answer.as_ref().map_or(CLIENT_GONE, |answer| answer.status)
    }

    fn error_code(&self) -> Option<&str> {
        match &self.answer {
            Some(answer) => answer.error_code.as_deref(),
            None => Some(CLIENT_GONE_CODE),
        }
    }

    fn key(&self) -> Option<&str> {
        self.target.key.as_deref().or_else(|| self.context.form_key.get().map(String::as_str))
    }

    fn turn_around_ms(&self) -> Option<u64> {
        let came = self.context.last_byte().max(self.began);
        self.answer.as_ref().map(|answer| answer.after.saturating_sub(came).as_millis() as u64)
    }

    fn write_access(&self) {
        if !self.logs.access.is_on() {
            return;
        }
        let entry = self.access_entry();
        self.logs.access.write(&entry);
        for deletion in self.context.deletions().iter() {
            self.logs.access.write(&AccessEntry {
                operation: "BATCH.DELETE.OBJECT",
                key: Some(&deletion.key),
                request_line: None,
                status: Some(deletion.status.unwrap_or(CLIENT_GONE)),
                error_code: deletion.error_code(),
                bytes_sent: 0,
                total_ms: None,
                turn_around_ms: None,
                referer: None,
                user_agent: None,
                ..self.access_entry()
            });
        }
    }

    fn access_entry(&self) -> AccessEntry<'_> {
        let total = self.env.clock.monotonic().saturating_sub(self.began);
        let requester = self.context.requester.get().filter(|user| !user.access_key.is_empty());
        let tls = self.connection.tls.as_ref();
        AccessEntry {
            bucket_owner: self.target.bucket.as_ref().map(|_| self.bucket_owner.as_str()),
            bucket: self.target.bucket.as_deref(),
            time_ms: self.time_ms,
            remote: self.connection.peer,
            requester: requester.map(|user| user.owner_id.as_str()),
            request_id: &self.context.id,
            operation: &self.operation,
            key: self.key(),
            request_line: Some(&self.request_line),
            status: Some(self.status()),
            error_code: self.error_code(),
            bytes_sent: self.bytes_sent,
            object_size: self.answer.as_ref().and_then(|answer| answer.object_size),
            total_ms: Some(total.as_millis() as u64),
            turn_around_ms: self.turn_around_ms(),
            referer: self.referer.as_ref().map(HeaderValue::as_bytes),
            user_agent: self.user_agent.as_ref().map(HeaderValue::as_bytes),
            version_id: self.claims.version_id.as_deref(),
            signature_version: self.claims.signature_version,
            cipher_suite: tls.map(|tls| tls.cipher_suite.as_str()),
            authentication_type: self.claims.authentication_type,
            host: self.host.as_ref().map(HeaderValue::as_bytes),
            tls_version: tls.map(|tls| tls.version),
        }
    }

    fn write_audit(&self) {
        let changes = !matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS);
        if !self.logs.audit.wants(changes, self.status()) {
            return;
        }
        let user_agent = self.user_agent.as_ref().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let entry = || AuditEntry {
            time_ms: self.time_ms,
            source: Source::S3,
            // What was refused before it was routed has only the name that its form gives it.
            operation: self.context.operation.get().copied().unwrap_or(&self.operation),
            request_id: Some(&self.context.id),
            user: self.context.requester.get().map(|user| user.name.as_str()),
            access_key: self.access_key(),
            address: self.connection.peer,
            user_agent: user_agent.as_deref(),
            bucket: self.target.bucket.as_deref(),
            key: self.key(),
            status: Some(self.status()),
            error: self.error_code(),
            ..AuditEntry::default()
        };
        let mut whole = entry();
        self.add_details(&mut whole);
        self.logs.audit.write(&whole);
        for deletion in self.context.deletions().iter() {
            self.logs.audit.write(&AuditEntry {
                key: Some(&deletion.key),
                status: Some(deletion.status.unwrap_or(CLIENT_GONE)),
                error: deletion.error_code(),
                ..entry()
            });
        }
    }

    fn access_key(&self) -> Option<&str> {
        let proven = self.context.requester.get().map(|user| user.access_key.as_str()).filter(|key| !key.is_empty());
        proven.or(self.claims.access_key.as_deref())
    }

    fn add_details(&self, entry: &mut AuditEntry<'_>) {
        if let Some(size) = self.answer.as_ref().and_then(|answer| answer.object_size) {
            entry.details.insert("size".to_owned(), size.into());
        }
        if let Some(source) = &self.claims.copy_source {
            entry.details.insert("copySource".to_owned(), source.as_str().into());
        }
        let deletions = self.context.deletions().len();
        if deletions > 0 {
            entry.details.insert("keys".to_owned(), deletions.into());
        }
    }
}

impl Deletion {
    fn error_code(&self) -> Option<&str> {
        if self.status.is_none() { Some(CLIENT_GONE_CODE) } else { self.error.as_deref() }
    }
}

fn number(headers: &HeaderMap, name: impl http::header::AsHeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// The code of an error document.
fn error_code(document: &[u8]) -> Option<String> {
    let (_, rest) = std::str::from_utf8(document).ok()?.split_once("<Code>")?;
    Some(rest.split_once("</Code>")?.0.to_owned())
}
