//! The token that etcd asks for when it knows users. One is valid for some minutes, and until etcd restarts.

use forebay_env::Clock;
use tokio::sync::Mutex;
use tonic::metadata::MetadataValue;

use crate::EtcdUser;
use crate::failure::{Failure, What};
use crate::member::{Member, Token};
use crate::messages::Authenticate;

pub(crate) struct Login {
    user: EtcdUser,
    /// Held while a new one is fetched, so that one is enough for all that wait.
    token: Mutex<Option<Token>>,
}

impl Login {
    pub(crate) fn new(user: EtcdUser) -> Self {
        Self { user, token: Mutex::default() }
    }

    /// A token other than `refused`. When etcd does not know users, there is none to send.
    ///
    /// # Errors
    /// Nothing was sent but the question for a token, whatever the error.
    pub(crate) async fn token(
        &self,
        clock: &dyn Clock,
        member: &Member,
        refused: Option<&Token>,
    ) -> Result<Option<Token>, Failure> {
        let mut token = self.token.lock().await;
        if token.is_some() && token.as_ref() != refused {
            return Ok(token.clone());
        }
        *token = None;
        let EtcdUser { name, password } = self.user.clone();
        match member.call(clock, Authenticate { name, password }, None).await {
            Ok(answer) => {
                let fresh = MetadataValue::try_from(answer.token)
                    .map_err(|_| Failure::new(What::NotDone, "the token of etcd is no text"))?;
                *token = Some(fresh);
                Ok(token.clone())
            }
            Err(failure) if failure.text.contains("authentication is not enabled") => Ok(None),
            Err(Failure { what: What::NoAnswer, text }) => Err(Failure::new(What::NotDone, text)),
            Err(failure) => Err(failure),
        }
    }
}
