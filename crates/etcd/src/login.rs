//! The token that etcd asks for when it knows users. One is valid for some minutes, and until etcd restarts.

use forebay_env::Clock;
use tokio::sync::Mutex;
use tonic::metadata::MetadataValue;

use crate::EtcdUser;
use crate::failure::{CallError, What};
use crate::member::{Member, Token};
use crate::messages::Authenticate;

pub(crate) struct Login {
    user: EtcdUser,
    /// `None` before the first call. Held while a new one is fetched, so that one is enough for all that wait.
    held: Mutex<Option<Held>>,
}

/// What is sent with calls: nothing when etcd does not know users.
pub(crate) type Held = Option<Token>;

impl Login {
    pub(crate) fn new(user: EtcdUser) -> Self {
        Self { user, held: Mutex::default() }
    }

    /// A token other than the one that was refused.
    ///
    /// # Errors
    /// Nothing was sent but the question for a token, whatever the error.
    pub(crate) async fn token(
        &self,
        clock: &dyn Clock,
        member: &Member,
        refused: Option<&Held>,
    ) -> Result<Held, CallError> {
        // The holder of the lock may be waiting for a member that hangs.
        let mut held = tokio::select! {
            biased;
            held = self.held.lock() => held,
            () = clock.sleep(member.timeout()) => return Err(CallError::new(What::NotDone, "no token in time")),
        };
        if let Some(held) = &*held
            && Some(held) != refused
        {
            return Ok(held.clone());
        }
        *held = None;
        let EtcdUser { name, password } = self.user.clone();
        let fresh = match member.call(clock, Authenticate { name, password }, None).await {
            Ok(answer) => {
                let token = MetadataValue::try_from(answer.token);
                Some(token.map_err(|_| CallError::new(What::NotDone, "the token of etcd is no text"))?)
            }
            Err(failure) if failure.text.contains("authentication is not enabled") => None,
            Err(CallError { what: What::NoAnswer, text }) => return Err(CallError::new(What::NotDone, text)),
            Err(failure) => return Err(failure),
        };
        *held = Some(fresh.clone());
        Ok(fresh)
    }
}
