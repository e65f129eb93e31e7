//! A user, and what the user may do.

use forebay_env::Requester;
use sha2::{Digest, Sha256};

use crate::grant::{Action, Grant};
use crate::secret::Secret;

/// A user, or the sender of requests without a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    /// S3's canonical user id: 64 hex digits.
    pub owner_id: String,
    /// Empty for the anonymous user.
    pub access_key: String,
    pub secret: Secret,
    pub grants: Vec<Grant>,
}

impl User {
    /// On whose behalf this user's requests do their work. All clients without a signature are one requester.
    pub fn requester(&self) -> Requester {
        Requester::named(&self.access_key)
    }

    /// Whether a grant allows this. `path` is `/`, `/bucket` or `/bucket/key`, decoded.
    pub fn may(&self, action: Action, path: &str) -> bool {
        self.grants.iter().any(|grant| grant.allows(action, path))
    }

    /// Whether a grant allows this for all paths that begin with `path`, as the names in a listing do: a grant for
    /// `/b/p` covers `/b/p/x` but not `/b/px`.
    pub fn may_for_all_that_begins_with(&self, action: Action, path: &str) -> bool {
        self.grants.iter().any(|grant| grant.gives(action) && grant.covers_all_that_begins_with(path))
    }

    /// Whether the user may do anything at all in this bucket.
    pub fn knows_bucket(&self, bucket: &str) -> bool {
        self.grants.iter().any(|grant| grant.touches(bucket))
    }

    /// Whether the user may do this somewhere in the bucket.
    pub fn may_in_bucket(&self, action: Action, bucket: &str) -> bool {
        self.grants.iter().any(|grant| grant.gives(action) && grant.touches(bucket))
    }
}

/// The user that may do everything.
#[derive(Debug, Clone)]
pub struct RootUser {
    pub access_key: String,
    pub secret_key: Secret,
}

/// The canonical owner id of a name: 64 hex digits, as S3's canonical user ids have.
pub(crate) fn owner_id_of(name: &str) -> String {
    hex::encode(Sha256::digest(format!("forebay owner {name}")))
}
