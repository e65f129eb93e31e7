//! Lists a tree of files in the order of keys.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use forebay_env::Env;
use forebay_types::ObjectKey;
use forebay_types::limits::KEY_BYTES_MAX;

use super::errors::{failed, is_absent};
use super::meta;
use super::names::{Kept, Merge};
use super::opened::open_object;
use super::paths::Moves;
use super::tree::Tree;
use crate::grouping::Grouping;
use crate::{ListPage, ListRequest, ListedObject, RemoteObject, Result};

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

pub(super) fn list(env: &Env, kept: &Kept, moves: &Moves, tree: &Tree, request: &ListRequest) -> Result<ListPage> {
    moves.without(|| page(env, kept, tree, request, HELD_MIN))
}

fn page(env: &Env, kept: &Kept, tree: &Tree, request: &ListRequest, held_min: usize) -> Result<ListPage> {
    let mut walk = Walk { env, kept, tree, page: Grouping::new(request), held_min };
    walk.directories(&[PathBuf::new()], "")?;
    Ok(walk.page.finish())
}

impl Walk<'_> {
    /// Walks the directories whose keys begin with `key`. Usually it is one: others may have made a second one, under
    /// another name. `false` when the page is full.
    fn directories(&mut self, directories: &[PathBuf], key: &str) -> Result<bool> {
        let mut max = self.held_min;
        let mut from = self.page.first_wanted(key);
        loop {
            if let Some(beyond) = self.page.behind_settled(key) {
                from = from.max(beyond);
            }
            let mut read = Vec::with_capacity(directories.len());
            for directory in directories {
                let names = self.kept.names(self.env, self.tree, directory, &from, max)?;
                read.extend(names.map(|names| (directory.as_path(), names)));
            }
            // What follows is not known of all of them.
            let cut = read.iter().filter(|(_, names)| names.is_cut);
            let end = cut.clone().map(|(_, names)| names.end()).min();
            let may_be_short = cut.clone().any(|(_, names)| names.len() <= max);
            let (mut names, mut found) = (Merge::new(&read, &from), Vec::new());
            while let Some(component) = names.next(&mut found) {
                if end.as_deref().is_some_and(|end| component >= end) {
                    break;
                }
                let below = format!("{key}{component}");
                if self.page.is_behind(&below) {
                    return Ok(true);
                }
                let mut paths = found.iter().map(|(directory, entry)| directory.join(entry.path()));
                if component.ends_with('/') {
                    // No key is longer, and the path of a deeper directory may be too long to be opened.
                    let may_have_keys = below.len() <= KEY_BYTES_MAX && self.page.wants_below(&below);
                    if may_have_keys && !self.directories(&paths.collect::<Vec<_>>(), &below)? {
                        return Ok(false);
                    }
                } else if self.page.wants(&below) {
                    let Some(path) = paths.next() else { continue };
                    let Some(listed) = listed(self.tree, &below, &path)? else { continue };
                    if !self.page.add(&below, || listed) {
                        return Ok(false);
                    }
                }
                // Inside a common prefix, the walk is over as soon as the prefix is on the page.
                if !key.is_empty() && self.page.is_settled(key) {
                    return Ok(true);
                }
            }
            let Some(end) = end else { return Ok(true) };
            // A kept stretch has more names than the page asked for.
            max *= if may_be_short { 2 } else { 1 };
            from = end;
        }
    }
}

/// The object of a key whose file had this name when its directory was read. `None` when it is gone.
fn listed(tree: &Tree, key: &str, path: &Path) -> Result<Option<ListedObject>> {
    // A key that is too long, or that S3 can't have, can't be requested either. Its path may be too long to be opened.
    if ObjectKey::new(key).is_err() {
        return Ok(None);
    }
    let object = match object_at(tree, key, path, tree.open(path))? {
        Some(object) => object,
        // Another worker, whose moves are not counted here, may have renamed the file.
        None => match open_object(tree, key)? {
            Some(opened) => opened.object,
            None => return Ok(None),
        },
    };
    Ok(Some(ListedObject {
        key: key.to_owned(),
        size: object.info.size,
        checksums: object.info.checksums.names(),
        etag: object.info.etag,
        remote_etag: object.remote_etag,
        last_modified_ms: object.info.last_modified_ms,
        storage_class: object.info.headers.storage_class,
    }))
}

