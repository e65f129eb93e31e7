//! Documents in the bodies of requests, checked before `s3s` parses them. It compares no digests, drops CDATA, and
//! ignores what it does not know and what stands behind the end: of a list of deletes that is damaged or misread, other
//! objects would be deleted.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use forebay_cache::{BodyDigests, Detail};
use forebay_types::{Algorithm, Checksum};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use http::HeaderMap;
use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;
use s3s::{HttpResponse, S3Error, StdError};
use sha2::{Digest, Sha256};

use super::{BodyError, Refused, XML_BYTES_MAX, answer, checksums};
use crate::buffers::Held;
use crate::context::RequestContext;
use crate::incoming::{md5, payload_hash};
use crate::s3_error::invalid_request;
use crate::s3s_types;

/// What a document is about, and with it what may be in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Delete,
    Tagging,
    Complete,
    /// Of a new bucket: may be left out.
    Create,
    /// May be a header instead.
    Acl,
    Ownership,
}

impl Kind {
    /// The paths of all elements; S3 knows no attributes but namespaces.
    fn elements(self) -> &'static [&'static str] {
        match self {
            Self::Delete => &[
                "Delete",
                "Delete/Quiet",
                "Delete/Object",
                "Delete/Object/Key",
                "Delete/Object/VersionId",
                "Delete/Object/ETag",
                "Delete/Object/LastModifiedTime",
                "Delete/Object/Size",
            ],
            Self::Tagging => &[
                "Tagging",
                "Tagging/TagSet",
                "Tagging/TagSet/Tag",
                "Tagging/TagSet/Tag/Key",
                "Tagging/TagSet/Tag/Value",
            ],
            Self::Complete => &[
                "CompleteMultipartUpload",
                "CompleteMultipartUpload/Part",
                "CompleteMultipartUpload/Part/PartNumber",
                "CompleteMultipartUpload/Part/ETag",
                "CompleteMultipartUpload/Part/ChecksumCRC32",
                "CompleteMultipartUpload/Part/ChecksumCRC32C",
                "CompleteMultipartUpload/Part/ChecksumCRC64NVME",
                "CompleteMultipartUpload/Part/ChecksumSHA1",
                "CompleteMultipartUpload/Part/ChecksumSHA256",
                "CompleteMultipartUpload/Part/ChecksumSHA512",
                "CompleteMultipartUpload/Part/ChecksumMD5",
                "CompleteMultipartUpload/Part/ChecksumXXHASH64",
                "CompleteMultipartUpload/Part/ChecksumXXHASH3",
                "CompleteMultipartUpload/Part/ChecksumXXHASH128",
            ],
            Self::Create => &[
                "CreateBucketConfiguration",
                "CreateBucketConfiguration/LocationConstraint",
                "CreateBucketConfiguration/Location",
                "CreateBucketConfiguration/Location/Name",
                "CreateBucketConfiguration/Location/Type",
                "CreateBucketConfiguration/Bucket",
                "CreateBucketConfiguration/Bucket/DataRedundancy",
                "CreateBucketConfiguration/Bucket/Type",
                "CreateBucketConfiguration/Tags",
                "CreateBucketConfiguration/Tags/Tag",
                "CreateBucketConfiguration/Tags/Tag/Key",
                "CreateBucketConfiguration/Tags/Tag/Value",
            ],
            Self::Acl => &[
                "AccessControlPolicy",
                "AccessControlPolicy/Owner",
                "AccessControlPolicy/Owner/ID",
                "AccessControlPolicy/Owner/DisplayName",
                "AccessControlPolicy/AccessControlList",
                "AccessControlPolicy/AccessControlList/Grant",
                "AccessControlPolicy/AccessControlList/Grant/Grantee",
                "AccessControlPolicy/AccessControlList/Grant/Grantee/ID",
                "AccessControlPolicy/AccessControlList/Grant/Grantee/DisplayName",
                "AccessControlPolicy/AccessControlList/Grant/Grantee/EmailAddress",
                "AccessControlPolicy/AccessControlList/Grant/Grantee/URI",
                "AccessControlPolicy/AccessControlList/Grant/Permission",
            ],
            Self::Ownership => {
                &["OwnershipControls", "OwnershipControls/Rule", "OwnershipControls/Rule/ObjectOwnership"]
            }
        }
    }
}

