//! Why the process ends with an error.

use std::fmt;

/// What is reported in one line before the process ends.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Bad input: exit code 2.
    Refused(String),
    /// Anything else: exit code 1.
    Failed(String),
}

impl Failure {
    /// An error of the operating system, with what was being done.
    pub(crate) fn of(doing: impl fmt::Display, error: &dyn std::error::Error) -> Self {
        Self::Failed(format!("{doing}: {error}").replace('\n', " "))
    }

    /// The line.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Refused(text) | Self::Failed(text) => text,
        }
    }
}
