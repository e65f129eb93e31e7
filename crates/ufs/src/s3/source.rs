//! The body of an upload.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use aws_sdk_s3::primitives::ByteStream as SdkStream;
use bytes::Bytes;
use forebay_types::ByteRange;
use futures::StreamExt;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use crate::{ByteStream, Error, ErrorKind, UploadSource};

/// Why a body ended early; the SDK would hide it.
#[derive(Clone, Default)]
pub(super) struct Failure(Arc<Mutex<Option<Error>>>);

impl Failure {
    /// What the source said, instead of what the server made of a body that ended early.
    pub(super) fn instead_of(&self, error: Error) -> Error {
        self.0.lock().take().unwrap_or(error)
    }
}

/// Streams a range of a source with its length known; once, since the SDK does no retries here.
pub(super) fn body(source: &dyn UploadSource, range: ByteRange, failure: &Failure) -> SdkStream {
    let stream = Mutex::new(source.stream(range));
    SdkStream::from_body_1_x(SourceBody { stream, remaining: range.len(), failure: failure.clone() })
}

struct SourceBody {
    /// A lock only because the SDK wants bodies to be `Sync`; it is never contended.
    stream: Mutex<ByteStream>,
    remaining: u64,
    failure: Failure,
}

impl SourceBody {
    fn fail(&mut self, error: Error) -> Poll<Option<Result<Frame<Bytes>, Stopped>>> {
        *self.failure.0.lock() = Some(error);
        Poll::Ready(Some(Err(Stopped)))
    }
}

pub(super) fn other_size() -> Error {
    Error::new(ErrorKind::Corrupt, "the source of an upload has another size")
}

/// The source of an upload has failed.
#[derive(Debug, thiserror::Error)]
#[error("the source of an upload has failed")]
pub(super) struct Stopped;

impl Body for SourceBody {
    type Data = Bytes;
    type Error = Stopped;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Stopped>>> {
        if self.remaining == 0 {
            return Poll::Ready(None);
        }
        let next = self.stream.get_mut().poll_next_unpin(context);
        match next {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(bytes))) if bytes.len() as u64 <= self.remaining => {
                self.remaining -= bytes.len() as u64;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Poll::Ready(Some(Err(error))) => self.fail(error),
            Poll::Ready(Some(Ok(_)) | None) => self.fail(other_size()),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}
