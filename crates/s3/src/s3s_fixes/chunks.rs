//! Watches over aws-chunked bodies before `s3s` decodes them.
//!
//! Unsigned chunks are cut into smaller ones as their bytes arrive, so that nothing is buffered; signed ones can't be
//! cut and are bounded. Those of a request that nobody signed are decoded here, since `s3s` decodes none without a
//! signature. A body that ends before its final chunk is an error.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue};
use s3s::StdError;

use super::BodyError;
use crate::buffers::Held;
use crate::context::RequestContext;

/// Largest signed chunk, in bytes: `s3s` holds one in memory until its signature is checked, as [`Held`] knows. SDKs
/// send 64 KiB to 1 MiB.
const SIGNED_CHUNK_BYTES_MAX: u64 = 16 << 20;
/// Longest line in front of a chunk: the size, `;chunk-signature=`, 64 digits, and some room.
const LINE_BYTES_MAX: usize = 256;
/// Most bytes of trailing headers that are read here, as `s3s` has it.
const TRAILER_BYTES_MAX: usize = 16 << 10;

/// The `x-amz-trailer` of a body that may have a trailer and announces none, which `s3s` refuses.
pub(crate) const NO_TRAILER: &str = "none";

/// Whether the chunks carry signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Signed,
    Unsigned,
    /// Unsigned, in a request that nobody signed.
    Anonymous,
}

/// The same body, bounded and complete.
pub(crate) fn watch<S>(
    body: S,
    framing: Framing,
    context: Arc<RequestContext>,
    held: Held,
) -> BoxStream<'static, Result<Bytes, StdError>>
where
    S: Stream<Item = Result<Bytes, StdError>> + Send + 'static,
{
    let state = (Box::pin(body), Chunks::new(framing, context, held), false);
    futures::stream::unfold(state, |(mut body, mut chunks, ended)| async move {
        if ended {
            return None;
        }
        loop {
            if let Some(bytes) = chunks.ready.pop_front() {
                return Some((Ok(bytes), (body, chunks, false)));
            }
            let step = match body.next().await {
                Some(Ok(bytes)) => chunks.feed(bytes).map_err(|error| -> StdError { Box::new(error) }),
                Some(Err(error)) => Err(error),
                None if chunks.expected == Expected::End => match chunks.end() {
                    Ok(()) => return None,
                    Err(error) => Err(error.into()),
                },
                None => Err(BodyError::Framing.into()),
            };
            if let Err(error) = step {
                return Some((Err(error), (body, chunks, true)));
            }
        }
    })
    .boxed()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// In the line in front of a chunk.
    Line,
    /// This many bytes of the chunk are to come.
    Data(u64),
    /// This many bytes of the line break behind a chunk have come.
    Break(usize),
    /// Behind the final chunk's line: trailing headers.
    End,
}

struct Chunks {
    framing: Framing,
    expected: Expected,
    line: Vec<u8>,
    ready: VecDeque<Bytes>,
    context: Arc<RequestContext>,
    /// Of the present chunk, if it is signed: what has come of it.
    held: Held,
    came: usize,
}

impl Chunks {
    fn new(framing: Framing, context: Arc<RequestContext>, held: Held) -> Self {
        Self { framing, expected: Expected::Line, line: Vec::new(), ready: VecDeque::new(), context, held, came: 0 }
    }

