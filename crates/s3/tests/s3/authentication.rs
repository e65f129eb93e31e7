//! Who gets in: every operation with every kind of wrong signature, and what each signature covers.

use std::time::Duration;

use crate::support::raw::{exchange, status};
use crate::support::sign::Request;
use crate::support::{BUCKET, start};

/// Every operation that the cache answers, and some that pass through.
fn operations() -> Vec<Request> {
    let xml = |request: Request, body: &str| request.body(body);
    let object = "/bucket/key";
    vec![
        Request::new("GET", "/"),
        Request::new("HEAD", "/bucket"),
        Request::new("GET", "/bucket").query("location", ""),
        Request::new("PUT", "/newbucket"),
        Request::new("DELETE", "/bucket"),
        Request::new("GET", "/bucket"),
        Request::new("GET", "/bucket").query("list-type", "2"),
        Request::new("GET", "/bucket").query("versions", ""),
        Request::new("GET", "/bucket").query("uploads", ""),
        xml(Request::new("POST", "/bucket").query("delete", ""), "<Delete><Object><Key>key</Key></Object></Delete>"),
        Request::new("GET", object),
        Request::new("HEAD", object),
        Request::new("GET", object).query("attributes", "").header("x-amz-object-attributes", "ETag"),
        Request::new("GET", object).query("tagging", ""),
        xml(Request::new("PUT", object).query("tagging", ""), "<Tagging><TagSet/></Tagging>"),
        Request::new("DELETE", object).query("tagging", ""),
        Request::new("PUT", object).body("new"),
        Request::new("PUT", object).header("x-amz-copy-source", "/bucket/other"),
        Request::new("DELETE", object),
        Request::new("POST", object).query("uploads", ""),
        Request::new("PUT", object).query("partNumber", "1").query("uploadId", "u").body("part"),
        Request::new("PUT", object)
            .query("partNumber", "1")
            .query("uploadId", "u")
            .header("x-amz-copy-source", "/bucket/other"),
        xml(Request::new("POST", object).query("uploadId", "u"), "<CompleteMultipartUpload/>"),
        Request::new("DELETE", object).query("uploadId", "u"),
        Request::new("GET", object).query("uploadId", "u"),
        Request::new("GET", "/bucket").query("acl", ""),
        Request::new("GET", "/bucket").query("versioning", ""),
        Request::new("GET", object).query("versionId", "7"),
        Request::new("DELETE", object).query("versionId", "7"),
        Request::new("GET", "/bucket").query("tagging", ""),
    ]
}

/// The signature backwards, with another first digit: never the same one.
fn turned(signature: &str) -> String {
    let first = if signature.ends_with('0') { '1' } else { '0' };
    std::iter::once(first).chain(signature.chars().rev().skip(1)).collect()
}

#[tokio::test]
async fn nobody_gets_in_with_a_wrong_signature() {
    let endpoint = start().await;
    let address = endpoint.address;
    let client = endpoint.root();
    client.put_object().bucket(BUCKET).key("key").body(b"old".to_vec().into()).send().await.expect("put");
    for operation in operations() {
        let good = operation.sign(address);
        let tampered =
            String::from_utf8(good.bytes.clone()).unwrap().replace(&good.signature, &turned(&good.signature));
        let in_both = operation.clone().query("X-Amz-Signature", "0").sign(address).bytes;
        let wrong_secret = Request { secret: "wrongsecret0123456789".to_owned(), ..operation.clone() };
        let wrong_key = Request { key: "nosuchkey".to_owned(), ..operation.clone() };
        let version_2 = operation.clone().unsigned_header("authorization", "AWS rootkey:c2lnbmF0dXJl");
        for (name, bytes) in [
            ("none", operation.anonymous(address)),
            ("wrong secret", wrong_secret.sign(address).bytes),
            ("wrong key", wrong_key.sign(address).bytes),
            ("tampered", tampered.into_bytes()),
            ("both", in_both),
            ("version 2", version_2.anonymous(address)),
            ("wrong region", Request { region: "eu-north-1".to_owned(), ..operation.clone() }.sign(address).bytes),
            ("presigned, wrong secret", wrong_secret.presign(address, "60")),
            ("presigned for too long", operation.presign(address, "604801")),
        ] {
            let answer = exchange(address, bytes).await;
            // As S3 has it: these are malformed.
            let expected =
                if ["both", "wrong region", "presigned for too long", "version 2"].contains(&name) { 400 } else { 403 };
            assert_eq!(
                status(&answer),
                expected,
                "{} {} {:?}, {name}: {answer}",
                operation.method,
                operation.path,
                operation.query
            );
        }
    }
    let body =
        client.get_object().bucket(BUCKET).key("key").send().await.expect("get").body.collect().await.expect("body");
    assert_eq!(body.into_bytes(), "old", "nothing was changed");
}

