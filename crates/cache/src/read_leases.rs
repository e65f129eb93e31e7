//! Read leases (Gray and Cheriton, SOSP 1989): other workers than the home of an object answer reads of it, and no
//! reader sees an older version than another one has seen.
//!
//! A worker that is asked for the same object again asks the home for a lease on it, and for its bytes. While the lease
//! lasts, it answers from memory without asking anybody. The home ends all leases on a key once it holds the key's
//! lock, so before anything of the key changes: the other worker confirms that, or the home waits until the lease is
//! over. While a key is locked, there are no new leases on it.
//!
//! A lease never lasts longer than the home is sure of its slots, so a new home finds none. A home that gives up slots,
//! or stops, ends its leases first. A process that follows one which was killed changes nothing before the leases of
//! that one are over.

mod grant;
mod granted;
mod held;
mod near;

use std::time::Duration;

use forebay_types::{ETag, Generation, ObjectPath};
use serde::{Deserialize, Serialize};

pub(crate) use granted::GrantedLeases;
pub(crate) use held::HeldLeases;

use crate::{ByteStream, ObjectHead};

/// The longest lease. A write waits for so long when a worker with a lease on its key does not answer.
const LEASE_MAX: Duration = Duration::from_secs(5);

/// The clock rates of two machines differ by less than one part in this number.
const DRIFT: u32 = 1000;

/// Objects with leases, at the home and at a worker that has the leases, at a few hundred bytes each.
const OBJECTS_MAX: usize = 1 << 16;

/// A worker that reads under leases.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reader {
    pub worker: String,
    /// A random number, another one after each start of the worker.
    pub process: u64,
}

/// A worker asks the home of an object for a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRequest {
    pub path: ObjectPath,
    pub reader: Reader,
    /// The version whose bytes the reader has already.
    pub known: Option<Generation>,
    /// Size of the largest object that the reader keeps.
    pub bytes_max: u64,
}

/// A lease on the current version of an object.
pub struct ReadLease {
    pub terms: LeaseTerms,
    /// All bytes of the object, unless the reader has them.
    pub body: Option<ByteStream>,
}

/// A lease without the bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LeaseTerms {
    /// From the moment before the reader asked.
    pub lasts: Duration,
    /// Of the whole object.
    pub head: ObjectHead,
    pub remote_etag: Option<ETag>,
}
