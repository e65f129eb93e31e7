//! Commits without an answer, which nothing that comes after them knows of.
//!
//! A commit whose sync fails got no answer and does not show, but its bytes may be in the file. After a restart it must not
//! stand between later commits, which were made as if it were not there. So each other log says that it is void before it says
//! anything else: whoever finds the later commits has found that, too.

use forebay_env::sync::Mutex;

use crate::record::void::VoidBody;

/// What is void since the start, shared by all logs.
#[derive(Default)]
pub(crate) struct Voids {
    known: Mutex<Vec<VoidBody>>,
}

impl Voids {
    pub(crate) fn add(&self, voids: impl IntoIterator<Item = VoidBody>) {
        self.known.lock().extend(voids);
    }

    pub(crate) fn count(&self) -> usize {
        self.known.lock().len()
    }

    /// All but the first `count`.
    pub(crate) fn since(&self, count: usize) -> Vec<VoidBody> {
        self.known.lock()[count..].to_vec()
    }
}
