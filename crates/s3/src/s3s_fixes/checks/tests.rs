use super::*;

const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=key/20200101/us-east-1/s3/aws4_request, \
                      SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=00";
const DAY: &str = "20200101T000000Z";

/// What every signature in a header needs, where a request does not say it itself.
fn with_defaults<'a>(headers: &[(&'static str, &'a str)]) -> Vec<(&'static str, &'a str)> {
    let mut all = headers.to_vec();
    let has = |wanted: &str| headers.iter().any(|(name, _)| *name == wanted);
    if has("authorization") {
        let needed = [("x-amz-date", DAY), ("x-amz-content-sha256", "UNSIGNED-PAYLOAD")];
        all.extend(needed.into_iter().filter(|(name, _)| !has(name)));
    }
    all
}

#[track_caller]
fn check_request(uri: &str, headers: &[(&'static str, &str)]) -> Result<Checked, u16> {
    check_exactly(uri, &with_defaults(headers)).map_err(|error| error.status_code().unwrap().as_u16())
}

#[track_caller]
fn check_exactly(uri: &str, headers: &[(&'static str, &str)]) -> Check<Checked> {
    let mut request = http::Request::put(uri).header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    check(&parts, "us-east-1")
}

fn framed(framing: Option<Framing>) -> Checked {
    Checked { framing, document: None, hoisted: HeaderMap::new(), is_version_2: false, form: None }
}

fn presigned(change: &str, to: &str) -> String {
    "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=key%2F20200101%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20200101T000000Z\
     &X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=00"
        .replace(change, to)
}

#[test]
fn good_requests_pass() {
    assert_eq!(check_request("/b/k", &[]), Ok(framed(None)));
    assert_eq!(check_request("/b/k", &[("authorization", SIGNED), ("x-amz-date", DAY)]), Ok(framed(None)));
    assert_eq!(check_request(&presigned("", ""), &[]), Ok(framed(None)));
}

#[test]
fn every_amz_header_must_be_signed() {
    let without = SIGNED.replace("x-amz-content-sha256;", "");
    assert_eq!(check_request("/b/k", &[("authorization", &without)]), Err(403));
    for name in ["x-amz-copy-source", "x-amz-tagging", "x-amz-acl", "x-amz-meta-a"] {
        assert_eq!(check_request("/b/k", &[("authorization", SIGNED), (name, "v")]), Err(403), "{name}");
        assert_eq!(check_request(&presigned("", ""), &[(name, "v")]), Err(403), "{name}");
    }
    let odd_key = SIGNED.replace("Credential=key", "Credential=k=e+y@");
    assert!(check_request("/b/k", &[("authorization", &odd_key)]).is_ok());
    let host_left_out = SIGNED.replace("host;", "");
    assert_eq!(check_request("/b/k", &[("authorization", &host_left_out)]), Err(403));
}

/// Beside a value that is covered, too: that one alone would be compared.
#[test]
fn signed_headers_are_text() {
    let signed = SIGNED.replace("x-amz-date", "x-amz-date;x-amz-meta-a");
    let url = presigned("SignedHeaders=host", "SignedHeaders=host%3Bx-amz-meta-a");
    let outcome = |uri: &str, in_header: bool, values: &[&[u8]]| {
        let mut request = http::Request::put(uri).header("host", "localhost");
        if in_header {
            for (name, value) in with_defaults(&[("authorization", &signed)]) {
                request = request.header(name, value);
            }
        }
        for value in values {
            request = request.header("x-amz-meta-a", *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        join_lists(&mut parts.headers);
        check(&parts, "us-east-1").map_err(|error| error.status_code().unwrap().as_u16())
    };
    for (uri, in_header) in [("/b/k", true), (url.as_str(), false)] {
        assert!(outcome(uri, in_header, &[b"covered", "\u{e9}".as_bytes()]).is_ok(), "{uri}");
        assert_eq!(outcome(uri, in_header, &[b"covered", b"\xff"]), Err(400), "{uri}");
        assert_eq!(outcome(uri, in_header, &[b"\xff"]), Err(400), "{uri}");
    }
}

#[test]
fn only_one_signature_is_taken() {
    assert_eq!(check_request(&presigned("", ""), &[("authorization", SIGNED)]), Err(400));
    assert_eq!(check_request("/b/k?x-amz-signature=0", &[("authorization", SIGNED)]), Err(400));
    assert_eq!(check_request("/b/k", &[("authorization", "AWS key:signature")]), Err(400));
    assert_eq!(check_request("/b/k", &[("authorization", "Bearer x")]), Err(400));
    assert_eq!(check_request("/b/k", &[("authorization", "Bearer")]), Err(400));
    let version_2 = "/b/k?AWSAccessKeyId=k&Signature=s&Expires=1";
    assert_eq!(check_request(version_2, &[]), Ok(Checked { is_version_2: true, ..framed(None) }));
    assert_eq!(check_request(version_2, &[("authorization", SIGNED)]), Err(400));
    assert_eq!(
        check_request(&presigned("Signature=00", "Signature=00&AWSAccessKeyId=k&Signature=s&Expires=1"), &[]),
        Err(400)
    );
    assert_eq!(check_request(&format!("{version_2}&prefix=a"), &[]), Err(403));
    assert_eq!(check_request(&format!("{version_2}&content-type=a"), &[("content-type", "b")]), Err(400));
    let streaming = [("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")];
    assert_eq!(check_request(version_2, &streaming), Err(403));
    assert_eq!(check_request("/b/k", &[("authorization", SIGNED), ("authorization", SIGNED)]), Err(400));
}

#[test]
fn presigned_urls_are_checked_in_all_parts() {
    for (change, to, status) in [
        ("Expires=60", "Expires=0", 403),
        ("Expires=60", "Expires=-60", 400),
        ("Expires=60", "Expires=-", 400),
        ("Expires=60", "Expires=604801", 400),
        ("Expires=60", "Expires=%2B60", 400),
        ("Expires=60", "Expires=", 400),
        ("us-east-1", "us-west-2", 400),
        ("%2Fs3%2F", "%2Fsts%2F", 400),
        ("key%2F2020", "key%2F2019", 400),
        ("HMAC-SHA256", "HMAC-SHA1", 400),
        ("&X-Amz-Signature=00", "", 400),
        ("SignedHeaders=host", "SignedHeaders=range", 403),
        ("SignedHeaders=host", "SignedHeaders=host%3Bhost", 403),
        ("X-Amz-Signature=00", "X-Amz-Signature=00&X-Amz-Signature=01", 400),
        ("X-Amz-Signature=00", "X-Amz-Signature=00&X-Amz-Expires=1", 400),
    ] {
        assert_eq!(check_request(&presigned(change, to), &[]), Err(status), "{to}");
    }
    assert!(check_request(&presigned("Expires=60", "Expires=604800"), &[]).is_ok());
}

#[test]
fn payload_types_are_known_or_refused() {
    let with = |value: &str| check_request("/b/k", &[("authorization", SIGNED), ("x-amz-content-sha256", value)]);
    let without_trailer = |framing| {
        let hoisted = HeaderMap::from_iter([(TRAILER, HeaderValue::from_static(NO_TRAILER))]);
        Ok(Checked { hoisted, ..framed(Some(framing)) })
    };
    assert_eq!(with("STREAMING-UNSIGNED-PAYLOAD-TRAILER"), without_trailer(Framing::Unsigned));
    assert_eq!(with("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"), without_trailer(Framing::Signed));
    assert_eq!(with("STREAMING-AWS4-HMAC-SHA256-PAYLOAD"), Ok(framed(Some(Framing::Signed))));
    assert_eq!(with("UNSIGNED-PAYLOAD"), Ok(framed(None)));
    for value in ["", "required", "STREAMING-UNSIGNED-PAYLOAD"] {
        assert_eq!(with(value), Err(400), "{value}");
    }
    assert_eq!(with("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"), Err(501));
}

#[test]
fn nobody_may_send_unsigned_chunks_that_say_what_they_are() {
    let nobody = |headers: &[(&'static str, &str)]| check_request("/b/k", headers);
    let unsigned = ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    let (length, trailer) = (("x-amz-decoded-content-length", "7"), ("x-amz-trailer", "x-amz-checksum-crc32"));
    let checked = nobody(&[unsigned, length, trailer, ("content-length", "99")]).unwrap();
    assert_eq!((checked.framing, &checked.hoisted[CONTENT_LENGTH]), (Some(Framing::Anonymous), &"7".parse().unwrap()));
    assert_eq!(nobody(&[unsigned, trailer]), Err(411));
    assert_eq!(nobody(&[unsigned, length]).unwrap().hoisted["x-amz-trailer"], NO_TRAILER);
    for kind in ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"] {
        assert_eq!(nobody(&[("x-amz-content-sha256", kind), length, trailer]), Err(400), "{kind}");
    }
}

#[test]
fn the_time_of_a_signature_is_in_one_of_two_headers() {
    let signed = SIGNED.replace("host;", "date;host;").replace(";x-amz-date", "");
    let request = |signed: &str, times: &[(&'static str, &str)]| {
        let needed = [("authorization", signed), ("x-amz-content-sha256", "UNSIGNED-PAYLOAD")];
        check_exactly("/b/k", &[times, &needed].concat()).map(|checked| checked.hoisted.get("x-amz-date").cloned())
    };
    for date in [DAY, "Wed, 01 Jan 2020 00:00:00 GMT"] {
        assert_eq!(request(&signed, &[("date", date)]).unwrap().unwrap(), DAY, "{date}");
    }
    assert_eq!(request(SIGNED, &[("x-amz-date", DAY), ("date", "never")]).unwrap(), None);
    for (signed, times) in [
        (&*signed, &[][..]),
        (&signed, &[("date", "never")]),
        (SIGNED, &[("date", DAY)]),
        (SIGNED, &[("x-amz-date", "20200101"), ("date", DAY)]),
        (SIGNED, &[("x-amz-date", "20201301T000000Z")]),
    ] {
        let error = request(signed, times).unwrap_err();
        assert_eq!(error.code().as_str(), "AccessDenied", "{times:?}");
        assert!(error.message().unwrap().contains("a valid Date or x-amz-date header"), "{times:?}");
    }
    assert!(request(&signed, &[("date", DAY), ("date", DAY)]).is_err());
    assert!(
        request(&signed, &[("date", "Thu, 02 Jan 2020 00:00:00 GMT")]).is_err(),
        "a day that is not the credential's"
    );
    let error = check_exactly("/b/k", &[("authorization", SIGNED), ("x-amz-date", DAY)]).unwrap_err();
    assert_eq!(error.message(), Some("Missing required header for this request: x-amz-content-sha256"));
}

#[test]
fn what_two_readers_could_read_differently_is_refused() {
    assert_eq!(check_request("/b/k", &[("x-amz-decoded-content-length", "12abc")]), Err(411));
    assert_eq!(check_request("/b/k", &[("content-length", "1"), ("transfer-encoding", "chunked")]), Err(400));
    assert_eq!(check_request("/b/k", &[("transfer-encoding", "Chunked")]), Ok(framed(None)));
    for codings in ["gzip, chunked", "chunked, chunked", "identity", ""] {
        assert_eq!(check_request("/b/k", &[("transfer-encoding", codings)]), Err(400), "{codings}");
    }
    let twice = [("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")];
    assert_eq!(check_request("/b/k", &twice), Err(400));
    assert_eq!(check_request("/b?prefix=a&prefix=b", &[]), Err(400));
    assert_eq!(check_request("/b/k", &[("x-amz-meta-a", "1"), ("x-amz-meta-a", "2")]), Err(400));
}

#[test]
fn headers_in_a_presigned_url_count_as_such() {
    let url = |more: &str| presigned("X-Amz-Signature=00", &format!("X-Amz-Signature=00&{more}"));
    let hoisted = |more: &str| check_request(&url(more), &[]).map(|checked| checked.hoisted);
    let headers = hoisted(
        "x-amz-meta-Name=a%20b&X-Amz-Storage-Class=GLACIER&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD&x-id=PutObject",
    )
    .unwrap();
    assert_eq!(headers.len(), 2);
    assert_eq!(
        (&headers["x-amz-meta-name"], &headers["x-amz-storage-class"]),
        (&"a b".parse().unwrap(), &"GLACIER".parse().unwrap())
    );
    assert_eq!(hoisted("x-amz-meta-a=1&X-Amz-Meta-A=2"), Err(400));
    assert_eq!(hoisted("x-amz-meta-a=%0D%0A"), Err(400));
    let ignored =
        hoisted("x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-checksum-sha512=0&x-amz-sdk-checksum-algorithm=CRC32");
    assert_eq!(ignored, Ok(HeaderMap::new()));
    assert_eq!(check_request("/b/k?x-amz-meta-a=1", &[]).unwrap().hoisted.len(), 0, "without a signature");
}

#[test]
fn checksums_that_nobody_compares_are_refused() {
    let all = SIGNED.replace(
        "x-amz-date",
        "x-amz-checksum-sha1024;x-amz-checksum-xxhash3;x-amz-checksum-crc32;x-amz-checksum-mode;x-amz-date",
    );
    for (name, expected) in [
        ("x-amz-checksum-sha1024", Some(400)),
        ("x-amz-checksum-xxhash3", None),
        ("x-amz-checksum-crc32", None),
        ("x-amz-checksum-mode", None),
    ] {
        assert_eq!(check_request("/b/k", &[("authorization", &all), (name, "v")]).err(), expected, "{name}");
    }
}

#[test]
fn digests_of_a_document_are_read() {
    let deletes = |name: &'static str, value: &str| {
        let request = http::Request::post("/b?delete").header("host", "localhost").header(name, value);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        check(&parts, "us-east-1").map(|checked| checked.document.is_some())
    };
    assert!(deletes("content-md5", "XUFAKrxLKna5cZ2REBfFkg==").unwrap());
    assert!(deletes("content-type", "text/xml").unwrap());
    let code = |name, value| deletes(name, value).unwrap_err().code().as_str().to_owned();
    assert_eq!(code("x-amz-checksum-crc32", "garbage"), "InvalidRequest");
    assert_eq!(code("content-md5", "garbage"), "InvalidDigest");
}

#[test]
fn lists_in_several_headers_are_one_list() {
    let mut headers = HeaderMap::new();
    headers.append("content-encoding", HeaderValue::from_static("gzip"));
    headers.append("content-encoding", HeaderValue::from_static("aws-chunked"));
    headers.append("cache-control", HeaderValue::from_static("no-store"));
    join_lists(&mut headers);
    let values = |name| headers.get_all(name).iter().collect::<Vec<_>>();
    assert_eq!(values("content-encoding"), ["gzip,aws-chunked"]);
    assert_eq!(values("cache-control"), ["no-store"]);
}

#[test]
fn a_form_is_one_for_all_and_makes_an_object_only() {
    let post = |target: &str, kind: &[u8], more: &[(&'static str, &str)]| {
        let mut request = http::Request::post(target).header("host", "localhost").header("content-type", kind);
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        check(&parts, "us-east-1").map(|checked| checked.form).map_err(|error| error.status_code().unwrap().as_u16())
    };
    let kind = b"Multipart/Form-Data; boundary=b";
    assert_eq!(post("/b", kind, &[]), Ok(Some("b".to_owned())));
    assert_eq!(post("/b?x-id=PostObject", kind, &[]), Ok(Some("b".to_owned())));
    assert_eq!(post("/b", "multipart/form-data; boundary=b; x=\"\u{e9}\"".as_bytes(), &[]), Err(400));
    assert_eq!(post("/b", b"multipart/form-data", &[]), Err(400));
    for query in ["acl", "delete", "uploadId=1", "select&select-type=2"] {
        assert_eq!(post(&format!("/b/k?{query}"), kind, &[]), Err(501), "{query}");
    }
    let signed = with_defaults(&[("authorization", SIGNED)]);
    assert_eq!(post("/b", kind, &signed), Err(400));
    assert_eq!(post("/b?AWSAccessKeyId=k&Signature=s&Expires=1", kind, &[]), Err(400));
}
