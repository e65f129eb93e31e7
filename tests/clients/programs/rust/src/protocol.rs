//! What the tests ask, and what they are answered: one JSON object a line, as `Program` in tests/clients/client.py describes.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{Write, stdin, stdout};

use serde::Deserialize;
use serde_json::{Value, json};

/// A call with the parameters of all calls: those that it doesn't have are empty.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Request {
    pub(crate) call: String,
    pub(crate) bucket: String,
    pub(crate) key: String,
    pub(crate) to: String,
    /// The file with the bytes to send.
    pub(crate) body: String,
    /// The file for the bytes that come.
    pub(crate) into: String,
    pub(crate) path: String,
    pub(crate) directory: String,
    pub(crate) prefix: String,
    pub(crate) delimiter: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) content_encoding: Option<String>,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) etag: String,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) keys: Vec<String>,
    pub(crate) first: u64,
    pub(crate) last: Option<u64>,
    pub(crate) length: u64,
    pub(crate) upload: String,
    pub(crate) number: i32,
    pub(crate) parts: BTreeMap<String, String>,
}

/// Why a call failed, as the tests tell the reasons apart.
pub(crate) struct Refusal {
    pub(crate) kind: String,
    pub(crate) detail: String,
}

pub(crate) type Answer = Result<Value, Refusal>;

impl Refusal {
    pub(crate) fn new(kind: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: kind.into(), detail: detail.into() }
    }

    /// What was refused with a status of HTTP.
    pub(crate) fn of_status(status: u16, detail: String) -> Self {
        let kind = match status {
            403 => "denied".to_owned(),
            404 => "missing".to_owned(),
            412 => "precondition".to_owned(),
            other => other.to_string(),
        };
        Self { kind, detail }
    }

    /// A failure on this side, such as of a file.
    pub(crate) fn error(error: impl Error) -> Self {
        Self::new("error", error.to_string())
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::error(error)
    }
}

/// Answers each line of the standard input, until it ends. Between calls there is nothing to do but wait for the next line.
pub(crate) async fn serve(call: impl AsyncFn(Request) -> Answer) -> std::io::Result<()> {
    for line in stdin().lines() {
        let answer = match serde_json::from_str(&line?) {
            Ok(request) => call(request).await,
            Err(error) => Err(Refusal::error(error)),
        };
        let answer = match answer {
            Ok(result) => json!({"result": result}),
            Err(refusal) => json!({"refused": refusal.kind, "detail": refusal.detail}),
        };
        let mut output = stdout();
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}
