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
        HdfsError::RPCError(class, text) | HdfsError::FatalRPCError(class, text) => of_exception(class, text),
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

/// Whether the request cannot have left this machine. Of a call to the NameNode, the client returns these kinds only
/// when there was no connection yet.
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
fn of_exception(class: &str, text: &str) -> ErrorKind {
    match class.rsplit(['.', '$']).next().unwrap_or(class) {
        // A file is on the way. Calls that create something get another exception for that.
        "AccessControlException" if first_line(text).contains("(is not a directory)") => ErrorKind::InvalidName,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_say_what_to_do() {
        let told = |class: &str, text: &str, effect| {
            classify(HdfsError::RPCError(class.to_owned(), text.to_owned()), effect, "try").kind
        };
        for (class, text, kind) in [
            ("java.io.FileNotFoundException", "", ErrorKind::NotFound),
            ("org.apache.hadoop.security.AccessControlException", "Permission denied", ErrorKind::Denied),
            ("org.apache.hadoop.security.AccessControlException", "/a (is not a directory)", ErrorKind::InvalidName),
            ("org.apache.hadoop.security.token.SecretManager$InvalidToken", "", ErrorKind::Credentials),
            ("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "", ErrorKind::Unavailable),
            ("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "", ErrorKind::Unavailable),
            ("org.apache.hadoop.ipc.RetriableException", "", ErrorKind::Throttled),
            ("org.apache.hadoop.fs.PathIsNotEmptyDirectoryException", "", ErrorKind::NotEmpty),
        ] {
            assert_eq!(told(class, text, Effect::Write), kind, "{class} {text}");
        }
    }

    #[test]
    fn a_lost_answer_is_told_from_a_request_that_was_not_sent() {
        let told = |kind: io::ErrorKind, effect| classify(HdfsError::IOError(kind.into()), effect, "try").kind;
        assert_eq!(told(io::ErrorKind::ConnectionReset, Effect::Write), ErrorKind::Ambiguous);
        assert_eq!(told(io::ErrorKind::ConnectionReset, Effect::Read), ErrorKind::Unavailable);
        assert_eq!(told(io::ErrorKind::ConnectionRefused, Effect::Write), ErrorKind::Unavailable);
        assert_eq!(timed_out(Effect::Write, "try").kind, ErrorKind::Ambiguous);
    }

    #[test]
    fn a_stack_trace_is_cut() {
        let error = HdfsError::RPCError("java.io.IOException".to_owned(), "no\n\tat org.apache".to_owned());
        assert_eq!(
            classify(error, Effect::Read, "try").to_string(),
            "HDFS: could not try: RPC error: java.io.IOException no"
        );
    }
}
