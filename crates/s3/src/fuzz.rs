//! Fuzz targets: what this crate reads of requests before or beside `s3s`. Each takes any bytes and panics where a
//! promise is broken. Whole requests are sent by the target `requests`, which needs nothing private.

use std::sync::Arc;

use bytes::Bytes;
use forebay_auth::{RootUser, Secret, User, Users};
use forebay_types::{Algorithm, ChecksumKind, Checksums};
use futures::executor::block_on;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use hmac::{Hmac, KeyInit, Mac};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, percent_encode};
use s3s::StdError;
use s3s::host::S3Host as _;
use sha2::{Digest, Sha256};

use crate::buffers::Buffers;
use crate::context::RequestContext;
use crate::fast_path::signature::{Claim, RequestLine, SigningKeys};
use crate::host::Domain;
use crate::s3s_fixes::chunks::{self, Framing};
use crate::s3s_fixes::documents::{self, Expected, Kind};
use crate::s3s_fixes::{checks, forms};
use crate::token::Tokens;
use crate::{checksums, query, s3s_types};

fn context() -> Arc<RequestContext> {
    Arc::new(RequestContext::new("id".to_owned(), "http"))
}

type Pieces = BoxStream<'static, Result<Bytes, StdError>>;

/// A body that arrives in pieces of `size` bytes.
fn pieces(body: &[u8], size: usize) -> Pieces {
    let pieces: Vec<_> = body.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    futures::stream::iter(pieces).boxed()
}

fn read(body: Pieces) -> Option<Vec<u8>> {
    block_on(body.try_collect::<Vec<Bytes>>()).ok().map(|pieces| pieces.concat())
}

/// Takes the first byte off, 0 where there is none.
fn take(data: &mut &[u8]) -> usize {
    let Some((first, rest)) = data.split_first() else { return 0 };
    *data = rest;
    usize::from(*first)
}

/// Continuation tokens: ours are read, all others are refused.
pub fn token(mut data: &[u8]) {
    let (at, with) = (take(&mut data), take(&mut data) as u8);
    let Ok(text) = std::str::from_utf8(data) else { return };
    let tokens = Tokens::new(&Secret::new("root secret"));
    if let Some(position) = tokens.open("bucket", text) {
        assert_eq!(tokens.make("bucket", &position), text, "a token that was made elsewhere is believed");
    }
    let token = tokens.make("bucket", text);
    assert_eq!(tokens.open("bucket", &token).as_deref(), Some(text));
    assert_eq!(tokens.open("other", &token), None);
    let mut changed = token.clone().into_bytes();
    let at = at % changed.len();
    changed[at] = with;
    if let Ok(changed) = String::from_utf8(changed)
        && changed != token
    {
        assert_eq!(tokens.open("bucket", &changed), None, "{changed} is believed");
    }
}

const OPERATIONS: [(&str, Method); 8] = [
    ("GetObject", Method::GET),
    ("HeadObject", Method::HEAD),
    ("PutObject", Method::PUT),
    ("DeleteObject", Method::DELETE),
    ("ListObjectsV2", Method::GET),
    ("DeleteObjects", Method::POST),
    ("UploadPart", Method::PUT),
    ("PutObjectAcl", Method::PUT),
];

