//! Lists a tree of files in the order of keys.

use std::path::Path;

use forebay_env::Env;

use super::names::Kept;
use super::tree::Tree;
use super::{Inner, meta};
use crate::grouping::Grouping;
use crate::{ListPage, ListRequest, ListedObject, Result};

/// Names of one directory that are held at once, at first. When the page needs more, the directory is read again, with twice the room.
const HELD_MIN: usize = 4096;

/// A page of a list on its way through a tree.
struct Walk<'a> {
    env: &'a Env,
    kept: &'a Kept,
    tree: &'a Tree,
    request: &'a ListRequest,
    page: Grouping<'a>,
    held_min: usize,
}

pub(super) fn list(inner: &Inner, request: &ListRequest) -> Result<ListPage> {
    page(&inner.env, &inner.kept, &inner.tree()?, request, HELD_MIN)
}

fn page(env: &Env, kept: &Kept, tree: &Tree, request: &ListRequest, held_min: usize) -> Result<ListPage> {
    let mut walk = Walk { env, kept, tree, request, page: Grouping::new(request), held_min };
    walk.directory(Path::new(""), "")?;
    Ok(walk.page.finish())
}

impl Walk<'_> {
    /// Walks a directory whose keys begin with `key`. `false` when the page is full.
    fn directory(&mut self, directory: &Path, key: &str) -> Result<bool> {
        let mut max = self.held_min;
        let mut from = first_component(key, &self.request.prefix).to_owned();
        if let Some(after) = &self.request.start_after {
            from = from.max(first_component(key, after).to_owned());
        }
        loop {
            if let Some(beyond) = self.page.settled_group().and_then(|group| behind_group(key, group)) {
                from = from.max(beyond);
            }
            let Some(names) = self.kept.names(self.env, self.tree, directory, &from, max)? else { return Ok(true) };
            for entry in names.entries_from(&from) {
                let below = format!("{key}{}", entry.component);
                if self.is_behind(&below) {
                    return Ok(true);
                }
                if entry.is_directory() {
                    if self.wants_directory(&below) && !self.directory(&directory.join(entry.path()), &below)? {
                        return Ok(false);
                    }
                } else if self.page.wants(&below) {
                    let Some(listed) = listed(self.tree, &below, &directory.join(entry.path())) else { continue };
                    if !self.page.add(&below, || listed) {
                        return Ok(false);
                    }
                }
                // A walk deep inside one common prefix is over as soon as that is on the page.
                if !key.is_empty() && self.page.is_settled(key) {
                    return Ok(true);
                }
            }
            if !names.is_cut {
                return Ok(true);
            }
            (from, max) = (names.end(), 2 * max);
        }
    }

    /// Whether this and all behind it is behind the prefix.
    fn is_behind(&self, key: &str) -> bool {
        let prefix = self.request.prefix.as_str();
        key > prefix && !key.starts_with(prefix)
    }

    fn wants_directory(&self, key: &str) -> bool {
        let leads_there = key.starts_with(&self.request.prefix) || self.request.prefix.starts_with(key);
        leads_there && !self.page.is_settled(key)
    }
}

/// The first component below `key` that may hold a key which is not less than `bound`.
fn first_component<'a>(key: &str, bound: &'a str) -> &'a str {
    let Some(rest) = bound.strip_prefix(key) else { return "" };
    rest.find('/').map_or(rest, |slash| &rest[..=slash])
}

/// The first component below `key` behind all that begin like a common prefix. `None` when that ends deeper or elsewhere.
fn behind_group(key: &str, group: &str) -> Option<String> {
    let rest = group.strip_prefix(key).filter(|rest| !rest.contains('/'))?;
    Some(format!("{rest}{}", char::MAX))
}

fn listed(tree: &Tree, key: &str, path: &Path) -> Option<ListedObject> {
    let file = tree.open(path).ok()?;
    let stat = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let object = meta::object(&stat, meta::read(tree, &file, &stat).as_ref());
    // A key that is too long, or of a kind that S3 can't have, can't be asked for either.
    forebay_types::ObjectKey::new(key).ok()?;
    Some(ListedObject {
        key: key.to_owned(),
        size: object.info.size,
        etag: object.info.etag,
        remote_etag: object.remote_etag,
        last_modified_ms: object.info.last_modified_ms,
        storage_class: object.info.headers.storage_class,
    })
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;

    use super::super::tree::Root;
    use super::*;

    /// However few names are held at once, a list is the same.
    #[test]
    fn a_page_takes_what_it_wants_of_a_large_directory() {
        let (env, _) = Env::simulated(7);
        let directory = tempfile::tempdir().unwrap();
        for name in ["a", "b", "a-b", "a.b", "c"] {
            for number in 0..7 {
                let parent = directory.path().join(format!("{name}-{number}"));
                std::fs::create_dir_all(parent.join("empty")).unwrap();
                std::fs::write(parent.join("1"), "").unwrap();
                std::fs::write(parent.join("2"), "").unwrap();
                std::fs::write(directory.path().join(format!("{name}{number}")), "").unwrap();
            }
        }
        let (tree, kept) = (Root::new(directory.path().to_owned(), None).open().unwrap(), Kept::default());
        let all = page(&env, &kept, &tree, &ListRequest { limit: 1000, ..ListRequest::default() }, usize::MAX).unwrap();
        assert_eq!(all.objects.len(), 5 * 7 * 3);
        let any = |of: &[&str]| of[env.random.below(of.len() as u64) as usize].to_owned();
        for _ in 0..300 {
            let mut request = ListRequest {
                prefix: any(&["", "", "a", "a-", "b-3", "b-3/", "a-b"]),
                delimiter: Some(any(&["", "/", "-", "1"])),
                start_after: None,
                limit: 1 + env.random.below(9) as usize,
                ..ListRequest::default()
            };
            loop {
                let expected = page(&env, &kept, &tree, &request, usize::MAX).unwrap();
                for held in [1, 2, 5] {
                    assert_eq!(
                        page(&env, &kept, &tree, &request, held).unwrap(),
                        expected,
                        "{request:?}, {held} at once"
                    );
                }
                let Some(next) = expected.next else { break };
                request.start_after = Some(next);
            }
        }
    }
}
