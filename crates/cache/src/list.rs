//! Listing: the listing of the under store, overlaid with the changes that it does not have yet.
//!
//! The catalog is read before the under store, region by region. An object that is persisted in between is then in
//! both, and one that leaves the catalog is already in the under store. In the opposite order it could be in neither. A
//! later page of an under store may be as old as its first one: see [`positions`]. So may any page that is kept for a
//! while: see [`pages`].

mod changes;
pub(crate) mod homes;
mod page_source;
pub(crate) mod pages;
pub(crate) mod positions;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::records::{self, ObjectRecord, State};
use forebay_types::{BucketName, ChecksumNames, ObjectKey, ObjectPath};
use forebay_ufs::{ErrorKind, UnderStore};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};

use crate::home::lost::not_all_at_home;
use crate::list::changes::{CHANGES_MAX, Changed};
use crate::list::homes::FoundRecord;
use crate::list::pages::KeptPage;
use crate::list::positions::{Change, PageStart, Position};
use crate::others::home_records::RECORDS_MAX;
use crate::worker::Worker;
use crate::{ListObjects, ListedObject, ObjectPage, Result};

/// The most catalog records in one region of a listing.
const REGION_RECORDS: usize = RECORDS_MAX;

/// Catalog records that are read first below a common prefix. They usually show whether it exists.
const GROUP_RECORDS: usize = 4;

/// Names that are requested first from an under store below a common prefix that may be empty.
const GROUP_NAMES: usize = 100;

/// Names for which an under store is asked at the same time: common prefixes that may be empty, and keys that may have
/// changed.
const NAMES_ASKED_MAX: usize = 16;

/// After this time, a page ends with the names that are known by then. S3 allows that, and clients do not wait much
/// longer for an answer.
const PAGE_TIME: Duration = Duration::from_secs(10);

/// The fewest names that are requested from an under store that continues by token. MinIO ends listings early when they
/// request one name at a time or continue by name. Names that are not shown yet are requested again with the same page.
const TOKEN_PAGE_MIN: usize = 10;

/// The most names in one page of an under store: S3's own limit.
const REMOTE_PAGE: usize = 1000;

/// One entry of a listing that is being assembled.
enum Item {
    Object(ListedObject),
    /// A common prefix that certainly has an object below it.
    Prefix,
    /// A common prefix of the under store, below which this cache has deleted something: it may be empty now.
    Doubtful,
}

type Items = BTreeMap<String, Item>;

impl Worker {
    pub(crate) async fn list(&self, bucket: &BucketName, request: &ListObjects) -> Result<ObjectPage> {
        if self.others.is_some() {
            return self.list_page(bucket, request).await;
        }
        let losses = self.all_at_home()?;
        let page = self.list_page(bucket, request).await?;
        // What is known of requests without an answer is dropped with the slot. A later page by token needs it.
        if self.all_at_home()? == losses { Ok(page) } else { Err(not_all_at_home()) }
    }

    async fn list_page(&self, bucket: &BucketName, request: &ListObjects) -> Result<ObjectPage> {
        let mount = self.buckets.mount(bucket).await?;
        self.forget_if_gone(bucket).await;
        if request.limit == 0 {
            return Ok(ObjectPage::default());
        }
        let under_store = mount.foreground.as_ref();
        if !self.lists_by_token(under_store) {
            let at = self.home.positions.by_name(request.start_after.clone());
            return Ok(self.list_in(bucket, under_store, request, at, self.late_at()).await?.0);
        }
        let (_listing, at) = self.home.positions.begin(bucket, request);
        let (page, at) = self.list_in(bucket, under_store, request, at, self.late_at()).await?;
        if let (Some(next), Some(at)) = (&page.next, at) {
            self.home.positions.keep(bucket, request, next, at);
        }
        Ok(page)
    }

    /// Whether later pages are those of an earlier listing. This worker would have to know then what has left the
    /// catalog since, at all workers: with others, each page is a listing of its own.
    fn lists_by_token(&self, under_store: &dyn UnderStore) -> bool {
        self.others.is_none() && under_store.lists_by_token()
    }

    /// When a page that begins now may end early.
    fn late_at(&self) -> Option<Duration> {
        Some(self.env.clock.monotonic() + PAGE_TIME)
    }

