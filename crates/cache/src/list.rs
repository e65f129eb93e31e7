//! Listing: what the under store lists, with what it does not have yet laid over it.
//!
//! The catalog is read before the under store, region by region: an object that is persisted in between is then in
//! both, and one that leaves the catalog is in the under store already. Read the other way round it could be in neither.

use std::collections::BTreeMap;

use forebay_catalog::records::{self, ObjectRecord, State};
use forebay_types::{BucketName, ObjectKey, ObjectPath};
use forebay_ufs::{ListRequest, UnderStore};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::worker::Worker;
use crate::{ListObjects, ListedObject, ObjectPage, Result};

/// Catalog records that one region of a listing spans at most.
const REGION_RECORDS: usize = 1000;

/// Catalog records that are looked at first below a common prefix: one shows it most of the time.
const GROUP_RECORDS: usize = 4;

/// Names that one page of an under store holds at most: S3's own limit.
const REMOTE_PAGE: usize = 1000;

/// One line of a listing in the making.
enum Item {
    Object(ListedObject),
    /// A common prefix that surely has an object below it.
    Prefix,
    /// A common prefix of the under store below which something was deleted here: it may be empty by now.
    Doubtful,
}

type Items = BTreeMap<String, Item>;

impl Worker {
    pub(crate) async fn list(&self, bucket: &BucketName, request: &ListObjects) -> Result<ObjectPage> {
        let mount = self.buckets.mount(bucket).await?;
        if request.limit == 0 {
            return Ok(ObjectPage::default());
        }
        self.list_in(bucket, mount.foreground.as_ref(), request).await
    }

    fn list_in<'a>(
        &'a self,
        bucket: &'a BucketName,
        under_store: &'a dyn UnderStore,
        request: &'a ListObjects,
    ) -> BoxFuture<'a, Result<ObjectPage>> {
        async move {
            let mut page = Page::default();
            let mut after = request.start_after.clone();
            loop {
                let region = self.list_region(bucket, under_store, request, after.as_deref()).await?;
                for (name, item) in region.items {
                    let keep = match &item {
                        Item::Object(_) | Item::Prefix => true,
                        Item::Doubtful => self.has_objects(bucket, under_store, &name, request).await?,
                    };
                    if !keep {
                        continue;
                    }
                    if page.names == request.limit {
                        page.next = page.last.take();
                        return Ok(page.finish());
                    }
                    page.add(name, item);
                }
                match region.next {
                    Some(next) => after = Some(next),
                    None => return Ok(page.finish()),
                }
            }
        }
        .boxed()
    }

    /// Whether anything below a common prefix is left, behind where the listing starts.
    async fn has_objects(
        &self,
        bucket: &BucketName,
        under_store: &dyn UnderStore,
        prefix: &str,
        listing: &ListObjects,
    ) -> Result<bool> {
        let start_after = listing.start_after.clone();
        let request = ListObjects { prefix: prefix.to_owned(), start_after, limit: 1, ..ListObjects::default() };
        let page = self.list_in(bucket, under_store, &request).await?;
        Ok(!page.objects.is_empty())
    }

    /// The names behind `after`, as far as one stretch of the catalog goes and one page of the under store.
    async fn list_region(
        &self,
        bucket: &BucketName,
        under_store: &dyn UnderStore,
        request: &ListObjects,
        after: Option<&str>,
    ) -> Result<Region> {
        let (records, catalog_end) = self.catalog_region(bucket, request, after).await?;
        let remote = under_store
            .list(&ListRequest {
                prefix: request.prefix.clone(),
                delimiter: request.delimiter.clone(),
                start_after: after.map(str::to_owned),
                limit: REMOTE_PAGE.min(request.limit + 1),
            })
            .await?;
        let mut items = Items::new();
        let last_remote = remote.next;
        for object in remote.objects {
            let etag = self.etag_of_listed(bucket, &object);
            let listed = ListedObject {
                key: object.key.clone(),
                size: object.size,
                etag,
                last_modified_ms: object.last_modified_ms,
                storage_class: object.storage_class,
            };
            items.insert(object.key, Item::Object(listed));
        }
        items.extend(remote.prefixes.into_iter().map(|prefix| (prefix, Item::Prefix)));
        let end = region_end(last_remote, catalog_end.as_ref().map(|path| path.key.as_str()));
        for (path, record) in records {
            if end.as_deref().is_some_and(|end| path.key.as_str() > end && !path.key.as_str().starts_with(end)) {
                break;
            }
            lay_over(&mut items, request, &path, record);
        }
        if let Some(end) = &end {
            items.retain(|name, _| name.as_str() <= end.as_str());
        }
        let next = end.map(|end| {
            group_of(request, &end).filter(|group| items.contains_key(*group)).map_or(end.clone(), str::to_owned)
        });
        Ok(Region { items, next })
    }

    /// The records of one region, and the last of them when there are more behind it. One record that is no tombstone shows a common
    /// prefix: what else is below it is passed over, however much that is.
    async fn catalog_region(
        &self,
        bucket: &BucketName,
        request: &ListObjects,
        after: Option<&str>,
    ) -> Result<(Vec<(ObjectPath, ObjectRecord)>, Option<ObjectPath>)> {
        let (mut from, to) = records::object_prefix_range(bucket, &request.prefix);
        if let Some(after) = after {
            from = from.max(scan_start(bucket, request, after));
        }
        let has_groups = request.delimiter.as_ref().is_some_and(|delimiter| !delimiter.is_empty());
        let first_step = if has_groups { GROUP_RECORDS } else { REGION_RECORDS };
        let (mut region, mut step) = (Vec::new(), first_step);
        while from < to && region.len() < REGION_RECORDS {
            let limit = step.min(REGION_RECORDS - region.len());
            let found = self.engine.scan(&from, &to, limit).await?;
            for (key, versioned) in &found {
                let Some(path) = records::parse_object_key(key).filter(|_| *key >= from) else { continue };
                let record = ObjectRecord::decode(&versioned.value)?;
                let group = group_of(request, path.key.as_str()).filter(|_| record.state != State::Tombstone);
                from = group.map_or(records::successor(key), |group| records::object_prefix_range(bucket, group).1);
                region.push((path, record));
            }
            let Some((last, _)) = found.last().filter(|_| found.len() == limit) else { return Ok((region, None)) };
            let behind = records::successor(last);
            step = if from > behind { first_step } else { 2 * step };
            from = from.max(behind);
        }
        let last = region.last().map(|(path, _)| path.clone());
        Ok((region, last))
    }

    /// The tag that clients know, where the under store's list shows another (a large object goes there in parts).
    fn etag_of_listed(&self, bucket: &BucketName, listed: &forebay_ufs::ListedObject) -> forebay_types::ETag {
        let known = || {
            let path = ObjectPath::new(bucket.clone(), ObjectKey::new(&listed.key).ok()?);
            let annex = Self::annex_of(&self.store.peek(&Self::store_key(&path))?);
            annex.etag.filter(|_| annex.remote_etag.as_ref() == Some(&listed.remote_etag))
        };
        known().unwrap_or_else(|| listed.etag.clone())
    }
}

