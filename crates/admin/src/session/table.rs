//! The sessions that there are, in memory: a restart ends all.

use std::sync::Arc;
use std::time::Duration;

use forebay_auth::{User, Users, equal_in_constant_time};
use forebay_env::{Env, Random};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::api::Session;

/// A session ends after this time, used or not: a day's work.
const AGE_MAX: Duration = Duration::from_secs(12 * 3600);
/// A session that nobody uses ends after this time: a desk that was left.
const IDLE_MAX: Duration = Duration::from_secs(3600);
/// More administrators than one worker has; beyond it a session of who has most of them ends, the oldest.
const SESSIONS_MAX: usize = 100;
/// More browsers than one person has; beyond it the oldest of that user's sessions ends, and nobody else's.
const SESSIONS_OF_ONE_MAX: usize = 20;

#[derive(Default)]
pub(crate) struct Sessions {
    /// The oldest first.
    live: Mutex<Vec<Live>>,
}

struct Live {
    /// A copy of the memory gives no session away.
    id_hash: String,
    csrf: String,
    /// As it was at the beginning: the session ends with the user, and with the user's keys.
    user: Arc<User>,
    began: Duration,
    used: Duration,
}

/// A session that holds.
pub(crate) struct ValidSession {
    id_hash: String,
    /// As the user is now.
    pub(crate) user: Arc<User>,
    pub(crate) session: Session,
}

/// 256 bits in hex.
fn secret(random: &dyn Random) -> String {
    random.hex_id() + &random.hex_id()
}

fn hash(id: &str) -> String {
    hex::encode(Sha256::digest(id))
}

impl Sessions {
    /// Returns the id, which is nowhere else from then on.
    pub(crate) fn begin(&self, env: &Env, user: Arc<User>) -> (String, Session) {
        let (id, now) = (secret(&*env.random), env.clock.monotonic());
        let fresh = Live { id_hash: hash(&id), csrf: secret(&*env.random), user, began: now, used: now };
        let session = fresh.show(env, now);
        let mut live = self.live.lock();
        live.retain(|session| session.holds(now));
        let count = |user: &User| live.iter().filter(|session| session.user.name == user.name).count();
        let too_many = if count(&fresh.user) >= SESSIONS_OF_ONE_MAX {
            Some(fresh.user.name.clone())
        } else if live.len() >= SESSIONS_MAX {
            live.iter().map(|session| &session.user).max_by_key(|user| count(user)).map(|user| user.name.clone())
        } else {
            None
        };
        let oldest = too_many.and_then(|name| live.iter().position(|session| session.user.name == name));
        if let Some(at) = oldest {
            live.remove(at);
        }
        live.push(fresh);
        (id, session)
    }

    /// The session of an id, which counts as used. A session whose user is gone or has other keys ends here.
    pub(crate) fn find(&self, env: &Env, users: &Users, id: &str) -> Option<ValidSession> {
        let (wanted, now) = (hash(id), env.clock.monotonic());
        let mut live = self.live.lock();
        live.retain(|session| session.holds(now));
        let at = live.iter().position(|session| equal_in_constant_time(&session.id_hash, &wanted))?;
        let Some(user) = live[at].present_user(users) else {
            live.remove(at);
            return None;
        };
        live[at].used = now;
        Some(ValidSession { id_hash: wanted, user, session: live[at].show(env, now) })
    }

    pub(crate) fn end(&self, found: &ValidSession) {
        self.live.lock().retain(|session| session.id_hash != found.id_hash);
    }
}

impl Live {
    fn holds(&self, now: Duration) -> bool {
        now.saturating_sub(self.began) < AGE_MAX && now.saturating_sub(self.used) < IDLE_MAX
    }

    fn present_user(&self, users: &Users) -> Option<Arc<User>> {
        let same = |user: &Arc<User>| user.name == self.user.name && user.secret == self.user.secret;
        users.find(&self.user.access_key).filter(same)
    }

    fn show(&self, env: &Env, now: Duration) -> Session {
        let left = AGE_MAX.saturating_sub(now.saturating_sub(self.began)).min(IDLE_MAX);
        let expires_ms = env.clock.unix_ms().saturating_add(left.as_millis() as u64);
        Session { user: self.user.name.clone(), csrf: self.csrf.clone(), expires_ms }
    }
}

#[cfg(test)]
mod tests {
    use forebay_auth::{RootUser, Secret};

    use super::*;

    /// Users `0` to `count - 1`, whose keys are their names twenty times.
    fn users(count: usize) -> Users {
        let user = |name: usize| {
            let key = name.to_string().repeat(20);
            format!("[[user]]\nname = \"{name}\"\naccess_key = \"{key}\"\nsecret_key = \"{key}\"\ngrants = []\n")
        };
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), (0..count).map(user).collect::<String>()).expect("written");
        let root = RootUser { access_key: "root".to_owned(), secret_key: Secret::new("root-secret") };
        Users::open(root, Some(file.path().to_owned())).expect("users")
    }

    #[test]
    fn who_has_most_sessions_makes_room_for_others() {
        let (env, users, sessions) = (Env::real(), users(6), Sessions::default());
        let begin = |name: usize| sessions.begin(&env, users.find(&name.to_string().repeat(20)).expect("a user")).0;
        let holds = |id: &String| sessions.find(&env, &users, id).is_some();
        // Of one user the oldest ends.
        let mut first: Vec<_> = (0..=SESSIONS_OF_ONE_MAX).map(|_| begin(0)).collect();
        assert!(!holds(&first.remove(0)) && first.iter().all(holds));
        let mut others: Vec<_> =
            (1..4).flat_map(|name| (0..SESSIONS_OF_ONE_MAX).map(move |_| name)).map(begin).collect();
        others.extend((1..SESSIONS_OF_ONE_MAX).map(|_| begin(4)));
        let last = begin(5);
        assert_eq!(sessions.live.lock().len(), SESSIONS_MAX);
        // The next one of whom has fewest ends one of those who have twenty.
        let next = begin(5);
        assert_eq!(sessions.live.lock().len(), SESSIONS_MAX);
        assert!(holds(&last) && holds(&next));
        let oldest_of_each = [&first[0], &others[0], &others[SESSIONS_OF_ONE_MAX], &others[2 * SESSIONS_OF_ONE_MAX]];
        let ended: Vec<_> = first.iter().chain(&others).filter(|id| !holds(id)).collect();
        assert!(ended.len() == 1 && oldest_of_each.contains(&ended[0]));
    }
}
