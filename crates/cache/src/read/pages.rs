//! Pages, the units in which bytes are fetched from an under store.

use bytes::{Bytes, BytesMut};
use forebay_types::{ByteRange, ObjectPath};
use forebay_ufs::ByteStream;
use futures::StreamExt;

use crate::read::remote::Version;
use crate::{Error, ErrorKind, Result};

/// Splits a range at page boundaries.
pub(crate) fn pages_of(range: ByteRange, page_size: u64) -> impl Iterator<Item = ByteRange> + Send + 'static {
    let (first, last) = (range.start / page_size, range.end.div_ceil(page_size));
    (first..last).filter_map(move |index| ByteRange::new(index * page_size, (index + 1) * page_size).intersect(range))
}

/// A body that is split into pages.
pub(super) struct Pages {
    body: ByteStream,
    /// Bytes that have arrived and belong to the next page.
    rest: Bytes,
}

impl Pages {
    pub(super) fn of(body: ByteStream) -> Self {
        Self { body, rest: Bytes::new() }
    }

    /// The next page of a whole object. It returns the last page only when the body has ended, because the checksum is
    /// verified at its end.
    pub(super) async fn expected(&mut self, version: &Version, window: ByteRange) -> Result<Bytes> {
        let page = self.next(&version.path, window.len()).await?;
        if window.end == version.size {
            self.end(&version.path).await?;
        }
        Ok(page)
    }

    /// # Errors
    /// `Unavailable` when there are more bytes; what is wrong with those that came.
    pub(super) async fn end(&mut self, path: &ObjectPath) -> Result<()> {
        while self.rest.is_empty() {
            match self.body.next().await.transpose()? {
                Some(data) => self.rest = data,
                None => return Ok(()),
            }
        }
        let context = format!("the under store sent more bytes of {path} than it said");
        Err(Error::new(ErrorKind::Unavailable, context))
    }

    /// # Errors
    /// `Unavailable` when the body ends before the page does.
    pub(super) async fn next(&mut self, path: &ObjectPath, length: u64) -> Result<Bytes> {
        let length = length as usize;
        let mut page = BytesMut::with_capacity(length);
        loop {
            let taken = self.rest.split_to(self.rest.len().min(length - page.len()));
            page.extend_from_slice(&taken);
            if page.len() == length {
                return Ok(page.freeze());
            }
            let Some(data) = self.body.next().await else {
                let context = format!("the under store sent {} of {length} bytes of {path}", page.len());
                return Err(Error::new(ErrorKind::Unavailable, context));
            };
            self.rest = data?;
        }
    }
}

pub(super) fn broken_off() -> Error {
    Error::new(ErrorKind::Unavailable, "the answer of the under store broke off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_a_range_exactly() {
        let pages: Vec<_> = pages_of(ByteRange::new(5, 31), 10).map(|page| (page.start, page.end)).collect();
        assert_eq!(pages, [(5, 10), (10, 20), (20, 30), (30, 31)]);
    }
}