/// The parameters of a query: how they are written makes no difference, and none that is unknown hides behind others.
pub fn parameters(mut data: &[u8]) {
    let (operation, method) = &OPERATIONS[take(&mut data) % OPERATIONS.len()];
    let Ok(text) = std::str::from_utf8(data) else { return };
    let uri = |query: &str| format!("/bucket/key?{query}").parse::<Uri>().ok();
    let Some(given) = uri(text) else { return };
    let passes = |uri: &Uri| query::check_passed(operation, method, uri, &["acl", "encryption", "policy"]).is_ok();
    let allowed = |uri: &Uri| query::check(operation, method, uri).is_ok();
    // What is behind `#` is no part of the query.
    let query = given.query().unwrap_or_default();
    let escape = |text: &str| {
        let decoded: Vec<u8> = percent_decode(text.replace('+', " ").as_bytes()).collect();
        // What is no UTF-8 is refused before.
        percent_encode(String::from_utf8_lossy(&decoded).as_bytes(), NON_ALPHANUMERIC).to_string()
    };
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    let escaped: Vec<_> = parameters
        .map(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            format!("{}={}", escape(name), escape(value))
        })
        .collect();
    // Escaping may make it longer than a URI can be.
    let Some(written_otherwise) = uri(&escaped.join("&")) else { return };
    assert_eq!(allowed(&given), allowed(&written_otherwise));
    assert_eq!(passes(&given), passes(&written_otherwise));
    for unknown in [format!("{query}&annotation"), format!("annot%61tion=&{query}")] {
        let Some(unknown) = uri(&unknown) else { return };
        assert!(!allowed(&unknown) && !passes(&unknown), "{unknown}");
    }
}

/// Lines `name: value` as headers, as far as they are some.
fn headers(text: &[u8]) -> HeaderMap {
    let line = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        Some((HeaderName::from_bytes(&line[..colon]).ok()?, value))
    };
    let mut headers = HeaderMap::new();
    for (name, value) in text.split(|byte| *byte == b'\n').take(32).filter_map(line) {
        headers.append(name, value);
    }
    headers
}

/// A request's method, target and headers, before its signature is looked at: what is let through has each header once,
/// and is for this region.
pub fn head(data: &[u8]) {
    let (line, rest) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()));
    let Some((method, target)) = std::str::from_utf8(line).ok().and_then(|line| line.split_once(' ')) else { return };
    let Ok(mut request) = Request::builder().method(method).uri(target).body(()) else { return };
    *request.headers_mut() = headers(rest);
    let (mut parts, ()) = request.into_parts();
    let Ok(checked) = checks::check(&parts, "us-east-1") else { return };
    let signed = |name: &str| {
        let query = parts.uri.query().unwrap_or_default();
        parts.headers.contains_key("authorization") || query.contains(name)
    };
    let is_anonymous = checked.framing == Some(Framing::Anonymous);
    assert!(checked.framing.is_none() || is_anonymous || signed("="), "a streaming payload without a signature");
    assert!(checked.hoisted.keys().all(|name| {
        let is_length = is_anonymous && name == CONTENT_LENGTH;
        is_length || (name.as_str().starts_with("x-amz-") && !parts.headers.contains_key(name))
    }));
    assert!(checks::check(&parts, "us-east-1").is_ok_and(|again| again == checked));
    for name in parts.headers.keys().filter(|name| name.as_str().starts_with("x-amz-")) {
        let count = parts.headers.get_all(name).iter().count();
        assert!(count == 1 || name.as_str().ends_with("object-attributes"), "{name} came {count} times");
    }
    let authorization = HeaderValue::from_static("AWS4-HMAC-SHA256 Credential=a/20260101/eu-west-1/s3/aws4_request");
    parts.headers.append("authorization", authorization);
    assert!(checks::check(&parts, "us-east-1").is_err(), "a second or a foreign signature is let through");
}

/// What the signatures of the target [`signature`] are made of.
const REGION: &str = "us-east-1";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
/// 2013-05-24T00:00:00Z, the day of the example in Amazon's documents, and a quarter of an hour before and after.
const NOW: (&str, u64) = ("20130524T000000Z", 1_369_353_600_000);
const NEAR: [&str; 2] = ["20130523T234500Z", "20130524T001500Z"];

/// Signature Version 4, written down once more. `None` when a signed header is missing.
fn signature_of(headers: &HeaderMap, path: &str, signed: &str, scope: &str) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let mac = |key: &[u8], text: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("keys have any length");
        mac.update(text.as_bytes());
        mac.finalize().into_bytes().to_vec()
    };
    let line = |name: &str| {
        let value = text(name)?.split([' ', '\t']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        Some(format!("{name}:{value}\n"))
    };
    let lines: String = signed.split(';').map(line).collect::<Option<_>>()?;
    let request = format!("GET\n{path}\n\n{lines}\n{signed}\n{}", text("x-amz-content-sha256")?);
    let digest = hex::encode(Sha256::digest(request));
    let string = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{digest}", text("x-amz-date")?);
    let key = scope.split('/').fold(format!("AWS4{SECRET}").into_bytes(), |key, part| mac(&key, part));
    Some(hex::encode(mac(&key, &string)))
}

