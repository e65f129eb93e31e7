//! Why a request brought nothing.

use forebay_admin::api::ProblemBody;
use ureq::http::StatusCode;

use crate::commands::escaped;
use crate::failure::Failure;

/// A request that failed, with one line about it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// There was no answer, or not all of it.
    #[error("{0}")]
    Unreachable(String),
    /// The server says no.
    #[error("{detail}")]
    Refused { status: StatusCode, detail: String },
    /// The answer is none that this version knows.
    #[error("the server's answer can't be read: {0}: use the command line of the server's version")]
    Strange(String),
}

/// What to do about a connection that does not come about, by the words of the TLS library.
fn hint(endpoint: &str, why: &str) -> Option<&'static str> {
    let hints = [
        (
            "CaUsedAsEndEntity",
            "the server's certificate is marked as that of an authority (CA:TRUE), as `openssl req -x509` makes it: make it with \
             `-addext basicConstraints=critical,CA:FALSE`, or give --insecure",
        ),
        ("UnknownIssuer", "name the authority of the server's certificate by --ca-cert or FOREBAY_CA_CERT"),
        (
            "NotValidForName",
            "the certificate does not cover the host name of --endpoint: use a name that it covers, or issue a new one",
        ),
        (
            "Expired",
            "the server's certificate has expired: put a new one into the files of server.tls_cert and server.tls_key, which the server reloads",
        ),
        ("corrupt message", "does it speak TLS? Try http:// in the endpoint"),
    ];
    let is_encrypted = endpoint.starts_with("https://");
    hints.into_iter().find(|(word, _)| is_encrypted && why.contains(word)).map(|(_, hint)| hint)
}

impl CallError {
    pub(super) fn unreachable(endpoint: &str, error: &ureq::Error) -> Self {
        let why = match error {
            // The words of the operating system alone.
            ureq::Error::Io(error) => error.to_string(),
            other => other.to_string(),
        };
        let hint = hint(endpoint, &why).map(|hint| format!(": {hint}")).unwrap_or_default();
        Self::Unreachable(format!("{endpoint}: {}{hint}", escaped(&why)))
    }

    /// Of an answer that is a problem document, or a page of something else that listens there.
    pub(super) fn refused(status: StatusCode, body: &str) -> Self {
        let detail = serde_json::from_str::<ProblemBody>(body).ok().map(|problem| problem.detail);
        let detail = match (detail, status) {
            (Some(detail), StatusCode::UNAUTHORIZED) => format!("the keys are refused: {detail}"),
            (Some(detail), _) if !detail.is_empty() => detail,
            // S3's errors are documents of this kind.
            _ if body.contains("<Error>") => {
                format!(
                    "this address is that of S3, which answers {status}: name the admin API's (server.admin_listen) by --endpoint"
                )
            }
            _ => format!("the server answers {status}: is --endpoint the admin API of Forebay?"),
        };
        Self::Refused { status, detail: escaped(&detail) }
    }

    pub(crate) fn is_status(&self, wanted: StatusCode) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == wanted)
    }

    /// Whether the same request may go through later: the server is down, starts, or has too much to do.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused { status, .. } => status.is_server_error(),
            Self::Strange(_) => false,
        }
    }
}

/// What the server calls wrong in a request (4xx, keys included) is wrong input; all else is a failure.
impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let line = error.to_string();
        match error {
            CallError::Refused { status, .. } if status.is_client_error() => Self::Refused(line),
            CallError::Refused { .. } | CallError::Unreachable(_) | CallError::Strange(_) => Self::Failed(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_and_its_status_decides_on_the_exit_code() {
        let body = r#"{"title":"Not Found","status":404,"detail":"no\nrule \u001b[31m"}"#;
        let error = CallError::refused(StatusCode::NOT_FOUND, body);
        assert!(error.is_status(StatusCode::NOT_FOUND) && !error.may_pass());
        let Failure::Refused(line) = Failure::from(error) else { panic!("404 is wrong input") };
        assert_eq!(line, r"no\nrule \u{1b}[31m");
        let s3 = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>InvalidRequest</Code></Error>";
        let line = CallError::refused(StatusCode::BAD_REQUEST, s3).to_string();
        assert!(line.contains("400") && line.contains("server.admin_listen"), "{line}");
        let error = CallError::refused(StatusCode::SERVICE_UNAVAILABLE, "<html>");
        assert!(error.may_pass());
        let Failure::Failed(line) = Failure::from(error) else { panic!("503 is a failure") };
        assert!(line.contains("503"), "{line}");
    }
}