#[tokio::test]
async fn unknown_keys_and_wrong_signatures_are_told_apart() {
    let endpoint = start().await;
    let request = Request::new("GET", "/bucket/key");
    let wrong_key = Request { key: "nosuchkey".to_owned(), ..request.clone() }.sign(endpoint.address).bytes;
    let wrong_secret = Request { secret: "wrong".to_owned(), ..request }.sign(endpoint.address).bytes;
    for (bytes, code) in [(wrong_key, "InvalidAccessKeyId"), (wrong_secret, "SignatureDoesNotMatch")] {
        assert!(exchange(endpoint.address, bytes).await.contains(&format!("<Code>{code}</Code>")));
    }
}

#[tokio::test]
async fn clocks_may_differ_by_15_minutes_both_ways() {
    let endpoint = start().await;
    let request = Request::new("GET", "/bucket").query("list-type", "2");
    for (minutes, right) in [(0, true), (14, true), (-14, true), (16, false), (-16, false)] {
        let time = request.time + time::Duration::minutes(minutes);
        let answer = exchange(endpoint.address, Request { time, ..request.clone() }.sign(endpoint.address).bytes).await;
        assert_eq!(status(&answer), if right { 200 } else { 403 }, "{minutes}: {answer}");
        assert_eq!(answer.contains("RequestTimeTooSkewed"), !right);
    }
}

#[tokio::test]
async fn presigned_urls_hold_for_their_time_method_and_path() {
    let endpoint = start().await;
    let address = endpoint.address;
    let put = Request::new("PUT", "/bucket/a").body("content");
    assert_eq!(status(&exchange(address, put.presign(address, "60")).await), 200);
    let get = Request::new("GET", "/bucket/a");
    let good = String::from_utf8(get.presign(address, "60")).unwrap();
    let answer = exchange(address, &good).await;
    assert!(status(&answer) == 200 && answer.ends_with("content"), "{answer}");
    let deleted = good.replacen("GET", "DELETE", 1);
    let moved = good.replacen("/bucket/a", "/bucket/b", 1);
    let longer = good.replacen("Expires=60", "Expires=61", 1);
    let twice = good.replacen(" HTTP/1.1", "&X-Amz-Expires=60 HTTP/1.1", 1);
    let with_header = good.replacen("connection", "x-amz-meta-a: b\r\nconnection", 1);
    for (bytes, expected) in [(deleted, 403), (moved, 403), (longer, 403), (twice, 400), (with_header, 403)] {
        assert_eq!(status(&exchange(address, &bytes).await), expected, "{bytes}");
    }
    let expired = Request { time: get.time - Duration::from_secs(120), ..get.clone() };
    let answer = exchange(address, expired.presign(address, "60")).await;
    assert!(status(&answer) == 403 && answer.contains("Request has expired"), "{answer}");
    let early = Request { time: get.time + Duration::from_secs(1000), ..get };
    assert!(exchange(address, early.presign(address, "60")).await.contains("Request is not yet valid"));
}

#[tokio::test]
async fn no_amz_header_goes_unsigned() {
    let endpoint = start().await;
    for (name, value) in [
        ("x-amz-copy-source", "/bucket/other"),
        ("x-amz-tagging", "a=b"),
        ("x-amz-meta-a", "b"),
        ("x-amz-acl", "private"),
        ("x-amz-storage-class", "STANDARD_IA"),
    ] {
        let request = Request::new("PUT", "/bucket/key").body("x").unsigned_header(name, value);
        let answer = exchange(endpoint.address, request.sign(endpoint.address).bytes).await;
        assert_eq!(status(&answer), 403, "{name}: {answer}");
    }
}

