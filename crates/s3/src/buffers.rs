//! What requests hold of bodies that can only be believed, or read, as a whole: documents, and chunks with a signature.
//! All of them share one budget, so that many that come slowly do not fill the memory. Of what is left, one access key
//! leaves some to others.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_auth::User;
use parking_lot::Mutex;

use crate::s3s_fixes::BodyError;

/// For all requests together.
const BYTES_MAX: usize = 128 << 20;
/// What a request may hold beside: no more than its connection buffers. Most documents are smaller, and the chunks of
/// SDKs are as large.
const FREE_BYTES: usize = 64 << 10;
/// A key has at most this many times what it leaves, as with connections and pinned space.
const SHARE: usize = 15;

/// Shared by clones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    bytes: usize,
    /// By access key; those that hold nothing are not in it.
    by_key: HashMap<String, usize>,
}

/// What one request holds, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    buffers: Buffers,
    /// Empty until the first byte is taken, and for who has none.
    access_key: String,
    bytes: usize,
}

impl Buffers {
    pub(crate) fn begin(&self) -> Held {
        Held { buffers: self.clone(), access_key: String::new(), bytes: 0 }
    }
}

impl Taken {
    fn add(&mut self, access_key: &str, bytes: usize) -> Result<(), BodyError> {
        let of_key = self.by_key.get(access_key).map_or(bytes, |held| held + bytes);
        let left = BYTES_MAX.checked_sub(self.bytes + bytes).ok_or(BodyError::Busy)?;
        if of_key > SHARE * left {
            return Err(BodyError::Busy);
        }
        self.bytes += bytes;
        match self.by_key.get_mut(access_key) {
            Some(held) => *held = of_key,
            None => {
                self.by_key.insert(access_key.to_owned(), of_key);
            }
        }
        Ok(())
    }

    fn remove(&mut self, access_key: &str, bytes: usize) {
        self.bytes -= bytes;
        let held = self.by_key.get_mut(access_key).expect("who holds something is in the table");
        *held -= bytes;
        if *held == 0 {
            self.by_key.remove(access_key);
        }
    }
}

impl Held {
    /// The request of `requester` is about to hold `bytes` bytes.
    ///
    /// # Errors
    /// `Busy` when others have what it would take, or its access key has its share.
    pub(crate) fn set(&mut self, requester: Option<&Arc<User>>, bytes: usize) -> Result<(), BodyError> {
        let wanted = bytes.saturating_sub(FREE_BYTES);
        if wanted > self.bytes {
            if self.bytes == 0
                && let Some(user) = requester
            {
                self.access_key.clone_from(&user.access_key);
            }
            self.buffers.0.lock().add(&self.access_key, wanted - self.bytes)?;
        }
        if wanted < self.bytes {
            self.buffers.0.lock().remove(&self.access_key, self.bytes - wanted);
        }
        self.bytes = wanted;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.buffers.0.lock().remove(&self.access_key, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_auth::Secret;

    use super::*;

    fn of(access_key: &str) -> Arc<User> {
        let secret = Secret::new("secret");
        let (name, access_key) = (access_key.to_owned(), access_key.to_owned());
        Arc::new(User { name, owner_id: String::new(), access_key, secret, grants: Vec::new() })
    }

    #[test]
    fn small_ones_are_free_and_one_key_leaves_some_of_the_budget_to_others() {
        let (buffers, [greedy, other]) = (Buffers::default(), ["GREEDY", "OTHER"].map(of));
        let mut large: Vec<_> = (0..16).map(|_| buffers.begin()).collect();
        let taken =
            large.iter_mut().filter_map(|one| one.set(Some(&greedy), (BYTES_MAX >> 4) + FREE_BYTES).ok()).count();
        assert_eq!(taken, 15, "15 of 16");
        let mut small = buffers.begin();
        small.set(Some(&greedy), FREE_BYTES).unwrap();
        assert_eq!(small.set(Some(&greedy), FREE_BYTES + 1), Err(BodyError::Busy));
        let mut another = buffers.begin();
        another.set(Some(&other), BYTES_MAX >> 6).unwrap();
        assert_eq!(another.set(Some(&other), BYTES_MAX >> 4), Err(BodyError::Busy), "nothing would be left");
        large[0].set(Some(&greedy), 0).unwrap();
        another.set(Some(&other), BYTES_MAX >> 4).unwrap();
        drop((large, small, another));
        let taken = buffers.0.lock();
        assert!(taken.bytes == 0 && taken.by_key.is_empty());
    }
}
