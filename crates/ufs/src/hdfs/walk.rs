//! Lists a tree of files in the order of keys.

use forebay_types::ObjectKey;

use super::meta::remote_etag;
use super::names::Names;
use super::paths;
use super::remote::{Remote, Status};
use crate::grouping::Grouping;
use crate::{Error, ErrorKind, ListPage, ListRequest, ListedObject, Result};

/// The walk through a tree for one page of a list.
struct Walk<'a> {
    remote: &'a Remote,
    page: Grouping<'a>,
}

/// A page of the keys below a directory.
///
/// # Errors
/// `NoBucket` when the directory does not exist.
pub(super) async fn list(remote: &Remote, base: &str, request: &ListRequest) -> Result<ListPage> {
    let mut walk = Walk { remote, page: Grouping::new(request) };
    // All keys of a prefix are below its last directory.
    let directory = request.prefix.rfind('/').map_or("", |slash| &request.prefix[..slash]);
    if directory.is_empty() && request.prefix.starts_with('/')
        || !directory.is_empty() && paths::of_key(directory).is_err()
    {
        return Ok(ListPage::default());
    }
    let (path, key) = match directory {
        "" => (base.to_owned(), String::new()),
        _ => (paths::join(base, directory), format!("{directory}/")),
    };
    if walk.directory(path, key).await? == Walked::Gone && remote.status(base).await?.is_none() {
        return Err(no_directory(base));
    }
    Ok(walk.page.finish())
}

/// The directory of the mount is gone.
pub(super) fn no_directory(base: &str) -> Error {
    Error::new(ErrorKind::NoBucket, format!("the directory {base} behind the mount does not exist in HDFS"))
}

/// # Errors
/// `NoBucket` when the directory of the mount is gone.
pub(super) async fn must_be_there(remote: &Remote, base: &str) -> Result<()> {
    match remote.status(base).await? {
        Some(status) if status.is_directory => Ok(()),
        Some(_) | None => Err(no_directory(base)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walked {
    Whole,
    /// The page is full.
    Full,
    /// There is no such directory.
    Gone,
}

impl Walk<'_> {
    /// Walks a directory whose keys begin with `key`.
    async fn directory(&mut self, path: String, key: String) -> Result<Walked> {
        let mut names = Names::new(self.remote, path.clone());
        let mut from = self.page.first_wanted(&key);
        loop {
            if let Some(beyond) = self.page.behind_settled(&key) {
                from = from.max(beyond);
            }
            let Some(stretch) = names.next(&from).await? else { return Ok(Walked::Gone) };
            for entry in stretch.entries {
                let below = format!("{key}{}", entry.component);
                if self.page.is_behind(&below) {
                    return Ok(Walked::Whole);
                }
                if entry.is_directory() {
                    let inside = paths::join(&path, &entry.status.name);
                    if self.page.wants_below(&below) && Box::pin(self.directory(inside, below)).await? == Walked::Full {
                        return Ok(Walked::Full);
                    }
                } else if self.page.wants(&below) && !self.add(&below, &entry.status) {
                    return Ok(Walked::Full);
                }
                // Inside a common prefix, the walk is over as soon as the prefix is on the page.
                if !key.is_empty() && self.page.is_settled(&key) {
                    return Ok(Walked::Whole);
                }
            }
            match stretch.next {
                Some(next) => from = next,
                None => return Ok(Walked::Whole),
            }
        }
    }

    /// `false` when the page is full.
    fn add(&mut self, key: &str, status: &Status) -> bool {
        // A key that is too long, or that S3 can't have, can't be requested either.
        ObjectKey::new(key).is_err() || self.page.add(key, || listed(key, status))
    }
}

/// The NameNode's listing does not tell attributes: the ETag is the under store's own.
fn listed(key: &str, status: &Status) -> ListedObject {
    let etag = remote_etag(status.identity);
    ListedObject {
        key: key.to_owned(),
        size: status.identity.size,
        etag: etag.clone(),
        remote_etag: etag,
        last_modified_ms: (status.identity.modified_ns / 1_000_000).max(0) as u64,
        storage_class: None,
        checksums: None,
    }
}