    /// A page, and the position of the names after it. The position may also be that of names before them. After
    /// `late_at`, the page may end early, even without a name.
    fn list_in<'a>(
        &'a self,
        bucket: &'a BucketName,
        under_store: &'a dyn UnderStore,
        request: &'a ListObjects,
        mut at: Position,
        late_at: Option<Duration>,
    ) -> BoxFuture<'a, Result<(ObjectPage, Option<Position>)>> {
        async move {
            let mut page = Page::default();
            let ask =
                move |prefix: String| async move { self.has_objects(bucket, under_store, &prefix, request).await };
            let least = if under_store.lists_by_token() { TOKEN_PAGE_MIN } else { 0 };
            let mut limit = request.limit.clamp(least, REMOTE_PAGE);
            loop {
                at.page_limit = at.page_limit.max(limit);
                let region = self.list_region(bucket, under_store, request, &mut at).await?;
                // One more name shows that there is another page.
                let wanted = request.limit - page.names + 1;
                let questions: Vec<_> = region.doubtful().into_iter().map(ask).collect();
                let mut answers = stream::iter(questions).buffered(wanted.min(NAMES_ASKED_MAX));
                for (name, item) in region.items {
                    let keep = match &item {
                        Item::Object(_) | Item::Prefix => true,
                        Item::Doubtful => {
                            let answer = match late_at.filter(|_| page.has_begun()) {
                                Some(late_at) => match self.before(late_at, answers.next()).await {
                                    Some(answer) => answer,
                                    None => return Ok((page.cut(), Some(at))),
                                },
                                // Before a page has begun, the next one would begin where this one did.
                                None => answers.next().await,
                            };
                            answer.expect("there is one for each such prefix")?
                        }
                    };
                    if !keep {
                        page.leave_out(name);
                        continue;
                    }
                    if page.names == request.limit {
                        return Ok((page.turn(), Some(at)));
                    }
                    page.add(name, item);
                }
                let Some(next) = region.next else { return Ok((page.finish(), None)) };
                at = next;
                // There may be nothing more to show, because this cache may have deleted all of it. S3, too, may end
                // with an empty page.
                if page.names == request.limit && region.is_cut_by_under_store {
                    return Ok((page.turn(), Some(at)));
                }
                if late_at.is_some_and(|late_at| self.env.clock.monotonic() >= late_at) {
                    // The names up to here need not be listed again. A marker within a group would skip the rest of it.
                    let end = at.after.clone().filter(|end| group_of(request, end).is_none_or(|group| group == end));
                    if let Some(end) = end.filter(|end| Some(end) > request.start_after.as_ref()) {
                        return Ok((page.cut_behind(end), Some(at)));
                    }
                    if page.has_begun() {
                        return Ok((page.cut(), Some(at)));
                    }
                }
                // This cache may have deleted all names of many regions.
                limit = (2 * limit).min(REMOTE_PAGE);
            }
        }
        .boxed()
    }

    /// What comes before this time, if anything does.
    async fn before<T>(&self, time: Duration, value: impl Future<Output = T>) -> Option<T> {
        let left = time.saturating_sub(self.env.clock.monotonic());
        tokio::select! { biased; value = value => Some(value), () = self.env.clock.sleep(left) => None }
    }

    /// Whether anything is left below a common prefix, after the start of the listing.
    async fn has_objects(
        &self,
        bucket: &BucketName,
        under_store: &dyn UnderStore,
        prefix: &str,
        listing: &ListObjects,
    ) -> Result<bool> {
        let start_after = listing.start_after.clone().filter(|after| after.starts_with(prefix));
        let revalidates = listing.revalidates;
        let request =
            ListObjects { prefix: prefix.to_owned(), start_after, limit: 1, revalidates, ..ListObjects::default() };
        // Covers the deletes in most directories.
        let at = Position { page_limit: GROUP_NAMES, ..self.home.positions.by_name(request.start_after.clone()) };
        let (page, _) = self.list_in(bucket, under_store, &request, at, None).await?;
        Ok(!page.objects.is_empty())
    }

    /// The names after `at`, up to the end of a region of the catalog or of a page of the under store.
    async fn list_region(
        &self,
        bucket: &BucketName,
        under_store: &dyn UnderStore,
        request: &ListObjects,
        at: &mut Position,
    ) -> Result<Region> {
        let after = at.after.as_deref();
        let (records, catalog_end) = self.catalog_region(bucket, request, after).await?;
        let (start_after, token) = match &at.page {
            PageStart::Behind(name) => (name.clone(), None),
            PageStart::Token(token) => (at.after.clone(), Some(token.clone())),
        };
        let is_later_page = token.is_some();
        // A page that begins before `after` contains names that have been shown.
        let shown = after.filter(|_| is_later_page || start_after.as_deref() != after);
        // A group sorts before its names. If `shown` is one of these, and the group itself was not shown, it is still
        // new.
        let is_of = |group: &str, name: &str| group != name && group_of(request, name) == Some(group);
        let is_new = |name: &str| shown.is_none_or(|shown| name > shown || is_of(name, shown));
        let remote_request = request.remote(start_after, token, at.page_limit);
        let mut may_be_earlier = !request.revalidates;
        let (kept, changes) = loop {
            let found = self.page_of(bucket, under_store, &remote_request, at, may_be_earlier).await?;
            let kept = found.kept;
            if !found.is_earlier && !is_later_page {
                break (kept, Vec::new());
            }
            let end = region_end(kept.page.next.as_deref(), catalog_end.as_ref().map(|path| path.key.as_str()));
            match self.changes_since(bucket, request, (after, end), &kept, &records).await {
                Some(changes) if !found.is_earlier => break (kept, changes),
                Some(changes) if are_all_known(&changes) => {
                    self.count_kept_page();
                    break (kept, changes);
                }
                None if !found.is_earlier => {
                    let page = PageStart::Behind(at.after.clone());
                    return Ok(Region::nothing(Position { page, page_limit: 0, ..at.clone() }));
                }
                Some(_) | None => may_be_earlier = false,
            }
        };
        let KeptPage { page: remote, since, begun, .. } = &*kept;
        (at.since, at.begun) = (*since, *begun);
        let mut items = Items::new();
        for object in &remote.objects {
            let (etag, checksums) = self.as_known(bucket, object);
            let listed = ListedObject {
                key: object.key.clone(),
                size: object.size,
                etag,
                last_modified_ms: object.last_modified_ms,
                storage_class: object.storage_class.clone(),
                checksums,
            };
            items.insert(object.key.clone(), Item::Object(listed));
        }
        items.extend(remote.prefixes.iter().map(|prefix| (prefix.clone(), Item::Prefix)));
        let end = region_end(remote.next.as_deref(), catalog_end.as_ref().map(|path| path.key.as_str()));
        let is_inside = |path: &ObjectPath| {
            let key = path.key.as_str();
            end.is_none_or(|end| key <= end || key.starts_with(end))
        };
        let look = move |(path, change): (ObjectPath, Change)| async move {
            let object = match change {
                Change::Written(object) => Some(object),
                Change::Deleted => None,
                Change::Unknown => look_up(under_store, &path).await?,
            };
            Ok::<_, crate::Error>((path, object))
        };
        let looks: Vec<_> = changes.into_iter().map(look).collect();
        let mut looked = stream::iter(looks).buffered(NAMES_ASKED_MAX);
        while let Some((path, object)) = looked.try_next().await? {
            lay_over(&mut items, request, path.key.as_str(), object);
        }
        for Listed { path, record, checksums } in records.into_iter().take_while(|listed| is_inside(&listed.path)) {
            let object = match record.state {
                State::Tombstone => None,
                State::Dirty | State::Transient | State::Conflict => {
                    let checksums = checksums.unwrap_or_else(|| self.checksums_of(&path, &record));
                    Some(ListedObject::of(&path, &record, checksums))
                }
            };
            lay_over(&mut items, request, path.key.as_str(), object);
        }
        let Some(end) = end else {
            items.retain(|name, _| is_new(name));
            return Ok(Region { items, next: None, is_cut_by_under_store: false });
        };
        items.retain(|name, _| name.as_str() <= end && is_new(name));
        let last = match group_of(request, end).filter(|group| items.contains_key(*group)) {
            Some(group) => group.to_owned(),
            None => end.max(after.unwrap_or_default()).to_owned(),
        };
        let is_whole = remote.next.as_deref() == Some(end);
        let (page, page_limit) = match &remote.token {
            Some(token) if is_whole && self.others.is_none() => (PageStart::Token(token.clone()), 0),
            // The names after the region's end in the catalog are on the same page.
            _ if under_store.lists_by_token() && !is_whole => (at.page.clone(), at.page_limit),
            _ => (PageStart::Behind(Some(last.clone())), 0),
        };
        let next = Some(Position { after: Some(last), page, page_limit, since: at.since, begun: at.begun });
        Ok(Region { items, next, is_cut_by_under_store: remote.next.is_some() })
    }

    /// What was changed in the under store since a page was requested, or may be about to change: of keys after a name,
    /// up to the end of a region, without a record. `None` when some of it is not known.
    async fn changes_since(
        &self,
        bucket: &BucketName,
        request: &ListObjects,
        (after, end): (Option<&str>, Option<&str>),
        kept: &KeptPage,
        records: &[Listed],
    ) -> Option<Vec<(ObjectPath, Change)>> {
        let (from, mut to) = range_behind(bucket, request, after);
        if let Some(end) = end {
            to = to.min(records::object_prefix_range(bucket, end).1);
        }
        let Changed { in_doubt, mut changes } = self.changed_since(bucket, &from..&to, kept).await?;
        let mut in_doubt = without_record(in_doubt, records);
        // A record that shows a common prefix stands for all below it.
        in_doubt.retain(|path| group_of(request, path.key.as_str()).is_none_or(|group| !shows(records, group)));
        changes.extend(in_doubt.into_iter().map(|path| (path, Change::Unknown)));
        Some(changes)
    }

    /// The records of one region, and the last of them if there are more after it. One record that is not a tombstone
    /// shows its common prefix. Everything else below that prefix is skipped, however many records there are.
    async fn catalog_region(
        &self,
        bucket: &BucketName,
        request: &ListObjects,
        after: Option<&str>,
    ) -> Result<(Vec<Listed>, Option<ObjectPath>)> {
        let (mut from, to) = range_behind(bucket, request, after);
        let has_groups = request.delimiter.as_ref().is_some_and(|delimiter| !delimiter.is_empty());
        let first_step = if has_groups { GROUP_RECORDS } else { REGION_RECORDS };
        let (mut region, mut step) = (Vec::new(), first_step);
        while from < to && region.len() < REGION_RECORDS {
            let limit = step.min(REGION_RECORDS - region.len());
            let found = self.records_of_all(&from, &to, limit).await?;
            for FoundRecord { key, value, checksums } in found.records {
                let Some(path) = records::parse_object_key(&key).filter(|_| key >= from) else { continue };
                let record = ObjectRecord::decode(&value)?;
                let group = group_of(request, path.key.as_str()).filter(|_| record.state != State::Tombstone);
                from = group.map_or(records::successor(&key), |group| records::object_prefix_range(bucket, group).1);
                region.push(Listed { path, record, checksums });
            }
            let Some(last) = found.end else { return Ok((region, None)) };
            let behind = records::successor(&last);
            step = if from > behind { first_step } else { 2 * step };
            from = from.max(behind);
        }
        let last = region.last().map(|listed| listed.path.clone());
        Ok((region, last))
    }

    /// The checksums of an object that the under store does not have.
    pub(crate) fn checksums_of(&self, path: &ObjectPath, record: &ObjectRecord) -> Option<ChecksumNames> {
        let object = self.store.peek(&Self::store_key(path))?;
        (object.generation() == record.generation).then(|| Self::annex_of(&object).checksums)?
    }

    /// The ETag and the checksums that clients know, if the under store's listing has different ones, as for a large
    /// object uploaded in parts.
    fn as_known(
        &self,
        bucket: &BucketName,
        listed: &forebay_ufs::ListedObject,
    ) -> (forebay_types::ETag, Option<ChecksumNames>) {
        let known = || {
            let path = ObjectPath::new(bucket.clone(), ObjectKey::new(&listed.key).ok()?);
            let annex = Self::annex_of(&self.store.peek(&Self::store_key(&path))?);
            (annex.remote_etag.as_ref() == Some(&listed.remote_etag)).then_some((annex.etag, annex.checksums))
        };
        let (etag, checksums) = known().unwrap_or_default();
        (etag.unwrap_or_else(|| listed.etag.clone()), checksums.or(listed.checksums))
    }
}

