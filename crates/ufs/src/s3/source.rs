//! The body of an upload.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use aws_sdk_s3::primitives::ByteStream as SdkStream;
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use forebay_types::{Algorithm, ByteRange, Checksum};
use futures::StreamExt;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use crate::{ByteStream, Error, ErrorKind, UploadSource};

/// Why a body ended early. The SDK would hide it.
#[derive(Clone, Default)]
pub(super) struct SourceError(Arc<Mutex<Option<Error>>>);

impl SourceError {
    /// The error of the source, instead of what the server said about a body that ended early.
    pub(super) fn instead_of(&self, error: Error) -> Error {
        self.0.lock().take().unwrap_or(error)
    }
}

/// The CRC-32 of what has been sent.
#[derive(Clone)]
pub(super) struct Sum(Arc<Mutex<Digest>>);

impl Default for Sum {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Digest::new(CrcAlgorithm::Crc32IsoHdlc))))
    }
}

impl Sum {
    pub(super) fn checksum(&self) -> Checksum {
        Checksum { algorithm: Algorithm::Crc32, value: (self.0.lock().finalize() as u32).to_be_bytes().to_vec() }
    }
}

/// Streams a range of a source, with its length known. Works only once, since the SDK does no retries here.
pub(super) fn body(source: &dyn UploadSource, range: ByteRange, failure: &SourceError, sum: Option<&Sum>) -> SdkStream {
    let stream = Mutex::new(source.stream(range));
    let (failure, sum) = (failure.clone(), sum.cloned());
    SdkStream::from_body_1_x(SourceBody { stream, remaining: range.len(), failure, sum })
}

struct SourceBody {
    /// The lock is needed only because the SDK requires bodies to be `Sync`. It is never contended.
    stream: Mutex<ByteStream>,
    remaining: u64,
    failure: SourceError,
    sum: Option<Sum>,
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
                if let Some(sum) = &self.sum {
                    sum.0.lock().update(&bytes);
                }
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
