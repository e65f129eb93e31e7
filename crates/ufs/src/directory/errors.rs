//! What errors of a file system mean.

use std::io;

use crate::{Error, ErrorKind};

/// Turns an error of the file system into one of the under store.
pub(super) fn failed(doing: &str, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
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
