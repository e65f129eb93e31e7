//! Who there is.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_env::{Env, Requester, Task};
use parking_lot::RwLock;

use crate::file::{InvalidFile, Parsed, owner_id_of};
use crate::grant::{Action, Grant};
use crate::secret::Secret;
use crate::watch::{self, WatchedFile};

/// A user, or whoever sends requests without a signature.
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
    /// Whose work it is that a request of this user makes. All who send no signature are one.
    pub fn requester(&self) -> Requester {
        Requester::named(&self.access_key)
    }

    /// Whether a grant allows this. `path` is `/`, `/bucket` or `/bucket/key`, decoded.
    pub fn may(&self, action: Action, path: &str) -> bool {
        self.grants.iter().any(|grant| grant.allows(action, path))
    }

    /// Whether a grant allows this for all paths that begin with `path`, as the names of a listing do: a grant for `/b/p` covers `/b/p/x`, and not
    /// `/b/px`.
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

/// All users, shared by clones; a change of the file shows in all of them.
#[derive(Clone)]
pub struct Users {
    shared: Arc<Shared>,
}

struct Shared {
    root: Arc<User>,
    table: RwLock<Arc<Table>>,
    file: Option<WatchedFile>,
}

struct Table {
    by_access_key: HashMap<String, Arc<User>>,
    anonymous: Arc<User>,
}

impl Users {
    /// The root user and, when a file is given, the users in it. Errors when the file can't be read or is not right.
    pub fn open(root: RootUser, file: Option<PathBuf>) -> Result<Self, InvalidFile> {
        let root = Arc::new(User {
            name: "root".to_owned(),
            owner_id: owner_id_of("root"),
            access_key: root.access_key,
            secret: root.secret_key,
            grants: vec![Grant { path: "/".to_owned(), allow: vec![Action::Admin] }],
        });
        let file = file.map(WatchedFile::new);
        let parsed = match &file {
            Some(file) => file.load()?,
            None => Parsed::default(),
        };
        let table = RwLock::new(Arc::new(Table::new(&root, parsed)));
        Ok(Self { shared: Arc::new(Shared { root, table, file }) })
    }

    pub fn find(&self, access_key: &str) -> Option<Arc<User>> {
        self.shared.table.read().by_access_key.get(access_key).cloned()
    }

    pub fn root(&self) -> &User {
        &self.shared.root
    }

    /// The one without a name: its grants are those of `[[anonymous]]`.
    pub fn anonymous(&self) -> Arc<User> {
        Arc::clone(&self.shared.table.read().anonymous)
    }

    /// Reads the file now. Returns whether anything changed; an error keeps the users as they were.
    pub fn reload(&self) -> Result<bool, InvalidFile> {
        let Some(file) = &self.shared.file else { return Ok(false) };
        let Some(parsed) = file.load_if_changed()? else { return Ok(false) };
        *self.shared.table.write() = Arc::new(Table::new(&self.shared.root, parsed));
        Ok(true)
    }

    /// Watches the file until the returned task is aborted or all clones are gone.
    pub fn watch(&self, env: &Env) -> Task<()> {
        forebay_env::spawn(watch::run(Arc::clone(&env.clock), self.clone()))
    }
}

impl Table {
    fn new(root: &Arc<User>, parsed: Parsed) -> Self {
        let mut by_access_key: HashMap<_, _> =
            parsed.users.into_iter().map(|user| (user.access_key.clone(), Arc::new(user))).collect();
        // Last, so that no entry of the file takes the root user's place.
        by_access_key.insert(root.access_key.clone(), Arc::clone(root));
        let anonymous = Arc::new(User {
            name: "anonymous".to_owned(),
            owner_id: owner_id_of("anonymous"),
            access_key: String::new(),
            secret: Secret::new(""),
            grants: parsed.anonymous,
        });
        Self { by_access_key, anonymous }
    }
}