#[tokio::test]
async fn anonymous_requests_have_only_what_a_grant_gives() {
    let endpoint = start().await;
    let client = endpoint.root();
    for key in ["public/a", "private/a"] {
        client.put_object().bucket(BUCKET).key(key).body(b"x".to_vec().into()).send().await.expect("put");
    }
    for (method, path, expected) in [
        ("GET", "/bucket/public/a", 200),
        ("HEAD", "/bucket/public/a", 200),
        ("GET", "/bucket/private/a", 403),
        ("GET", "/bucket/public%2Fa", 200),
        ("GET", "/bucket/public%252Fa", 403),
        ("GET", "/bucket/public/../private/a", 403),
        ("GET", "/bucket//public/a", 403),
        // Without the right to list, what is absent looks like what is forbidden.
        ("GET", "/bucket/public/absent", 403),
        ("PUT", "/bucket/public/b", 403),
        ("DELETE", "/bucket/public/a", 403),
        ("GET", "/bucket", 403),
        ("GET", "/bucket?prefix=public/", 403),
        ("GET", "/bucket/public/a?response-content-type=text/html", 400),
    ] {
        let bytes = format!("{method} {path} HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        assert_eq!(status(&exchange(endpoint.address, bytes).await), expected, "{method} {path}");
    }
}

#[tokio::test]
async fn forms_without_a_grant_or_with_an_old_signature_are_refused() {
    let endpoint = start().await;
    let part =
        |name: &str, value: &str| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    let file = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--b--\r\n";
    let anonymous = format!("{}{file}", part("key", "public/f"));
    let version_2 = format!(
        "{}{}{}{}{file}",
        part("key", "own/f"),
        part("AWSAccessKeyId", "rootkey"),
        part("policy", "e30="),
        part("signature", "AAAA")
    );
    for body in [anonymous, version_2] {
        let bytes = format!(
            "POST /bucket HTTP/1.1\r\nhost: h\r\ncontent-type: multipart/form-data; boundary=b\r\ncontent-length: {}\r\nconnection: \
             close\r\n\r\n{body}",
            body.len()
        );
        let answer = exchange(endpoint.address, bytes).await;
        assert_eq!(status(&answer), 403, "{answer}");
    }
}

/// SDKs send what they have no keys for in unsigned chunks (minio/minio#21005, versity/versitygw#1554). `s3s` decodes
/// only what is signed.
#[tokio::test]
async fn bodies_in_unsigned_chunks_are_taken_from_anybody_who_may_write() {
    let endpoint = start().await;
    let address = endpoint.address;
    let client = endpoint.root();
    // CRC32 of "123456789" is cbf43926.
    let good = "4\r\n1234\r\n5\r\n56789\r\n0\r\nx-amz-checksum-crc32:y/Q5Jg==\r\n\r\n";
    let put = |path: &str, kind: &str, body: &str, length: &str| {
        let request = Request::new("PUT", path)
            .header("x-amz-content-sha256", kind)
            .header("x-amz-decoded-content-length", length)
            .header("x-amz-trailer", "x-amz-checksum-crc32")
            .header("content-encoding", "aws-chunked")
            .body(body);
        exchange(address, request.anonymous(address))
    };
    let unsigned = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
    for (name, body, length) in [
        ("a wrong checksum", good.replace("y/Q5Jg==", "AAAAAA=="), "9"),
        ("no trailer", good.replace("x-amz-checksum-crc32:y/Q5Jg==\r\n", ""), "9"),
        ("another trailer", good.replace("crc32:y/Q5Jg==", "crc32c:4waSgw=="), "9"),
        ("two trailers", good.replace("==\r\n", "==\r\nx-amz-checksum-crc32:AAAAAA==\r\n"), "9"),
        ("one more", good.replace("==\r\n", "==\r\nx-amz-meta-a:b\r\n"), "9"),
        ("a changed byte", good.replace("123", "124"), "9"),
        ("no final chunk", "9\r\n123456789\r\n".to_owned(), "9"),
        ("too short", good.to_owned(), "10"),
        ("too long", good.to_owned(), "8"),
        ("no framing", "123456789".to_owned(), "9"),
        ("more behind it", format!("{good}more"), "9"),
    ] {
        let answer = put("/bucket/open/k", unsigned, &body, length).await;
        assert_eq!(status(&answer), 400, "{name}: {answer}");
        assert!(client.head_object().bucket(BUCKET).key("open/k").send().await.is_err(), "{name}");
    }
    assert_eq!(status(&put("/bucket/private/k", unsigned, good, "9").await), 403);
    for kind in ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"] {
        let answer = put("/bucket/open/k", kind, good, "9").await;
        assert!(status(&answer) == 400 && answer.contains("<Code>InvalidRequest<"), "{answer}");
        assert!(answer.contains("Please use UNSIGNED-PAYLOAD or STREAMING-UNSIGNED-PAYLOAD-TRAILER."), "{answer}");
    }
    let answer = put("/bucket/open/k", unsigned, good, "9").await;
    assert!(status(&answer) == 200 && answer.contains("x-amz-checksum-crc32: y/Q5Jg=="), "{answer}");
    let got = client.get_object().bucket(BUCKET).key("open/k").send().await.expect("object");
    assert_eq!(got.content_encoding(), None);
    assert_eq!(&got.body.collect().await.expect("body").into_bytes()[..], b"123456789");
    // What is put right on its way is parsed twice.
    let expires = Request::new("PUT", "/bucket/open/e").header("expires", "0").header("x-amz-content-sha256", unsigned);
    let expires = expires.header("x-amz-decoded-content-length", "9").header("x-amz-trailer", "x-amz-checksum-crc32");
    assert_eq!(status(&exchange(address, expires.body(good).anonymous(address)).await), 200);
    let upload = client.create_multipart_upload().bucket(BUCKET).key("open/m").send().await.expect("upload");
    let part = format!("/bucket/open/m?partNumber=1&uploadId={}", upload.upload_id().expect("id"));
    let answer = put(&part, unsigned, good, "9").await;
    assert_eq!(status(&answer), 200, "{answer}");
}

