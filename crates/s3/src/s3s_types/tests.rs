use http::HeaderValue;

use super::*;

fn condition(value: &'static str) -> Option<TagCondition> {
    let mut headers = HeaderMap::new();
    headers.insert("if-match", HeaderValue::from_static(value));
    tag_condition(&headers, "if-match").unwrap()
}

#[test]
fn conditions_hold_one_tag_or_many() {
    let tags = |tags: &[&str]| Some(TagCondition::OneOf(tags.iter().copied().map(ETag::new).collect()));
    assert_eq!(condition("*"), Some(TagCondition::Any));
    assert_eq!(condition("\"abc\""), tags(&["abc"]));
    assert_eq!(condition("abc"), tags(&["abc"]));
    assert_eq!(condition("\"abc\", W/\"def-2\""), tags(&["abc", "def-2"]));
    assert_eq!(tag_condition(&HeaderMap::new(), "if-match").unwrap(), None);
}

#[test]
fn metadata_is_bounded_in_bytes() {
    let metadata = |value: String| user_metadata(Some([("a".to_owned(), value)].into_iter().collect()));
    assert!(metadata("x".repeat(2047)).is_ok() && metadata("é".repeat(750)).is_ok());
    assert_eq!(metadata("é".repeat(1023)).unwrap_err().code().as_str(), "MetadataTooLarge", "it goes to S3 in base64");
    for name in ["my field", "a:b", "ü", ""] {
        let named = user_metadata(Some([(name.to_owned(), String::new())].into_iter().collect()));
        assert_eq!(named.is_err(), !name.is_empty(), "{name}");
    }
    assert_eq!(metadata("x".repeat(2048)).unwrap_err().code().as_str(), "MetadataTooLarge");
    assert_eq!(metadata("a\r\nset-cookie: b".to_owned()).unwrap_err().code().as_str(), "InvalidArgument");
}

/// An object that a client copies from the bucket behind has the stamp of another write.
#[test]
fn a_stamp_is_no_metadata_of_a_client() {
    let sent = [("Forebay-Stamp", "1;g=7"), ("a", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let kept = user_metadata(Some(sent.into_iter().collect())).unwrap();
    assert_eq!(kept.into_keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn tags_are_decoded_and_bounded() {
    let tags = tags_of_header(Some("a=1&b%20c=%C3%A9+x&d")).unwrap();
    let expected = [("a", "1"), ("b c", "é x"), ("d", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(tags.into_iter().collect::<Vec<_>>(), expected);
    assert!(tags_of_header(Some("a=1&a=2")).is_err());
    assert!(tags_of_header(Some(&format!("{}=1", "k".repeat(129)))).is_err());
    assert!(tags_of_header(Some(&(0..11).map(|n| format!("k{n}=v&")).collect::<String>())).is_err());
}

#[test]
fn aws_chunked_is_not_stored_as_a_coding() {
    for (given, stored) in
        [("aws-chunked", None), ("aws-chunked,gzip", Some("gzip")), ("gzip, aws-chunked", Some("gzip"))]
    {
        assert_eq!(content_encoding(Some(given.to_owned())).as_deref(), stored, "{given}");
    }
    assert_eq!(content_encoding(Some("gzip, br".to_owned())).as_deref(), Some("gzip,br"));
}

#[test]
fn times_are_whole_seconds() {
    assert_eq!(http_date(1_577_836_800_999), "Wed, 01 Jan 2020 00:00:00 GMT");
    assert_eq!(expires(Some(timestamp(1_577_836_800_999))).as_deref(), Some("Wed, 01 Jan 2020 00:00:00 GMT"));
}

/// In WRITE_BACK nobody would hear of it later.
#[test]
fn what_s3_never_takes_is_refused_at_once() {
    for bad in ["a!=1", "a=%3C%3E", "aws:a=1", "a=1%0A", "a=%F0%9F%99%82"] {
        assert_eq!(tags_of_header(Some(bad)).unwrap_err().code().as_str(), "InvalidTag", "{bad}");
    }
    for bad in ["=1", "a=1&a=2", "a=1&%61=2", "a=%", "a=%4", "a=%zz", "%+1=a", "a=%FF"] {
        assert_eq!(tags_of_header(Some(bad)).unwrap_err().code().as_str(), "InvalidArgument", "{bad}");
    }
    assert_eq!(tags_of_header(Some("a%20%2B-%3D._:/@=%E6%97%A5%D9%A3&AWS:b=aws:")).unwrap().len(), 2);
    let redirect = |to: &str| {
        check_headers(SystemHeaders { website_redirect_location: Some(to.to_owned()), ..SystemHeaders::default() })
    };
    for bad in ["", "elsewhere", "ftp://a", &format!("/{}", "a".repeat(2048))] {
        assert_eq!(redirect(bad).unwrap_err().code().as_str(), "InvalidRedirectLocation", "{bad}");
    }
    assert!(redirect("/a").is_ok() && redirect("https://a").is_ok());
    for (class, stored) in
        [("STANDARD", Some(None)), ("GLACIER", Some(Some("GLACIER"))), ("FOO", None), ("OUTPOSTS", None)]
    {
        let found = storage_class(Some(class.to_owned().into())).ok();
        assert_eq!(found.as_ref().map(Option::as_deref), stored, "{class}");
    }
}
