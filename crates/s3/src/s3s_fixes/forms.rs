//! POST forms, looked through before `s3s` parses them: it drops the field `tagging` without a word.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use s3s::StdError;

use super::BodyError;
use crate::context::RequestContext;

/// Field whose tags would be lost.
const TAGGING: &[u8] = b"name=\"tagging\"";
/// The last field; what comes behind its header is the object.
const FILE: &[u8] = b"name=\"file\"";

/// The same form, or an error when it has a field that would be dropped.
pub(crate) fn watch<S>(body: S, context: Arc<RequestContext>) -> BoxStream<'static, Result<Bytes, StdError>>
where
    S: Stream<Item = Result<Bytes, StdError>> + Send + 'static,
{
    let mut seen = Some(Fields::default());
    body.map(move |next| {
        let data = next?;
        let outcome = seen.as_mut().map_or(Outcome::Fields, |fields| fields.feed(&data));
        match outcome {
            Outcome::Fields => {}
            Outcome::File => seen = None,
            Outcome::Tagging => {
                let _ = context.refused.set(BodyError::FormTagging);
                return Err(BodyError::FormTagging.into());
            }
        }
        Ok(data)
    })
    .boxed()
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Fields,
    File,
    Tagging,
}

/// The end of what came so far: as much as a name may have been cut at.
#[derive(Default)]
struct Fields {
    tail: BytesMut,
}

impl Fields {
    fn feed(&mut self, data: &[u8]) -> Outcome {
        self.tail.extend_from_slice(data);
        let place = |name: &[u8]| self.tail.windows(name.len()).position(|window| window.eq_ignore_ascii_case(name));
        let (tagging, file) = (place(TAGGING), place(FILE));
        match (tagging, file) {
            (Some(tagging), file) if file.is_none_or(|file| tagging < file) => Outcome::Tagging,
            (_, Some(_)) => Outcome::File,
            (_, None) => {
                let keep = self.tail.len().min(TAGGING.len() - 1);
                self.tail = self.tail.split_off(self.tail.len() - keep);
                Outcome::Fields
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_seen_in_front_of_the_file_however_the_form_is_cut() {
        let field = |name: &str| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\nvalue\r\n");
        let form = |names: &[&str]| names.iter().map(|name| field(name)).collect::<String>();
        for size in [1, 3, 7, 1000] {
            let outcome = |form: &str| {
                let mut fields = Fields::default();
                let mut outcomes = form.as_bytes().chunks(size).map(|piece| fields.feed(piece));
                outcomes.find(|outcome| *outcome != Outcome::Fields).unwrap_or(Outcome::Fields)
            };
            assert_eq!(outcome(&form(&["key", "tagging", "file"])), Outcome::Tagging, "{size}");
            assert_eq!(outcome(&form(&["key", "x-amz-tagging", "file", "tagging"])), Outcome::File, "{size}");
            assert_eq!(outcome(&form(&["key", "tag"])), Outcome::Fields, "{size}");
        }
    }
}
