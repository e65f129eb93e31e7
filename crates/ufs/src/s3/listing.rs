//! Lists, page by page.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::S3Store;
use super::answer_check::SecondLook;
use super::errors::{Effect, classify, of_no_condition};
use super::objects::tag;
use crate::grouping::Grouping;
use crate::{Error, ErrorKind, ListPage, ListRequest, ListedObject, Result};
use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::types::{ChecksumType, EncodingType, Object, ObjectStorageClass};
use forebay_types::{Algorithm, ChecksumKind, ChecksumNames};

/// Most keys in one page of S3.
const PAGE_MAX: usize = 1000;

/// Appended to a string, it sorts after every key that begins with that string.
const LAST_CHARACTER: char = char::MAX;

impl S3Store {
    pub(super) async fn list_page(&self, request: &ListRequest) -> Result<ListPage> {
        if request.limit == 0 {
            return Ok(ListPage::default());
        }
        if let (Some(group), None) = (group_around(request), &request.token) {
            return self.list_behind(group, request).await;
        }
        // With a limit of one, MinIO shows only the object whose name is the prefix, if there is one, and says that
        // nothing follows.
        if request.limit == 1 {
            let two = ListRequest { limit: 2, ..request.clone() };
            return Ok(first_of(Box::pin(self.list_page(&two)).await?));
        }
        let delimiter = request.delimiter.as_deref().unwrap_or("/");
        if delimiter != "/" && self.client.groups_in_circles.load(Ordering::Relaxed) {
            return self.list_ungrouped(request).await;
        }
        let (mut token, mut seen) = (request.token.clone(), HashSet::new());
        loop {
            let output = match self.list_from(request, token.as_deref()).await {
                // The token is of another server, or the server no longer keeps it. The name stands for the same place.
                Err(error) if error.kind.is_invalid() && token.is_some() && token == request.token => {
                    self.list_from(request, None).await?
                }
                Err(error) if error.kind.is_invalid() && token.is_none() => match around_odd_names(request) {
                    Some(all) if all.prefix != request.prefix => return self.list_out_of(all, request).await,
                    Some(all) => self.list_from(&all, None).await?,
                    None => return Err(error),
                },
                output => output?,
            };
            seen.extend(token);
            let is_truncated = output.is_truncated() == Some(true);
            token = output.next_continuation_token().filter(|_| is_truncated).map(str::to_owned);
            if is_truncated && token.is_none() {
                return Err(goes_nowhere(&format!("list {}", self.bucket)));
            }
            if token.as_ref().is_some_and(|token| seen.contains(token)) {
                if delimiter == "/" {
                    return Err(in_circles(format!("list {}", self.bucket)));
                }
                self.client.groups_in_circles.store(true, Ordering::Relaxed);
                return self.list_ungrouped(request).await;
            }
            let page = self.page(request, output, token.clone());
            if token.is_none() || page.next.is_some() {
                return Ok(page);
            }
        }
    }

    /// A page that begins inside a common prefix. Amazon S3 shows the prefix if it has keys after `start_after`; others
    /// leave it out.
    async fn list_behind(&self, group: &str, request: &ListRequest) -> Result<ListPage> {
        let inside = ListRequest { prefix: group.to_owned(), delimiter: None, limit: 1, ..request.clone() };
        let has_keys = !Box::pin(self.list_page(&inside)).await?.objects.is_empty();
        let limit = request.limit - usize::from(has_keys);
        let behind = ListRequest { start_after: Some(group.to_owned()), limit, ..request.clone() };
        let mut page = Box::pin(self.list_page(&behind)).await?;
        if has_keys {
            page.prefixes.insert(0, group.to_owned());
        }
        if limit == 0 {
            page.next = Some(group.to_owned());
        }
        Ok(page)
    }

    /// A page whose common prefixes are made here, from all keys since the beginning. For delimiters other than `/`,
    /// MinIO's tokens lead back to an earlier page.
    async fn list_ungrouped(&self, request: &ListRequest) -> Result<ListPage> {
        let all = ListRequest { prefix: request.prefix.clone(), limit: PAGE_MAX, ..ListRequest::default() };
        self.list_out_of(all, request).await
    }

    /// Makes a page of what is wanted from a longer listing, page by page.
    async fn list_out_of(&self, mut all: ListRequest, request: &ListRequest) -> Result<ListPage> {
        let mut page = Grouping::new(request);
        loop {
            let found = Box::pin(self.list_page(&all)).await?;
            for object in found.objects {
                if page.wants(&object.key) && !page.add(&object.key, || object.clone()) {
                    return Ok(page.finish());
                }
            }
            if found.next.as_ref().is_some_and(|next| !next.starts_with(&request.prefix) && *next > request.prefix) {
                return Ok(page.finish());
            }
            let Some(next) = found.next else { return Ok(page.finish()) };
            (all.start_after, all.token) = (Some(next), found.token);
        }
    }

