//! Lists a tree of files in the order of keys.

use std::path::Path;

use forebay_env::Env;

use super::meta;
use super::names::Kept;
use super::tree::Tree;
use crate::grouping::Grouping;
use crate::{ListPage, ListRequest, ListedObject, Result};

/// Most names of one directory that are held at once, at first. When the page needs more, the directory is read again
/// with twice the room.
const HELD_MIN: usize = 4096;

/// The walk through a tree for one page of a list.
struct Walk<'a> {
    env: &'a Env,
    kept: &'a Kept,
    tree: &'a Tree,
    page: Grouping<'a>,
    held_min: usize,
}

pub(super) fn list(env: &Env, kept: &Kept, tree: &Tree, request: &ListRequest) -> Result<ListPage> {
    page(env, kept, tree, request, HELD_MIN)
}

fn page(env: &Env, kept: &Kept, tree: &Tree, request: &ListRequest, held_min: usize) -> Result<ListPage> {
    let mut walk = Walk { env, kept, tree, page: Grouping::new(request), held_min };
    walk.directory(Path::new(""), "")?;
    Ok(walk.page.finish())
}

impl Walk<'_> {
    /// Walks a directory whose keys begin with `key`. `false` when the page is full.
    fn directory(&mut self, directory: &Path, key: &str) -> Result<bool> {
        let mut max = self.held_min;
        let mut from = self.page.first_wanted(key);
        loop {
            if let Some(beyond) = self.page.behind_settled(key) {
                from = from.max(beyond);
            }
            let Some(names) = self.kept.names(self.env, self.tree, directory, &from, max)? else { return Ok(true) };
            for entry in names.entries_from(&from) {
                let below = format!("{key}{}", entry.component);
                if self.page.is_behind(&below) {
                    return Ok(true);
                }
                if entry.is_directory() {
                    if self.page.wants_below(&below) && !self.directory(&directory.join(entry.path()), &below)? {
                        return Ok(false);
                    }
                } else if self.page.wants(&below) {
                    let Some(listed) = listed(self.tree, &below, &directory.join(entry.path())) else { continue };
                    if !self.page.add(&below, || listed) {
                        return Ok(false);
                    }
                }
                // Inside a common prefix, the walk is over as soon as the prefix is on the page.
                if !key.is_empty() && self.page.is_settled(key) {
                    return Ok(true);
                }
            }
            if !names.is_cut {
                return Ok(true);
            }
            // A kept stretch has more names than the page asked for.
            max *= if names.len() <= max { 2 } else { 1 };
            from = names.end();
        }
    }
}

fn listed(tree: &Tree, key: &str, path: &Path) -> Option<ListedObject> {
    let file = tree.open(path).ok()?;
    let stat = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let object = meta::object(&stat, meta::read(tree, &file, &stat).as_ref());
    // A key that is too long, or that S3 can't have, can't be requested either.
    forebay_types::ObjectKey::new(key).ok()?;
    Some(ListedObject {
        key: key.to_owned(),
        size: object.info.size,
        checksums: object.info.checksums.names(),
        etag: object.info.etag,
        remote_etag: object.remote_etag,
        last_modified_ms: object.info.last_modified_ms,
        storage_class: object.info.headers.storage_class,
    })
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;

    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::super::paths::make_location;
    use super::super::tree::Root;
    use super::*;

    /// The listing of these keys, made without a directory: names of objects and common prefixes, and whether more
    /// follow.
    fn expected(keys: &BTreeSet<String>, request: &ListRequest) -> (Vec<String>, Option<String>) {
        let mut page = Grouping::new(request);
        for key in keys {
            let etag = forebay_types::ETag::from_parts([0; 16], 0);
            let listed = || ListedObject {
                key: key.clone(),
                size: 0,
                etag: etag.clone(),
                remote_etag: etag.clone(),
                last_modified_ms: 0,
                storage_class: None,
                checksums: None,
            };
            if page.wants(key) && !page.add(key, listed) {
                break;
            }
        }
        names(page.finish())
    }

    fn names(page: ListPage) -> (Vec<String>, Option<String>) {
        let keys = page.objects.into_iter().map(|object| object.key);
        (keys.chain(page.prefixes).collect(), page.next)
    }

    /// However few names are held at once, and wherever a kept stretch begins and ends, a list shows exactly the keys.
    #[test]
    fn a_page_takes_what_it_wants_of_a_large_directory() {
        let (env, clock) = Env::simulated(7);
        let directory = tempfile::tempdir().unwrap();
        let tree = Root::new(directory.path().to_owned()).open().unwrap();
        let long = "l".repeat(300);
        let mut keys = BTreeSet::new();
        for name in ["a", "b", "a-b", "a.b", "c", "%", ".", "", "x/", &long, &format!("{long}-")] {
            for number in 0..7 {
                for key in [format!("{name}{number}"), format!("{name}-{number}/1"), format!("{name}-{number}//2")] {
                    keys.insert(key);
                }
            }
        }
        // Files next to directories of the same name.
        keys.extend(["a-3".to_owned(), "b-3".to_owned(), format!("{long}-3")]);
        for key in &keys {
            let location = make_location(&tree, key).unwrap();
            std::fs::write(directory.path().join(location.path), "").unwrap();
        }
        // Two names for one key.
        std::fs::write(directory.path().join("c1%@"), "").unwrap();
        std::fs::create_dir(directory.path().join("empty")).unwrap();
        let any = |of: &[&str]| of[env.random.below(of.len() as u64) as usize].to_owned();
        let ways =
            [(1, Kept::default()), (5, Kept::default()), (2, Kept::for_tests(1, 3)), (5, Kept::for_tests(9, 20))];
        for _ in 0..400 {
            let mut request = ListRequest {
                prefix: any(&["", "", "a", "a-", "b-3", "b-3/", "a-b", "%", "x", "x/", "l", &long, "none"]),
                delimiter: Some(any(&["", "/", "-", "1"])),
                start_after: Some(any(&["", "", "a-3", "a-3/", "b-3/1", "a-", &long, "x/-2//", "zz"])),
                limit: 1 + env.random.below(9) as usize,
                ..ListRequest::default()
            };
            loop {
                let expected = expected(&keys, &request);
                for (held, kept) in &ways {
                    let page = page(&env, kept, &tree, &request, *held).unwrap();
                    assert_eq!(names(page), expected, "{request:?}, {held} at once");
                }
                clock.advance(Duration::from_secs(3));
                let Some(next) = expected.1 else { break };
                request.start_after = Some(next);
            }
        }
    }
}
