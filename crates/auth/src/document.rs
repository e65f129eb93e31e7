//! What a users file holds, with its text.

use crate::file::{self, Parsed};
use crate::secret::Secret;
use crate::user::User;

/// Users and grants that may be brought into force: see [`Users::set`](crate::Users::set).
pub struct Document {
    text: Secret,
    digest: String,
    pub(crate) parsed: Parsed,
}

impl Document {
    /// # Errors
    /// One line for an operator, which contains no secret.
    pub(crate) fn parse(text: &str, root_access_key: &str) -> Result<Self, String> {
        let parsed = file::parse(text)?;
        match parsed.users.iter().find(|user| user.access_key == root_access_key) {
            Some(User { name, .. }) => Err(format!(
                "user {name:?}: its access key is the root user's (FOREBAY_ROOT_ACCESS_KEY): give it another one"
            )),
            None => Ok(Self { text: Secret::new(text), digest: parsed.digest(), parsed }),
        }
    }

    /// With the secrets of the users.
    pub fn text(&self) -> &str {
        self.text.expose()
    }

    /// Whether it has neither users nor grants for requests without a signature.
    pub fn is_empty(&self) -> bool {
        self.parsed.users.is_empty() && self.parsed.anonymous.is_empty()
    }

    /// As [`Users::digest`](crate::Users::digest).
    pub fn digest(&self) -> &str {
        &self.digest
    }
}
