//! Who wants to hear of changes to a key.

use std::collections::HashMap;

use bytes::Bytes;
use forebay_env::sync::Mutex;
use tokio::sync::watch::Sender;

use crate::{Versioned, Watch};

#[derive(Default)]
pub struct Watchers {
    senders: Mutex<HashMap<Bytes, Sender<Option<Versioned>>>>,
}

impl Watchers {
    /// Begins to watch `key`. `current` reads its value; it is called when no change can be missed any more.
    pub fn watch(&self, key: &[u8], current: impl FnOnce() -> Option<Versioned>) -> Watch {
        let mut senders = self.senders.lock();
        senders.retain(|_, sender| sender.receiver_count() > 0);
        match senders.get(key) {
            Some(sender) => sender.subscribe(),
            None => {
                let (sender, watch) = tokio::sync::watch::channel(current());
                senders.insert(Bytes::copy_from_slice(key), sender);
                watch
            }
        }
    }

    /// Tells that `key` has changed. Called once readers see the change, and before another change of the key begins.
    pub fn changed(&self, key: &[u8], current: impl FnOnce() -> Option<Versioned>) {
        if let Some(sender) = self.senders.lock().get(key) {
            sender.send_replace(current());
        }
    }
}
