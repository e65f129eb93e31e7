//! POST forms, read and rewritten before `s3s` parses them: it drops fields that it does not know, takes a policy that
//! names no bucket for one of every bucket, knows one spelling of the headers of a part, and does not pass the name of
//! the file on.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_auth::{User, Users, equal_in_constant_time};
use forebay_types::Algorithm;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use hmac::{Hmac, KeyInit, Mac};
use s3s::StdError;
use sha2::Sha256;

use super::credential_scope::{fault, is_basic_time};
use super::{BodyError, Refused, documents, policies, signature_2};
use crate::access_list::CANNED;
use crate::context::RequestContext;
use crate::s3_error::signed_text;

/// Most bytes in front of the file. S3's own limit is 20 KB; policies of some tools are longer.
pub(crate) const FIELDS_BYTES_MAX: usize = 320 << 10;

/// The pieces in which the file goes to `s3s`, in bytes.
pub(crate) const PIECE_BYTES: usize = 32 << 10;

/// Fields of `x-amz-` that have an effect. Beside them: `x-amz-meta-*`.
const FIELDS: [&str; 23] = [
    "x-amz-acl",
    "x-amz-algorithm",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-md5",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-checksum-sha512",
    "x-amz-checksum-xxhash128",
    "x-amz-checksum-xxhash3",
    "x-amz-checksum-xxhash64",
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

/// The same form with its fields written the way that `s3s` reads them, or an error when it asks for what it would not
/// get.
pub(crate) fn watch<S>(
    body: S,
    boundary: &str,
    context: Arc<RequestContext>,
    users: Users,
    region: String,
) -> BoxStream<'static, Result<Bytes, StdError>>
where
    S: Stream<Item = Result<Bytes, StdError>> + Send + 'static,
{
    let delimiter = format!("--{boundary}").into_bytes();
    let head = async move {
        let mut body = Box::pin(body);
        let mut head = BytesMut::new();
        // Where the file begins is known only when all in front of it is here; to look at each piece would cost its
        // square.
        while head.len() <= FIELDS_BYTES_MAX {
            let Some(data) = body.next().await else { break };
            head.extend_from_slice(&data?);
        }
        let head = head.freeze();
        let rewritten = Form::parse(&head, &delimiter).map_err(Refused::from).and_then(|form| {
            let signer = form.check(&users, &region)?;
            let fields = form.rewrite(&delimiter, signer)?;
            if let Some(tags) = form.tags()? {
                let _ = context.form_tags.set(tags);
            }
            let _ = context.form_checksums.set(form.checksums());
            Ok((fields, form.rest.len()))
        });
        match rewritten {
            Ok((fields, rest)) => Ok((Bytes::from(fields), head.slice(head.len() - rest..), body)),
            Err(refused) => {
                let error = refused.error;
                let _ = context.refused.set(refused);
                Err(StdError::from(error))
            }
        }
    };
    futures::stream::once(head)
        .flat_map(|head| match head {
            Ok((fields, file, rest)) => {
                let file = futures::stream::once(async { Ok(file) }).chain(rest).flat_map(in_pieces);
                futures::stream::once(async { Ok(fields) }).chain(file).boxed()
            }
            Err(error) => futures::stream::once(async { Err(error) }).boxed(),
        })
        .boxed()
}

/// `s3s` takes the fields and the first piece of the file together, and no piece of more than 64 KiB behind one that
/// ends like the beginning of a delimiter.
fn in_pieces(data: Result<Bytes, StdError>) -> BoxStream<'static, Result<Bytes, StdError>> {
    match data {
        Ok(data) => {
            let starts = (0..data.len()).step_by(PIECE_BYTES);
            let pieces: Vec<_> =
                starts.map(|start| Ok(data.slice(start..data.len().min(start + PIECE_BYTES)))).collect();
            futures::stream::iter(pieces).boxed()
        }
        Err(error) => futures::stream::once(async { Err(error) }).boxed(),
    }
}

/// The boundary of a form's type: at most 70 of the characters that RFC 2046 allows, so that `s3s` reads the same one.
pub(crate) fn boundary(content_type: &str) -> Option<String> {
    let parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.trim().split_once('='));
    let mut boundaries = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"));
    let boundary = boundaries.next().filter(|_| boundaries.next().is_none())?.1.trim().trim_matches('"').to_owned();
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=?".contains(&byte);
    ((1..=70).contains(&boundary.len()) && boundary.bytes().all(is_allowed)).then_some(boundary)
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// A form up to the first bytes of its file.
struct Form<'a> {
    /// Names and values in front of the file; S3 ignores what stands behind it.
    fields: Vec<(String, &'a [u8])>,
    /// What the browser calls the file, without directories. `None` when it does not say.
    file_name: Option<String>,
    file_type: Option<String>,
    /// The beginning of the file, and whatever else is here already.
    rest: &'a [u8],
}

