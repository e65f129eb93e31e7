//! Lists, page by page.

use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::types::{EncodingType, Object, ObjectStorageClass};
use forebay_types::ETag;

use super::S3Store;
use super::errors::{Effect, classify};
use crate::{Error, ErrorKind, ListPage, ListRequest, ListedObject, Result};

/// Most keys that S3 lists at once.
const PAGE_MAX: usize = 1000;

/// Behind every key that begins with what stands before it.
const LAST_CHARACTER: char = char::MAX;

impl S3Store {
    pub(super) async fn list_page(&self, request: &ListRequest) -> Result<ListPage> {
        if request.limit == 0 {
            return Ok(ListPage::default());
        }
        let after = request.start_after.as_ref().map(|after| self.start_after(after, request));
        let mut token: Option<String> = None;
        loop {
            let call = self.client.sdk.list_objects_v2().bucket(&self.bucket).encoding_type(EncodingType::Url);
            let call =
                call.prefix(format!("{}{}", self.prefix, request.prefix)).set_delimiter(request.delimiter.clone());
            let call = call.max_keys(request.limit.min(PAGE_MAX) as i32).set_start_after(after.clone());
            let result = call.set_continuation_token(token.clone()).send().await;
            let output = result.map_err(|error| classify(error, Effect::Read, || format!("list {}", self.bucket)))?;
            let before = std::mem::replace(&mut token, output.next_continuation_token().map(str::to_owned));
            let more = output.is_truncated() == Some(true) && token.is_some();
            if more {
                must_go_on(&before, &token, || format!("list {}", self.bucket))?;
            }
            let page = self.page(request, output, more);
            if !more || page.next.is_some() {
                return Ok(page);
            }
        }
    }

    /// A page that starts behind a common prefix must not show it again.
    fn start_after(&self, after: &str, request: &ListRequest) -> String {
        let rest = after.strip_prefix(&request.prefix).zip(request.delimiter.as_deref());
        let group = rest
            .is_some_and(|(rest, delimiter)| rest.find(delimiter).is_some_and(|at| at + delimiter.len() == rest.len()));
        let after = format!("{}{after}", self.prefix);
        if group { after + &LAST_CHARACTER.to_string() } else { after }
    }

    /// The page, with names below our prefix; `next` is its last name when there is `more`.
    fn page(&self, request: &ListRequest, output: ListObjectsV2Output, more: bool) -> ListPage {
        let encoded = output.encoding_type() == Some(&EncodingType::Url);
        let local = |name: &str| {
            let name = if encoded { decode(name) } else { name.to_owned() };
            // An empty rest is the marker of the place itself.
            name.strip_prefix(&self.prefix).filter(|rest| !rest.is_empty()).map(str::to_owned)
        };
        let is_behind = |name: &String| request.start_after.as_ref().is_none_or(|after| name > after);
        let listed = |object: &Object| listed(local(object.key()?)?, object);
        let mut objects: Vec<_> =
            output.contents().iter().filter_map(listed).filter(|object| is_behind(&object.key)).collect();
        let prefixes = output.common_prefixes().iter().filter_map(|prefix| local(prefix.prefix()?));
        let mut prefixes: Vec<_> = prefixes.filter(is_behind).collect();
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        prefixes.sort();
        let last = objects.last().map(|object| object.key.clone()).max(prefixes.last().cloned());
        ListPage { objects, prefixes, next: last.filter(|_| more) }
    }
}

/// # Errors
/// `Unavailable` when the page behind the one at `from` begins at the same place: it would be asked for without end.
pub(super) fn must_go_on<T: PartialEq>(from: &T, next: &T, context: impl FnOnce() -> String) -> Result<()> {
    match from == next {
        false => Ok(()),
        true => Err(Error::new(ErrorKind::Unavailable, format!("{}: a page is its own next one", context()))),
    }
}

fn listed(key: String, object: &Object) -> Option<ListedObject> {
    let etag = ETag::new(object.e_tag()?);
    let modified_ms = object.last_modified().and_then(|at| at.to_millis().ok()).unwrap_or_default();
    let class = object.storage_class().filter(|class| **class != ObjectStorageClass::Standard);
    Some(ListedObject {
        key,
        size: u64::try_from(object.size()?).ok()?,
        etag: etag.clone(),
        remote_etag: etag,
        last_modified_ms: modified_ms.max(0) as u64,
        storage_class: class.map(|class| class.as_str().to_owned()),
    })
}

/// Undoes `encoding-type=url`, in which a space is a plus.
fn decode(name: &str) -> String {
    let spaced = name.replace('+', " ");
    percent_encoding::percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}
