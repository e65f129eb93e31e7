use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_auth::{RootUser, Secret};

use super::*;

fn users() -> Users {
    Users::open(RootUser { access_key: "root".to_owned(), secret_key: Secret::new("secret") }, None).unwrap()
}

fn form(fields: &[(&str, &str)]) -> String {
    let field = |(name, value): &(&str, &str)| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    fields.iter().map(field).collect::<String>() + "--b--\r\n"
}

/// What comes out of a form that comes in pieces of this size.
async fn watched(form: &str, size: usize) -> Result<String, BodyError> {
    let context = Arc::new(RequestContext::new("id".to_owned(), "http"));
    let pieces: Vec<_> = form.as_bytes().chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let read: Vec<_> = watch(futures::stream::iter(pieces), "b", Arc::clone(&context), users(), "us-east-1".to_owned())
        .collect()
        .await;
    match context.refused.get() {
        Some(refused) => Err(refused.error),
        None => Ok(String::from_utf8(read.into_iter().flat_map(Result::unwrap).collect()).unwrap()),
    }
}

#[tokio::test]
async fn fields_that_would_be_dropped_are_refused_however_the_form_is_cut() {
    for size in [1, 3, 7, 1000] {
        let known = form(&[
            ("Key", "k"),
            ("x-amz-meta-a", "name=\"acl\""),
            ("acl", "private"),
            ("utf8", "yes"),
            ("x-amz-tagging", "a=1"),
            ("file", "--b name=\"acl\""),
        ]);
        assert_eq!(watched(&known, size).await, Ok(known), "{size}");
        for (unknown, error) in [
            ("tagging", BodyError::Document),
            ("x-amz-checksum-sha1024", BodyError::FormField),
            ("x-amz-server-side-encryption-customer-key", BodyError::FormField),
            ("acl", BodyError::FormArgument),
            ("if-none-match", BodyError::FormField),
            ("x-amz-grant-read", BodyError::FormAcl),
        ] {
            let fields = [("key", "k"), ("x-amz-meta-a", "name=\"file\""), (unknown, "v"), ("file", "data")];
            assert_eq!(watched(&form(&fields), size).await, Err(error), "{size} {unknown}");
        }
        let public = form(&[("key", "k"), ("acl", "public-read"), ("file", "data")]);
        assert_eq!(watched(&public, size).await, Err(BodyError::FormAcl), "{size}");
        let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
        let tagged = form(&[("key", "k"), ("tagging", tags), ("file", "data")]);
        assert_eq!(watched(&tagged, size).await, Ok(tagged), "{size}");
        let twice = form(&[("key", "k"), ("x-amz-tagging", "a=b"), ("tagging", tags), ("file", "data")]);
        assert_eq!(watched(&twice, size).await, Err(BodyError::Form), "{size}");
        let behind = form(&[("key", "k"), ("file", "data"), ("acl", "v")]);
        assert_eq!(watched(&behind, size).await, Ok(behind), "{size}");
    }
    let long = "v".repeat(FIELDS_BYTES_MAX + 2000);
    let fields = form(&[("key", &long), ("acl", "v"), ("file", "data")]);
    assert_eq!(watched(&fields, 1000).await, Err(BodyError::TooLong));
}

#[tokio::test]
async fn forms_that_are_none_are_refused() {
    for wrong in [
        "",
        "--b",
        "--b--\r\n",
        "--c\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\ndata\r\n--c--\r\n",
        "--b\r\nContent-Disposition: form-data; filename=\"file\"\r\n\r\ndata\r\n--b--\r\n",
        "--b\r\nContent-Disposition: form-data; name=\"file\"",
    ] {
        assert_eq!(watched(wrong, 1000).await, Err(BodyError::Form), "{wrong:?}");
    }
    let without_file = "--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nk\r\n--b--\r\n";
    assert_eq!(watched(without_file, 1000).await, Err(BodyError::FormFile));
    let twice = form(&[("key", "a"), ("Key", "b"), ("file", "data")]);
    assert_eq!(watched(&twice, 1000).await, Err(BodyError::Form));
    assert_eq!(watched(&form(&[("acl", "private"), ("file", "data")]), 1000).await, Err(BodyError::FormArgument));
}

