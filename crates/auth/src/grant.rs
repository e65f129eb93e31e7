//! What a user may do, and where.

use serde::Deserialize;

/// What a request does to the objects under a path. The four are independent: `read` does not include `list`, so a
/// bucket can be readable by name without showing its names. Only `admin` includes the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Object bytes, metadata and tags.
    Read,
    /// Puts, copies to here, deletes, multipart uploads, tags.
    Write,
    /// Names: listings of objects and uploads. Without it, a client can't tell "no such key" from "access denied".
    List,
    /// Buckets themselves, their configuration, and everything else.
    Admin,
}

/// Actions allowed under a path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// `/` for everything, `/bucket`, or `/bucket/key/prefix`. Without a trailing `/`, it covers the name itself and
    /// what is below it (`/b/p` covers the keys `p` and `p/x`, not `px`). With one, it covers only what is below. Keys
    /// are compared as they are stored, byte by byte.
    pub path: String,
    pub allow: Vec<Action>,
}

impl Grant {
    pub(crate) fn allows(&self, action: Action, path: &str) -> bool {
        self.gives(action) && self.covers(path)
    }

    pub(crate) fn gives(&self, action: Action) -> bool {
        self.allow.iter().any(|allowed| *allowed == action || *allowed == Action::Admin)
    }

    fn covers(&self, path: &str) -> bool {
        match path.strip_prefix(self.path.as_str()) {
            Some(rest) => rest.is_empty() || self.path.ends_with('/') || rest.starts_with('/'),
            None => false,
        }
    }

    /// Whether every path is covered that begins with `path`, character by character: `/b/px` begins with `/b/p`, too.
    pub(crate) fn covers_all_that_begins_with(&self, path: &str) -> bool {
        match path.strip_prefix(self.path.as_str()) {
            Some(rest) => self.path.ends_with('/') || rest.starts_with('/'),
            None => false,
        }
    }

    /// Whether anything in the bucket is covered.
    pub(crate) fn touches(&self, bucket: &str) -> bool {
        let Some(rest) = self.path.strip_prefix('/') else { return false };
        rest.is_empty() || rest.split('/').next() == Some(bucket)
    }

    /// Why the grant can't be right. `None` when it can.
    pub(crate) fn problem(&self) -> Option<String> {
        if !self.path.starts_with('/') {
            return Some(format!("the grant path {:?} must begin with \"/\"", self.path));
        }
        if self.allow.is_empty() {
            return Some(format!("the grant for {:?} allows nothing: give read, write, list or admin", self.path));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(grant: &str, path: &str, covered: bool) {
        let grant = Grant { path: grant.to_owned(), allow: vec![Action::Read] };
        assert_eq!(grant.allows(Action::Read, path), covered, "{grant:?} {path}");
        assert!(!grant.allows(Action::Write, path));
    }

    /// All words of these letters up to a length.
    fn words(length: usize) -> Vec<String> {
        let mut words = vec![String::new()];
        for _ in 0..length {
            let longer: Vec<_> =
                words.iter().flat_map(|word| ["a", "b", "/"].map(|letter| format!("{word}{letter}"))).collect();
            words.extend(longer);
        }
        words.sort_unstable();
        words.dedup();
        words
    }

    #[test]
    fn what_covers_all_that_begins_with_a_path_covers_each_of_it() {
        let words = words(4);
        for granted in &words {
            let grant = Grant { path: format!("/{granted}"), allow: vec![Action::List] };
            for path in &words {
                let path = format!("/{path}");
                let each =
                    words.iter().filter(|rest| rest.len() <= 2).all(|rest| grant.covers(&format!("{path}{rest}")));
                assert_eq!(grant.covers_all_that_begins_with(&path), each, "{granted} {path}");
            }
        }
    }

    #[test]
    fn a_path_covers_itself_and_what_is_below() {
        check("/", "/bucket/key", true);
        check("/bucket", "/bucket", true);
        check("/bucket", "/bucket/key", true);
        check("/bucket", "/bucket2/key", false);
        check("/bucket/p", "/bucket/p", true);
        check("/bucket/p", "/bucket/p/x", true);
        check("/bucket/p", "/bucket/px", false);
        check("/bucket/p/", "/bucket/p", false);
        check("/bucket/p/", "/bucket/p/x", true);
    }

    #[test]
    fn keys_are_never_interpreted_as_paths() {
        check("/bucket/p", "/bucket/other/../p/x", false);
        check("/bucket/p", "/bucket//p/x", false);
        check("/bucket/p", "/bucket/P/x", false);
        check("/bucket/p", "/bucket/p%2Fx", false);
        check("/bucket/p", "/bucket/p/../secret", true);
    }

    #[test]
    fn admin_includes_the_others() {
        let grant = Grant { path: "/b".to_owned(), allow: vec![Action::Admin] };
        for action in [Action::Read, Action::Write, Action::List, Action::Admin] {
            assert!(grant.allows(action, "/b/k"));
        }
        assert!(grant.touches("b") && !grant.touches("bb"));
    }
}
