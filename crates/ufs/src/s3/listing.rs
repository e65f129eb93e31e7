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

/// Most names of a request that only checks whether something is there. Nobody continues behind its page.
const LOOK_MAX: usize = 2;

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
        let given = request.token.as_deref().map(Continuation::read);
        let (mut at, mut seen) = (given.clone(), HashSet::new());
        loop {
            let token = at.as_ref().map(|at| at.token.clone());
            seen.extend(token.clone());
            let mut behind = at.as_ref().and_then(|at| at.last.clone());
            let output = match self.list_from(request, token.as_deref()).await {
                // The token is of another server, or the server no longer keeps it. The name stands for the same place.
                Err(error) if error.kind.is_invalid() && token.is_some() && at == given => {
                    behind = None;
                    self.list_from(request, None).await?
                }
                Err(error) if error.kind.is_invalid() && token.is_none() => match around_odd_names(request) {
                    Some(all) if all.prefix != request.prefix => return self.list_out_of(all, request).await,
                    Some(all) => self.list_from(&all, None).await?,
                    None => return Err(error),
                },
                output => output?,
            };
            let is_truncated = output.is_truncated() == Some(true);
            let next = output.next_continuation_token().filter(|_| is_truncated).map(str::to_owned);
            if is_truncated && next.is_none() {
                return Err(goes_nowhere(&format!("list {}", self.bucket)));
            }
            let shown = self.shown(&output);
            let is_circle = next.as_ref().is_some_and(|next| seen.contains(next));
            let disorder = disorder(&shown, behind.as_deref(), next.is_some() && request.limit > LOOK_MAX);
            if delimiter != "/" && (is_circle || disorder.is_some()) {
                self.client.groups_in_circles.store(true, Ordering::Relaxed);
                return self.list_ungrouped(request).await;
            }
            if is_circle {
                return Err(in_circles(format!("list {}", self.bucket)));
            }
            if let Some((first, second)) = disorder {
                return Err(out_of_order(&self.bucket, first, second));
            }
            let last = last_of(&shown).or(behind);
            at = next.map(|token| Continuation { token, last });
            let page = page(request, shown, at.as_ref());
            if at.is_none() || page.next.is_some() {
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

    /// What the under store shows, in its own order, with names relative to our prefix.
    fn shown(&self, output: &ListObjectsV2Output) -> ListPage {
        let encoded = output.encoding_type() == Some(&EncodingType::Url);
        let local = |name: &str| {
            let name = if encoded { decode(name) } else { name.to_owned() };
            // An empty rest is the marker of the place itself.
            name.strip_prefix(&self.prefix).filter(|rest| !rest.is_empty()).map(str::to_owned)
        };
        let listed = |object: &Object| listed(local(object.key()?)?, object);
        let objects = output.contents().iter().filter_map(listed).collect();
        let prefixes = output.common_prefixes().iter().filter_map(|prefix| local(prefix.prefix()?)).collect();
        ListPage { objects, prefixes, ..ListPage::default() }
    }
}

/// Where a listing continues: what [`ListPage::token`] stands for.
#[derive(Clone, PartialEq, Eq)]
struct Continuation {
    /// The under store's own.
    token: String,
    /// The last name before it. No name behind it sorts before that.
    last: Option<String>,
}

impl Continuation {
    fn read(text: &str) -> Self {
        let parts = || {
            let (length, rest) = text.split_once(' ')?;
            rest.split_at_checked(length.parse().ok()?)
        };
        match parts() {
            Some((token, last)) => Self { token: token.to_owned(), last: Some(last.to_owned()) },
            None => Self { token: text.to_owned(), last: None },
        }
    }

    fn write(&self) -> String {
        let last = self.last.as_deref().unwrap_or_default();
        format!("{} {}{last}", self.token.len(), self.token)
    }
}

/// The page that was asked for. `next` is its last name, if there are more.
fn page(request: &ListRequest, shown: ListPage, rest: Option<&Continuation>) -> ListPage {
    let after = request.start_after.as_deref();
    let is_behind = |name: &str| after.is_none_or(|after| name > after);
    // A common prefix that contains `start_after` may have keys after it.
    let has_keys_behind = |prefix: &String| {
        is_behind(prefix) || after.is_some_and(|after| after != prefix && after.starts_with(prefix.as_str()))
    };
    let ListPage { mut objects, mut prefixes, .. } = shown;
    objects.retain(|object| is_behind(&object.key));
    prefixes.retain(has_keys_behind);
    objects.sort_by(|a, b| a.key.cmp(&b.key));
    prefixes.sort();
    let page = ListPage { objects, prefixes, ..ListPage::default() };
    let next = last_of(&page).filter(|_| rest.is_some());
    let token = rest.filter(|_| next.is_some()).map(Continuation::write);
    ListPage { next, token, ..page }
}

/// The last name of a page in order.
fn last_of(page: &ListPage) -> Option<String> {
    page.objects.last().map(|object| object.key.clone()).max(page.prefixes.last().cloned())
}

/// Two names of which the second one comes too late, if there are such: before the last name of the page before, or on
/// a page with more behind it. A listing that continues after the larger one would leave out names between them.
fn disorder<'a>(shown: &'a ListPage, behind: Option<&'a str>, is_cut: bool) -> Option<(&'a str, &'a str)> {
    let (objects, prefixes) = (&shown.objects, &shown.prefixes);
    if let Some(behind) = behind {
        let object = objects.iter().map(|object| object.key.as_str()).find(|name| *name < behind);
        // A common prefix sorts before the names in it.
        let is_early = |name: &&str| *name < behind && !behind.starts_with(*name);
        if let Some(early) = object.or_else(|| prefixes.iter().map(String::as_str).find(is_early)) {
            return Some((behind, early));
        }
    }
    if !is_cut {
        return None;
    }
    let objects = objects.windows(2).map(|pair| (pair[0].key.as_str(), pair[1].key.as_str()));
    let prefixes = prefixes.windows(2).map(|pair| (pair[0].as_str(), pair[1].as_str()));
    objects.chain(prefixes).find(|(first, second)| first > second)
}

/// A listing that is not complete looks like one. Servers that list in no order at all can't be listed page by page.
fn out_of_order(bucket: &str, first: &str, second: &str) -> Error {
    let problem = format!("the under store lists keys out of order, {first:?} before {second:?}");
    Error::new(
        ErrorKind::Unsupported,
        format!("list {bucket}: {problem}, so a page by page listing would be incomplete"),
    )
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
