//! POST forms, read and written anew before `s3s` parses them: it drops fields that it does not know, takes a policy that names no
//! bucket for one of every bucket, knows one spelling of the headers of a part, and does not pass the name of the file on.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use forebay_auth::Users;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use s3s::StdError;

use super::checks::check_scope;
use super::{BodyError, signature_2};
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

/// The same form with its fields written the way that `s3s` reads them, or an error when it asks for what it would not get.
pub(crate) fn watch<S>(
    body: S,
    content_type: &str,
    context: Arc<RequestContext>,
    users: Users,
    region: String,
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
        match Form::parse(&head, &delimiter)
            .and_then(|form| form.check(&users, &region).map(|()| form.rewrite(&delimiter)))
        {
            Ok(head) => Ok((Bytes::from(head), body)),
            Err(wrong) => {
                let _ = context.refused.set(wrong);
                Err(StdError::from(wrong))
            }
        }
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

/// A form up to the first bytes of its file.
struct Form<'a> {
    /// Names and values in front of the file; S3 ignores what stands behind it.
    fields: Vec<(String, &'a [u8])>,
    /// What the browser calls the file, without directories.
    file_name: String,
    file_type: Option<String>,
    /// The beginning of the file, and whatever else is here already.
    rest: &'a [u8],
}

impl<'a> Form<'a> {
    fn parse(head: &'a [u8], delimiter: &[u8]) -> Result<Self, BodyError> {
        // Cut off within the fields, or complete and without a file.
        let incomplete = || if head.len() > FIELDS_BYTES_MAX { BodyError::TooLong } else { BodyError::Form };
        let first = [delimiter, b"\r\n"].concat();
        let between = [b"\r\n", &*first].concat();
        let mut rest = head.strip_prefix(b"\r\n").unwrap_or(head).strip_prefix(&*first).ok_or_else(incomplete)?;
        let mut fields: Vec<(String, &[u8])> = Vec::new();
        loop {
            let end = position(rest, b"\r\n\r\n").ok_or_else(incomplete)?;
            let headers = String::from_utf8_lossy(&rest[..end]);
            rest = &rest[end + 4..];
            let name = parameter(&headers, "name").ok_or(BodyError::Form)?;
            if name.eq_ignore_ascii_case("file") {
                let path = parameter(&headers, "filename").unwrap_or_default();
                let file_name = path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
                return Ok(Self { fields, file_name, file_type: header(&headers, "content-type"), rest });
            }
            let is_twice = fields.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name));
            if is_twice || name.contains(['"', '\r', '\n']) {
                return Err(BodyError::Form);
            }
            let end = position(rest, &between).ok_or_else(incomplete)?;
            fields.push((name, &rest[..end]));
            rest = &rest[end + between.len()..];
        }
    }

    fn field(&self, wanted: &str) -> Option<&str> {
        let field = self.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        field.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    fn check(&self, users: &Users, region: &str) -> Result<(), BodyError> {
        for (name, value) in &self.fields {
            match name.to_ascii_lowercase().as_str() {
                "tagging" => return Err(BodyError::FormField),
                "acl" if !HARMLESS_ACLS.contains(value) => return Err(BodyError::FormField),
                "policy" if names_bucket(value) == Some(false) => return Err(BodyError::FormPolicy),
                name if name.starts_with("x-amz-") && !name.starts_with("x-amz-meta-") && !FIELDS.contains(&name) => {
                    return Err(BodyError::FormField);
                }
                // S3 ignores the rest, as long as the policy covers it.
                _ => {}
            }
        }
        match (self.field("signature"), self.field("x-amz-signature")) {
            (Some(signature), None) => self.check_version_2(users, signature),
            (Some(_), Some(_)) => Err(BodyError::FormSignature),
            (None, _) => {
                let scope = self.field("x-amz-credential").map_or(Ok(()), |credential| check_scope(credential, region));
                scope.map_err(|_| BodyError::FormSignature)
            }
        }
    }

    fn check_version_2(&self, users: &Users, signature: &str) -> Result<(), BodyError> {
        let given = |name| self.field(name).unwrap_or_default();
        match signature_2::is_right(users, given("AWSAccessKeyId"), given("policy"), signature) {
            true => Ok(()),
            false => Err(BodyError::FormSignature),
        }
    }

    fn rewrite(&self, delimiter: &[u8]) -> Vec<u8> {
        let mut written = Vec::with_capacity(FIELDS_BYTES_MAX);
        let disposition = |name: &str, more: &str| {
            let text = format!("\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n");
            [delimiter, text.as_bytes()].concat()
        };
        for (name, value) in &self.fields {
            written.extend(disposition(name, ""));
            match std::str::from_utf8(value) {
                Ok(key) if name.eq_ignore_ascii_case("key") => {
                    written.extend(key.replace("${filename}", &self.file_name).into_bytes());
                }
                _ => written.extend_from_slice(value),
            }
            written.extend_from_slice(b"\r\n");
        }
        let file_type = self.file_type.as_ref().map(|file_type| format!("\r\nContent-Type: {file_type}"));
        written.extend(disposition("file", file_type.as_deref().unwrap_or_default()));
        written.extend_from_slice(self.rest);
        written
    }
}

/// The value of a header of a part.
fn header(headers: &str, wanted: &str) -> Option<String> {
    let header = headers
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case(wanted));
    header.map(|(_, value)| value.trim().to_owned())
}

/// A parameter of a part's Content-Disposition, with or without quotes around it.
fn parameter(headers: &str, wanted: &str) -> Option<String> {
    let disposition = header(headers, "content-disposition")?;
    let mut rest = disposition.split_once(';')?.1;
    loop {
        let (name, value) = rest.split_once('=')?;
        let (value, behind) = match value.trim_start().strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => value.split_at(value.find(';').unwrap_or(value.len())),
        };
        if name.trim_matches([';', ' ', '\t']).eq_ignore_ascii_case(wanted) {
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
mod tests;
