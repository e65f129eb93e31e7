//! Lists a tree of files in the order of keys.

use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::paths::{Name, parse};
use super::tree::Tree;
use super::{Inner, OWN_DIRECTORY, failed, is_absent, meta};
use crate::grouping::Grouping;
use crate::{ListPage, ListRequest, ListedObject, Result};

/// A file or a directory on the way.
struct Item {
    /// The key so far; ends with `/` for a directory.
    key: String,
    path: PathBuf,
    is_directory: bool,
}

pub(super) fn list(inner: &Inner, request: &ListRequest) -> Result<ListPage> {
    let mut page = Grouping::new(request);
    walk(&inner.tree()?, Path::new(""), "", request, &mut page)?;
    Ok(page.finish())
}

/// Walks a directory whose keys begin with `key`. `false` when the page is full.
fn walk(tree: &Tree, directory: &Path, key: &str, request: &ListRequest, page: &mut Grouping<'_>) -> Result<bool> {
    let mut items = Vec::new();
    read_level(tree, directory, key, &mut items)?;
    items.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    for item in items {
        if item.is_directory {
            let leads_there = item.key.starts_with(&request.prefix) || request.prefix.starts_with(&item.key);
            let wanted = leads_there && !page.is_settled(&item.key);
            if wanted && !walk(tree, &item.path, &item.key, request, page)? {
                return Ok(false);
            }
        } else if page.wants(&item.key) {
            let Some(listed) = listed(tree, &item) else { continue };
            if !page.add(&item.key, || listed) {
                return Ok(false);
            }
        }
        // A walk deep inside one common prefix is over as soon as that is on the page.
        if !key.is_empty() && page.is_settled(key) {
            return Ok(true);
        }
    }
    Ok(true)
}

/// The names of a directory, and those of the directories that continue long components.
fn read_level(tree: &Tree, directory: &Path, key: &str, items: &mut Vec<Item>) -> Result<()> {
    let entries = match tree.list(directory) {
        Ok(entries) => entries,
        // Removed, or replaced by something else, while the walk was on its way.
        Err(error) if is_absent(&error) && !directory.as_os_str().is_empty() => return Ok(()),
        Err(error) => return Err(failed("list a directory", error)),
    };
    for (name, kind) in entries {
        let Some(name) = String::from_utf8(name).ok().filter(|name| name != OWN_DIRECTORY) else { continue };
        let path = directory.join(&name);
        match (parse(&name), kind) {
            (Some(Name::Piece(piece)), FileType::Directory) => {
                read_level(tree, &path, &format!("{key}{piece}"), items)?;
            }
            (Some(Name::Whole(component)), FileType::Directory) => {
                items.push(Item { key: format!("{key}{component}/"), path, is_directory: true });
            }
            (Some(Name::Whole(component)), FileType::RegularFile) => {
                items.push(Item { key: format!("{key}{component}"), path, is_directory: false });
            }
            // Links, devices, and names that no key makes are not objects.
            (Some(_) | None, _) => {}
        }
    }
    Ok(())
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
