//! The short way and the long way give the same answers, and what is refused is refused on both.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::raw::exchange;
use crate::support::sign::{Request, UNSIGNED};
use crate::support::{BUCKET, Endpoint, GUEST_KEY, GUEST_SECRET, start_with};
use futures::StreamExt;

/// What looks like an answer of S3.
const DOCUMENT: &[u8] = b"<Error>\r\n<Code>No</Code></Error>";

/// Objects that differ in all that a GET shows.
async fn fill(endpoint: &Endpoint) {
    let client = endpoint.root();
    let put = |key: &str, body: Vec<u8>| client.put_object().bucket(BUCKET).key(key).body(body.into());
    put("plain", b"0123456789".to_vec()).send().await.expect("put");
    put("empty", Vec::new()).send().await.expect("put");
    put("large", vec![7; 3 << 20]).send().await.expect("put");
    put("shared/a b+é%2F=~", b"odd".to_vec()).send().await.expect("put");
    put("own/secret", b"secret".to_vec()).send().await.expect("put");
    put("document", DOCUMENT.to_vec()).content_type("application/xml").send().await.expect("put");
    put("described", b"described".to_vec())
        .content_type("text/plain")
        .cache_control("no-cache")
        .content_disposition("attachment")
        .content_encoding("gzip")
        .content_language("de")
        .expires(aws_sdk_s3::primitives::DateTime::from_secs(3_940_000_000))
        .website_redirect_location("/elsewhere")
        .storage_class("STANDARD_IA".into())
        .metadata("name", "value")
        .tagging("a=1&b=2")
        .send()
        .await
        .expect("put");
    put("foreign", b"foreign".to_vec()).metadata("size", "größe").send().await.expect("put");
    let upload = client.create_multipart_upload().bucket(BUCKET).key("parts").send().await.expect("upload");
    let id = upload.upload_id().expect("an id");
    let part = client.upload_part().bucket(BUCKET).key("parts").upload_id(id).part_number(1).body(vec![1; 100].into());
    let etag = part.send().await.expect("part").e_tag.expect("a tag");
    let part = aws_sdk_s3::types::CompletedPart::builder().part_number(1).e_tag(etag).build();
    let parts = aws_sdk_s3::types::CompletedMultipartUpload::builder().parts(part).build();
    let complete = client.complete_multipart_upload().bucket(BUCKET).key("parts").upload_id(id);
    complete.multipart_upload(parts).send().await.expect("complete");
}

/// Status, headers without those of the moment, and body without the request's id.
fn parsed(answer: &str) -> (String, BTreeMap<String, String>, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default().to_owned();
    let mut headers: BTreeMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let id = headers.remove("x-amz-request-id").expect("an id");
    for of_the_moment in ["date", "last-modified"] {
        if let Some(value) = headers.get_mut(of_the_moment) {
            assert_eq!(value.len(), "Sun, 06 Nov 1994 08:49:37 GMT".len(), "{value}");
            value.clear();
        }
    }
    let mut body = body.to_owned();
    for of_the_moment in ["LastModified", "ServerTime"] {
        let end = format!("</{of_the_moment}>");
        let without_time = |text: &str| text.split_once(&end).map_or(text, |(_, rest)| rest).to_owned();
        body = body.split(&format!("<{of_the_moment}>")).map(without_time).collect();
    }
    (status, headers, body.replace(&id, "ID"))
}

