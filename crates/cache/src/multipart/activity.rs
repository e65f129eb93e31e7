//! The time of the last activity of each multipart upload, on the monotonic clock. Kept in memory: for this process, an
//! upload begins when the process first sees it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use forebay_env::Env;
use forebay_env::sync::Mutex;

/// By upload ID.
pub(crate) struct Activity {
    env: Env,
    last: Arc<Mutex<HashMap<String, Last>>>,
}

struct Last {
    at: Duration,
    /// Requests in flight.
    running: usize,
}

/// A request for an upload, from its first byte to its commit.
pub(crate) struct Active {
    env: Env,
    last: Arc<Mutex<HashMap<String, Last>>>,
    upload_id: String,
}

impl Activity {
    pub(crate) fn new(env: Env) -> Self {
        Self { env, last: Arc::default() }
    }

    pub(crate) fn begin(&self, upload_id: &str) -> Active {
        let mut last = self.last.lock();
        let at = self.env.clock.monotonic();
        last.entry(upload_id.to_owned()).or_insert(Last { at, running: 0 }).running += 1;
        Active { env: self.env.clone(), last: Arc::clone(&self.last), upload_id: upload_id.to_owned() }
    }

    /// How long the upload has been idle, counted from the first call for it at the earliest.
    pub(crate) fn idle_for(&self, upload_id: &str) -> Duration {
        let mut last = self.last.lock();
        // Read after the lock is taken, because its last holder may have set a later time.
        let now = self.env.clock.monotonic();
        let entry = last.entry(upload_id.to_owned()).or_insert(Last { at: now, running: 0 });
        if entry.running > 0 { Duration::ZERO } else { now - entry.at }
    }

    /// Forgets an upload, unless a request for it is in flight: its slot is lost or gained, and another home may have
    /// taken parts of it.
    pub(crate) fn forget(&self, upload_id: &str) {
        let mut last = self.last.lock();
        if last.get(upload_id).is_some_and(|last| last.running == 0) {
            last.remove(upload_id);
        }
    }

    /// Forgets all uploads except these and those with requests in flight.
    pub(crate) fn retain(&self, uploads: &HashSet<String>) {
        self.last.lock().retain(|upload_id, last| last.running > 0 || uploads.contains(upload_id));
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        if let Some(last) = self.last.lock().get_mut(&self.upload_id) {
            last.running -= 1;
            last.at = self.env.clock.monotonic();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_idle_while_nothing_is_under_way() {
        let (env, clock) = Env::simulated(1);
        let activity = Activity::new(env);
        let hour = Duration::from_secs(3600);
        assert_eq!(activity.idle_for("id"), Duration::ZERO, "first seen now");
        clock.advance(hour);
        assert_eq!(activity.idle_for("id"), hour);
        let active = activity.begin("id");
        clock.advance(hour);
        assert_eq!(activity.idle_for("id"), Duration::ZERO);
        drop(active);
        clock.advance(hour);
        assert_eq!(activity.idle_for("id"), hour);
        activity.retain(&HashSet::new());
        assert_eq!(activity.idle_for("id"), Duration::ZERO);
    }

    #[test]
    fn an_upload_that_something_is_done_for_is_not_forgotten() {
        let (env, clock) = Env::simulated(1);
        let activity = Activity::new(env);
        let active = activity.begin("id");
        activity.retain(&HashSet::new());
        for _ in 0..2 {
            assert_eq!(activity.idle_for("id"), Duration::ZERO);
            clock.advance(Duration::from_secs(3600));
        }
        drop(active);
        assert_eq!(activity.idle_for("id"), Duration::ZERO, "it has ended just now");
    }
}
