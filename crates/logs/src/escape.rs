//! Makes text from outside safe for a line of the access log.

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Most bytes of a text from a header or a request line: longer than any presigned URL, and short enough that nobody
/// can fill the disk with the headers of one connection.
const QUOTED_BYTES_MAX: usize = 8 << 10;

/// Characters that are percent-encoded in a key.
const KEY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// URL parameters that are secrets: with the signature, anybody could use the URL as long as it is valid. In lower
/// case.
const SECRET_PARAMETERS: [&str; 5] = [
    "signature",
    "x-amz-signature",
    "x-amz-security-token",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-copy-source-server-side-encryption-customer-key",
];

const REDACTED: &str = "REDACTED";

/// A field without quotes. Empty text becomes `-`. What would end the field or the line is percent-encoded.
pub(crate) fn word(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    encode(text.as_bytes(), |byte| byte.is_ascii_graphic() && byte != b'"')
}

/// A field in quotes.
pub(crate) fn quoted(text: &[u8]) -> String {
    let encoded = encode(text, |byte| (byte.is_ascii_graphic() || byte == b' ') && byte != b'"');
    format!("\"{encoded}\"")
}

fn encode(text: &[u8], stands_for_itself: impl Fn(u8) -> bool) -> String {
    let text = &text[..text.len().min(QUOTED_BYTES_MAX)];
    let mut encoded = String::with_capacity(text.len());
    for byte in text {
        if stands_for_itself(*byte) {
            encoded.push(char::from(*byte));
        } else {
            // Writing to a string never fails.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// A key as Amazon S3 writes it: encoded twice, but only once in the lines of a multi-object delete.
pub(crate) fn key(key: &str, twice: bool) -> String {
    let key = &key[..key.floor_char_boundary(QUOTED_BYTES_MAX)];
    let once = utf8_percent_encode(key, KEY).to_string();
    if twice { utf8_percent_encode(&once, KEY).to_string() } else { once }
}

/// A URL, or the target of a request, without the values of parameters that are secrets.
pub fn redacted(url: &str) -> String {
    let Some((path, query)) = url.split_once('?') else { return url.to_owned() };
    let parameters = query.split('&').map(|parameter| match parameter.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}={REDACTED}"),
        Some(_) | None => parameter.to_owned(),
    });
    format!("{path}?{}", parameters.collect::<Vec<_>>().join("&"))
}

fn is_secret(name: &str) -> bool {
    let decoded = percent_decode_str(name).decode_utf8_lossy().to_ascii_lowercase();
    SECRET_PARAMETERS.contains(&decoded.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_ends_a_field_or_a_line() {
        assert_eq!(word(""), "-");
        assert_eq!(word("bucket"), "bucket");
        assert_eq!(word("a b\"c\nd\u{e9}"), "a%20b%22c%0Ad%C3%A9");
        assert_eq!(quoted(b"curl/8 (x; y)"), "\"curl/8 (x; y)\"");
        assert_eq!(quoted(b"a\" 200 - \r\n\t\x7f\xff\0"), "\"a%22 200 - %0D%0A%09%7F%FF%00\"");
        assert_eq!(quoted(&[b'a'; 1 << 20]).len(), QUOTED_BYTES_MAX + 2);
    }

    #[test]
    fn keys_are_encoded_twice() {
        assert_eq!(key("photos/2026/a b+\u{e9}%.jpg", true), "photos/2026/a%2520b%252B%25C3%25A9%2525.jpg");
        assert_eq!(key("a b", false), "a%20b");
    }

    #[test]
    fn signatures_are_taken_out_however_they_are_spelled() {
        let url = "/b/k?X-Amz-Credential=AK%2F2026&X-Amz-Signature=0abc&x-amz-security-token=t&SIGNATURE=s&a=b&x";
        let expected = "/b/k?X-Amz-Credential=AK%2F2026&X-Amz-Signature=REDACTED&x-amz-security-token=REDACTED&SIGNATURE=REDACTED&a=b&x";
        assert_eq!(redacted(url), expected);
        assert_eq!(redacted("/b?X%2DAmz-Signatur%65=0abc"), "/b?X%2DAmz-Signatur%65=REDACTED");
        assert_eq!(redacted("/b/Signature=1"), "/b/Signature=1");
    }
}
