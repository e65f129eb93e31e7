//! What a handler notes for the audit log while it works on a request.

use std::sync::Arc;

use forebay_auth::User;
use parking_lot::Mutex;

/// What a handler knows better than the layer. It is among the extensions of each request; clones are the same note.
#[derive(Clone, Default)]
pub(crate) struct AuditNote {
    user: Arc<Mutex<Option<Arc<User>>>>,
}

impl AuditNote {
    /// The request has proven to come from this user.
    pub(crate) fn user(&self, user: &Arc<User>) {
        *self.user.lock() = Some(Arc::clone(user));
    }

    /// The user that the request has proven to come from.
    pub(super) fn proven(&self) -> Option<Arc<User>> {
        self.user.lock().clone()
    }
}