    fn feed(&mut self, mut bytes: Bytes) -> Result<(), BodyError> {
        while !bytes.is_empty() {
            match self.expected {
                Expected::Line => self.feed_line(&mut bytes)?,
                Expected::Data(left) => {
                    let part = bytes.split_to(bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                    let left = left - part.len() as u64;
                    if self.framing == Framing::Signed {
                        self.came += part.len();
                        self.held.set(self.context.requester.get(), self.came)?;
                    }
                    self.expected = if left == 0 { Expected::Break(0) } else { Expected::Data(left) };
                    self.pass_data(part);
                }
                Expected::Break(seen) => {
                    if bytes[0] != b"\r\n"[seen] {
                        return Err(BodyError::Framing);
                    }
                    self.pass_framing(bytes.split_to(1));
                    self.expected = if seen == 0 { Expected::Break(1) } else { Expected::Line };
                }
                Expected::End => self.feed_trailer(std::mem::take(&mut bytes))?,
            }
        }
        Ok(())
    }

    fn feed_line(&mut self, bytes: &mut Bytes) -> Result<(), BodyError> {
        let end = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let taken = end.unwrap_or(bytes.len());
        self.line.extend_from_slice(&bytes[..taken]);
        bytes.advance(taken);
        if self.line.len() > LINE_BYTES_MAX {
            return Err(BodyError::Framing);
        }
        if end.is_none() {
            return Ok(());
        }
        let line = std::mem::take(&mut self.line);
        let size = self.parse(&line)?;
        self.came = 0;
        self.held.set(self.context.requester.get(), 0)?;
        match size {
            0 => {
                if self.framing != Framing::Anonymous {
                    self.ready.push_back(line.into());
                }
                self.expected = Expected::End;
            }
            _ => {
                self.pass_framing(line.into());
                self.expected = Expected::Data(size);
            }
        }
        Ok(())
    }

    /// The size in a line that is exactly `hex[;chunk-signature=64 hex digits]\r\n`.
    fn parse(&self, line: &[u8]) -> Result<u64, BodyError> {
        let line =
            line.strip_suffix(b"\r\n").and_then(|line| std::str::from_utf8(line).ok()).ok_or(BodyError::Framing)?;
        let (size, signature) = match line.split_once(";chunk-signature=") {
            Some((size, signature)) => (size, Some(signature)),
            None => (line, None),
        };
        let signed_right = match (self.framing, signature) {
            (Framing::Signed, Some(signature)) => signature.len() == 64 && is_hex(signature),
            (Framing::Unsigned | Framing::Anonymous, None) => true,
            (Framing::Signed, None) | (Framing::Unsigned | Framing::Anonymous, Some(_)) => false,
        };
        // 16 digits would fill 64 bits; the limit on a PUT is far below 15.
        if !signed_right || !(1..=15).contains(&size.len()) || !is_hex(size) {
            return Err(BodyError::Framing);
        }
        let size = u64::from_str_radix(size, 16).map_err(|_| BodyError::Framing)?;
        if self.framing == Framing::Signed && size > SIGNED_CHUNK_BYTES_MAX {
            return Err(BodyError::ChunkTooLarge);
        }
        Ok(size)
    }

    fn feed_trailer(&mut self, bytes: Bytes) -> Result<(), BodyError> {
        if self.framing != Framing::Anonymous {
            self.ready.push_back(bytes);
            return Ok(());
        }
        self.line.extend_from_slice(&bytes);
        if self.line.len() > TRAILER_BYTES_MAX { Err(BodyError::Trailers) } else { Ok(()) }
    }

    /// Hands on the trailing headers that `s3s` does not read.
    fn end(&mut self) -> Result<(), BodyError> {
        if self.framing == Framing::Anonymous {
            let _ = self.context.trailer.set(trailer(&self.line).ok_or(BodyError::Trailers)?);
        }
        Ok(())
    }

    /// Passes the framing of the client's chunks on only if it is signed.
    fn pass_framing(&mut self, bytes: Bytes) {
        if self.framing == Framing::Signed {
            self.ready.push_back(bytes);
        }
    }

    fn pass_data(&mut self, data: Bytes) {
        match self.framing {
            Framing::Signed | Framing::Anonymous => self.ready.push_back(data),
            Framing::Unsigned => {
                self.ready.push_back(format!("{:x}\r\n", data.len()).into());
                self.ready.push_back(data);
                self.ready.push_back(Bytes::from_static(b"\r\n"));
            }
        }
    }
}

/// `name:value` in lines, behind which nothing may stand but an empty one.
fn trailer(text: &[u8]) -> Option<HeaderMap> {
    let text = std::str::from_utf8(text).ok()?;
    let mut headers = HeaderMap::new();
    for line in text.strip_suffix("\r\n").unwrap_or(text).split("\r\n").filter(|_| !text.is_empty()) {
        match line.split_once(':') {
            Some((name, value)) => {
                headers.append(HeaderName::try_from(name).ok()?, HeaderValue::try_from(value.trim()).ok()?);
            }
            None if line.is_empty() => {}
            None => return None,
        }
    }
    Some(headers)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests;
