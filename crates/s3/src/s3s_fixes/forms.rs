//! POST forms, looked through before `s3s` parses them: it drops fields that it does not know, and takes a policy that names no
//! bucket for one of every bucket.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use s3s::StdError;

use super::BodyError;
use crate::context::RequestContext;

/// Most bytes in front of the file: what `s3s` takes, and some for headers.
const FIELDS_BYTES_MAX: usize = 320 << 10;

/// Fields of `x-amz-` that have an effect. Beside them: `x-amz-meta-*`.
const FIELDS: [&str; 18] = [
    "x-amz-acl",
    "x-amz-algorithm",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-security-token",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-signature",
    "x-amz-storage-class",
    "x-amz-tagging",
    "x-amz-website-redirect-location",
];

/// Access lists that give nobody anything.
const HARMLESS_ACLS: [&[u8]; 2] = [b"private", b"bucket-owner-full-control"];

/// The same form, or an error when it asks for what it would not get.
pub(crate) fn watch<S>(
    body: S,
    content_type: &str,
    context: Arc<RequestContext>,
) -> BoxStream<'static, Result<Bytes, StdError>>
where
    S: Stream<Item = Result<Bytes, StdError>> + Send + 'static,
{
    let delimiter = delimiter(content_type);
    let head = async move {
        let mut body = Box::pin(body);
        let mut head = BytesMut::new();
        // Where the file begins is known only when all in front of it is here; to look at each piece would cost its square.
        while head.len() <= FIELDS_BYTES_MAX {
            let Some(data) = body.next().await else { break };
            head.extend_from_slice(&data?);
        }
        if let Err(wrong) = check(&head, &delimiter) {
            let _ = context.refused.set(wrong);
            return Err(StdError::from(wrong));
        }
        Ok((head.freeze(), body))
    };
    futures::stream::once(head)
        .flat_map(|head| match head {
            Ok((head, rest)) => futures::stream::once(async { Ok(head) }).chain(rest).boxed(),
            Err(error) => futures::stream::once(async { Err(error) }).boxed(),
        })
        .boxed()
}

/// `--` and the boundary that the type of the form names.
fn delimiter(content_type: &str) -> Vec<u8> {
    let parameters = content_type.split(';').map(str::trim);
    let boundary = parameters
        .filter_map(|parameter| parameter.split_once('='))
        .find(|(name, _)| name.eq_ignore_ascii_case("boundary"));
    format!("--{}", boundary.map_or("", |(_, value)| value.trim_matches('"'))).into_bytes()
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn check(head: &[u8], delimiter: &[u8]) -> Result<(), BodyError> {
    for (name, value) in fields(head, delimiter) {
        match name.to_ascii_lowercase().as_str() {
            "file" => return Ok(()),
            "tagging" => return Err(BodyError::FormField),
            "acl" if !HARMLESS_ACLS.contains(&value) => return Err(BodyError::FormField),
            "policy" if names_bucket(value) == Some(false) => return Err(BodyError::FormPolicy),
            name if name.starts_with("x-amz-") && !name.starts_with("x-amz-meta-") && !FIELDS.contains(&name) => {
                return Err(BodyError::FormField);
            }
            // S3 ignores the rest, as long as the policy covers it.
            _ => {}
        }
    }
    // A form without a file is refused later.
    if head.len() > FIELDS_BYTES_MAX { Err(BodyError::TooLong) } else { Ok(()) }
}

/// Names and values of the fields that are here whole, or whose headers are.
fn fields<'a>(mut head: &'a [u8], delimiter: &'a [u8]) -> impl Iterator<Item = (String, &'a [u8])> {
    std::iter::from_fn(move || {
        let start = position(head, delimiter)? + delimiter.len();
        head = &head[start..];
        let part = &head[..position(head, delimiter).unwrap_or(head.len())];
        let (headers, value) = match position(part, b"\r\n\r\n") {
            Some(end) => (&part[..end], part[end + 4..].strip_suffix(b"\r\n").unwrap_or(&part[end + 4..])),
            None => (part, &[][..]),
        };
        Some((name_of(headers).unwrap_or_default(), value))
    })
    // What is behind the last delimiter has no name.
    .filter(|(name, _)| !name.is_empty())
}

/// The `name` of a part's Content-Disposition.
fn name_of(headers: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(headers);
    let is_disposition = |line: &&str| line.to_ascii_lowercase().starts_with("content-disposition:");
    let mut rest = text.lines().find(is_disposition)?.split_once(';')?.1;
    loop {
        let (name, value) = rest.split_once('=')?;
        let (value, behind) = match value.trim_start().strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => value.split_at(value.find(';').unwrap_or(value.len())),
        };
        if name.trim_matches([';', ' ', '\t']).eq_ignore_ascii_case("name") {
            return Some(value.trim().to_owned());
        }
        rest = behind;
    }
}

