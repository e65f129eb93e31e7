//! What errors of a file system mean.

use std::io;

use crate::{Error, ErrorKind};

/// Turns an error of the file system into one of the under store.
pub(super) fn failed(doing: &str, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        // The last one: a file system is mounted below the directory of the bucket. Other keys can be written.
        io::ErrorKind::InvalidFilename | io::ErrorKind::InvalidInput | io::ErrorKind::CrossesDevices => {
            ErrorKind::Invalid
        }
        _ => ErrorKind::Unavailable,
    };
    // Notices, logs and jobs show the text alone, so the reason is part of it.
    Error::new(kind, format!("the directory behind the mount: could not {doing}: {error}"))
}

/// Whether an error means that there is no such object: it is absent, or a directory or a link is in the way.
pub(super) fn is_absent(error: &io::Error) -> bool {
    let no_link = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    no_link
        || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory)
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_full_and_a_read_only_file_system_are_told_apart_from_missing_permissions() {
        for (errno, kind, text) in [
            (Errno::NOSPC, ErrorKind::NoSpace, "no space left"),
            (Errno::DQUOT, ErrorKind::NoSpace, "quota"),
            (Errno::ROFS, ErrorKind::ReadOnly, "read-only file system"),
            (Errno::ACCESS, ErrorKind::Denied, "permission denied"),
            (Errno::PERM, ErrorKind::Denied, "not permitted"),
        ] {
            let error = failed("write a file", errno.into());
            assert_eq!(error.kind, kind);
            assert!(error.to_string().to_lowercase().contains(text), "{error}");
        }
    }
}