struct Region {
    items: Items,
    /// Where the next region starts after, when there is one.
    next: Option<String>,
}

/// The nearer of the two ends, where there is one.
fn region_end(remote: Option<String>, catalog: Option<&str>) -> Option<String> {
    match (remote, catalog) {
        (Some(remote), Some(catalog)) if catalog < remote.as_str() => Some(catalog.to_owned()),
        (Some(remote), _) => Some(remote),
        (None, catalog) => catalog.map(str::to_owned),
    }
}

/// The first catalog key to look at: behind `after`, or behind all keys below it when it is a common prefix.
fn scan_start(bucket: &BucketName, request: &ListObjects, after: &str) -> bytes::Bytes {
    let is_prefix = group_of(request, after) == Some(after);
    if is_prefix {
        return records::object_prefix_range(bucket, after).1;
    }
    records::successor(&records::object_prefix_range(bucket, after).0)
}

/// The common prefix that a key falls under.
fn group_of<'a>(request: &ListObjects, key: &'a str) -> Option<&'a str> {
    let delimiter = request.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty())?;
    let rest = key.strip_prefix(request.prefix.as_str())?;
    let at = rest.find(delimiter)?;
    Some(&key[..request.prefix.len() + at + delimiter.len()])
}

/// Puts a catalog record over what the under store listed.
fn lay_over(items: &mut Items, request: &ListObjects, path: &ObjectPath, record: ObjectRecord) {
    let key = path.key.as_str();
    let is_gone = match record.state {
        State::Tombstone => true,
        State::Dirty | State::Transient | State::Conflict => false,
    };
    match (group_of(request, key), is_gone) {
        (Some(group), true) => {
            if let Some(item @ Item::Prefix) = items.get_mut(group) {
                *item = Item::Doubtful;
            }
        }
        (Some(group), false) => {
            items.insert(group.to_owned(), Item::Prefix);
        }
        (None, true) => {
            items.remove(key);
        }
        (None, false) => {
            let listed = ListedObject {
                key: key.to_owned(),
                size: record.size,
                etag: record.etag,
                last_modified_ms: record.last_modified_ms,
                storage_class: record.storage_class,
            };
            items.insert(key.to_owned(), Item::Object(listed));
        }
    }
}

/// A page as it fills.
#[derive(Default)]
struct Page {
    objects: Vec<ListedObject>,
    prefixes: Vec<String>,
    names: usize,
    last: Option<String>,
    next: Option<String>,
}

impl Page {
    fn add(&mut self, name: String, item: Item) {
        self.names += 1;
        self.last = Some(name.clone());
        match item {
            Item::Object(object) => self.objects.push(object),
            Item::Prefix | Item::Doubtful => self.prefixes.push(name),
        }
    }

    fn finish(self) -> ObjectPage {
        ObjectPage { objects: self.objects, prefixes: self.prefixes, next: self.next }
    }
}