#[tokio::test]
async fn every_spelling_of_a_part_is_written_as_one() {
    let plain = "--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\na/f 1.txt\r\n\
                 --b\r\nContent-Disposition: form-data; name=\"file\"\r\nContent-Type: text/plain\r\n\r\ndata${filename}\r\n--b--\r\n";
    for key in
        ["Content-Disposition: form-data; name=key", "X-A: 1\r\ncontent-disposition:form-data;name=\"key\"\r\nX-B: 2"]
    {
        for name in ["f 1.txt", "dir/f 1.txt", "C:\\dir\\f 1.txt"] {
            let spelled = format!(
                "\r\n--b\r\n{key}\r\n\r\na/${{filename}}\r\n--b\r\nContent-Length: 4\r\nContent-Type: text/plain\r\n\
                 Content-Disposition: form-data; filename=\"{name}\"; name=\"file\"\r\n\r\ndata${{filename}}\r\n--b--\r\n"
            );
            assert_eq!(watched(&spelled, 1000).await.as_deref(), Ok(plain), "{key} {name}");
        }
    }
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
        assert_eq!(parameter(headers, "name").as_deref(), name, "{headers}");
    }
}

#[tokio::test]
async fn a_policy_is_for_a_bucket() {
    let policy = |conditions: &str| {
        STANDARD.encode(format!("{{\"expiration\": \"2030-01-01T00:00:00Z\", \"conditions\": {conditions}}}"))
    };
    for (conditions, expected) in [
        ("[{\"bucket\": \"b\"}, [\"starts-with\", \"$key\", \"\"]]", None),
        ("[[\"eq\", \"$bucket\", \"b\"]]", None),
        ("[[\"starts-with\", \"$key\", \"\"]]", Some(BodyError::FormPolicy)),
        ("[[\"starts-with\", \"$key\", \"$bucket\"]]", Some(BodyError::FormPolicy)),
        ("[]", Some(BodyError::FormPolicy)),
    ] {
        let fields = form(&[("key", "k"), ("policy", &policy(conditions)), ("file", "data")]);
        assert_eq!(watched(&fields, 1000).await.err(), expected, "{conditions}");
    }
    let none = form(&[("key", "k"), ("policy", "no policy"), ("file", "data")]);
    assert_eq!(watched(&none, 1000).await, Err(BodyError::FormPolicyDocument));
}

/// The base64 of `{"expiration":"2030-01-01T00:00:00Z","conditions":[{"bucket":"b"}]}`.
const POLICY: &str = "eyJleHBpcmF0aW9uIjoiMjAzMC0wMS0wMVQwMDowMDowMFoiLCJjb25kaXRpb25zIjpbeyJidWNrZXQiOiJiIn1dfQ==";

#[tokio::test]
async fn a_signature_of_version_2_is_that_of_the_policy() {
    // printf %s POLICY | openssl dgst -sha1 -hmac secret -binary | base64
    let right = [
        ("policy", POLICY),
        ("AWSAccessKeyId", "root"),
        ("signature", "2rE/7JN+WvawDDZPnIm4mEIDBt8="),
        ("key", "k"),
        ("file", "data"),
    ];
    let passed = watched(&form(&right), 1000).await.unwrap();
    assert!(passed.contains("name=\"signature\"\r\n\r\n2rE/7JN+WvawDDZPnIm4mEIDBt8=\r\n"), "{passed}");
    for (index, wrong) in [(0, "other"), (2, ""), (2, "AAAA")] {
        let mut fields = right;
        fields[index].1 = wrong;
        assert_eq!(watched(&form(&fields), 1000).await, Err(BodyError::FormSignature), "{wrong}");
    }
    let mut nobody = right;
    nobody[1].1 = "nobody";
    assert_eq!(watched(&form(&nobody), 1000).await, Err(BodyError::FormAccessKey));
    for missing in ["AWSAccessKeyId", "signature", "policy"] {
        let fields: Vec<_> = right.into_iter().filter(|(name, _)| *name != missing).collect();
        assert_eq!(watched(&form(&fields), 1000).await, Err(BodyError::FormArgument), "{missing}");
    }
    let both = [&[("x-amz-signature", "0")], &right[..]].concat();
    assert_eq!(watched(&form(&both), 1000).await, Err(BodyError::FormSignature));
}

