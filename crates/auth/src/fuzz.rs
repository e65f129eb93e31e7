//! A fuzz target for the users file. It takes arbitrary bytes, and panics when a promise is broken.

use crate::file::parse;
use crate::grant::Action;

/// The text gives users, or one line that says why not.
pub fn users_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parsed = match parse(text) {
        Ok(parsed) => parsed,
        Err(problem) => return assert!(!problem.contains('\n'), "{problem:?} is more than one line"),
    };
    for (index, user) in parsed.users.iter().enumerate() {
        let others = || parsed.users[..index].iter();
        assert!(others().all(|other| other.access_key != user.access_key && other.name != user.name));
        assert!(!user.access_key.is_empty() && !user.name.is_empty() && user.secret.expose().len() >= 8);
        assert!(user.owner_id.len() == 64 && user.owner_id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        // A grant on some path is a grant in its bucket.
        for grant in &user.grants {
            assert!(grant.path.starts_with('/') && !grant.allow.is_empty());
            let bucket = grant.path[1..].split('/').next().unwrap_or_default();
            assert!(user.knows_bucket(bucket));
            for action in [Action::Read, Action::Write, Action::List, Action::Admin] {
                assert_eq!(
                    grant.gives(action),
                    grant.allows(action, &format!("{}/x", grant.path.trim_end_matches('/')))
                );
                assert!(!user.may(action, "no path"));
            }
        }
    }
}