/// Of Amazon S3: awsdocs/amazon-s3-userguide#91, scylladb/scylladb#13425. An upload and a copy have an owner.
#[tokio::test]
async fn nobody_begins_an_upload_or_copies_without_keys() {
    let endpoint = start().await;
    let client = endpoint.root();
    client.put_object().bucket(BUCKET).key("open/a").body(b"x".to_vec().into()).send().await.expect("put");
    let upload = client.create_multipart_upload().bucket(BUCKET).key("open/m").send().await.expect("upload");
    let upload = upload.upload_id().expect("id").to_owned();
    let copy = |request: Request| request.header("x-amz-copy-source", "/bucket/open/a");
    let part = Request::new("PUT", "/bucket/open/m").query("partNumber", "1").query("uploadId", &upload);
    for (request, message) in [
        (Request::new("POST", "/bucket/open/m").query("uploads", ""), "initiate multipart uploads"),
        (copy(Request::new("PUT", "/bucket/open/b")), "copy objects"),
        (copy(part), "copy objects"),
    ] {
        let answer = exchange(endpoint.address, request.anonymous(endpoint.address)).await;
        let message = format!("<Message>Anonymous users cannot {message}.  Please authenticate.</Message>");
        assert!(status(&answer) == 403 && answer.contains(&message), "{answer}");
    }
    let uploads = client.list_multipart_uploads().bucket(BUCKET).send().await.expect("uploads");
    assert_eq!(uploads.uploads().len(), 1);
    assert!(client.head_object().bucket(BUCKET).key("open/b").send().await.is_err());
}

/// `s3s` does not know their elements. Whoever has keys has begun the upload.
#[tokio::test]
async fn anonymous_uploads_are_completed_with_newer_checksums_too() {
    let endpoint = start().await;
    let send = async |request: Request| {
        let answer =
            exchange(endpoint.address, request.header("connection", "close").anonymous(endpoint.address)).await;
        assert_eq!(status(&answer), 200, "{answer}");
        answer
    };
    let between = |text: &str, before: &str, after: &str| {
        let (_, rest) = text.split_once(before).unwrap();
        rest.split_once(after).unwrap().0.to_owned()
    };
    let path = "/bucket/open/key";
    let md5 = "9Mk4XxkC9zNLALm07NFk3g==";
    let begin = Request::new("POST", path)
        .query("uploads", "")
        .header("x-amz-checksum-algorithm", "MD5")
        .header("x-amz-checksum-type", "COMPOSITE");
    let begun = exchange(endpoint.address, begin.sign(endpoint.address).bytes).await;
    let upload = between(&begun, "<UploadId>", "</UploadId>");
    let of_upload = |method: &str| Request::new(method, path).query("uploadId", &upload);
    send(of_upload("PUT").query("partNumber", "1").header("x-amz-checksum-md5", md5).body("part")).await;
    let tag = "f4c9385f1902f7334b00b9b4ecd164de";
    let part = format!("<PartNumber>1</PartNumber><ETag>{tag}</ETag><ChecksumMD5>{md5}</ChecksumMD5>");
    let document = format!("<CompleteMultipartUpload><Part>{part}</Part></CompleteMultipartUpload>");
    let completed = send(of_upload("POST").body(document)).await;
    assert!(completed.contains("<ChecksumMD5>"), "{completed}");
    let wrong = of_upload("POST").body("<CompleteMultipartUpload><Part><Checksum/></Part></CompleteMultipartUpload>");
    let answer = exchange(endpoint.address, wrong.header("connection", "close").anonymous(endpoint.address)).await;
    assert!(status(&answer) == 400 && answer.contains("MalformedXML"), "{answer}");
}
