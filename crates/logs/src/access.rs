//! The access log: one line per request, in the format of Amazon S3's server access logs, so that the same tools can
//! read it.
//!
//! The fields and their order are those of "Amazon S3 server access log format" in Amazon's user guide.

use std::net::IpAddr;

use crate::escape::{key, quoted, redacted, word};
use crate::moment;
use crate::writer::LogWriter;

/// The access log, or none. Clones share it.
#[derive(Clone, Default)]
pub struct AccessLog {
    writer: Option<LogWriter>,
}

impl AccessLog {
    pub fn new(writer: LogWriter) -> Self {
        Self { writer: Some(writer) }
    }

    pub fn is_on(&self) -> bool {
        self.writer.is_some()
    }

    pub fn write(&self, entry: &AccessEntry<'_>) {
        if let Some(writer) = &self.writer {
            // The writer counts the lines that it drops.
            writer.write(entry.line());
        }
    }

    pub(crate) fn writer(&self) -> Option<&LogWriter> {
        self.writer.as_ref()
    }
}

/// One request that has ended. `None` is written as `-`.
#[derive(Debug, Default)]
pub struct AccessEntry<'a> {
    pub bucket_owner: Option<&'a str>,
    pub bucket: Option<&'a str>,
    /// When the request came, in milliseconds since 1970.
    pub time_ms: u64,
    pub remote: Option<IpAddr>,
    /// The canonical id of the user.
    pub requester: Option<&'a str>,
    pub request_id: &'a str,
    /// `REST.GET.OBJECT`
    pub operation: &'a str,
    pub key: Option<&'a str>,
    /// `GET /bucket/key?query HTTP/1.1`. `None` for a line about a part of a request.
    pub request_line: Option<&'a str>,
    pub status: Option<u16>,
    pub error_code: Option<&'a str>,
    /// Bytes of the answer's body that were sent.
    pub bytes_sent: u64,
    pub object_size: Option<u64>,
    /// Time until the last byte was sent.
    pub total_ms: Option<u64>,
    /// Time from the last byte of the request to the first byte of the answer.
    pub turn_around_ms: Option<u64>,
    pub referer: Option<&'a [u8]>,
    pub user_agent: Option<&'a [u8]>,
    pub version_id: Option<&'a str>,
    /// `SigV4` or `SigV2`
    pub signature_version: Option<&'a str>,
    pub cipher_suite: Option<&'a str>,
    /// `AuthHeader` or `QueryString`
    pub authentication_type: Option<&'a str>,
    pub host: Option<&'a [u8]>,
    /// `TLSv1.3`
    pub tls_version: Option<&'a str>,
}

impl AccessEntry<'_> {
    fn line(&self) -> String {
        let or_dash = |text: Option<&str>| word(text.unwrap_or_default());
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let text = |text: Option<&[u8]>| quoted(text.filter(|text| !text.is_empty()).unwrap_or(b"-"));
        let twice = self.operation != "BATCH.DELETE.OBJECT";
        let fields = [
            or_dash(self.bucket_owner),
            or_dash(self.bucket),
            format!("[{}]", moment::apache(self.time_ms)),
            self.remote.map_or_else(|| "-".to_owned(), |address| address.to_string()),
            or_dash(self.requester),
            word(self.request_id),
            word(self.operation),
            self.key.map_or_else(|| "-".to_owned(), |text| key(text, twice)),
            self.request_line.map_or_else(|| "-".to_owned(), request_line),
            number(self.status.map(u64::from)),
            or_dash(self.error_code),
            number(Some(self.bytes_sent).filter(|bytes| *bytes > 0)),
            number(self.object_size),
            number(self.total_ms),
            number(self.turn_around_ms),
            // Amazon's regular expression for these lines does not allow blanks here. A URL has none.
            format!("\"{}\"", or_dash(self.referer.map(|text| redacted(&String::from_utf8_lossy(text))).as_deref())),
            text(self.user_agent),
            or_dash(self.version_id),
            // The host id, which only Amazon's support can read.
            "-".to_owned(),
            or_dash(self.signature_version),
            or_dash(self.cipher_suite),
            or_dash(self.authentication_type),
            or_dash(self.host.map(String::from_utf8_lossy).as_deref()),
            or_dash(self.tls_version),
            // Forebay has no access points, no access lists, and no regions that a request could come from.
            "-".to_owned(),
            "-".to_owned(),
            "-".to_owned(),
        ];
        let mut line = fields.join(" ");
        line.push('\n');
        line
    }
}

/// Method and protocol stay, even when the target is too long.
fn request_line(line: &str) -> String {
    quoted(redacted_target(line).as_bytes())
}

fn redacted_target(line: &str) -> String {
    match line.rsplit_once(' ') {
        Some((start, protocol)) => format!("{} {protocol}", redacted(start)),
        None => redacted(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_fields_of_amazon_in_their_order() {
        let entry = AccessEntry {
            bucket_owner: Some("owner"),
            bucket: Some("bucket"),
            time_ms: 1_549_411_238_123,
            remote: Some(IpAddr::from([192, 0, 2, 3])),
            requester: Some("requester"),
            request_id: "id",
            operation: "REST.GET.OBJECT",
            key: Some("a b"),
            request_line: Some("GET /bucket/a%20b?X-Amz-Signature=0abc HTTP/1.1"),
            status: Some(200),
            error_code: None,
            bytes_sent: 0,
            object_size: Some(7),
            total_ms: Some(3),
            turn_around_ms: Some(2),
            referer: Some(b"http://x/ \"?X-Amz-Signature=0abc&a"),
            user_agent: Some(b"evil\" \"x"),
            version_id: None,
            signature_version: Some("SigV4"),
            cipher_suite: Some("TLS_AES_128_GCM_SHA256"),
            authentication_type: Some("QueryString"),
            host: Some(b"h st"),
            tls_version: Some("TLSv1.3"),
        };
        let expected = "owner bucket [06/Feb/2019:00:00:38 +0000] 192.0.2.3 requester id REST.GET.OBJECT a%2520b \
            \"GET /bucket/a%20b?X-Amz-Signature=REDACTED HTTP/1.1\" 200 - - 7 3 2 \
            \"http://x/%20%22?X-Amz-Signature=REDACTED&a\" \"evil%22 %22x\" - - SigV4 TLS_AES_128_GCM_SHA256 QueryString h%20st \
            TLSv1.3 - - -\n";
        assert_eq!(entry.line(), expected);
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let line = AccessEntry { operation: "BATCH.DELETE.OBJECT", key: Some("a b"), ..AccessEntry::default() }.line();
        let expected = "- - [01/Jan/1970:00:00:00 +0000] - - - BATCH.DELETE.OBJECT a%20b - - - - - - - \"-\" \"-\" \
            - - - - - - - - - -\n";
        assert_eq!(line, expected);
    }
}
