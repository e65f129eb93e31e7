//! Whether S3 has answered, or something in front of it: a gateway with a page of its own, or a proxy under repair.
//!
//! Nothing in a short success says what was done: the answer to a DELETE is a 204 without a body. But S3, and most
//! servers that speak its protocol, put the id of the request into each answer. Once an endpoint has sent one, a
//! success without it proves nothing. What such a success says about an object is checked in another way
//! (`second_look.rs`). Where no check is possible, it counts only while no success of the same operation has had an id.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_s3::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeDeserializationInterceptorContextRef,
    BeforeSerializationInterceptorContextRef,
};
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::orchestrator::{HttpResponse, Metadata};
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use http::Method;
use parking_lot::RwLock;

const REQUEST_ID: &str = "x-amz-request-id";

/// Why a success is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Something other than S3 has answered.
    Page,
    /// The document ends in the middle.
    CutOff,
    /// versitygw shows files like this that others have put into its directory.
    NoTag,
}

impl Doubt {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Page => "a success without the request id that S3 sends, so a proxy or gateway may have answered",
            Self::CutOff => "a truncated XML document",
            Self::NoTag => "the object has no ETag",
        }
    }
}

/// What is known about how an endpoint answers. Clones share it.
#[derive(Clone, Default)]
pub(super) struct AnswerCheck {
    /// Operations whose successes have carried the id of the request. A server may send it for some and not for others.
    tells_id: Arc<RwLock<HashSet<String>>>,
    /// Its listings carry no id, so nothing else needs one.
    is_mute: Arc<AtomicBool>,
}

/// How far a success is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worth {
    Believed,
    /// It lacks the id that others had. Another request must confirm it.
    Doubted,
    /// Nothing is known about the endpoint yet, and this answer changes nothing about that.
    Unknown,
}

/// Marks requests whose success gets a second look if it needs one.
#[derive(Debug)]
pub(super) struct SecondLook;

impl Storable for SecondLook {
    type Storer = StoreReplace<Self>;
}

impl Intercept for SecondLook {
    fn name(&self) -> &'static str {
        "SecondLook"
    }

    fn read_before_execution(
        &self,
        _context: &BeforeSerializationInterceptorContextRef<'_>,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        config.interceptor_state().store_put(Self);
        Ok(())
    }
}

impl AnswerCheck {
    /// Looks at the head of a success, and learns from it. A success that gets a second look later is doubted here only
    /// when it is certainly no object.
    pub(super) fn doubt(&self, operation: &str, response: &HttpResponse, second_look: bool) -> Option<Doubt> {
        if response.headers().get(REQUEST_ID).is_some() {
            if !self.tells_id.read().contains(operation) {
                self.tells_id.write().insert(operation.to_owned());
            }
            return None;
        }
        let lacks_id = || !second_look && self.tells_id_to(operation);
        (!speaks_s3(response) && (is_html(response) || lacks_id())).then_some(Doubt::Page)
    }

    pub(super) fn worth(&self, speaks_s3: bool) -> Worth {
        if speaks_s3 {
            Worth::Believed
        } else if !self.tells_id.read().is_empty() {
            Worth::Doubted
        } else if self.is_mute.load(Ordering::Relaxed) {
            Worth::Believed
        } else {
            Worth::Unknown
        }
    }

    /// Whether successes of an operation have carried an id.
    pub(super) fn tells_id_to(&self, operation: &str) -> bool {
        self.tells_id.read().contains(operation)
    }

    /// Notes that answers of this endpoint carry ids, whatever operation they answer.
    pub(super) fn found_ids(&self) {
        self.tells_id.write().insert(String::new());
    }

    /// Notes that a real listing came without an id.
    pub(super) fn found_mute(&self) {
        self.is_mute.store(true, Ordering::Relaxed);
    }
}

/// The name of what a method does to an object.
pub(super) fn operation_of(method: &Method) -> &'static str {
    match *method {
        Method::PUT => "PutObject",
        Method::DELETE => "DeleteObject",
        Method::HEAD => "HeadObject",
        _ => "GetObject",
    }
}

/// Whether an answer has headers that only S3 sends. CloudFront and API Gateway have some of their own.
pub(super) fn speaks_s3(response: &HttpResponse) -> bool {
    let is_of_s3 = |name: &str| {
        let of_others = ["x-amz-cf-", "x-amz-apigw-"].iter().any(|prefix| name.starts_with(prefix));
        (name.starts_with("x-amz-") || name.starts_with("x-goog-")) && !of_others
    };
    response.headers().iter().any(|(name, _)| is_of_s3(name))
}

fn is_html(response: &HttpResponse) -> bool {
    let kind = response.headers().get("content-type").unwrap_or_default().to_ascii_lowercase();
    kind.starts_with("text/html") || kind.starts_with("application/xhtml")
}

/// Whether a document is complete, if it is XML. The SDK accepts a list that is cut off.
fn is_whole(body: &[u8]) -> bool {
    let mut rest = body.trim_ascii();
    if let Some(declared) = rest.strip_prefix(b"<?xml") {
        let Some(end) = declared.windows(2).position(|two| two == b"?>") else { return false };
        rest = declared[end + 2..].trim_ascii_start();
    }
    let Some(inside) = rest.strip_prefix(b"<") else { return rest.is_empty() == body.trim_ascii().is_empty() };
    let end = inside.iter().position(|byte| byte.is_ascii_whitespace() || matches!(byte, b'>' | b'/'));
    let Some(name) = end.map(|end| &inside[..end]) else { return false };
    let last = [b"</".as_slice(), name, b">"].concat();
    let is_empty_element = inside.ends_with(b"/>") && inside.iter().filter(|byte| **byte == b'<').count() == 0;
    is_empty_element || rest.ends_with(&last)
}

impl fmt::Debug for AnswerCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerCheck")
    }
}

/// For requests that the SDK sends.
impl Intercept for AnswerCheck {
    fn name(&self) -> &'static str {
        "AnswerCheck"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response();
        if !response.status().is_success() {
            return Ok(());
        }
        let operation = config.load::<Metadata>().map_or("", Metadata::name);
        let second_look = config.load::<SecondLook>().is_some();
        self.doubt(operation, response, second_look).map_or(Ok(()), |doubt| Err(doubt.text().into()))
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response();
        // The body of an object has not been read yet.
        let is_cut = response.status().is_success() && response.body().bytes().is_some_and(|body| !is_whole(body));
        if is_cut { Err(Doubt::CutOff.text().into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_whole_or_it_is_none() {
        for whole in [
            "",
            "{\"a policy\": 1}",
            "<Tagging/>",
            "<ListBucketResult xmlns=\"x\"><Name>b</Name></ListBucketResult>\n",
            "<?xml version=\"1.0\"?>\n<ListBucketResult></ListBucketResult>",
            " \n<?xml version=\"1.0\"?><CopyObjectResult><ETag/></CopyObjectResult>",
        ] {
            assert!(is_whole(whole.as_bytes()), "{whole}");
            if whole.trim_start().starts_with('<') {
                let trimmed = whole.trim();
                for cut in 1..trimmed.len() {
                    assert!(!is_whole(&trimmed.as_bytes()[..cut]), "{}", &trimmed[..cut]);
                }
            }
        }
    }
}