/// Signatures in headers that are looked at without `s3s`: none is believed but the right one, for what it was made
/// for. The first line is the path.
pub fn signature(data: &[u8]) {
    let (path, rest) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()));
    let Ok(path) = std::str::from_utf8(path) else { return };
    // The short way is for headers that come once, and are text.
    let all = headers(rest);
    if all.len() != all.keys_len() || all.values().any(|value| value.to_str().is_err()) {
        return;
    }
    let of = |secret: &str| {
        let (name, owner_id, access_key, secret) = (String::new(), String::new(), "key".into(), Secret::new(secret));
        Arc::new(User { name, owner_id, access_key, secret, grants: Vec::new() })
    };
    let (user, other) = (of(SECRET), of("another secret"));
    let holds = |headers: &HeaderMap, path: &str, user: &Arc<User>| {
        let claim = Claim::of(headers, REGION);
        claim.is_some_and(|claim| claim.holds(user, &SigningKeys::default(), &RequestLine::get(path), headers, NOW.1))
    };
    if Claim::of(&all, REGION).is_none() {
        return;
    }
    assert!(!holds(&all, path, &other), "a signature of somebody else is believed");
    let authorization = all["authorization"].to_str().expect("it is text");
    // Three fields and nothing else: the last comma stands before the signature, which may look like any of them.
    let (start, _) = authorization.rsplit_once(',').expect("a claim has a signature");
    let (credential, signed) = start.split_once(',').expect("a claim has all fields");
    let (_, credential) = credential.split_once("Credential=").expect("it begins with the credential");
    let (_, scope) = credential.trim_end().split_once('/').expect("a key and its scope");
    let (_, signed) = signed.trim().split_once('=').expect("fields have values");
    if signed.split(';').any(|name| name == "authorization") {
        return;
    }
    let must_be_signed = |name: &str| name == "host" || name.starts_with("x-amz-");
    for name in all.keys().filter(|name| must_be_signed(name.as_str())) {
        assert!(signed.split(';').any(|signed| signed == name), "{name} is not signed");
    }
    let Some(right) = signature_of(&all, path, signed, scope) else {
        assert!(!holds(&all, path, &user), "a header is signed that is not there");
        return;
    };
    let with = |signature: &str| {
        let mut headers = all.clone();
        let value = HeaderValue::try_from(format!("{start},Signature={signature}")).expect("it is text");
        headers.insert("authorization", value);
        headers
    };
    let date = all["x-amz-date"].to_str().expect("it is text");
    let good = with(&right);
    let is_near = (NEAR[0]..=NEAR[1]).contains(&date);
    assert!(date != NOW.0 || holds(&good, path, &user), "the right signature is refused: {good:?}");
    assert!(is_near || !holds(&good, path, &user), "a signature of another day is believed");
    assert!(!holds(&good, path, &other), "a signature is believed of everybody");
    assert!(!holds(&good, &format!("{path}/"), &user), "a signature is believed for another path");
    assert!(!holds(&with(&right[1..]), path, &user) && !holds(&with(&right.to_uppercase()), path, &user));
    for name in all.keys().filter(|name| signed.split(';').any(|signed| signed == *name)) {
        let mut changed = good.clone();
        let value = format!("{}.", all[name].to_str().expect("it is text"));
        changed.insert(name, HeaderValue::try_from(value).expect("it is text"));
        assert!(!holds(&changed, path, &user), "{name} may be changed");
    }
}