    /// The page that a token of the under store stands for, or else the one after `start_after`.
    async fn list_from(&self, request: &ListRequest, token: Option<&str>) -> Result<ListObjectsV2Output> {
        let after = request.start_after.as_ref().filter(|_| token.is_none());
        let call = self.client.sdk.list_objects_v2().bucket(&self.bucket).encoding_type(EncodingType::Url);
        let prefix = format!("{}{}", self.prefix, request.prefix);
        let call = call.prefix(&prefix).set_delimiter(request.delimiter.clone());
        let call = call.max_keys(request.limit.min(PAGE_MAX) as i32);
        let call = call.set_start_after(after.map(|after| self.start_after(after, request)));
        let call = call.set_continuation_token(token.map(str::to_owned)).customize().interceptor(SecondLook);
        let result =
            call.send().await.map_err(|error| classify(error, Effect::Read, || format!("list {}", self.bucket)));
        let output = result.map_err(of_no_condition)?;
        self.client.answers.look_at_listing(&output, &self.bucket, &prefix)?;
        Ok(output)
    }

    /// A page that begins after a common prefix must not show it again.
    fn start_after(&self, after: &str, request: &ListRequest) -> String {
        let rest = after.strip_prefix(&request.prefix).zip(request.delimiter.as_deref());
        let group = rest
            .is_some_and(|(rest, delimiter)| rest.find(delimiter).is_some_and(|at| at + delimiter.len() == rest.len()));
        let after = format!("{}{after}", self.prefix);
        if group { after + &LAST_CHARACTER.to_string() } else { after }
    }

    /// The page, with names relative to our prefix. `next` is its last name, if there is a token for more.
    fn page(&self, request: &ListRequest, output: ListObjectsV2Output, token: Option<String>) -> ListPage {
        let encoded = output.encoding_type() == Some(&EncodingType::Url);
        let local = |name: &str| {
            let name = if encoded { decode(name) } else { name.to_owned() };
            // An empty rest is the marker of the place itself.
            name.strip_prefix(&self.prefix).filter(|rest| !rest.is_empty()).map(str::to_owned)
        };
        let after = request.start_after.as_deref();
        let is_behind = |name: &str| after.is_none_or(|after| name > after);
        // A common prefix that contains `start_after` may have keys after it.
        let has_keys_behind = |prefix: &String| {
            is_behind(prefix) || after.is_some_and(|after| after != prefix && after.starts_with(prefix.as_str()))
        };
        let listed = |object: &Object| listed(local(object.key()?)?, object);
        let mut objects: Vec<_> =
            output.contents().iter().filter_map(listed).filter(|object| is_behind(&object.key)).collect();
        let prefixes = output.common_prefixes().iter().filter_map(|prefix| local(prefix.prefix()?));
        let mut prefixes: Vec<_> = prefixes.filter(has_keys_behind).collect();
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        prefixes.sort();
        let last = objects.last().map(|object| object.key.clone()).max(prefixes.last().cloned());
        let next = last.filter(|_| token.is_some());
        ListPage { objects, prefixes, token: token.filter(|_| next.is_some()), next }
    }
}

/// # Errors
/// `Unavailable` when the page after the one at `from` begins at the same place: the listing would never end.
pub(super) fn must_go_on<T: PartialEq>(from: &T, next: &T, context: impl FnOnce() -> String) -> Result<()> {
    match from == next {
        false => Ok(()),
        true => Err(in_circles(context())),
    }
}

/// The page cut off after its first name.
fn first_of(mut page: ListPage) -> ListPage {
    if page.objects.len() + page.prefixes.len() < 2 {
        return page;
    }
    let is_object = match (page.objects.first(), page.prefixes.first()) {
        (Some(object), Some(prefix)) => object.key < *prefix,
        (object, _) => object.is_some(),
    };
    page.objects.truncate(usize::from(is_object));
    page.prefixes.truncate(usize::from(!is_object));
    let name = page.objects.first().map(|object| object.key.clone()).or_else(|| page.prefixes.first().cloned());
    (page.next, page.token) = (name, None);
    page
}

fn in_circles(context: String) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{context}: the continuation token leads to the same page again"))
}

/// A name would continue the listing only where the server knows `start-after`, and leaves nothing out behind it.
fn goes_nowhere(context: &str) -> Error {
    let problem = "the page is truncated, but has no continuation token: does the server know ListObjectsV2?";
    Error::new(ErrorKind::Unavailable, format!("{context}: {problem}"))
}