impl<'a> Form<'a> {
    fn parse(head: &'a [u8], delimiter: &[u8]) -> Result<Self, BodyError> {
        // Cut off within the fields, or complete and without a file.
        let is_whole = || head.trim_ascii_end().ends_with(&[b"\r\n", delimiter, b"--"].concat());
        let incomplete = || match () {
            () if head.len() > FIELDS_BYTES_MAX => BodyError::TooLong,
            () if is_whole() => BodyError::FormFile,
            () => BodyError::Form,
        };
        let first = [delimiter, b"\r\n"].concat();
        let between = [b"\r\n", &*first].concat();
        let mut rest = head.strip_prefix(b"\r\n").unwrap_or(head).strip_prefix(&*first).ok_or_else(incomplete)?;
        let mut fields: Vec<(String, &[u8])> = Vec::new();
        loop {
            let end = position(rest, b"\r\n\r\n").ok_or_else(incomplete)?;
            let headers = String::from_utf8_lossy(&rest[..end]);
            let name = parameter(&headers, "name").ok_or(BodyError::Form)?;
            if name.eq_ignore_ascii_case("file") {
                let (file_name, file_type) = (file_name(&headers), header(&headers, "content-type"));
                return Ok(Self { fields, file_name, file_type, rest: &rest[end + 4..] });
            }
            let is_twice = fields.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name));
            if is_twice || name.contains(['"', '\r', '\n']) {
                return Err(BodyError::Form);
            }
            // An empty value ends with the line break that ends the headers.
            rest = &rest[end + 2..];
            let end = position(rest, &between).ok_or_else(incomplete)?;
            fields.push((name, &rest[end.min(2)..end]));
            rest = &rest[end + between.len()..];
        }
    }

    fn field(&self, wanted: &str) -> Option<&str> {
        let field = self.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        field.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// Those that `s3s` would drop.
    fn checksums(&self) -> Vec<(Algorithm, String)> {
        let known = self.fields.iter().filter_map(|(name, value)| {
            let algorithm = Algorithm::from_header(&name.to_ascii_lowercase())?;
            // What is no text is no checksum.
            Some((algorithm, std::str::from_utf8(value).unwrap_or_default().to_owned()))
        });
        known.filter(|(algorithm, _)| algorithm.is_of_2026()).collect()
    }

    /// Refuses what would not be done, and compares the signature.
    fn check(&self, users: &Users, region: &str) -> Result<Option<Signer>, Refused> {
        self.require(&["key"])?;
        self.check_fields()?;
        let signer = match (self.field("signature"), self.field("x-amz-signature")) {
            (Some(_), Some(_)) => return Err(BodyError::FormSignature.into()),
            (Some(_), None) => self.check_version_2(users)?,
            (None, Some(_)) => self.check_version_4(users, region)?,
            // What is there of a signature tells which one is meant.
            (None, None) if self.has_any(&VERSION_4[..4]) => self.check_version_4(users, region)?,
            (None, None) if self.has_any(&VERSION_2[..2]) => self.check_version_2(users)?,
            (None, None) => {
                self.check_policy()?;
                return Ok(None);
            }
        };
        if self.field("x-amz-security-token").is_some_and(|token| !token.is_empty()) {
            return Err(BodyError::FormToken.into());
        }
        self.check_policy()?;
        Ok(Some(signer))
    }

    fn check_fields(&self) -> Result<(), Refused> {
        for (name, value) in &self.fields {
            match name.to_ascii_lowercase().as_str() {
                "acl" if !CANNED.iter().any(|canned| canned.as_bytes() == *value) => {
                    return Err(Refused::field("acl", &String::from_utf8_lossy(value), String::new()));
                }
                "acl" if !HARMLESS_ACLS.contains(value) => return Err(BodyError::FormAcl.into()),
                // Clients that send them rely on them.
                "if-match" | "if-none-match" => return Err(BodyError::FormField.into()),
                name if name.starts_with("x-amz-grant-") => return Err(BodyError::FormAcl.into()),
                name if name.starts_with("x-amz-") && !name.starts_with("x-amz-meta-") && !FIELDS.contains(&name) => {
                    return Err(BodyError::FormField.into());
                }
                // S3 ignores the rest, as long as the policy covers it.
                _ => {}
            }
        }
        Ok(())
    }

    fn check_policy(&self) -> Result<(), Refused> {
        let Some(policy) = self.field("policy") else { return Ok(()) };
        if let Some(fault) = policies::fault(policy) {
            let message = Some(format!("Invalid Policy: {fault}"));
            return Err(Refused { message, ..BodyError::FormPolicyDocument.into() });
        }
        if let Some(condition) = policies::impossible(policy) {
            let message = Some(format!("Invalid according to Policy: Policy Condition failed: {condition}"));
            return Err(Refused { message, ..BodyError::FormPolicy.into() });
        }
        if policies::names_bucket(policy) { Ok(()) } else { Err(BodyError::FormPolicy.into()) }
    }

    fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.field(name).is_some())
    }

    /// Of Amazon S3: localstack/localstack, `test_post_request_missing_fields` and
    /// `test_post_request_missing_signature`.
    fn require(&self, names: &[&str]) -> Result<(), Refused> {
        match names.iter().find(|name| self.field(name).is_none()) {
            None => Ok(()),
            Some(name) => Err(Refused::field(
                name,
                "",
                format!(
                    "Bucket POST must contain a field named '{name}'.  If it is specified, please check the order of the \
                     fields."
                ),
            )),
        }
    }

    /// The tags in a document, as in PutObjectTagging. In `x-amz-tagging` they are as in a header.
    fn tags(&self) -> Result<Option<Vec<(String, String)>>, BodyError> {
        let document = self.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("tagging"));
        let Some((_, document)) = document else { return Ok(None) };
        if self.field("x-amz-tagging").is_some() {
            return Err(BodyError::Form);
        }
        documents::tags_of(document).map(Some).ok_or(BodyError::Document)
    }

    fn check_version_2(&self, users: &Users) -> Result<Signer, Refused> {
        self.require(&VERSION_2)?;
        let given = |name| self.field(name).unwrap_or_default();
        let (access_key, policy, signature) = (given("AWSAccessKeyId"), given("policy"), given("Signature"));
        known(users, access_key)?;
        let is_right = signature_2::is_right(users, access_key, policy, signature);
        is_right.then(|| Signer::new(users, access_key, policy)).ok_or_else(|| mismatch(access_key, policy, signature))
    }

    /// Sources: "Calculating a signature" of POST policies, Amazon S3 API Reference; CulturalMe/meteor-slingshot#150
    /// and aws/aws-sdk-js#2529 (another region), michaeldyrynda/s3upload#1 (a time that is none).
    fn check_version_4(&self, users: &Users, region: &str) -> Result<Signer, Refused> {
        self.require(&VERSION_4)?;
        let given = |name| self.field(name).unwrap_or_default();
        let (credential, policy, signature) = (given("X-Amz-Credential"), given("policy"), given("X-Amz-Signature"));
        let (algorithm, time) = (given("X-Amz-Algorithm"), given("X-Amz-Date"));
        if algorithm != "AWS4-HMAC-SHA256" {
            let message = "Only AWS4-HMAC-SHA256 is supported".to_owned();
            return Err(Refused::field("X-Amz-Algorithm", algorithm, message));
        }
        if !is_basic_time(time) {
            let message = "X-Amz-Date must be formated via ISO8601 Long format".to_owned();
            return Err(Refused::field("X-Amz-Date", time, message));
        }
        if let Some(fault) = fault(credential, Some(time), region) {
            return Err(Refused::field("X-Amz-Credential", credential, fault));
        }
        // There is none without a slash by now.
        let (access_key, scope) = credential.split_once('/').unwrap_or_default();
        let user = known(users, access_key)?;
        let mut key = format!("AWS4{}", user.secret.expose()).into_bytes();
        for word in scope.split('/').chain([policy]) {
            let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a MAC takes keys of any length");
            mac.update(word.as_bytes());
            key = mac.finalize().into_bytes().to_vec();
        }
        let is_right = equal_in_constant_time(&hex::encode(key), signature);
        is_right.then(|| Signer::new(users, access_key, policy)).ok_or_else(|| mismatch(access_key, policy, signature))
    }

    /// The fields, and the headers of the file.
    fn rewrite(&self, delimiter: &[u8], signer: Option<Signer>) -> Result<Vec<u8>, BodyError> {
        let is_signature = |name: &str| SIGNATURES.iter().any(|signature| name.eq_ignore_ascii_case(signature));
        let mut written = Vec::new();
        for (name, value) in &self.fields {
            match std::str::from_utf8(value) {
                _ if signer.is_some() && is_signature(name) => {}
                Ok(key) if name.eq_ignore_ascii_case("key") => {
                    // localstack/localstack, `test_post_object_with_file_as_string`: without a name it stays.
                    let key = self.file_name.as_ref().map(|file_name| key.replace("${filename}", file_name));
                    write_field(&mut written, delimiter, name, key.as_deref().map_or(*value, str::as_bytes))?;
                }
                Ok(policy) if name.eq_ignore_ascii_case("policy") => {
                    let policy = signer.as_ref().map_or(policy, |signer| &signer.policy);
                    write_field(&mut written, delimiter, name, policy.as_bytes())?;
                }
                _ => write_field(&mut written, delimiter, name, value)?,
            }
        }
        if let Some(signer) = signer {
            write_field(&mut written, delimiter, "AWSAccessKeyId", signer.access_key.as_bytes())?;
            write_field(&mut written, delimiter, "signature", signer.signature.as_bytes())?;
        }
        written.extend_from_slice(delimiter);
        written.extend_from_slice(b"\r\nContent-Disposition: form-data; name=\"file\"");
        if let Some(file_type) = &self.file_type {
            written.extend_from_slice(format!("\r\nContent-Type: {file_type}").as_bytes());
        }
        written.extend_from_slice(b"\r\n\r\n");
        Ok(written)
    }
}