/// A catalog record of a region.
struct Listed {
    path: ObjectPath,
    record: ObjectRecord,
    /// See [`FoundRecord::checksums`].
    checksums: Option<Option<ChecksumNames>>,
}

struct Region {
    items: Items,
    /// Where the next region starts, if there is one.
    next: Option<Position>,
    /// Whether the under store has more names after this region.
    is_cut_by_under_store: bool,
}

impl Region {
    fn nothing(next: Position) -> Self {
        Self { items: Items::new(), next: Some(next), is_cut_by_under_store: false }
    }

    /// The common prefixes that may be empty, in order.
    fn doubtful(&self) -> Vec<String> {
        let doubtful = self.items.iter().filter(|(_, item)| matches!(item, Item::Doubtful));
        doubtful.map(|(name, _)| name.clone()).collect()
    }
}

/// Whether a page is up to date with these changes, and takes no longer than a new one.
fn are_all_known(changes: &[(ObjectPath, Change)]) -> bool {
    changes.len() <= CHANGES_MAX && changes.iter().all(|(_, change)| *change != Change::Unknown)
}

/// Whether a record shows a common prefix.
fn shows(records: &[Listed], group: &str) -> bool {
    let is_below = |listed: &Listed| listed.path.key.as_str().starts_with(group);
    records.iter().any(|listed| is_below(listed) && listed.record.state != State::Tombstone)
}