fn requests() -> Vec<(&'static str, Request)> {
    let get = |key: &str| Request::new("GET", &format!("/{BUCKET}/{key}"));
    let of_guest = |request: Request| Request { key: GUEST_KEY.to_owned(), secret: GUEST_SECRET.to_owned(), ..request };
    let old = |seconds: i64| {
        let request = get("plain");
        Request { time: request.time - time::Duration::seconds(seconds), ..request }
    };
    let odd = "shared/a%20b%2B%C3%A9%252F%3D~";
    let usual = |request: Request| {
        request
            .header("user-agent", "Boto3/1.40  md/Botocore#1.40")
            .header("accept-encoding", "identity")
            .header("amz-sdk-invocation-id", "a1b2")
            .header("amz-sdk-request", "attempt=1")
    };
    vec![
        ("plain", get("plain")),
        ("as SDKs send it", usual(get("plain"))),
        ("an unsigned payload", get("plain").payload(UNSIGNED)),
        ("another payload's hash", get("plain").payload(&"a".repeat(64))),
        ("no payload's hash", get("plain").payload("nonsense")),
        ("empty", get("empty")),
        ("large", get("large")),
        ("document", get("document")),
        ("described", get("described")),
        ("described, with checksums", get("described").header("x-amz-checksum-mode", "ENABLED")),
        ("checksums asked for without a signature", get("plain").unsigned_header("x-amz-checksum-mode", "ENABLED")),
        ("foreign", get("foreign")),
        ("parts", get("parts").header("x-amz-checksum-mode", "ENABLED")),
        ("odd", get(odd)),
        ("odd, in lower case", get("shared/a%20b%2b%c3%a9%252f%3d~")),
        ("odd, not encoded", get("shared/a%20b+%C3%A9%252F=~")),
        ("not UTF-8", get("%FF")),
        ("half an escape", get("plain%2")),
        ("absent", get("absent")),
        ("absent in a bucket that is not there", Request::new("GET", "/elsewhere/key")),
        ("no bucket's name", Request::new("GET", "/A_B/key")),
        ("no key", Request::new("GET", "/bucket/")),
        ("slashes", Request::new("GET", "/bucket//plain")),
        ("dots", Request::new("GET", "/bucket/own/../plain")),
        ("range", get("plain").header("range", "bytes=2-5")),
        ("range to the end", get("plain").header("range", "bytes=2-")),
        ("suffix", get("plain").header("range", "bytes=-3")),
        ("range that is not signed", get("plain").unsigned_header("range", "bytes=2-5")),
        ("range behind the end", get("plain").header("range", "bytes=20-30")),
        ("several ranges", get("plain").header("range", "bytes=0-1,3-4")),
        ("no range", get("plain").header("range", "lines=1-2")),
        ("range of nothing", get("empty").header("range", "bytes=0-1")),
        ("condition that holds", get("plain").header("if-none-match", "\"x\"")),
        ("condition that does not", get("plain").header("if-match", "\"x\"")),
        ("version", get("plain").query("versionId", "null")),
        ("tags", get("plain").query("tagging", "")),
        ("guest", of_guest(get(odd))),
        ("guest elsewhere", of_guest(get("plain"))),
        ("guest where there is nothing", of_guest(get("own/absent"))),
        ("guest who must not know", of_guest(get("own/secret"))),
        ("unknown user", Request { key: "nobody".to_owned(), ..get("plain") }),
        ("wrong secret", Request { secret: "wrong".to_owned(), ..get("plain") }),
        ("wrong region", Request { region: "eu-west-1".to_owned(), ..get("plain") }),
        ("old enough", old(600)),
        ("from the future", old(-600)),
        ("too old", old(1000)),
        ("too far in the future", old(-1000)),
        ("header twice", get("plain").header("range", "bytes=0-1").unsigned_header("range", "bytes=0-2")),
        ("encryption", get("plain").header("x-amz-server-side-encryption-customer-algorithm", "AES256")),
        ("unknown header", get("plain").header("x-other", "other")),
        ("content type", get("plain").header("content-type", "application/octet-stream")),
        ("expects", get("plain").header("expect", "100-continue")),
        ("HEAD", Request::new("HEAD", "/bucket/plain")),
    ]
}

#[tokio::test]
async fn both_ways_answer_alike() {
    let short = start_with(|settings| settings.domain = Some("s3.example.com".to_owned())).await;
    let long = start_with(|settings| {
        settings.domain = Some("s3.example.com".to_owned());
        settings.fast_path = false;
    })
    .await;
    fill(&short).await;
    fill(&long).await;
    for endpoint in [&short, &long] {
        let read = endpoint.root().get_object().bucket(BUCKET).key("document").send().await.expect("get");
        assert_eq!(read.body.collect().await.expect("body").into_bytes(), DOCUMENT);
    }
    for (name, request) in requests() {
        for is_signed in [true, false] {
            // The same bytes for both: an error repeats what was signed, the address among it.
            let bytes = if is_signed { request.sign(long.address).bytes } else { request.anonymous(long.address) };
            let (answer, expected) = tokio::join!(exchange(short.address, &bytes), exchange(long.address, &bytes));
            assert_eq!(parsed(&answer), parsed(&expected), "{name}, signed: {is_signed}");
        }
    }
}

/// One byte of a good request is another one: whatever comes of it, it comes of it on both ways.
#[tokio::test]
async fn both_ways_refuse_what_was_changed() {
    // Some changes make a request that goes on.
    let hurry = |settings: &mut forebay_s3::S3Settings| settings.header_timeout = Duration::from_secs(1);
    let short = start_with(hurry).await;
    let long = start_with(|settings| {
        hurry(settings);
        settings.fast_path = false;
    })
    .await;
    fill(&short).await;
    fill(&long).await;
    let request = Request::new("GET", &format!("/{BUCKET}/plain")).header("range", "bytes=2-5");
    // The same bytes for both: they are signed for the address of one, in a header that both take.
    let good = request.sign(long.address).bytes;
    let length = good.windows(4).position(|end| end == b"\r\n\r\n").expect("a head");
    let ask = |place: usize| {
        let mut changed = good.clone();
        changed[place] = if changed[place].is_ascii_control() { b'x' } else { changed[place] ^ 1 };
        let (short, long) = (short.address, long.address);
        async move {
            let (answer, expected) = tokio::join!(exchange(short, &changed), exchange(long, &changed));
            if !expected.contains("x-amz-request-id") {
                assert_eq!(answer.split("\r\n").next(), expected.split("\r\n").next(), "{place}");
                return false;
            }
            assert_eq!(parsed(&answer), parsed(&expected), "{}", String::from_utf8_lossy(&changed));
            crate::support::raw::status(&answer) < 300
        }
    };
    let all: Vec<bool> = futures::stream::iter((0..length).map(ask)).buffered(64).collect().await;
    let served = all.into_iter().filter(|served| *served).count();
    // What is not signed may change: the length of nothing, and how the connection goes on.
    assert!((1..80).contains(&served), "{served} were served");
}
