//! Whether it is S3 that answers, or somebody who stands before it: a gateway with a page of its own, a proxy that is being repaired.
//!
//! Nothing in a short success says what was done: a DELETE is answered by 204 and no body. But S3, and most of what speaks like it, puts the
//! id of the request into each answer. Once the answers to an operation have had one, those without are nobody's word. Where only answers to other
//! operations have had one, what a PUT or DELETE has done is looked at.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use aws_sdk_s3::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeDeserializationInterceptorContextRef,
};
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::orchestrator::{HttpResponse, Metadata};
use http::Method;
use parking_lot::RwLock;

const REQUEST_ID: &str = "x-amz-request-id";

/// Operations by the names that the SDK has for them.
pub(super) const PUT: &str = "PutObject";
pub(super) const DELETE: &str = "DeleteObject";

/// Why a success is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It is not S3 that speaks.
    Page,
    /// It ends in the middle.
    CutOff,
    /// versitygw shows files like this that others have put into its directory.
    NoTag,
}

impl Doubt {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Page => "a page of somebody before S3",
            Self::CutOff => "a document that ends in the middle",
            Self::NoTag => "the object has no ETag",
        }
    }
}

/// What is known of how an endpoint answers. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Speaker {
    /// Operations whose successes have had the id of the request. A server may send it for some and not for others.
    tells_id: Arc<RwLock<HashSet<String>>>,
    /// Operations of which a success without one has turned out to be true.
    tells_none: Arc<RwLock<HashSet<&'static str>>>,
}

impl Speaker {
    /// Looks at the head of a success, and learns from it.
    pub(super) fn doubt(&self, operation: &str, response: &HttpResponse) -> Option<Doubt> {
        if response.headers().get(REQUEST_ID).is_some() {
            if !self.tells_id.read().contains(operation) {
                self.tells_id.write().insert(operation.to_owned());
            }
            return None;
        }
        let is_page = !speaks_s3(response) && (is_html(response) || self.tells_id.read().contains(operation));
        is_page.then_some(Doubt::Page)
    }

    /// Whether a success is to be believed without a look at what it has done: it is S3's, or this endpoint tells no ids, at least of this
    /// operation.
    pub(super) fn is_proven(&self, operation: &'static str, speaks_s3: bool) -> bool {
        speaks_s3 || self.tells_id.read().is_empty() || self.tells_none.read().contains(operation)
    }

    /// A success without an id was true.
    pub(super) fn proved(&self, operation: &'static str) {
        self.tells_none.write().insert(operation);
    }
}

/// The name of what a method does to an object.
pub(super) fn operation_of(method: &Method) -> &'static str {
    match *method {
        Method::PUT => PUT,
        Method::DELETE => DELETE,
        Method::HEAD => "HeadObject",
        _ => "GetObject",
    }
}

/// Whether an answer has headers that only S3 sends.
pub(super) fn speaks_s3(response: &HttpResponse) -> bool {
    response.headers().iter().any(|(name, _)| name.starts_with("x-amz-") || name.starts_with("x-goog-"))
}

fn is_html(response: &HttpResponse) -> bool {
    let kind = response.headers().get("content-type").unwrap_or_default().to_ascii_lowercase();
    kind.starts_with("text/html") || kind.starts_with("application/xhtml")
}

/// Whether a document is there from its beginning to its end, if it is one of XML. The SDK takes what there is of a list.
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

impl fmt::Debug for Speaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Speaker")
    }
}

/// For what the SDK sends.
impl Intercept for Speaker {
    fn name(&self) -> &'static str {
        "Speaker"
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
        self.doubt(operation, response).map_or(Ok(()), |doubt| Err(doubt.text().into()))
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response();
        // That of an object has not been read yet.
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