/// The keys of `paths` that have no record in the catalog.
fn without_record(mut paths: Vec<ObjectPath>, records: &[Listed]) -> Vec<ObjectPath> {
    // Usually there are none.
    if !paths.is_empty() {
        let recorded: HashSet<&ObjectPath> = records.iter().map(|listed| &listed.path).collect();
        paths.retain(|path| !recorded.contains(path));
    }
    paths
}

/// An object in the under store, or `None` if it does not exist there.
async fn look_up(under_store: &dyn UnderStore, path: &ObjectPath) -> Result<Option<ListedObject>> {
    match under_store.head(&path.key).await {
        Ok(remote) => Ok(Some(ListedObject::described(path, &remote.info))),
        Err(error) if error.kind == ErrorKind::NotFound || error.kind.is_refusal() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The smaller of the two ends, if there are any.
fn region_end<'a>(remote: Option<&'a str>, catalog: Option<&'a str>) -> Option<&'a str> {
    match (remote, catalog) {
        (Some(remote), Some(catalog)) => Some(remote.min(catalog)),
        (remote, catalog) => remote.or(catalog),
    }
}

/// The range of catalog keys that a listing may show after `after`.
fn range_behind(bucket: &BucketName, request: &ListObjects, after: Option<&str>) -> (Bytes, Bytes) {
    let (from, to) = records::object_prefix_range(bucket, &request.prefix);
    (after.map_or(from.clone(), |after| from.max(scan_start(bucket, request, after))), to)
}

/// The first catalog key to read: the one after `after`, or the one after all keys below it if it is a common prefix.
fn scan_start(bucket: &BucketName, request: &ListObjects, after: &str) -> Bytes {
    let is_prefix = group_of(request, after) == Some(after);
    if is_prefix {
        return records::object_prefix_range(bucket, after).1;
    }
    records::successor(&records::object_prefix_range(bucket, after).0)
}

/// The common prefix of a key.
fn group_of<'a>(request: &ListObjects, key: &'a str) -> Option<&'a str> {
    let delimiter = request.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty())?;
    let rest = key.strip_prefix(request.prefix.as_str())?;
    let at = rest.find(delimiter)?;
    Some(&key[..request.prefix.len() + at + delimiter.len()])
}

