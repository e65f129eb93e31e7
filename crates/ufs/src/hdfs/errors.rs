//! What errors of HDFS mean.

use std::io;

use hdfs_native::HdfsError;

use crate::{Error, ErrorKind};

/// Whether a call may have changed something without its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Read,
    Write,
}

/// Turns an error of the client, or of the NameNode, into one of the under store.
pub(super) fn classify(error: HdfsError, effect: Effect, doing: &str) -> Error {
    let kind = match &error {
        HdfsError::RPCError(class, _) | HdfsError::FatalRPCError(class, _) => of_class(class),
        HdfsError::FileNotFound(_) => ErrorKind::NotFound,
        HdfsError::AlreadyExists(_) => ErrorKind::AlreadyExists,
        HdfsError::IsADirectoryError(_) | HdfsError::InvalidPath(_) => ErrorKind::InvalidName,
        HdfsError::SASLError(_) | HdfsError::GSSAPIError(..) | HdfsError::NoSASLMechanism => ErrorKind::Credentials,
        HdfsError::UnsupportedFeature(_) | HdfsError::UnsupportedErasureCodingPolicy(_) => ErrorKind::Unsupported,
        HdfsError::InvalidArgument(_) | HdfsError::UrlParseError(_) | HdfsError::XmlParseError(_) => ErrorKind::Invalid,
        HdfsError::IOError(error) if is_unsent(error) => ErrorKind::Unavailable,
        HdfsError::IOError(_) | HdfsError::InvalidRPCResponse(_) | HdfsError::InternalError(_) => lost(effect),
        HdfsError::DataTransferError(_)
        | HdfsError::ChecksumError
        | HdfsError::BlocksNotFound(_)
        | HdfsError::OperationFailed(_)
        | HdfsError::ErasureCodingError(_)
        | HdfsError::TrashNotEnabled => ErrorKind::Unavailable,
    };
    let context = format!("HDFS: could not {doing}: {}", first_line(&error.to_string()));
    Error { source: Some(Box::new(error)), ..Error::new(kind, context) }
}

/// No answer has come in time.
pub(super) fn timed_out(effect: Effect, doing: &str) -> Error {
    Error::new(lost(effect), format!("HDFS: could not {doing}: the NameNode does not answer"))
}

fn lost(effect: Effect) -> ErrorKind {
    match effect {
        Effect::Read => ErrorKind::Unavailable,
        Effect::Write => ErrorKind::Ambiguous,
    }
}

/// Whether the request cannot have left this machine.
fn is_unsent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::NotConnected
    )
}

/// An exception of the NameNode, by the last part of its name. It has changed nothing then.
fn of_class(class: &str) -> ErrorKind {
    match class.rsplit(['.', '$']).next().unwrap_or(class) {
        "FileNotFoundException" => ErrorKind::NotFound,
        "AccessControlException" | "AuthorizationException" => ErrorKind::Denied,
        "SaslException" | "GSSException" | "InvalidToken" => ErrorKind::Credentials,
        "PathIsNotEmptyDirectoryException" => ErrorKind::NotEmpty,
        "ParentNotDirectoryException"
        | "InvalidPathException"
        | "PathComponentTooLongException"
        | "MaxDirectoryItemsExceededException" => ErrorKind::InvalidName,
        "RetriableException" | "CallQueueOverflowException" => ErrorKind::Throttled,
        _ => ErrorKind::Unavailable,
    }
}

/// The NameNode sends its whole stack trace.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
