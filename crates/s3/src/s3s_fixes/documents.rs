//! Documents in the bodies of requests, verified before `s3s` parses them. It leaves their digests to nobody: a list of
//! deletes that was damaged on its way would be carried out.

use std::sync::Arc;

use bytes::Bytes;
use forebay_cache::{BodyDigests, ErrorKind};
use forebay_types::{Algorithm, Checksum};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use http::{HeaderMap, StatusCode};
use s3s::{S3Error, StdError};

use super::BodyError;
use crate::context::RequestContext;
use crate::error::s3_error;
use crate::incoming::md5;

/// What the body of a document must turn out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    md5: Option<[u8; 16]>,
    checksums: Vec<Checksum>,
}

impl Expected {
    /// # Errors
    /// `InvalidDigest` and `InvalidRequest` for values that are none.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, S3Error> {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let checksum = |algorithm: Algorithm| {
            let value = text(algorithm.header())?;
            let wrong = || {
                let message = format!("Value for {} header is invalid.", algorithm.header());
                s3_error("InvalidRequest", StatusCode::BAD_REQUEST, message)
            };
            Some(Checksum::parse(algorithm, value).ok_or_else(wrong))
        };
        let checksums = Algorithm::ALL.into_iter().filter_map(checksum).collect::<Result<_, _>>()?;
        Ok(Self { md5: text("content-md5").map(md5).transpose()?, checksums })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.md5.is_none() && self.checksums.is_empty()
    }
}

/// The same body, ending with an error when it is not what was expected; the error is noted in the context too, since `s3s`
/// answers all errors of a document with InternalError.
pub(crate) fn verify<S>(
    body: S,
    expected: Expected,
    context: Arc<RequestContext>,
) -> BoxStream<'static, Result<Bytes, StdError>>
where
    S: Stream<Item = Result<Bytes, StdError>> + Send + 'static,
{
    let algorithms: Vec<_> = expected.checksums.iter().map(|checksum| checksum.algorithm).collect();
    let state = (Box::pin(body), Some((BodyDigests::new(&algorithms), expected)), context);
    futures::stream::unfold(state, |(mut body, mut watched, context)| async move {
        let next = body.next().await;
        let item = match (next, watched.take()) {
            (Some(Ok(data)), Some((mut digests, expected))) => {
                digests.update(&data);
                watched = Some((digests, expected));
                Ok(data)
            }
            (None, Some((digests, expected))) => Err(StdError::from(compare(digests, &expected, &context)?)),
            (None, None) => return None,
            (Some(item), _) => item,
        };
        Some((item, (body, watched, context)))
    })
    .boxed()
}

/// `None` when the digests are right.
fn compare(digests: BodyDigests, expected: &Expected, context: &RequestContext) -> Option<BodyError> {
    let wrong = match digests.verify(expected.md5, &expected.checksums).err()?.kind {
        ErrorKind::BadDigest => BodyError::Md5,
        _ => BodyError::Checksum,
    };
    let _ = context.refused.set(wrong);
    Some(wrong)
}

/// The answer to a body that was refused here.
pub(crate) fn answer_of(refused: BodyError) -> S3Error {
    s3_error(refused.code(), refused.status(), refused.message())
}

#[cfg(test)]
mod tests {
    use forebay_types::Algorithm;
    use http::HeaderValue;

    use super::*;

    async fn read(headers: &[(&'static str, &'static str)], body: &'static [u8]) -> Option<BodyError> {
        let headers =
            headers.iter().map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
        let expected = Expected::of(&headers.collect()).expect("digests");
        let context = Arc::new(RequestContext::new("id".to_owned(), "http"));
        let pieces = body.chunks(3).map(|piece| Ok(Bytes::from_static(piece)));
        let read: Vec<_> = verify(futures::stream::iter(pieces), expected, Arc::clone(&context)).collect().await;
        let failed = read.iter().any(Result::is_err);
        assert_eq!(failed, context.refused.get().is_some());
        assert!(failed || read.into_iter().flat_map(Result::unwrap).eq(body.iter().copied()));
        context.refused.get().copied()
    }

    #[tokio::test]
    async fn a_document_is_what_its_digests_say() {
        let md5 = ("content-md5", "XUFAKrxLKna5cZ2REBfFkg==");
        let crc32 = ("x-amz-checksum-crc32", "NhCmhg==");
        assert_eq!(read(&[], b"hello").await, None);
        assert_eq!(read(&[md5, crc32], b"hello").await, None);
        assert_eq!(read(&[md5], b"hellO").await, Some(BodyError::Md5));
        assert_eq!(read(&[crc32], b"hellO").await, Some(BodyError::Checksum));
        assert_eq!(read(&[md5], b"").await, Some(BodyError::Md5));
        assert_eq!(Algorithm::Crc32.header(), crc32.0);
    }
}