#[tokio::test]
async fn a_signature_of_version_4_is_compared_here_whatever_its_age() {
    // From hmac.new in Python, for the day of the credential.
    let right = [
        ("policy", POLICY),
        ("x-amz-algorithm", "AWS4-HMAC-SHA256"),
        ("x-amz-credential", "root/20200101/us-east-1/s3/aws4_request"),
        ("x-amz-date", "20200101T000000Z"),
        ("x-amz-signature", "67ac3fc6a36b818618aa9eb0a320e83920bf8be1c50158d92ba731d27ea9a7ad"),
        ("key", "k"),
        ("file", "data"),
    ];
    let passed = watched(&form(&right), 1000).await.unwrap();
    assert!(passed.contains("name=\"signature\"\r\n\r\n2rE/7JN+WvawDDZPnIm4mEIDBt8=\r\n"), "{passed}");
    // As `s3s` gets it: the other signature counts, not what is left of this one.
    assert_eq!(watched(&passed, 1000).await.as_ref(), Ok(&passed));
    assert!(passed.contains("name=\"x-amz-credential\"") && !passed.contains("x-amz-signature"), "{passed}");
    for (index, wrong, error) in [
        (0, "other", BodyError::FormSignature),
        (1, "AWS4-HMAC-SHA1", BodyError::FormArgument),
        (2, "root/20200102/us-east-1/s3/aws4_request", BodyError::FormArgument),
        (2, "root/20200101/eu-west-1/s3/aws4_request", BodyError::FormArgument),
        (2, "root", BodyError::FormArgument),
        (3, "2020", BodyError::FormArgument),
        (4, "0", BodyError::FormSignature),
    ] {
        let mut fields = right;
        fields[index].1 = wrong;
        assert_eq!(watched(&form(&fields), 1000).await, Err(error), "{wrong}");
    }
    for (missing, _) in &right[..5] {
        let fields: Vec<_> = right.into_iter().filter(|(name, _)| name != missing).collect();
        assert_eq!(watched(&form(&fields), 1000).await, Err(BodyError::FormArgument), "{missing}");
    }
    let mut nobody = right;
    nobody[2].1 = "nobody/20200101/us-east-1/s3/aws4_request";
    assert_eq!(watched(&form(&nobody), 1000).await, Err(BodyError::FormAccessKey));
}

/// `s3s` takes a delimiter in the first line of a value for its end.
#[tokio::test]
async fn no_value_holds_a_form() {
    let inner = "--b\r\nContent-Disposition: form-data; name=\"acl\"\r\n\r\npublic-read";
    let smuggled = form(&[("x-ignore-0", inner), ("key", "k"), ("file", "data")]);
    assert!(watched(&smuggled, 1000).await.is_err());
    assert_eq!(watched(&form(&[("key", "k"), ("a", "x--b"), ("file", "data")]), 1000).await, Err(BodyError::Form));
    let empty = form(&[("a", ""), ("key", ""), ("file", "data")]);
    assert_eq!(watched(&empty, 1000).await, Ok(empty));
    let named = form(&[("key", "${filename}")]).replace("--b--\r\n", "")
        + "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"--b\"\r\n\r\ndata\r\n--b--\r\n";
    assert_eq!(watched(&named, 1000).await, Err(BodyError::Form));
}

#[tokio::test]
async fn files_go_on_in_small_pieces() {
    let long = form(&[("key", "k"), ("file", &"\r".repeat(3 * FIELDS_BYTES_MAX))]);
    let context = Arc::new(RequestContext::new("id".to_owned(), "http"));
    let whole = futures::stream::iter([Ok(Bytes::from(long.clone()))]);
    let read: Vec<_> = watch(whole, "b", context, users(), "us-east-1".to_owned()).map(Result::unwrap).collect().await;
    assert!(read.iter().all(|piece| piece.len() <= PIECE_BYTES));
    assert!(read.concat() == long.as_bytes());
}

#[test]
fn boundaries_are_those_of_the_standard() {
    for (kind, expected) in [
        ("multipart/form-data; boundary=b", Some("b")),
        ("multipart/form-data; charset=utf-8; Boundary=\"a'()+_,-./:=?b\"", Some("a'()+_,-./:=?b")),
        ("multipart/form-data", None),
        ("multipart/form-data; boundary=", None),
        ("multipart/form-data; boundary=a; boundary=b", None),
        ("multipart/form-data; boundary=\"a b\"", None),
        ("multipart/form-data; boundary=\"a\u{e9}\"", None),
    ] {
        assert_eq!(boundary(kind).as_deref(), expected, "{kind}");
    }
}

#[test]
fn the_name_of_a_file_is_what_browsers_and_curl_write() {
    let named = |more: &str| file_name(&format!("Content-Disposition: form-data; name=\"file\"; {more}"));
    for (more, name) in [
        ("filename=\"a b.txt\"", "a b.txt"),
        ("filename=\"a\\\"b.txt\"", "a\"b.txt"),
        ("filename=\"C:\\dir\\\"; x=\"y\"", ""),
        ("filename=\"\"", ""),
        ("filename=\"C:\\dir\\f\"", "f"),
        ("filename*=UTF-8''na%20me.txt", "na me.txt"),
        ("filename=plain; filename*=UTF-8''other", "plain"),
    ] {
        assert_eq!(named(more).as_deref(), Some(name), "{more}");
    }
    assert_eq!(named("x=y"), None);
}
