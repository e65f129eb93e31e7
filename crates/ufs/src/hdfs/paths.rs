//! Keys as paths below the directory of a mount. A component of a key is a name, as it is: other programs find the
//! file where they look for it. What HDFS cannot have as a name is refused.

use std::fmt;

/// Begins the names of our own files.
const OWN: &str = ".forebay-";

/// The file that stands for a key that ends with `/`. Hadoop's readers of tables skip names that begin with a dot.
pub(super) const MARKER: &str = ".forebay-directory";

/// Ends the names of files that are being written.
const TEMPORARY: &str = ".tmp";

/// `dfs.namenode.fs-limits.max-component-length`.
const COMPONENT_BYTES_MAX: usize = 255;

/// Each level of a new key costs a directory. This is more than people use, and far less than the NameNode's 1,000.
const LEVELS_MAX: usize = 128;

/// Why HDFS cannot have an object with this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Misfit {
    Empty,
    Dots,
    Colon,
    Long,
    Reserved,
    Deep,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self {
            Self::Empty => "HDFS has no empty names: a key does not begin with / and has no //",
            Self::Dots => "no component of a key in HDFS is . or ..",
            Self::Colon => "names in HDFS have no colon",
            Self::Long => return write!(f, "names in HDFS have {COMPONENT_BYTES_MAX} bytes at most"),
            Self::Reserved => "names that begin with .forebay-, and .snapshot and .reserved, are not for objects",
            Self::Deep => return write!(f, "HDFS keeps keys of {LEVELS_MAX} levels at most"),
        };
        f.write_str(reason)
    }
}

/// The path of a key, from the mount's directory.
pub(super) fn of_key(key: &str) -> Result<String, Misfit> {
    let (directories, is_marker) = match key.strip_suffix('/') {
        Some(directories) => (directories, true),
        None => (key, false),
    };
    if directories.split('/').count() > LEVELS_MAX {
        return Err(Misfit::Deep);
    }
    for component in directories.split('/') {
        check(component)?;
    }
    Ok(if is_marker { format!("{directories}/{MARKER}") } else { directories.to_owned() })
}

fn check(component: &str) -> Result<(), Misfit> {
    match component {
        "" => Err(Misfit::Empty),
        "." | ".." => Err(Misfit::Dots),
        ".snapshot" | ".reserved" => Err(Misfit::Reserved),
        _ if component.contains(':') => Err(Misfit::Colon),
        _ if component.len() > COMPONENT_BYTES_MAX => Err(Misfit::Long),
        _ if component.starts_with(OWN) => Err(Misfit::Reserved),
        _ => Ok(()),
    }
}

/// Whether a name is one of ours, and not that of an object.
pub(super) fn is_own(name: &str) -> bool {
    name.starts_with(OWN)
}

/// The name of a file that is being written.
pub(super) fn temporary(id: &str) -> String {
    format!("{OWN}{id}{TEMPORARY}")
}

pub(super) fn is_temporary(name: &str) -> bool {
    is_own(name) && name.ends_with(TEMPORARY)
}

/// The directory that a path is in. `None` for the root.
pub(super) fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| if parent.is_empty() { "/" } else { parent })
}

pub(super) fn join(directory: &str, name: &str) -> String {
    match directory {
        "/" => format!("/{name}"),
        _ => format!("{directory}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_path() {
        for (key, path) in [
            ("a", "a"),
            ("a/b c/d", "a/b c/d"),
            ("a%2F", "a%2F"),
            ("dir/", "dir/.forebay-directory"),
            ("..dots..", "..dots.."),
            (".hidden", ".hidden"),
        ] {
            assert_eq!(of_key(key).as_deref(), Ok(path), "{key}");
        }
        assert!(of_key(&"x".repeat(255)).is_ok());
        assert!(of_key(&vec!["x"; 128].join("/")).is_ok());
    }

    #[test]
    fn what_hdfs_cannot_have_is_refused() {
        for (key, misfit) in [
            ("/a", Misfit::Empty),
            ("a//b", Misfit::Empty),
            ("/", Misfit::Empty),
            ("a//", Misfit::Empty),
            ("a/../b", Misfit::Dots),
            ("./a", Misfit::Dots),
            ("a/..", Misfit::Dots),
            ("../", Misfit::Dots),
            ("a:b", Misfit::Colon),
            (".snapshot/a", Misfit::Reserved),
            ("a/.forebay-directory", Misfit::Reserved),
        ] {
            assert_eq!(of_key(key), Err(misfit), "{key}");
        }
        assert_eq!(of_key(&"x".repeat(256)), Err(Misfit::Long));
        assert_eq!(of_key(&"\u{1f600}".repeat(64)), Err(Misfit::Long));
        assert_eq!(of_key(&vec!["x"; 129].join("/")), Err(Misfit::Deep));
    }

    #[test]
    fn names_of_our_own_are_known() {
        assert!(is_temporary(&temporary("1f")) && is_own(MARKER) && !is_temporary(MARKER) && !is_own("a.tmp"));
        assert_eq!((parent("/a/b"), parent("/a"), parent("")), (Some("/a"), Some("/"), None));
        assert_eq!((join("/", "a"), join("/a", "b")), ("/a".to_owned(), "/a/b".to_owned()));
    }
}
