//! Errors in one line.

use std::error::Error;

/// An error with its causes, each once: an error often repeats in its own text what its cause says.
pub fn error_chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        next = cause.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    #[test]
    fn what_an_error_repeats_of_its_causes_is_there_once() {
        let layer = |text, source| Layer { text, source };
        let refused = layer("connection refused", None);
        let dispatch = layer("dispatch failure", Some(Box::new(refused)));
        let ours = layer("PUT a: dispatch failure: connection refused", Some(Box::new(dispatch)));
        assert_eq!(error_chain(&ours), "PUT a: dispatch failure: connection refused");
        let outer = layer("the under store", Some(Box::new(ours)));
        assert_eq!(error_chain(&outer), "the under store: PUT a: dispatch failure: connection refused");
    }
}
