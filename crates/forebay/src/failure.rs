//! Why the process ends with an error.

use forebay_types::error_chain;

use crate::config::Problem;

/// A failure that is printed before the process ends: in one line, but for mistakes of the configuration, which have a
/// line each.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Bad input: exit code 2.
    Refused(String),
    /// Anything else: exit code 1.
    Failed(String),
    /// The user has ended a wait with Ctrl-C: exit code 130, as shells count.
    Interrupted(String),
    /// Nobody reads standard output any more (`forebay ls | head`), and nothing else is wrong: exit code 0, nothing is
    /// said.
    NobodyReads,
}

impl From<Problem> for Failure {
    fn from(Problem(problem): Problem) -> Self {
        Self::Refused(problem)
    }
}

impl Failure {
    /// An error of a part, with all its causes in one line.
    pub(crate) fn of(doing: &str, error: &dyn std::error::Error) -> Self {
        Self::Failed(format!("{doing}: {}", error_chain(error)).replace('\n', " "))
    }
}
