//! The checksums that `s3s` has no fields for, in documents. In headers they are read and written beside it.

use bytes::Bytes;
use forebay_types::Algorithm;
use http::header::CONTENT_LENGTH;
use http_body_util::BodyExt;
use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;
use s3s::{Body, HttpResponse, StdError};

use crate::checksums::{BETWEEN, without_field};

/// The field that the others share, as it begins and ends in a document.
const SHARED: (&str, &str) = ("<ChecksumSHA256>", "</ChecksumSHA256>");

/// Operations whose answers tell checksums in a document.
const OPERATIONS: [&str; 5] =
    ["CompleteMultipartUpload", "CopyObject", "GetObjectAttributes", "ListParts", "UploadPartCopy"];

/// Gives the checksums that share a field of the answer the elements that S3 has for them.
pub(crate) async fn name_others(response: HttpResponse, operation: &str) -> Result<HttpResponse, StdError> {
    if !OPERATIONS.contains(&operation) || !response.status().is_success() {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    let Some(named) = std::str::from_utf8(&body).ok().and_then(named) else {
        return Ok(HttpResponse::from_parts(parts, Body::from(body)));
    };
    parts.headers.remove(CONTENT_LENGTH);
    Ok(HttpResponse::from_parts(parts, Body::from(named)))
}

/// `None` when nothing shares a field.
fn named(document: &str) -> Option<String> {
    let (before, mut rest) = document.split_once(SHARED.0)?;
    let mut named = before.to_owned();
    loop {
        let (values, behind) = rest.split_once(SHARED.1)?;
        for value in values.split(BETWEEN).filter(|value| !value.is_empty()) {
            let (name, value) = value.split_once(':').unwrap_or(("SHA256", value));
            named.push_str(&format!("<Checksum{name}>{value}</Checksum{name}>"));
        }
        match behind.split_once(SHARED.0) {
            Some((between, next)) => {
                named.push_str(between);
                rest = next;
            }
            None => {
                named.push_str(behind);
                return Some(named);
            }
        }
    }
}

/// The checksums of one part as a list of parts gives them.
pub(crate) type Texts = Vec<(Algorithm, String)>;

/// A list of parts that has been checked, taken apart.
struct PartList {
    /// Of each part, the checksums that `s3s` does not know.
    checksums: Vec<Texts>,
    /// The document without them.
    rest: String,
}

/// Of each part in a list of parts, the checksums that `s3s` does not know. `None` when there are none.
pub(crate) fn of_parts(document: &[u8]) -> Option<Vec<Texts>> {
    PartList::read(document).map(|list| list.checksums)
}

/// The same list of parts without those, which `s3s` takes for errors.
pub(crate) fn without_others(document: Bytes) -> Bytes {
    PartList::read(&document).map_or(document, |list| Bytes::from(list.rest))
}

impl PartList {
    /// `None` when `s3s` knows all of it.
    fn read(document: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(document).ok()?;
        if !without_field().any(|algorithm| text.contains(&format!("<Checksum{}", algorithm.name()))) {
            return None;
        }
        let mut reader = Reader::from_str(text);
        let mut list = Self { checksums: Vec::new(), rest: String::new() };
        // The value of the element that is open, when it is one of those.
        let mut open: Option<(Algorithm, String)> = None;
        loop {
            let start = reader.buffer_position() as usize;
            let event = reader.read_event().ok()?;
            let written = &text[start..reader.buffer_position() as usize];
            match (event, &mut open) {
                (Event::Eof, _) => return Some(list),
                (Event::Start(element), None) if checksum_of(element.name().as_ref()).is_some() => {
                    open = checksum_of(element.name().as_ref()).map(|algorithm| (algorithm, String::new()));
                }
                (Event::Empty(element), None) if checksum_of(element.name().as_ref()).is_some() => {
                    let algorithm = checksum_of(element.name().as_ref())?;
                    list.checksums.last_mut()?.push((algorithm, String::new()));
                }
                (Event::End(_), value @ Some(_)) => list.checksums.last_mut()?.extend(value.take()),
                (Event::Text(piece), Some((_, value))) => value.push_str(std::str::from_utf8(&piece).ok()?.trim()),
                (Event::GeneralRef(reference), Some((_, value))) => match reference.resolve_char_ref().ok()? {
                    Some(character) => value.push(character),
                    None => value.push_str(resolve_predefined_entity(std::str::from_utf8(&reference).ok()?)?),
                },
                (_, Some(_)) => {}
                (event, None) => {
                    if let Event::Start(element) | Event::Empty(element) = &event
                        && element.name().as_ref() == b"Part"
                    {
                        list.checksums.push(Texts::new());
                    }
                    list.rest.push_str(written);
                }
            }
        }
    }
}

fn checksum_of(element: &[u8]) -> Option<Algorithm> {
    let name = std::str::from_utf8(element).ok()?.strip_prefix("Checksum")?;
    without_field().find(|algorithm| algorithm.name() == name)
}

#[cfg(test)]
mod tests {
    use forebay_types::{Checksum, ChecksumKind, Checksums};

    use super::*;
    use crate::checksums::{checksum_text, with_others};

    fn checksums(algorithms: &[Algorithm]) -> Checksums {
        let value = |algorithm: &Algorithm| Checksum { algorithm: *algorithm, value: vec![0; algorithm.bytes()] };
        Checksums { kind: ChecksumKind::Composite, values: algorithms.iter().map(value).collect() }
    }

    fn element(algorithms: &[Algorithm]) -> String {
        let checksums = checksums(algorithms);
        let sha256 = checksum_text(&checksums, Algorithm::Sha256, 2);
        with_others(sha256, &checksums, 2)
            .map_or_else(String::new, |text| format!("<ChecksumSHA256>{text}</ChecksumSHA256>"))
    }

    #[test]
    fn each_checksum_has_an_element_of_its_own() {
        assert_eq!(element(&[Algorithm::Crc32]), "");
        assert_eq!(named("<a><ChecksumSHA1>x</ChecksumSHA1></a>"), None);
        let sha256 = element(&[Algorithm::Sha256]);
        assert_eq!(named(&sha256), Some(sha256.clone()));
        let all = [Algorithm::Sha256, Algorithm::Md5, Algorithm::Xxhash64];
        let document = format!("<a>{}<b/>{}</a>", element(&all), element(&[Algorithm::Xxhash3]));
        let short = "AAAAAAAAAAA=-2";
        let expected = format!(
            "<a>{sha256}<ChecksumMD5>AAAAAAAAAAAAAAAAAAAAAA==-2</ChecksumMD5>\
             <ChecksumXXHASH64>{short}</ChecksumXXHASH64><b/><ChecksumXXHASH3>{short}</ChecksumXXHASH3></a>"
        );
        assert_eq!(named(&document), Some(expected));
    }

    #[test]
    fn checksums_of_parts_are_read_beside_s3s_and_kept_from_it() {
        let document = |parts: &str| format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        let list = |parts: &str| of_parts(document(parts).as_bytes());
        let rest = |parts: &str| without_others(Bytes::from(document(parts)));
        let known = "<Part><ChecksumSHA256>a=</ChecksumSHA256></Part>";
        assert_eq!((list(known), rest(known)), (None, document(known).into()));
        let parts = "<Part><PartNumber>1</PartNumber><ChecksumXXHASH3>a=</ChecksumXXHASH3></Part><Part/>\n\
                     <Part><ChecksumMD5> b= </ChecksumMD5><ETag>&quot;c</ETag></Part>";
        let read = [Some((Algorithm::Xxhash3, "a=")), None, Some((Algorithm::Md5, "b="))];
        let texts = |text: Option<(Algorithm, &str)>| text.map(|(algorithm, text)| (algorithm, text.to_owned()));
        assert_eq!(list(parts), Some(read.map(|text| texts(text).into_iter().collect()).to_vec()));
        let without = "<Part><PartNumber>1</PartNumber></Part><Part/>\n<Part><ETag>&quot;c</ETag></Part>";
        assert_eq!(rest(parts), document(without));
        let odd = "<Part><ChecksumMD5 xmlns=\"x\">a&#61;<!-- -->&amp;b</ChecksumMD5><ChecksumXXHASH64/></Part>";
        let read = [(Algorithm::Md5, "a=&b".to_owned()), (Algorithm::Xxhash64, String::new())];
        assert_eq!((list(odd), rest(odd)), (Some(vec![read.to_vec()]), document("<Part></Part>").into()));
    }
}
