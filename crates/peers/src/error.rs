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
