//! Trees of files, which neither client moves by itself.

use std::io;
use std::path::{Path, PathBuf};

use futures::{StreamExt, TryStreamExt, stream};

const FILES_AT_ONCE: usize = 8;

/// All files below a directory, with their names relative to it.
pub(crate) fn files_below(directory: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(next)? {
            let path = entry?.path();
            if path.is_dir() {
                left.push(path);
            } else {
                let name = path
                    .strip_prefix(directory)
                    .expect("the path is below the directory")
                    .to_string_lossy()
                    .into_owned();
                found.push((name, path));
            }
        }
    }
    Ok(found)
}

/// Creates the directories that a file lies in.
pub(crate) fn make_room_for(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path.parent().expect("a file lies in a directory"))
}

/// Does something with each item, with several at a time.
pub(crate) async fn several_at_once<T, E>(items: Vec<T>, work: impl AsyncFn(T) -> Result<(), E>) -> Result<(), E> {
    stream::iter(items).map(|item| work(item)).buffer_unordered(FILES_AT_ONCE).try_collect().await
}