/// Documents: the verdict does not depend on how they arrive, and bytes are passed on as they are or not at all.
pub fn document(mut data: &[u8]) {
    let kind =
        [Kind::Delete, Kind::Tagging, Kind::Complete, Kind::Create, Kind::Acl, Kind::Ownership][take(&mut data) % 6];
    let size = take(&mut data) + 1;
    let verified = |headers: &HeaderMap, body: Pieces| {
        let expected = Expected::of(kind, headers).expect("these digests are well-formed");
        read(documents::verify(body, expected, context(), Buffers::default().begin()))
    };
    let plain = HeaderMap::new();
    let whole = verified(&plain, pieces(data, data.len().max(1)));
    assert!(whole.as_deref().is_none_or(|document| document == data));
    assert_eq!(verified(&plain, pieces(data, size)), whole);
    let mut signed = HeaderMap::new();
    let mut sign = |document: &[u8]| {
        let hash = hex::encode(Sha256::digest(document));
        signed.insert("x-amz-content-sha256", HeaderValue::try_from(hash).expect("hex"));
        signed.clone()
    };
    assert_eq!(verified(&sign(data), pieces(data, size)), whole);
    assert_eq!(verified(&sign(&[data, b" "].concat()), pieces(data, size)), None);
    // No document at all stands for an empty one in CreateBucket, and twice nothing is nothing.
    let two = verified(&plain, pieces(&[data, data].concat(), size));
    assert!(data.is_empty() || whole.is_none() || two.is_none(), "two documents are taken for one");
}

/// Digests in headers.
pub fn digests(data: &[u8]) {
    let _ = Expected::of(Kind::Delete, &headers(data));
    let Ok(text) = std::str::from_utf8(data) else { return };
    for algorithm in Algorithm::ALL {
        let Ok(Some(checksum)) = checksums::given_checksum(algorithm, Some(text)) else { continue };
        for kind in [ChecksumKind::FullObject, ChecksumKind::Composite] {
            let checksums = Checksums { kind, values: vec![checksum.clone()] };
            let shown = checksums::checksum_text(&checksums, algorithm, 3).expect("it has this algorithm");
            assert_eq!(checksums::given_checksum(algorithm, Some(&shown)).ok(), Some(Some(checksum.clone())));
        }
    }
}

/// Values of headers: tags, metadata, conditions, codings.
pub fn header_values(data: &[u8]) {
    let headers = headers(data);
    for prefix in ["", "x-amz-copy-source-"] {
        let _ = s3s_types::read_conditions(&headers, prefix, None, None);
    }
    let _ = s3s_types::write_conditions(&headers);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(tags) = s3s_types::tags_of_header(Some(text)) {
        let escape = |text: &str| percent_encode(text.as_bytes(), NON_ALPHANUMERIC).to_string();
        let pairs: Vec<_> = tags.iter().map(|(key, value)| format!("{}={}", escape(key), escape(value))).collect();
        assert_eq!(s3s_types::tags_of_header(Some(&pairs.join("&"))).ok(), Some(tags));
    }
    if let Some(encoding) = s3s_types::content_encoding(Some(text.to_owned())) {
        assert_eq!(s3s_types::content_encoding(Some(encoding.clone())), Some(encoding));
    }
    if let Ok(bytes) = data.try_into() {
        let unix_ms = u64::from_le_bytes(bytes);
        let date = s3s_types::http_date(unix_ms);
        let parsed = httpdate::parse_http_date(&date).expect("our own form of dates");
        let since = parsed.duration_since(std::time::UNIX_EPOCH).expect("no date is before 1970");
        // A year of more than four digits is shown as 1970.
        assert!(since.is_zero() || since.as_secs() == unix_ms / 1000, "{date}");
    }
    let metadata = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix("x-amz-meta-")?.to_owned();
        Some((name, String::from_utf8_lossy(value.as_bytes()).into_owned()))
    });
    if let Ok(metadata) = s3s_types::user_metadata(Some(metadata.collect())) {
        let again = s3s_types::user_metadata(Some(metadata.clone().into_iter().collect()));
        assert_eq!(again.ok(), Some(metadata));
    }
}

