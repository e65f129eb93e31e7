//! Removes files that writers have left behind when they were interrupted.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;

use super::paths;
use super::remote::{Remote, Status};
use crate::{ErrorKind, Result};

/// The names of the temporary files that this process is writing.
#[derive(Default)]
pub(super) struct Writing(Mutex<HashSet<String>>);

/// A name, until it is dropped.
pub(super) struct Written<'a> {
    writing: &'a Writing,
    pub(super) name: String,
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        self.writing.0.lock().remove(&self.name);
    }
}

impl Writing {
    pub(super) fn begin(&self, name: String) -> Written<'_> {
        self.0.lock().insert(name.clone());
        Written { writing: self, name }
    }

    fn has(&self, name: &str) -> bool {
        self.0.lock().contains(name)
    }
}

/// A directory on the way. Of each, one page is held.
struct Level {
    path: String,
    after: Vec<u8>,
    is_last: bool,
    /// Directories of the page that are not swept yet.
    below: Vec<String>,
    removed: u64,
}

impl Level {
    fn new(path: String) -> Self {
        Self { path, after: Vec::new(), is_last: false, below: Vec::new(), removed: 0 }
    }
}

/// Returns how many files were removed from all directories below `base`.
pub(super) async fn sweep(remote: &Remote, writing: &Writing, base: &str, now_ms: u64, age: Duration) -> Result<u64> {
    let oldest_ms = now_ms.saturating_sub(age.as_millis() as u64);
    let is_left = |status: &Status| {
        let modified_ms = status.identity.modified_ns / 1_000_000;
        let is_file = !status.is_directory && paths::is_temporary(&status.name);
        is_file && modified_ms < i128::from(oldest_ms) && !writing.has(&status.name)
    };
    let (mut removed, mut levels) = (0, vec![Level::new(base.to_owned())]);
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.below.pop() {
            let path = paths::join(&level.path, &name);
            levels.push(Level::new(path));
        } else if level.is_last {
            removed += level.removed;
            let (path, has_removed) = (level.path.clone(), level.removed > 0);
            levels.pop();
            if has_removed && !levels.is_empty() {
                remove_empty(remote, base, &path).await;
            }
        } else {
            // Gone means swept.
            let page = unless_denied(remote.page(&level.path, &level.after).await, &level.path)?.flatten();
            let entries = page.as_ref().map_or(&[][..], |page| &page.entries);
            level.is_last = entries.is_empty() || page.as_ref().is_none_or(|page| page.is_last);
            level.after = entries.last().map(|last| last.name.clone().into_bytes()).unwrap_or_default();
            level.below = entries.iter().filter(|entry| entry.is_directory).map(|entry| entry.name.clone()).collect();
            for left in entries.iter().filter(|entry| is_left(entry)) {
                // By name: a file that its writer puts into place meanwhile is an object, and keeps its number.
                let path = paths::join(&level.path, &left.name);
                let is_removed = unless_denied(remote.delete(&path).await, &path)?;
                level.removed += u64::from(is_removed == Some(true));
            }
        }
    }
    Ok(removed)
}

/// `None` when the HDFS user may not do this. What others keep from it must not end a sweep of all the rest.
fn unless_denied<T>(done: Result<T>, path: &str) -> Result<Option<T>> {
    match done {
        Err(error) if error.kind == ErrorKind::Denied => {
            tracing::info!(%error, path, "a sweep for leftovers has passed over a part of HDFS");
            Ok(None)
        }
        done => done.map(Some),
    }
}

/// Removes a directory if it is empty, and then those above it, up to the mount's own.
pub(super) async fn remove_empty(remote: &Remote, base: &str, path: &str) {
    let mut path = path;
    while path.len() > base.len() && remove_directory(remote, path).await.is_ok_and(|is_removed| is_removed) {
        let Some(above) = paths::parent(path) else { return };
        path = above;
    }
}

/// By number: a file that has taken the name meanwhile is an object.
pub(super) async fn remove_directory(remote: &Remote, path: &str) -> Result<bool> {
    match remote.status(path).await?.filter(|status| status.is_directory) {
        Some(directory) => remote.delete(&directory.path()).await,
        None => Ok(false),
    }
}