impl Kind {
    fn malformed(self) -> Refused {
        match self {
            Self::Acl => Refused { message: Some(BodyError::Document.message()), ..BodyError::Acl.into() },
            _ => BodyError::Document.into(),
        }
    }
}

/// Elements whose text is a number. `s3s` reads as many digits as there are.
const NUMBERS: [&str; 2] = ["CompleteMultipartUpload/Part/PartNumber", "Delete/Object/Size"];

/// What the body of a document must turn out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    kind: Kind,
    digests: Expectations,
    sha256: Option<[u8; 32]>,
}

/// Digests that the headers give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expectations {
    md5: Option<[u8; 16]>,
    checksums: Vec<Checksum>,
}

impl Expected {
    /// # Errors
    /// `InvalidDigest` and `InvalidRequest` for values that are none.
    pub(crate) fn of(kind: Kind, headers: &HeaderMap) -> Result<Self, S3Error> {
        let digests = match kind {
            // Its checksums are the object's.
            Kind::Complete => Expectations { md5: given_md5(headers)?, checksums: Vec::new() },
            Kind::Delete | Kind::Tagging | Kind::Create | Kind::Acl | Kind::Ownership => Expectations::of(headers)?,
        };
        Ok(Self { kind, digests, sha256: payload_hash(headers) })
    }

    /// Whether no digest speaks of a document that has not come.
    pub(crate) fn allows_nothing(&self) -> bool {
        self.compare(b"").is_ok()
    }

    fn compare(&self, document: &[u8]) -> Result<(), Refused> {
        if self.sha256.is_some_and(|sha256| sha256 != *Sha256::digest(document)) {
            return Err(BodyError::PayloadHash.into());
        }
        self.digests.compare(document)
    }

    fn check(&self, document: &[u8]) -> Result<(), Refused> {
        self.compare(document)?;
        if document.is_empty() && matches!(self.kind, Kind::Create | Kind::Acl | Kind::Complete) {
            return Ok(());
        }
        check_elements(self.kind, document).ok_or_else(|| self.kind.malformed())?;
        match self.kind {
            Kind::Create => check_bucket_tags(document),
            // localstack/localstack, `test_tagging_validation`.
            Kind::Tagging => tags_in(document).map(|_| ()).ok_or_else(|| self.kind.malformed()),
            Kind::Delete | Kind::Complete | Kind::Acl | Kind::Ownership => Ok(()),
        }
    }
}

impl Expectations {
    /// # Errors
    /// As [`Expected::of`].
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, S3Error> {
        let checksum = |algorithm: Algorithm| {
            let value = headers.get(algorithm.header())?.to_str().unwrap_or_default();
            let wrong = || invalid_request(format!("Value for {} header is invalid.", algorithm.header()));
            Some(Checksum::parse(algorithm, value).ok_or_else(wrong))
        };
        let checksums = Algorithm::ALL.into_iter().filter_map(checksum).collect::<Result<_, _>>()?;
        Ok(Self { md5: given_md5(headers)?, checksums })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.md5.is_none() && self.checksums.is_empty()
    }

    pub(crate) fn compare(&self, document: &[u8]) -> Result<(), Refused> {
        let algorithms: Vec<_> = self.checksums.iter().map(|checksum| checksum.algorithm).collect();
        let mut digests = BodyDigests::new(&algorithms);
        digests.update(document);
        digests.verify(self.md5, &self.checksums).map_err(|error| match error.detail.as_deref() {
            Some(Detail::Md5 { given, calculated }) => Refused {
                details: vec![
                    ("ExpectedDigest", STANDARD.encode(given)),
                    ("CalculatedDigest", STANDARD.encode(calculated)),
                ],
                ..BodyError::Md5.into()
            },
            _ => Refused { message: Some(error.context), ..BodyError::Checksum.into() },
        })
    }
}

