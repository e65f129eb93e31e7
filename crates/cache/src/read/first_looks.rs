//! First looks at keys that have no copy: whoever comes while one is under way waits for what it brings, instead of asking the under
//! store for the same.

use std::collections::HashMap;

use forebay_env::sync::Mutex;
use forebay_types::ObjectPath;
use futures::FutureExt;
use futures::future::Shared;
use tokio::sync::oneshot;

#[derive(Default)]
pub(crate) struct FirstLooks {
    under_way: Mutex<HashMap<ObjectPath, Shared<oneshot::Receiver<()>>>>,
}

/// What becomes of somebody who would look.
pub(crate) enum Look<'a> {
    Mine(FirstLook<'a>),
    /// Ends with the look of somebody else, with an error if that was given up.
    Theirs(Shared<oneshot::Receiver<()>>),
}

/// A look under way. Dropped, it is given up, and the next one who comes or waits is the first.
pub(crate) struct FirstLook<'a> {
    looks: &'a FirstLooks,
    path: &'a ObjectPath,
    ended: Option<oneshot::Sender<()>>,
}

impl FirstLooks {
    pub(crate) fn begin<'a>(&'a self, path: &'a ObjectPath) -> Look<'a> {
        let mut under_way = self.under_way.lock();
        if let Some(theirs) = under_way.get(path) {
            return Look::Theirs(theirs.clone());
        }
        let (ended, theirs) = oneshot::channel();
        under_way.insert(path.clone(), theirs.shared());
        Look::Mine(FirstLook { looks: self, path, ended: Some(ended) })
    }
}

impl FirstLook<'_> {
    /// There is a copy now, or there is nothing to be had by waiting.
    pub(crate) fn end(mut self) {
        let ended = self.ended.take();
        drop(self);
        // Nobody may be waiting.
        let _ = ended.map(|ended| ended.send(()));
    }
}

impl Drop for FirstLook<'_> {
    fn drop(&mut self) {
        self.looks.under_way.lock().remove(self.path);
    }
}
