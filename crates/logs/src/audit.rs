//! The audit log: who did what, to what, when, and how it ended. One JSON object for each line.

use std::net::IpAddr;
use std::sync::Arc;

use forebay_env::Clock;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::moment;
use crate::writer::LogWriter;

/// Most bytes of a text that a client chooses: keys have up to 1 KiB, and escaping may make them six times as long.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// The audit log, or none. Clones share it.
#[derive(Clone, Default)]
pub struct AuditLog {
    inner: Option<Arc<Inner>>,
}

struct Inner {
    writer: LogWriter,
    clock: Arc<dyn Clock>,
    includes_reads: bool,
}

impl AuditLog {
    /// `includes_reads`: whether requests that change nothing are logged, too.
    pub fn new(writer: LogWriter, clock: Arc<dyn Clock>, includes_reads: bool) -> Self {
        Self { inner: Some(Arc::new(Inner { writer, clock, includes_reads })) }
    }

    pub fn is_on(&self) -> bool {
        self.inner.is_some()
    }

    /// Whether a request belongs in the log. `changes` says whether it changes something, `status` how it was answered.
    pub fn wants(&self, changes: bool, status: u16) -> bool {
        const DENIED: [u16; 2] = [401, 403];
        self.inner.as_ref().is_some_and(|inner| inner.includes_reads || changes || DENIED.contains(&status))
    }

    pub fn write(&self, entry: &AuditEntry<'_>) {
        let Some(inner) = &self.inner else { return };
        let time_ms = if entry.time_ms == 0 { inner.clock.unix_ms() } else { entry.time_ms };
        if !inner.writer.write(entry.line(time_ms)) {
            // Reported in addition to the count: somebody may have caused it to hide this entry.
            tracing::debug!(operation = entry.operation, "an entry of the audit log was dropped");
        }
    }

    pub(crate) fn writer(&self) -> Option<&LogWriter> {
        self.inner.as_ref().map(|inner| &inner.writer)
    }
}

/// The interface that a request came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    S3,
    Admin,
    /// The server itself.
    #[default]
    Server,
}

/// One line. `None` is left out.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry<'a> {
    /// When the request came, in milliseconds since 1970. 0 means now.
    #[serde(skip)]
    pub time_ms: u64,
    pub source: Source,
    /// `PutObject`, `PUT /api/v1/policies`, `server.start`
    pub operation: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<&'a str>,
    /// Set only when the request has proven to come from this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<&'a str>,
    /// The access key in the request, proven or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<&'a str>,
    /// 499 when the client disconnected before there was an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The error code of S3, or the error that an admin request got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a str>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
}

#[derive(Serialize)]
struct Line<'a, 'b> {
    time: String,
    #[serde(flatten)]
    entry: &'a AuditEntry<'b>,
}

impl AuditEntry<'_> {
    fn line(&self, time_ms: u64) -> String {
        let entry = AuditEntry {
            time_ms,
            source: self.source,
            operation: cut(self.operation),
            request_id: self.request_id,
            user: self.user,
            access_key: self.access_key.map(cut),
            address: self.address,
            user_agent: self.user_agent.map(cut),
            bucket: self.bucket.map(cut),
            key: self.key.map(cut),
            status: self.status,
            error: self.error.map(cut),
            details: self.details.iter().map(|(name, value)| (name.clone(), cut_value(value))).collect(),
        };
        let line = Line { time: moment::rfc_3339(time_ms), entry: &entry };
        // JSON escapes line feeds and quotes, so an entry is one line whatever a client sends.
        let mut line = serde_json::to_string(&line).expect("text and numbers become JSON");
        line.push('\n');
        line
    }
}

/// Only strings contain text that a client may have given. Nested values are the server's own.
fn cut_value(value: &Value) -> Value {
    match value {
        Value::String(text) => cut(text).into(),
        other => other.clone(),
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_one_line_of_json_with_the_time_first() {
        let entry = AuditEntry {
            source: Source::S3,
            operation: "PutObject",
            user: Some("root"),
            bucket: Some("b"),
            key: Some("a\n\"\u{1}"),
            status: Some(200),
            details: Map::from_iter([("bytes".to_owned(), Value::from(7))]),
            ..AuditEntry::default()
        };
        let expected = "{\"time\":\"2019-02-06T00:00:38.123Z\",\"source\":\"s3\",\"operation\":\"PutObject\",\"user\":\"root\",\
            \"bucket\":\"b\",\"key\":\"a\\n\\\"\\u0001\",\"status\":200,\"details\":{\"bytes\":7}}\n";
        assert_eq!(entry.line(1_549_411_238_123), expected);
    }

    #[test]
    fn text_from_clients_is_cut_between_characters() {
        let long = "\u{e9}".repeat(TEXT_BYTES_MAX);
        assert_eq!(cut(&long).len(), TEXT_BYTES_MAX);
        assert_eq!(cut(&format!("x{long}")).len(), TEXT_BYTES_MAX - 1);
        assert_eq!(cut("short"), "short");
    }

    #[test]
    fn without_a_log_nothing_is_wanted() {
        assert!(!AuditLog::default().wants(true, 403));
    }

    #[tokio::test]
    async fn writes_and_what_is_denied_are_wanted_and_reads_only_when_asked_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let env = forebay_env::Env::real();
        let settings = crate::FileSettings { path: directory.path().join("log"), bytes_max: 0, files_max: 1 };
        let writer = LogWriter::start("audit", settings, &env, &crate::LogMetrics::default()).expect("a log");
        let writes = AuditLog::new(writer.clone(), Arc::clone(&env.clock), false);
        let all = AuditLog::new(writer, env.clock, true);
        for (changes, status, in_writes) in
            [(true, 200, true), (false, 200, false), (false, 403, true), (false, 401, true)]
        {
            assert_eq!(writes.wants(changes, status), in_writes, "{changes} {status}");
            assert!(all.wants(changes, status));
        }
    }

    #[test]
    fn nobody_fills_the_log_with_one_request() {
        let long = "\u{e9}".repeat(1 << 20);
        let mut entry = AuditEntry { operation: &long, key: Some(&long), error: Some(&long), ..AuditEntry::default() };
        entry.details.insert("parameters".to_owned(), long.as_str().into());
        assert!(entry.line(0).len() < 5 * TEXT_BYTES_MAX, "{}", entry.line(0).len());
    }
}
