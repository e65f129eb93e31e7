//! What the home of keys knows of the copies of its writes at other workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_env::Env;
use forebay_env::sync::Mutex;

use super::CopyId;

/// A worker that could not take a copy is not asked again for so long.
const AVOIDED: Duration = Duration::from_secs(5);

/// What the home of keys knows of the copies that it has sent.
pub(crate) struct SentCopies {
    env: Env,
    /// Of writes that have not ended.
    undecided: Mutex<BTreeSet<CopyId>>,
    /// Workers that could not take a copy, and until when they are not asked again.
    avoided: Mutex<BTreeMap<String, Duration>>,
}

/// A write that has not ended.
pub(crate) struct Undecided {
    sent: Arc<SentCopies>,
    id: CopyId,
}

impl SentCopies {
    pub(crate) fn new(env: Env) -> Arc<Self> {
        Arc::new(Self { env, undecided: Mutex::default(), avoided: Mutex::default() })
    }

    pub(super) fn begin(self: &Arc<Self>, id: CopyId) -> Undecided {
        self.undecided.lock().insert(id.clone());
        Undecided { sent: Arc::clone(self), id }
    }

    pub(super) fn is_undecided(&self, id: &CopyId) -> bool {
        self.undecided.lock().contains(id)
    }

    pub(super) fn avoid(&self, worker: &str) {
        let until = self.env.clock.monotonic() + AVOIDED;
        self.avoided.lock().insert(worker.to_owned(), until);
    }

    pub(super) fn is_avoided(&self, worker: &str) -> bool {
        let now = self.env.clock.monotonic();
        self.avoided.lock().get(worker).is_some_and(|until| now < *until)
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        self.sent.undecided.lock().remove(&self.id);
    }
}