/// A form: what is passed on does not depend on how it arrives, is passed on again as it is, and a field that would be
/// dropped is refused whatever else there is.
pub fn form(mut data: &[u8]) {
    let size = take(&mut data) + 1;
    let root = RootUser { access_key: "root".to_owned(), secret_key: Secret::new("root secret") };
    let users = Users::open(root, None).expect("no file, no problem");
    let region = || "us-east-1".to_owned();
    let watched = |form: &[u8], size: usize| {
        let context = context();
        let passed = read(forms::watch(pieces(form, size), "b", Arc::clone(&context), users.clone(), region()));
        assert_eq!(passed.is_none(), context.refused.get().is_some());
        passed
    };
    let passed = watched(data, data.len().max(1));
    assert_eq!(watched(data, size), passed);
    // The name of a file that goes into the key may look like what it replaces.
    let has_variable = data.windows(2).any(|two| two == b"${");
    if let Some(passed) = passed.filter(|_| !has_variable) {
        let again = watched(&passed, passed.len());
        assert_eq!(again.as_ref(), Some(&passed), "{:?}", again.as_deref().map(String::from_utf8_lossy));
    }
    let field = b"--b\r\nContent-Disposition: form-data; name=\"acl\"\r\n\r\npublic-read\r\n".as_slice();
    assert!(watched(&[field, data].concat(), size).is_none(), "a public access list is ignored");
    // Any text may stand where the type is.
    if let Some(boundary) = forms::boundary(&format!("multipart/form-data; boundary={}", String::from_utf8_lossy(data)))
    {
        let _ = read(forms::watch(pieces(data, size), &boundary, context(), users, region()));
    }
}

/// The chunks of an aws-chunked body, and what is behind the last of them. `None` when the framing is wrong.
fn decoded(mut body: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut decoded = Vec::new();
    loop {
        let end = body.iter().position(|byte| *byte == b'\n')?;
        let line = std::str::from_utf8(body[..end].strip_suffix(b"\r")?).ok()?;
        let size = usize::from_str_radix(line.split(';').next()?, 16).ok()?;
        body = &body[end + 1..];
        if size == 0 {
            return Some((decoded, body));
        }
        decoded.extend_from_slice(body.get(..size)?);
        body = body.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

/// aws-chunked bodies: what is passed on holds the same bytes however they arrive; what is cut off or wrong is refused.
pub fn chunked(mut data: &[u8]) {
    let size = take(&mut data) + 1;
    for framing in [Framing::Signed, Framing::Unsigned, Framing::Anonymous] {
        let Some(passed) = read(chunks::watch(pieces(data, size), framing, context(), Buffers::default().begin()))
        else {
            let whole =
                read(chunks::watch(pieces(data, data.len().max(1)), framing, context(), Buffers::default().begin()));
            assert_eq!(whole, None, "the verdict depends on how the body arrives");
            continue;
        };
        let expected = decoded(data).expect("wrong framing is let through");
        match framing {
            Framing::Anonymous => assert_eq!(passed, expected.0),
            _ => assert_eq!(decoded(&passed).expect("wrong framing is passed on"), expected),
        }
        assert!(framing != Framing::Signed || passed == data, "signed chunks are changed");
        // All that is in front of the trailers is needed.
        let needed = data.len() - expected.1.len();
        for cut in [0, needed / 2, needed - 1] {
            assert_eq!(
                read(chunks::watch(pieces(&data[..cut], size), framing, context(), Buffers::default().begin())),
                None,
                "a body that ends early"
            );
        }
    }
}

/// The `Host` header: a bucket is what stands in front of the domain, and nothing else.
pub fn host(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let domain = Domain::new("s3.example.com:9000");
    let parsed = domain.parse_host_header(text);
    let Some(bucket) = parsed.as_ref().ok().and_then(|host| host.bucket()) else { return };
    assert!(!bucket.is_empty());
    let host = format!("{bucket}.s3.example.com");
    assert!(text.to_ascii_lowercase().starts_with(&host));
    let rest = &text[host.len()..];
    assert!(rest.is_empty() || rest.starts_with(':') && rest[1..].bytes().all(|byte| byte.is_ascii_digit()));
}