/// Overlays a change that this cache knows, an object or a delete, on the names that the under store listed.
fn lay_over(items: &mut Items, request: &ListObjects, key: &str, object: Option<ListedObject>) {
    match (group_of(request, key), object) {
        (Some(group), None) => {
            if let Some(item @ Item::Prefix) = items.get_mut(group) {
                *item = Item::Doubtful;
            }
        }
        (Some(group), Some(_)) => {
            items.insert(group.to_owned(), Item::Prefix);
        }
        (None, None) => {
            items.remove(key);
        }
        (None, Some(object)) => {
            items.insert(key.to_owned(), Item::Object(object));
        }
    }
}

/// A page that is being filled.
#[derive(Default)]
struct Page {
    objects: Vec<ListedObject>,
    prefixes: Vec<String>,
    names: usize,
    last: Option<String>,
    /// The last name, if it is not shown.
    left_out: Option<String>,
    next: Option<String>,
}

impl Page {
    fn add(&mut self, name: String, item: Item) {
        self.names += 1;
        self.left_out = None;
        self.last = Some(name.clone());
        match item {
            Item::Object(object) => self.objects.push(object),
            Item::Prefix | Item::Doubtful => self.prefixes.push(name),
        }
    }

    /// A full page with more names after it.
    fn turn(mut self) -> ObjectPage {
        self.next = self.last.take();
        self.finish()
    }

    /// A common prefix below which there is nothing.
    fn leave_out(&mut self, name: String) {
        self.left_out = Some(name);
    }

    /// Whether a page that follows this one would begin later.
    fn has_begun(&self) -> bool {
        self.left_out.is_some() || self.last.is_some()
    }

    /// A page that ends early. It may show nothing.
    fn cut(mut self) -> ObjectPage {
        self.next = self.left_out.take().or_else(|| self.last.take());
        self.finish()
    }

    /// The same, with all names shown up to this one.
    fn cut_behind(mut self, end: String) -> ObjectPage {
        self.next = Some(end);
        self.finish()
    }

    fn finish(self) -> ObjectPage {
        ObjectPage { objects: self.objects, prefixes: self.prefixes, next: self.next }
    }
}
