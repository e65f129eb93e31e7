//! Lists a tree of files in the order of keys.

use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::paths::{Name, parse};
use super::tree::Tree;
use super::{Inner, OWN_DIRECTORY, failed, is_absent, meta};
use crate::grouping::Grouping;
use crate::{ListPage, ListRequest, ListedObject, Result};

/// Names of one directory that are held at once, at first. When the page needs more, the directory is read again, with twice the room.
const HELD_MIN: usize = 4096;

/// A file or a directory on the way. They sort by their keys.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    /// The key so far; ends with `/` for a directory.
    key: String,
    path: PathBuf,
    is_directory: bool,
}

/// A page of a list on its way through a tree.
struct Walk<'a> {
    tree: &'a Tree,
    request: &'a ListRequest,
    page: Grouping<'a>,
    held_min: usize,
}

/// The first names of a directory that a page wants. A directory may have millions, and a page takes a thousand.
struct Level {
    /// Only names behind this one.
    after: Option<String>,
    held_max: usize,
    /// The last one is on top.
    held: BinaryHeap<Item>,
    /// Whether there are more than are held.
    is_cut: bool,
}

pub(super) fn list(inner: &Inner, request: &ListRequest) -> Result<ListPage> {
    page(&inner.tree()?, request, HELD_MIN)
}

fn page(tree: &Tree, request: &ListRequest, held_min: usize) -> Result<ListPage> {
    let mut walk = Walk { tree, request, page: Grouping::new(request), held_min };
    walk.directory(Path::new(""), "")?;
    Ok(walk.page.finish())
}

impl Walk<'_> {
    /// Walks a directory whose keys begin with `key`. `false` when the page is full.
    fn directory(&mut self, directory: &Path, key: &str) -> Result<bool> {
        let mut level = Level { after: None, held_max: self.held_min, held: BinaryHeap::new(), is_cut: false };
        loop {
            self.read_level(directory, key, &mut level)?;
            let (is_cut, mut items) = (level.is_cut, level.held.into_sorted_vec());
            // Others may have made two names of one key; the plain one comes first.
            items.dedup_by(|next, one| next.key == one.key);
            let after = items.last().map(|item| item.key.clone());
            for item in items {
                if item.is_directory {
                    if self.wants_directory(&item.key) && !self.directory(&item.path, &item.key)? {
                        return Ok(false);
                    }
                } else if self.page.wants(&item.key) {
                    let Some(listed) = listed(self.tree, &item) else { continue };
                    if !self.page.add(&item.key, || listed) {
                        return Ok(false);
                    }
                }
                // A walk deep inside one common prefix is over as soon as that is on the page.
                if !key.is_empty() && self.page.is_settled(key) {
                    return Ok(true);
                }
            }
            if !is_cut {
                return Ok(true);
            }
            level = Level { after, held_max: level.held_max * 2, held: BinaryHeap::new(), is_cut: false };
        }
    }

    fn wants_directory(&self, key: &str) -> bool {
        let leads_there = key.starts_with(&self.request.prefix) || self.request.prefix.starts_with(key);
        leads_there && !self.page.is_settled(key)
    }

    /// Takes the names of a directory, and those of the directories that continue long components.
    fn read_level(&self, directory: &Path, key: &str, level: &mut Level) -> Result<()> {
        let entries = match self.tree.entries(directory) {
            Ok(entries) => entries,
            // Removed, or replaced by something else, while the walk was on its way.
            Err(error) if is_absent(&error) && !directory.as_os_str().is_empty() => return Ok(()),
            Err(error) => return Err(failed("list a directory", error)),
        };
        for entry in entries {
            let (name, kind) = entry.map_err(|error| failed("list a directory", error))?;
            let Some(name) = String::from_utf8(name).ok().filter(|name| name != OWN_DIRECTORY) else { continue };
            match (parse(&name), kind) {
                (Some(Name::Piece(piece)), FileType::Directory) => {
                    self.read_level(&directory.join(&name), &format!("{key}{piece}"), level)?;
                }
                (Some(Name::Whole(component)), FileType::Directory) => {
                    let key = format!("{key}{component}/");
                    if self.wants_directory(&key) {
                        level.take(key, || directory.join(&name), true);
                    }
                }
                (Some(Name::Whole(component)), FileType::RegularFile) => {
                    let key = format!("{key}{component}");
                    if self.page.wants(&key) {
                        level.take(key, || directory.join(&name), false);
                    }
                }
                // Links, devices, and names that no key makes are not objects.
                (Some(_) | None, _) => {}
            }
        }
        Ok(())
    }
}

impl Level {
    fn take(&mut self, key: String, path: impl FnOnce() -> PathBuf, is_directory: bool) {
        if self.after.as_ref().is_some_and(|after| key <= *after) {
            return;
        }
        if self.held.len() >= self.held_max {
            self.is_cut = true;
            if self.held.peek().is_some_and(|last| last.key < key) {
                return;
            }
            self.held.pop();
        }
        self.held.push(Item { key, path: path(), is_directory });
    }
}

fn listed(tree: &Tree, item: &Item) -> Option<ListedObject> {
    let file = tree.open(&item.path).ok()?;
    let stat = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let object = meta::object(&stat, meta::read(tree, &file, &stat).as_ref());
    // A key that is too long, or of a kind that S3 can't have, can't be asked for either.
    forebay_types::ObjectKey::new(&item.key).ok()?;
    Some(ListedObject {
        key: item.key.clone(),
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

    #[test]
    fn no_more_names_are_held_than_wanted() {
        let mut level = Level { after: Some("a".to_owned()), held_max: 3, held: BinaryHeap::new(), is_cut: false };
        for key in ["f", "a", "c", "e", "b", "d"] {
            level.take(key.to_owned(), PathBuf::new, false);
            assert!(level.held.len() <= 3);
        }
        let keys: Vec<_> = level.held.into_sorted_vec().into_iter().map(|item| item.key).collect();
        assert_eq!((keys.join(""), level.is_cut), ("bcd".to_owned(), true));
    }

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
        let tree = Root::new(directory.path().to_owned(), None).open().unwrap();
        let all = page(&tree, &ListRequest { limit: 1000, ..ListRequest::default() }, usize::MAX).unwrap();
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
                let expected = page(&tree, &request, usize::MAX).unwrap();
                for held in [1, 2, 5] {
                    assert_eq!(page(&tree, &request, held).unwrap(), expected, "{request:?}, {held} at once");
                }
                let Some(next) = expected.next else { break };
                request.start_after = Some(next);
            }
        }
    }
}