/// Whether a policy has a condition on the bucket; `None` when it is no policy, which `s3s` refuses.
fn names_bucket(policy: &[u8]) -> Option<bool> {
    let policy: serde_json::Value = serde_json::from_slice(&STANDARD.decode(policy).ok()?).ok()?;
    let names = |condition: &serde_json::Value| match condition {
        serde_json::Value::Object(exact) => exact.keys().any(|name| name.eq_ignore_ascii_case("bucket")),
        serde_json::Value::Array(words) => {
            words.get(1).and_then(|word| word.as_str()).is_some_and(|word| word.eq_ignore_ascii_case("$bucket"))
        }
        _ => false,
    };
    Some(policy.get("conditions")?.as_array()?.iter().any(names))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &[(&str, &str)]) -> String {
        let field = |(name, value): &(&str, &str)| {
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        fields.iter().map(field).collect()
    }

    async fn watched(form: &str, size: usize) -> Option<BodyError> {
        let context = Arc::new(RequestContext::new("id".to_owned(), "http"));
        let pieces: Vec<_> = form.as_bytes().chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let kind = "multipart/form-data; boundary=\"b\"";
        let read: Vec<_> = watch(futures::stream::iter(pieces), kind, Arc::clone(&context)).collect().await;
        match context.refused.get() {
            Some(refused) => Some(*refused),
            None => {
                let passed: Vec<u8> = read.into_iter().flat_map(Result::unwrap).collect();
                assert_eq!(passed, form.as_bytes());
                None
            }
        }
    }

    #[tokio::test]
    async fn fields_that_would_be_dropped_are_refused_however_the_form_is_cut() {
        for size in [1, 3, 7, 1000] {
            let known = [
                ("Key", "k"),
                ("x-amz-meta-a", "name=\"acl\""),
                ("acl", "private"),
                ("utf8", "yes"),
                ("x-amz-tagging", "a=1"),
                ("file", "--b name=\"acl\""),
            ];
            assert_eq!(watched(&form(&known), size).await, None, "{size}");
            for unknown in ["tagging", "acl", "x-amz-checksum-sha512", "x-amz-server-side-encryption-customer-key"] {
                let fields = [("key", "k"), ("x-amz-meta-a", "name=\"file\""), (unknown, "v"), ("file", "data")];
                assert_eq!(watched(&form(&fields), size).await, Some(BodyError::FormField), "{size} {unknown}");
            }
            assert_eq!(watched(&form(&[("key", "k"), ("file", "data"), ("acl", "v")]), size).await, None, "{size}");
        }
        let long = "v".repeat(FIELDS_BYTES_MAX + 2000);
        assert_eq!(
            watched(&form(&[("key", &long), ("acl", "v"), ("file", "data")]), 1000).await,
            Some(BodyError::TooLong)
        );
    }

    #[test]
    fn names_are_those_of_the_disposition() {
        for (headers, name) in [
            ("Content-Disposition: form-data; name=\"a\"", Some("a")),
            ("content-disposition:form-data;name=a", Some("a")),
            ("Content-Disposition: form-data; filename=\"x; name=b\"; name=\"a\"", Some("a")),
            (
                "Content-Type: text/plain; name=\"b\"\r\nContent-Disposition: form-data; name=\"a\"; filename=\"c\"",
                Some("a"),
            ),
            ("Content-Disposition: form-data; filename=\"b\"", None),
        ] {
            assert_eq!(name_of(format!("\r\n{headers}").as_bytes()).as_deref(), name, "{headers}");
        }
    }

    #[tokio::test]
    async fn a_policy_is_for_a_bucket() {
        let policy = |conditions: &str| STANDARD.encode(format!("{{\"conditions\": {conditions}}}"));
        for (conditions, expected) in [
            ("[{\"bucket\": \"b\"}, [\"starts-with\", \"$key\", \"\"]]", None),
            ("[[\"eq\", \"$bucket\", \"b\"]]", None),
            ("[[\"starts-with\", \"$key\", \"\"]]", Some(BodyError::FormPolicy)),
            ("[[\"starts-with\", \"$key\", \"$bucket\"]]", Some(BodyError::FormPolicy)),
            ("[]", Some(BodyError::FormPolicy)),
        ] {
            let fields = form(&[("policy", &policy(conditions)), ("file", "data")]);
            assert_eq!(watched(&fields, 1000).await, expected, "{conditions}");
        }
        assert_eq!(watched(&form(&[("policy", "no policy"), ("file", "data")]), 1000).await, None);
    }
}