/// The object of a file. `None` when the file is gone, or something else has taken its place.
fn object_at(tree: &Tree, key: &str, path: &Path, opened: io::Result<File>) -> Result<Option<RemoteObject>> {
    let (stat, file) = match opened {
        Ok(file) => (file.metadata(), Some(file)),
        Err(error) if is_absent(&error) => return Ok(None),
        // It exists, as far as clients are concerned: reads of it are refused, and do not end with 404.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => (tree.metadata(path), None),
        Err(error) => return Err(failed("open a file", error)),
    };
    let stat = match stat {
        Err(error) if is_absent(&error) => return Ok(None),
        stat => stat.map_err(|error| failed("look at a file", error))?,
    };
    if !stat.is_file() {
        return Ok(None);
    }
    let meta = match &file {
        Some(file) => meta::read(tree, key, file, &stat)?,
        None => None,
    };
    Ok(Some(meta::object(&stat, meta.as_ref())))
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;

    use std::collections::BTreeSet;
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::io::Errno;

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
            let location = make_location(&tree, &Moves::default(), key).unwrap();
            std::fs::write(directory.path().join(location.path), "").unwrap();
        }
        // Two names for one key.
        std::fs::write(directory.path().join("c1%@"), "").unwrap();
        // What other programs call so, in a directory beside ours.
        std::fs::create_dir(directory.path().join("b%d")).unwrap();
        for number in 0..7 {
            let (theirs, ours) = (format!("b%d/{number}"), format!("b%d/{}", 2 * number));
            std::fs::write(directory.path().join(&theirs), "").unwrap();
            let location = make_location(&tree, &Moves::default(), &ours).unwrap();
            std::fs::write(directory.path().join(location.path), "").unwrap();
            keys.extend([theirs, ours]);
        }
        std::fs::create_dir(directory.path().join("empty")).unwrap();
        let any = |of: &[&str]| of[env.random.below(of.len() as u64) as usize].to_owned();
        let ways =
            [(1, Kept::default()), (5, Kept::default()), (2, Kept::for_tests(1, 3)), (5, Kept::for_tests(9, 20))];
        for _ in 0..400 {
            let mut request = ListRequest {
                prefix: any(&[
                    "", "", "a", "a-", "b-3", "b-3/", "a-b", "%", "b%", "b%d/", "x", "x/", "l", &long, "none",
                ]),
                delimiter: Some(any(&["", "/", "-", "1"])),
                start_after: Some(any(&["", "", "a-3", "a-3/", "b%d/3", "b-3/1", "a-", &long, "x/-2//", "zz"])),
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

    /// The names are read first, and the files are opened after that.
    #[test]
    fn objects_are_listed_while_their_files_make_way_for_directories() {
        let (env, _) = Env::simulated(7);
        let directory = tempfile::tempdir().unwrap();
        let tree = &Root::new(directory.path().to_owned()).open().unwrap();
        let (kept, moves) = (Kept::default(), &Moves::default());
        let keys: &Vec<_> = &(0..1000).map(|number| format!("k{number:03}")).collect();
        for key in keys {
            std::fs::write(directory.path().join(key), "").unwrap();
        }
        let request = ListRequest { limit: keys.len(), ..ListRequest::default() };
        std::thread::scope(|scope| {
            let (begin, begun) = mpsc::channel();
            scope.spawn(move || {
                // Some with each listing, those first that it opens last.
                for some in keys.rchunks(50) {
                    let Ok(()) = begun.recv() else { return };
                    for key in some {
                        make_location(tree, moves, &format!("{key}/x")).unwrap();
                    }
                }
            });
            while begin.send(()).is_ok() {
                let page = list(&env, &kept, moves, tree, &request).unwrap();
                assert_eq!(names(page), (keys.clone(), None));
            }
        });
    }

    #[test]
    fn only_a_file_that_is_gone_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "four").unwrap();
        let tree = Root::new(directory.path().to_owned()).open().unwrap();
        let found = |error: Errno| {
            let object = object_at(&tree, "file", Path::new("file"), Err(error.into()));
            object.map(|object| object.map(|object| object.info.size)).map_err(|error| error.kind)
        };
        for error in [Errno::NOENT, Errno::NOTDIR, Errno::ISDIR, Errno::LOOP] {
            assert_eq!(found(error), Ok(None), "{error}");
        }
        for error in [Errno::MFILE, Errno::NFILE, Errno::IO, Errno::NOMEM, Errno::STALE] {
            assert_eq!(found(error), Err(crate::ErrorKind::Unavailable), "{error}");
        }
        assert_eq!(found(Errno::ACCESS), Ok(Some(4)), "a file that may not be read");
    }
}