fn given_md5(headers: &HeaderMap) -> Result<Option<[u8; 16]>, S3Error> {
    headers.get("content-md5").map(|value| md5(value.to_str().unwrap_or_default())).transpose()
}

/// Each takes many times its bytes in memory. The limit is above 10,000 parts with all of their elements.
const ELEMENTS_MAX: usize = 100_000;

/// `None` when the document is not one of this kind.
fn check_elements(kind: Kind, document: &[u8]) -> Option<()> {
    let mut reader = Reader::from_reader(document);
    let (mut path, mut has_ended, mut elements) = (String::new(), false, 0);
    loop {
        let event = reader.read_event().ok()?;
        elements += usize::from(matches!(event, Event::Start(_) | Event::Empty(_)));
        if elements > ELEMENTS_MAX {
            return None;
        }
        match event {
            Event::Start(start) => {
                enter(kind, &mut path, start.name().as_ref(), has_ended)?;
            }
            Event::Empty(element) => {
                enter(kind, &mut path, element.name().as_ref(), has_ended)?;
                has_ended |= leave(&mut path);
            }
            Event::End(_) => has_ended |= leave(&mut path),
            Event::Text(text) if path.is_empty() && !text.iter().all(u8::is_ascii_whitespace) => return None,
            Event::Text(text) if is_number(&path) && !text.trim_ascii().iter().all(u8::is_ascii_digit) => return None,
            Event::GeneralRef(_) | Event::Comment(_) | Event::PI(_) if is_number(&path) => return None,
            Event::Decl(declaration) => {
                let encoding = declaration.encoding().transpose().ok()?;
                encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case(b"utf-8")).then_some(())?;
            }
            Event::CData(_) | Event::DocType(_) => return None,
            Event::GeneralRef(_) if path.is_empty() => return None,
            Event::Eof => return has_ended.then_some(()),
            Event::Text(_) | Event::GeneralRef(_) | Event::Comment(_) | Event::PI(_) => {}
        }
    }
}

/// The tags in a document of tags. `None` when it is none.
///
/// In a form, any other document has no tags to Amazon S3: localstack/localstack, `test_post_object_with_tags`.
pub(super) fn tags_of(document: &[u8]) -> Option<Vec<(String, String)>> {
    if root_of(document)? != b"Tagging" {
        return Some(Vec::new());
    }
    check_elements(Kind::Tagging, document)?;
    tags_in(document)
}

