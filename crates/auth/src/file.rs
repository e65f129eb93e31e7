//! The users file.

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::grant::{Action, Grant};
use crate::secret::Secret;
use crate::user::{User, owner_id_of};

/// Why a users file was refused, in one line with the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("users file {path}: {problem}")]
pub struct InvalidFile {
    pub path: String,
    pub problem: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsersFile {
    #[serde(default)]
    user: Vec<UserEntry>,
    #[serde(default)]
    anonymous: Vec<Grant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserEntry {
    name: String,
    owner_id: Option<String>,
    access_key: String,
    secret_key: String,
    #[serde(default)]
    grants: Vec<Grant>,
}

/// The users of a file, and the grants of requests without a signature.
#[derive(Clone, Default)]
pub(crate) struct Parsed {
    pub(crate) users: Vec<User>,
    pub(crate) anonymous: Vec<Grant>,
}

impl Parsed {
    /// Equal where the users and grants are, in whatever order they stand. Hexadecimal.
    pub(crate) fn digest(&self) -> String {
        let mut digests: Vec<_> = self.users.iter().map(digest_of).collect();
        digests.sort_unstable();
        digests.push(digest_of_grants(&self.anonymous));
        hex::encode(Sha256::digest(digests.concat()))
    }
}

fn digest_of(user: &User) -> [u8; 32] {
    let User { name, owner_id, access_key, secret, grants } = user;
    let texts = [name, owner_id, access_key, secret.expose()].map(Sha256::digest);
    let mut digest = Sha256::new();
    texts.iter().for_each(|text| digest.update(text));
    digest.update(digest_of_grants(grants));
    digest.finalize().into()
}

/// They say together what is allowed: their order says nothing.
fn digest_of_grants(grants: &[Grant]) -> [u8; 32] {
    let action = |action: &Action| format!("{action:?}");
    let mut allowed: Vec<_> =
        grants.iter().flat_map(|grant| grant.allow.iter().map(|allow| (&grant.path, action(allow)))).collect();
    allowed.sort_unstable();
    allowed.dedup();
    let mut digest = Sha256::new();
    for (path, action) in allowed {
        digest.update(Sha256::digest(path));
        digest.update(Sha256::digest(action));
    }
    digest.finalize().into()
}

/// Parses and checks the text. The error is one line for an operator, and contains no secret.
pub(crate) fn parse(text: &str) -> Result<Parsed, String> {
    let file: UsersFile = toml::from_str(text).map_err(|error| describe(text, &error))?;
    if let Some(problem) = file.anonymous.iter().find_map(Grant::problem) {
        return Err(format!("anonymous: {problem}"));
    }
    let users: Vec<User> = file.user.into_iter().map(check_user).collect::<Result<_, _>>()?;
    for (index, user) in users.iter().enumerate() {
        if users[..index].iter().any(|other| other.access_key == user.access_key || other.name == user.name) {
            return Err(format!("user {:?}: its name or access key is given twice", user.name));
        }
    }
    Ok(Parsed { users, anonymous: file.anonymous })
}

/// Audit logs, the history of policies and shares of resources tell users by their names.
const RESERVED_NAMES: [&str; 3] = ["root", "anonymous", "configuration"];

fn check_user(entry: UserEntry) -> Result<User, String> {
    let fail = |problem: &str| Err(format!("user {:?}: {problem}", entry.name));
    if entry.name.is_empty() {
        return fail("the name is empty");
    }
    if RESERVED_NAMES.contains(&entry.name.as_str()) {
        return fail("this name is that of a user of the server itself");
    }
    // The lower limits are those of MinIO, so that keys can move over. The upper one keeps a credential scope short.
    if !(3..=128).contains(&entry.access_key.len()) || !entry.access_key.bytes().all(is_key_byte) {
        return fail("access_key must have 3 to 128 letters, digits or any of -_.+=@");
    }
    if entry.secret_key.len() < 8 {
        return fail("secret_key must have 8 characters or more");
    }
    if let Some(problem) = entry.grants.iter().find_map(Grant::problem) {
        return fail(&problem);
    }
    let owner_id = match entry.owner_id {
        None => owner_id_of(&entry.name),
        Some(id) if id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()) => id.to_ascii_lowercase(),
        Some(_) => return fail("owner_id must have 64 hex digits"),
    };
    let secret = Secret::new(&entry.secret_key);
    Ok(User { name: entry.name, owner_id, access_key: entry.access_key, secret, grants: entry.grants })
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.+=@".contains(&byte)
}

/// One line: the place, what is wrong, and what was probably meant. The source line is left out, because it may contain
/// a secret.
fn describe(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let message = match error.message() {
        // The given value comes before what is expected, and may be a secret without its quotes.
        message if message.starts_with("invalid type") || message.starts_with("invalid value") => {
            message.find("expected ").map_or("a value that it can't have", |at| &message[at..])
        }
        message => message,
    };
    let mut quoted = message.split('`').skip(1).step_by(2);
    let suggestion = match (message.starts_with("unknown"), quoted.next()) {
        (true, Some(given)) => quoted
            .map(|known| (strsim::jaro_winkler(given, known), known))
            .filter(|(likeness, _)| *likeness > 0.7)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, known)| format!(" (did you mean `{known}`?)")),
        _ => None,
    };
    format!("line {line}: {}{}", message.replace('\n', " "), suggestion.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::Action;

    const GOOD: &str = r#"
[[user]]
name = "etl"
access_key = "ETLKEY"
secret_key = "0123456789"
grants = [{ path = "/lake/raw", allow = ["read", "list"] }]

[[anonymous]]
path = "/public"
allow = ["read"]
"#;

    #[test]
    fn a_good_file_gives_users_and_anonymous_grants() {
        let parsed = parse(GOOD).unwrap();
        assert_eq!(parsed.users.len(), 1);
        assert_eq!(parsed.users[0].owner_id.len(), 64);
        assert!(parsed.users[0].may(Action::Read, "/lake/raw/1"));
        assert!(!parsed.users[0].may(Action::Write, "/lake/raw/1"));
        assert_eq!(parsed.anonymous.len(), 1);
    }

    #[track_caller]
    fn refused(text: &str, parts: &[&str]) {
        let problem = parse(text).err().expect(text);
        for part in parts {
            assert!(problem.contains(part), "{problem:?} lacks {part:?}");
        }
        assert!(!problem.contains("0123456789"), "{problem:?} shows a secret");
    }

    #[test]
    fn what_cannot_be_right_is_refused_with_its_place() {
        refused(&GOOD.replace("access_key", "acces_key"), &["line 4", "acces_key", "did you mean `access_key`"]);
        refused(&GOOD.replace("\"list\"", "\"lost\""), &["line 6", "lost", "did you mean `list`"]);
        refused(&GOOD.replace("/lake/raw", "lake"), &["etl", "must begin with"]);
        refused(&GOOD.replace("secret_key = \"0123456789\"", "secret_key = 0123456789"), &["line 5"]);
        refused(
            &GOOD.replace("secret_key = \"0123456789\"", "secret_key = 10123456789"),
            &["line 5: expected a string"],
        );
        refused(&GOOD.replace("ETLKEY", "a/b/c"), &["access_key"]);
        refused(&format!("{GOOD}{}", &GOOD[..GOOD.find("[[anonymous").unwrap()]), &["twice"]);
    }
}
