//! What may go wrong between two workers.

/// A message to another worker that got no answer of that worker.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was sent.
    #[error("worker {worker} can't be reached: {problem}")]
    Unreachable { worker: String, problem: String },
    /// It was sent, and perhaps done.
    #[error("worker {worker} has not answered: {problem}")]
    NoAnswer { worker: String, problem: String },
    /// The body of the client's request broke off, so nothing was sent.
    #[error("the body of the request broke off: {0}")]
    Body(String),
}

pub type Result<T> = std::result::Result<T, Error>;

/// An error with its causes, each once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