/// The outermost element of a well-formed document.
fn root_of(document: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader::from_reader(document);
    let (mut root, mut depth) = (None, 0_usize);
    loop {
        match reader.read_event().ok()? {
            Event::Start(element) => {
                root.get_or_insert_with(|| element.name().as_ref().to_vec());
                depth += 1;
            }
            Event::Empty(element) => {
                root.get_or_insert_with(|| element.name().as_ref().to_vec());
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            Event::Text(text) if depth == 0 && !text.iter().all(u8::is_ascii_whitespace) => return None,
            Event::DocType(_) => return None,
            Event::Eof => return root.filter(|_| depth == 0),
            _ => {}
        }
    }
}

/// A new bucket can have no tags here. Invalid tags have errors of their own. Source: localstack/localstack,
/// `test_create_bucket_with_tags_exc`.
fn check_bucket_tags(document: &[u8]) -> Result<(), Refused> {
    let tags = tags_in(document).ok_or(BodyError::Document)?;
    let refuse = |message: String, details| Refused { error: BodyError::BucketTag, message: Some(message), details };
    if tags.iter().any(|(key, _)| key.starts_with("aws:")) {
        let message = "User-defined tag keys can't start with \"aws:\". This prefix is reserved for system tags. Remove \
                       \"aws:\" from your tag keys and try again.";
        return Err(refuse(message.to_owned(), Vec::new()));
    }
    match s3s_types::fault_of_tags(&tags) {
        None => Ok(()),
        Some(fault) => {
            let details = fault.details.into_iter().map(|(name, text)| (name, text.to_owned())).collect();
            Err(refuse(fault.message.to_owned(), details))
        }
    }
}

/// Whether a document for a new bucket, which has been checked, has tags.
fn has_tags(document: &[u8]) -> bool {
    tags_in(document).is_some_and(|tags| !tags.is_empty())
}

/// The tags in a document whose elements have been checked. `None` when one lacks its key or its value.
fn tags_in(document: &[u8]) -> Option<Vec<(String, String)>> {
    let mut reader = Reader::from_reader(document);
    let (mut tags, mut name): (Vec<(Option<String>, Option<String>)>, _) = (Vec::new(), Vec::new());
    loop {
        let event = reader.read_event().ok()?;
        if let Event::Start(element) | Event::Empty(element) = &event {
            match (element.name().as_ref(), tags.last_mut()) {
                (b"Tag", _) => tags.push((None, None)),
                (b"Key", Some((key @ None, _))) => *key = Some(String::new()),
                (b"Value", Some((_, value @ None))) => *value = Some(String::new()),
                _ => {}
            }
        }
        let field = tags.last_mut().and_then(|(key, value)| match name.as_slice() {
            b"Key" => key.as_mut(),
            b"Value" => value.as_mut(),
            _ => None,
        });
        match (&event, field) {
            (Event::Start(element), _) => name = element.name().as_ref().to_vec(),
            (Event::End(_), _) => name.clear(),
            (Event::Text(text), Some(field)) => field.push_str(std::str::from_utf8(text).ok()?),
            (Event::GeneralRef(reference), Some(field)) => match reference.resolve_char_ref().ok()? {
                Some(character) => field.push(character),
                None => field.push_str(resolve_predefined_entity(std::str::from_utf8(reference).ok()?)?),
            },
            (Event::Eof, _) => return tags.into_iter().map(|(key, value)| Some((key?, value?))).collect(),
            _ => {}
        }
    }
}

fn is_number(path: &str) -> bool {
    NUMBERS.contains(&path)
}

fn enter(kind: Kind, path: &mut String, name: &[u8], has_ended: bool) -> Option<()> {
    if !path.is_empty() {
        path.push('/');
    }
    path.push_str(std::str::from_utf8(name).ok()?);
    (!has_ended && kind.elements().contains(&path.as_str())).then_some(())
}

/// Whether that was the outermost element.
fn leave(path: &mut String) -> bool {
    path.truncate(path.rfind('/').unwrap_or(0));
    path.is_empty()
}

/// The same body, or an error when it is not what was expected; the error is noted in the context too, since `s3s`
/// answers all errors of a document with InternalError.
pub(crate) fn verify<S>(
    body: S,
    expected: Expected,
    context: Arc<RequestContext>,
    mut held: Held,
) -> BoxStream<'static, Result<Bytes, StdError>>
where
    S: Stream<Item = Result<Bytes, StdError>> + Send + 'static,
{
    let read = async move {
        let mut body = std::pin::pin!(body);
        let mut document = Vec::new();
        while let Some(data) = body.next().await {
            let data = data.map_err(|error| refuse(&context, BodyError::from_stream(&*error)))?;
            // What is made of it takes as much again.
            held.set(context.requester.get(), 2 * (document.len() + data.len()))
                .map_err(|busy| refuse(&context, busy))?;
            if document.capacity() - document.len() < data.len() {
                document.reserve_exact(data.len().max(document.len() / 4));
            }
            document.extend_from_slice(&data);
            if document.len() > XML_BYTES_MAX {
                return Err(refuse(&context, BodyError::TooLong));
            }
        }
        expected.check(&document).map_err(|wrong| refuse(&context, wrong))?;
        if expected.kind == Kind::Create && has_tags(&document) {
            let _ = context.bucket_tags.set(());
        }
        if expected.kind == Kind::Complete
            && let Some(others) = checksums::of_parts(&document)
        {
            let _ = context.part_checksums.set(others);
        }
        // What is made of it is there until the answer.
        let _ = context.document.set(held);
        Ok(Bytes::from(document))
    };
    futures::stream::once(read).boxed()
}

fn refuse(context: &RequestContext, wrong: impl Into<Refused>) -> StdError {
    let wrong = wrong.into();
    let error = wrong.error;
    let _ = context.refused.set(wrong);
    error.into()
}

/// The answer to a body that was refused.
pub(crate) fn refused(context: &RequestContext) -> Option<HttpResponse> {
    Some(answer::refuse(context.refused.get()?.answer(), &context.id))
}

/// Says of a request that its body is a document, which [`crate::compat`] puts right behind the signature check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IsDocument;

/// The same document with characters instead of references to those above U+FFFF, which `s3s` refuses (its
/// `resolve_char_ref` has a digit too much); minio-py writes all keys beyond ASCII so.
pub(crate) fn plain_references(document: &[u8]) -> Bytes {
    let Ok(text) = std::str::from_utf8(document) else { return Bytes::copy_from_slice(document) };
    let mut plain = String::with_capacity(text.len());
    for (index, piece) in text.split("&#").enumerate() {
        let reference = (index > 0).then(|| piece.split_once(';')).flatten();
        match reference.and_then(|(digits, rest)| Some((above_basic_plane(digits)?, rest))) {
            Some((character, rest)) => {
                plain.push(character);
                plain.push_str(rest);
            }
            None => {
                plain.push_str(if index > 0 { "&#" } else { "" });
                plain.push_str(piece);
            }
        }
    }
    Bytes::from(plain)
}

fn above_basic_plane(digits: &str) -> Option<char> {
    let code = match digits.strip_prefix('x') {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
        None => digits.parse(),
    };
    code.ok().filter(|code| *code > 0xFFFF).and_then(char::from_u32)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::buffers::Buffers;

    const TAGS: &str = "<Tagging><TagSet/></Tagging>";

    async fn read(headers: &[(&'static str, &'static str)], body: &'static str) -> Option<BodyError> {
        let headers =
            headers.iter().map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
        let expected = Expected::of(Kind::Tagging, &headers.collect()).expect("digests");
        let context = Arc::new(RequestContext::new("id".to_owned(), "http"));
        let pieces = body.as_bytes().chunks(3).map(|piece| Ok(Bytes::from_static(piece)));
        let read: Vec<_> =
            verify(futures::stream::iter(pieces), expected, Arc::clone(&context), Buffers::default().begin())
                .collect()
                .await;
        let failed = read.iter().any(Result::is_err);
        assert_eq!(failed, context.refused.get().is_some());
        assert!(failed || read.into_iter().flat_map(Result::unwrap).eq(body.bytes()));
        context.refused.get().map(|refused| refused.error)
    }

    #[tokio::test]
    async fn a_document_is_what_its_digests_say() {
        let md5 = ("content-md5", "MiK6ZqQ1QvDEa+XYsdLcQg==");
        let crc32 = ("x-amz-checksum-crc32", "wsibng==");
        assert_eq!(read(&[], TAGS).await, None);
        assert_eq!(read(&[md5, crc32], TAGS).await, None);
        let other = "<Tagging><TagSet></TagSet></Tagging>";
        assert_eq!(read(&[md5], other).await, Some(BodyError::Md5));
        assert_eq!(read(&[crc32], other).await, Some(BodyError::Checksum));
        assert_eq!(read(&[md5], "").await, Some(BodyError::Md5));
    }

    #[test]
    fn wrong_tags_of_a_new_bucket_are_told_apart() {
        let checked = |tags: &str| {
            let document = format!("<CreateBucketConfiguration><Tags>{tags}</Tags></CreateBucketConfiguration>");
            let expected = Expected::of(Kind::Create, &HeaderMap::new()).expect("no digests");
            expected.check(document.as_bytes()).err().map(|refused| refused.error)
        };
        let tag = |key: &str, value: &str| format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>");
        assert_eq!(checked(""), None);
        assert_eq!(checked(&tag("a", "1")), None);
        assert_eq!(checked(&(tag("a", "") + &tag("b&#61;", "2"))), None);
        for (wrong, value) in [("", "1"), ("a&amp;", "1"), ("aws:a", "1"), (&*"k".repeat(129), ""), ("a", "!")] {
            assert_eq!(checked(&tag(wrong, value)), Some(BodyError::BucketTag), "{wrong} {value}");
        }
        assert_eq!(checked(&(tag("a", "1") + &tag("a", "2"))), Some(BodyError::BucketTag));
        for partial in ["<Tag/>", "<Tag><Key>a</Key></Tag>", "<Tag><Value>1</Value></Tag>"] {
            assert_eq!(checked(partial), Some(BodyError::Document), "{partial}");
        }
        assert_eq!(checked("<Tag><Kee>a</Kee></Tag>"), Some(BodyError::Document));
    }

    #[test]
    fn references_to_all_characters_are_read() {
        for (written, plain) in [
            ("<Key>&#129408;/&#x1F980;&#x1f980;</Key>", "<Key>\u{1F980}/\u{1F980}\u{1F980}</Key>"),
            ("<Key>&#60;&#x26;&#252;&amp;#129408;</Key>", "<Key>&#60;&#x26;&#252;&amp;#129408;</Key>"),
            ("&#;&#x;&#129408&#99999999999;&#x110000;&#", "&#;&#x;&#129408&#99999999999;&#x110000;&#"),
            ("", ""),
        ] {
            assert_eq!(plain_references(written.as_bytes()), plain, "{written}");
        }
        assert_eq!(plain_references(b"\xff&#129408;"), b"\xff&#129408;".as_slice());
    }

    #[test]
    fn what_could_be_misread_is_no_document() {
        let is_one = |kind: Kind, text: &str| check_elements(kind, text.as_bytes()).is_some();
        for good in [
            "<Delete><Object><Key>a&amp;&#13;b</Key></Object></Delete>",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n \
             <!-- two --><Quiet>true</Quiet><Object><Key>a</Key><VersionId>null</VersionId></Object></Delete>\n",
        ] {
            assert!(is_one(Kind::Delete, good), "{good}");
        }
        for bad in [
            "",
            "Delete",
            "<Delete>",
            "<Delete></Wrong>",
            "<Delete/><Delete/>",
            "<Delete/>junk",
            "junk<Delete/>",
            "<Delete/>&amp;",
            "<delete/>",
            "<Tagging/>",
            "<Delete><Key>a</Key></Delete>",
            "<Delete><Object><Key>a<![CDATA[b]]></Key></Object></Delete>",
            "<Delete><Object><Key><b>a</b></Key></Object></Delete>",
            "<!DOCTYPE d><Delete/>",
            "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><Delete/>",
        ] {
            assert!(!is_one(Kind::Delete, bad), "{bad}");
        }
        assert!(is_one(
            Kind::Create,
            "<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>"
        ));
        for bad in
            ["<!DOCTYPE c><CreateBucketConfiguration/>", "<CreateBucketConfiguration><x/></CreateBucketConfiguration>"]
        {
            assert!(!is_one(Kind::Create, bad), "{bad}");
        }
        assert!(!is_one(Kind::Tagging, "<Tagging><TagSet><tag><Key>a</Key></tag></TagSet></Tagging>"));
        assert!(is_one(
            Kind::Complete,
            "<CompleteMultipartUpload><Part><ETag>\"a\"</ETag></Part></CompleteMultipartUpload>"
        ));
        let numbered = |number: &str| {
            format!("<CompleteMultipartUpload><Part><PartNumber>{number}</PartNumber></Part></CompleteMultipartUpload>")
        };
        for good in ["1", "10000", " 1\n"] {
            assert!(is_one(Kind::Complete, &numbered(good)), "{good}");
        }
        for bad in ["1,000", "1e4", "-1", "1x", "1 2", "1<!-- -->2", "1&#48;"] {
            assert!(!is_one(Kind::Complete, &numbered(bad)), "{bad}");
        }
    }
}