/// A wider listing that contains all of another one whose prefix or beginning has `.`, `..` or an empty component:
/// MinIO has no such names, and refuses them here as well. With another prefix, it is a listing of keys alone.
fn around_odd_names(request: &ListRequest) -> Option<ListRequest> {
    if let Some((prefix, first)) = before_odd_name(&request.prefix) {
        let (prefix, start_after) = (prefix.to_owned(), Some(first));
        return Some(ListRequest { prefix, start_after, limit: PAGE_MAX, ..ListRequest::default() });
    }
    let (_, first) = before_odd_name(request.start_after.as_deref()?)?;
    Some(ListRequest { start_after: Some(first), ..request.clone() })
}

/// What comes before the first `.`, `..` or empty component, and a name that sorts before everything that begins so,
/// and after most other names.
fn before_odd_name(name: &str) -> Option<(&str, String)> {
    let mut start = 0;
    for component in name.split('/') {
        let before = match component {
            // The character that sorts before a dot.
            "." | ".." => '-',
            // The character that sorts before a slash. After a slash at the end there is nothing that could be a name.
            "" if start < name.len() => '.',
            _ => {
                start += component.len() + 1;
                continue;
            }
        };
        let prefix = &name[..start];
        return Some((prefix, format!("{prefix}{before}{LAST_CHARACTER}")));
    }
    None
}

/// The common prefix that contains `start_after`.
fn group_around(request: &ListRequest) -> Option<&str> {
    let after = request.start_after.as_deref()?;
    Grouping::new(request).group(after).filter(|group| *group != after)
}

fn listed(key: String, object: &Object) -> Option<ListedObject> {
    let etag = tag(object.e_tag()?);
    let modified_ms = object.last_modified().and_then(|at| at.to_millis().ok()).unwrap_or_default();
    let class = object.storage_class().filter(|class| **class != ObjectStorageClass::Standard);
    Some(ListedObject {
        key,
        size: u64::try_from(object.size()?).ok()?,
        etag: etag.clone(),
        remote_etag: etag,
        last_modified_ms: modified_ms.max(0) as u64,
        storage_class: class.map(|class| class.as_str().to_owned()),
        checksums: checksums(object),
    })
}

fn checksums(object: &Object) -> Option<ChecksumNames> {
    let kind = match object.checksum_type() {
        Some(ChecksumType::Composite) => ChecksumKind::Composite,
        // Where older servers do not tell, most are.
        Some(_) | None => ChecksumKind::FullObject,
    };
    ChecksumNames::of(kind, object.checksum_algorithm().iter().filter_map(|name| Algorithm::from_name(name.as_str())))
}

/// Undoes `encoding-type=url`, in which a space is a plus.
pub(super) fn decode(name: &str) -> String {
    let spaced = name.replace('+', " ");
    percent_encoding::percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_around_a_name_that_is_refused_begins_before_it() {
        for (name, prefix, next) in [
            ("a/./b", "a/", "a/-\u{10ffff}"),
            ("../b", "", "-\u{10ffff}"),
            ("a/b/..", "a/b/", "a/b/-\u{10ffff}"),
            ("a//b", "a/", "a/.\u{10ffff}"),
            ("a//", "a/", "a/.\u{10ffff}"),
            ("/a", "", ".\u{10ffff}"),
        ] {
            let (before, first) = before_odd_name(name).expect(name);
            assert_eq!((before, first.as_str()), (prefix, next), "{name}");
            assert!(first.as_str() < name && name.starts_with(before), "{name}");
        }
        for plain in ["", "a", "a/", "a/.b", "a/b.", "a/...", "a/b/c"] {
            assert_eq!(before_odd_name(plain), None, "{plain}");
        }
    }

    #[test]
    fn the_prefix_of_a_listing_stays_where_only_its_beginning_is_refused() {
        let request = |prefix: &str, after: Option<&str>| ListRequest {
            prefix: prefix.to_owned(),
            start_after: after.map(str::to_owned),
            ..ListRequest::default()
        };
        let around = around_odd_names(&request("d/a", Some("d/a/./b"))).expect("its beginning is odd");
        assert_eq!((around.prefix.as_str(), around.start_after.as_deref()), ("d/a", Some("d/a/-\u{10ffff}")));
        let around = around_odd_names(&request("d/./x", Some("d/./xy"))).expect("its prefix is odd");
        assert_eq!((around.prefix.as_str(), around.start_after.as_deref()), ("d/", Some("d/-\u{10ffff}")));
        assert!(around_odd_names(&request("d/a", Some("d/ab"))).is_none());
        assert!(around_odd_names(&request("d/a", None)).is_none());
    }
}
