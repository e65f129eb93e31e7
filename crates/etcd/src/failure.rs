//! What an error of a call says about the outcome of the call.

use std::error::Error as _;

use forebay_catalog::{Error, ErrorKind};
use tonic::{Code, ConnectError};

/// A call that brought no result.
#[derive(Debug)]
pub(crate) struct CallError {
    pub(crate) what: What,
    pub(crate) text: String,
}

/// Everything but `NoAnswer` and `NoSpace` means that nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// Nothing was sent, or this member does not do it. Another one may.
    NotDone,
    /// It may have been done, or may be done later.
    NoAnswer,
    /// The token is no longer valid, or there is none.
    Token,
    /// The user may not do this.
    Forbidden,
    /// No member would do this.
    Unfit,
    /// etcd has more to do than it takes.
    TooMany,
    /// The database is full. It was done or not: etcd compares the size after some changes only.
    NoSpace,
    /// The revision is gone.
    Compacted,
    /// The answer has more bytes than are taken.
    LongAnswer,
}

impl CallError {
    pub(crate) fn new(what: What, text: impl Into<String>) -> Self {
        Self { what, text: text.into() }
    }

    pub(crate) fn of(status: &tonic::Status) -> Self {
        let mut text = vec![status.message().to_owned()];
        let mut is_connect = false;
        let mut source = status.source();
        while let Some(error) = source {
            is_connect |= error.is::<ConnectError>();
            let more = error.to_string();
            if text.last() != Some(&more) {
                text.push(more);
            }
            source = error.source();
        }
        let what = if is_connect { What::NotDone } else { what(status.code(), status.message()) };
        Self { what, text: text.join(": ") }
    }

    /// As an answer to somebody who has only read.
    pub(crate) fn of_read(self, context: &str) -> Error {
        let kind = match self.what {
            What::TooMany => ErrorKind::Busy,
            What::NotDone
            | What::NoAnswer
            | What::Token
            | What::Forbidden
            | What::Unfit
            | What::NoSpace
            | What::Compacted
            | What::LongAnswer => ErrorKind::Unavailable,
        };
        self.into_error(kind, context)
    }

    /// As an answer to somebody who has sent a transaction.
    pub(crate) fn of_commit(self, context: &str) -> Error {
        let kind = match self.what {
            What::NoAnswer | What::NoSpace | What::LongAnswer => ErrorKind::Unknown,
            What::NotDone | What::Token | What::Forbidden | What::Compacted => ErrorKind::Unavailable,
            // A retry does not help: callers that retry what is unavailable would do so forever.
            What::Unfit | What::TooMany => ErrorKind::Busy,
        };
        self.into_error(kind, context)
    }

    pub(crate) fn into_error(self, kind: ErrorKind, context: &str) -> Error {
        Error::new(kind, format!("{context}: {}", self.text))
    }
}

/// The messages are those of etcd's `rpctypes/error.go`. etcd sends most of the codes below before it does anything;
/// whatever is not listed says nothing.
fn what(code: Code, message: &str) -> What {
    let says = |phrase| message.contains(phrase);
    match code {
        Code::Unauthenticated => What::Token,
        // The first when the server has come to ask for a token; the second when users have changed meanwhile.
        Code::InvalidArgument if says("user name is empty") || says("revision of auth store is old") => What::Token,
        Code::InvalidArgument if says("authentication failed") => What::Forbidden,
        Code::InvalidArgument => What::Unfit,
        Code::PermissionDenied => What::Forbidden,
        Code::FailedPrecondition | Code::Unimplemented => What::NotDone,
        Code::ResourceExhausted if says("database space exceeded") => What::NoSpace,
        Code::ResourceExhausted if says("too many requests") => What::TooMany,
        Code::ResourceExhausted if says("received message larger") => What::Unfit,
        Code::OutOfRange if says("has been compacted") => What::Compacted,
        Code::OutOfRange if says("message length too large") => What::LongAnswer,
        Code::ResourceExhausted
        | Code::OutOfRange
        | Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => What::NoAnswer,
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    fn check(status: &Status, of_read: ErrorKind, of_commit: ErrorKind) {
        let failure = || CallError::of(status);
        assert_eq!(failure().of_read("").kind, of_read, "{status}");
        assert_eq!(failure().of_commit("").kind, of_commit, "{status}");
    }

    #[test]
    fn what_says_nothing_about_a_transaction_is_unknown() {
        use ErrorKind::{Busy, Unavailable, Unknown};
        check(&Status::deadline_exceeded("etcdserver: context deadline exceeded"), Unavailable, Unknown);
        check(&Status::unavailable("etcdserver: request timed out"), Unavailable, Unknown);
        check(&Status::unavailable("etcdserver: leader changed"), Unavailable, Unknown);
        check(&Status::cancelled("Timeout expired"), Unavailable, Unknown);
        check(&Status::unknown("transport error"), Unavailable, Unknown);
        check(&Status::internal("h2 protocol error"), Unavailable, Unknown);
        check(&Status::resource_exhausted("something new"), Unavailable, Unknown);
        check(&Status::resource_exhausted("etcdserver: mvcc: database space exceeded"), Unavailable, Unknown);
        check(&Status::resource_exhausted("etcdserver: too many requests"), Busy, Busy);
        check(&Status::invalid_argument("etcdserver: request is too large"), Unavailable, Busy);
        check(&Status::invalid_argument("etcdserver: too many operations in txn request"), Unavailable, Busy);
        check(&Status::permission_denied("etcdserver: permission denied"), Unavailable, Unavailable);
        check(&Status::unauthenticated("etcdserver: invalid auth token"), Unavailable, Unavailable);
        check(&Status::invalid_argument("etcdserver: user name is empty"), Unavailable, Unavailable);
        check(&Status::failed_precondition("etcdserver: rpc not supported for learner"), Unavailable, Unavailable);
    }

    #[test]
    fn without_a_connection_nothing_was_done() {
        let refused = ConnectError(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)));
        let status = Status::from_error(Box::new(refused));
        check(&status, ErrorKind::Unavailable, ErrorKind::Unavailable);
        assert!(CallError::of(&status).text.contains("refused"), "{status}");
    }
}