fn known(users: &Users, access_key: &str) -> Result<Arc<User>, Refused> {
    users.find(access_key).ok_or_else(|| Refused {
        details: vec![("AWSAccessKeyId", access_key.to_owned())],
        ..BodyError::FormAccessKey.into()
    })
}

fn mismatch(access_key: &str, policy: &str, signature: &str) -> Refused {
    Refused { details: signed_text(access_key, policy, signature), ..BodyError::FormSignature.into() }
}

fn write_field(written: &mut Vec<u8>, delimiter: &[u8], name: &str, value: &[u8]) -> Result<(), BodyError> {
    // A line of it could be taken for the end of the value.
    if position(value, delimiter).is_some() {
        return Err(BodyError::Form);
    }
    let headers = format!("\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
    for part in [delimiter, headers.as_bytes(), value, b"\r\n"] {
        written.extend_from_slice(part);
    }
    Ok(())
}

/// The signer of a form. `s3s` gets a signature of Version 2 for it. It would know the age of one of Version 4, and
/// refuse it after a quarter of an hour, while in S3 the policy alone says how long it is valid.
struct Signer {
    access_key: String,
    /// As `s3s` reads it.
    policy: String,
    signature: String,
}

impl Signer {
    fn new(users: &Users, access_key: &str, policy: &str) -> Self {
        let policy = policies::with_numbers(policy).unwrap_or_else(|| policy.to_owned());
        let signature = signature_2::sign(users, access_key, &policy);
        Self { access_key: access_key.to_owned(), policy, signature }
    }
}

/// The fields of a signature and the policy that it covers, as Amazon S3 names them in errors, in the order in which it
/// misses them.
const VERSION_4: [&str; 5] = ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Signature", "policy"];
const VERSION_2: [&str; 3] = ["AWSAccessKeyId", "Signature", "policy"];

/// The fields that hold a signature, which no policy covers.
const SIGNATURES: [&str; 3] = ["AWSAccessKeyId", "signature", "x-amz-signature"];

/// What the browser calls the file, without directories.
fn file_name(headers: &str) -> Option<String> {
    let encoded = || {
        let value = parameter(headers, "filename*")?;
        let (charset, name) = value.split_once("''")?;
        let name = percent_encoding::percent_decode_str(name).decode_utf8().ok()?;
        charset.eq_ignore_ascii_case("utf-8").then(|| name.into_owned())
    };
    let path = parameter(headers, "filename").or_else(encoded)?;
    Some(path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned())
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
            Some(quoted) => unquote(quoted)?,
            None => {
                let (value, behind) = value.split_at(value.find(';').unwrap_or(value.len()));
                (value.trim().to_owned(), behind)
            }
        };
        if name.trim_matches([';', ' ', '\t']).eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = behind;
    }
}

/// A quoted value, and what stands behind it. Browsers write a quote as `%22` and leave backslashes alone; old curls
/// write `\"`.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut from = 0;
    loop {
        let end = from + quoted[from..].find('"')?;
        let behind = &quoted[end + 1..];
        let is_escaped = quoted[..end].ends_with('\\') && behind.contains('"') && !behind.trim_start().starts_with(';');
        if !is_escaped {
            return Some((quoted[..end].replace("\\\"", "\"").trim().to_owned(), behind));
        }
        from = end + 1;
    }
}

#[cfg(test)]
mod tests;
