//! The table of all users.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_env::{Clock, Env, Task};
use parking_lot::RwLock;

use crate::document::Document;
use crate::file::{InvalidFile, Parsed};
use crate::grant::{Action, Grant};
use crate::secret::Secret;
use crate::user::{RootUser, User, owner_id_of};
use crate::watch::WatchedFile;

/// How often the file is checked.
const WATCH_PERIOD: Duration = Duration::from_secs(2);

/// All users. Clones share them, so a change of the file shows in all.
#[derive(Clone)]
pub struct Users {
    shared: Arc<Shared>,
}

struct Shared {
    root: Arc<User>,
    table: RwLock<Arc<Table>>,
    file: Option<WatchedFile>,
    /// Why the file is not what holds.
    refusal: RwLock<Option<InvalidFile>>,
}

/// How many the users file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileCounts {
    pub users: usize,
    /// Grants of requests without a signature.
    pub anonymous_grants: usize,
}

struct Table {
    by_access_key: HashMap<String, Arc<User>>,
    anonymous: Arc<User>,
    digest: String,
}

impl Users {
    /// The root user and, when a file is given, the users in it.
    ///
    /// # Errors
    /// When the file can't be read or is not valid, or has a user with the access key of the root user.
    pub fn open(root: RootUser, file: Option<PathBuf>) -> Result<Self, InvalidFile> {
        let root = Arc::new(User {
            name: "root".to_owned(),
            owner_id: owner_id_of("root"),
            access_key: root.access_key,
            secret: root.secret_key,
            grants: vec![Grant { path: "/".to_owned(), allow: vec![Action::Admin] }],
        });
        let file = file.map(|file| WatchedFile::new(file, root.access_key.clone()));
        let parsed = match &file {
            Some(file) => file.load()?.parsed.clone(),
            None => Parsed::default(),
        };
        let table = RwLock::new(Arc::new(Table::new(&root, parsed)));
        Ok(Self { shared: Arc::new(Shared { root, table, file, refusal: RwLock::default() }) })
    }

    pub fn find(&self, access_key: &str) -> Option<Arc<User>> {
        self.shared.table.read().by_access_key.get(access_key).cloned()
    }

    pub fn root(&self) -> &User {
        &self.shared.root
    }

    /// The user without a name. Its grants are those of `[[anonymous]]`.
    pub fn anonymous(&self) -> Arc<User> {
        Arc::clone(&self.shared.table.read().anonymous)
    }

    /// Of the users of the file and of the grants of requests without a signature: equal where these are. Hexadecimal.
    pub fn digest(&self) -> String {
        self.shared.table.read().digest.clone()
    }

    /// What the users file holds that is in force. `None` without such a file.
    pub fn file_counts(&self) -> Option<FileCounts> {
        let Document { parsed, .. } = &*self.file()?;
        Some(FileCounts { users: parsed.users.len(), anonymous_grants: parsed.anonymous.len() })
    }

    /// Reads the file now. Returns whether anything changed. After an error, the users stay as they were.
    pub fn reload(&self) -> Result<bool, InvalidFile> {
        let document = self.read()?;
        if let Some(document) = &document {
            self.set(document);
        }
        Ok(document.is_some())
    }

    fn read(&self) -> Result<Option<Arc<Document>>, InvalidFile> {
        self.shared.file.as_ref().map_or(Ok(None), WatchedFile::load_if_changed)
    }

    /// Reads the file now, and returns what it holds if that has changed. It is not in force before [`Users::set`]. A
    /// bad file is reported once, and [`Users::refusal`] shows it until it is corrected.
    pub fn look(&self) -> Option<Arc<Document>> {
        let result = self.read();
        let mut refusal = self.shared.refusal.write();
        match result {
            Ok(None) => None,
            Ok(Some(document)) => {
                *refusal = None;
                Some(document)
            }
            Err(error) => {
                if refusal.as_ref() != Some(&error) {
                    tracing::error!(%error, "users file refused, the users stay as they were");
                    *refusal = Some(error);
                }
                None
            }
        }
    }

    /// What the file held when it was read last without a mistake. `None` without a file.
    pub fn file(&self) -> Option<Arc<Document>> {
        self.shared.file.as_ref()?.valid()
    }

    /// What a text in the format of the file holds.
    ///
    /// # Errors
    /// What is wrong with it, in one line that contains no secret.
    pub fn document(&self, text: &str) -> Result<Document, String> {
        Document::parse(text, &self.shared.root.access_key)
    }

    /// Brings other users into force.
    pub fn set(&self, document: &Document) {
        *self.shared.table.write() = Arc::new(Table::new(&self.shared.root, document.parsed.clone()));
    }

    /// The number of users in force beside the root user.
    pub fn count(&self) -> usize {
        self.shared.table.read().count()
    }

    /// Why the file is refused, while it is and the users are those of before.
    pub fn refusal(&self) -> Option<String> {
        self.shared.refusal.read().as_ref().map(ToString::to_string)
    }

    /// Watches the file until the returned task is aborted or all clones are gone.
    pub fn watch(&self, env: &Env) -> Task<()> {
        forebay_env::spawn(watch(Arc::clone(&env.clock), self.clone()))
    }
}

impl Table {
    fn new(root: &Arc<User>, parsed: Parsed) -> Self {
        let digest = parsed.digest();
        let mut by_access_key: HashMap<_, _> =
            parsed.users.into_iter().map(|user| (user.access_key.clone(), Arc::new(user))).collect();
        by_access_key.insert(root.access_key.clone(), Arc::clone(root));
        let anonymous = Arc::new(User {
            name: "anonymous".to_owned(),
            owner_id: owner_id_of("anonymous"),
            access_key: String::new(),
            secret: Secret::new(""),
            grants: parsed.anonymous,
        });
        Self { by_access_key, anonymous, digest }
    }

    /// Without the root user, who is there, too.
    fn count(&self) -> usize {
        self.by_access_key.len() - 1
    }
}

/// Checks the file for ever. A bad file leaves the users as they were.
async fn watch(clock: Arc<dyn Clock>, users: Users) {
    loop {
        clock.sleep(WATCH_PERIOD).await;
        if let Some(document) = users.look() {
            users.set(&document);
            tracing::info!(users = users.count(), "users file read again");
        }
    }
}

#[cfg(test)]
mod tests;
