//! Pages of listings that lie, or that end too early.

use super::*;

/// A mirror that takes the rest for deleted would delete it, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_cut_off_is_none() {
    let document = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a prefix/a</Key><Size>1</Size>\
                    <ETag>\"t\"</ETag></Contents></ListBucketResult>";
    for length in [document.len(), document.len() - 1, document.len() / 2, 60, 18] {
        let body = &document[..length];
        let server = Recorder::answering(format!("HTTP/1.1 200 X\r\nContent-Length: {length}\r\n\r\n{body}")).await;
        let [store, _] = server.both(S3Settings::default()).await;
        let listed = store.list(&ListRequest { limit: 1000, ..ListRequest::default() }).await;
        let expected = if length == document.len() { Ok(1) } else { Err(ErrorKind::Unavailable) };
        assert_eq!(listed.map(|page| page.objects.len()).map_err(|error| error.kind), expected, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_goes_in_circles_is_an_error() {
    let document = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>same</NextContinuationToken></ListBucketResult>";
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{document}", document.len());
    let server = Recorder::answering(answer).await;
    let [store, _] = server.both(S3Settings::default()).await;
    let error = store.list(&ListRequest { limit: 1, ..ListRequest::default() }).await.unwrap_err();
    assert_eq!((error.kind, server.seen.lock().len()), (ErrorKind::Unavailable, 2), "{error}");
}

/// A page of a listing, without its head.
fn page(names: &[String], next: Option<&str>) -> String {
    let next = next.map(|next| format!("<NextContinuationToken>{next}</NextContinuationToken>")).unwrap_or_default();
    let key =
        |name: &String| format!("<Contents><Key>a prefix/{name}</Key><Size>1</Size><ETag>\"t\"</ETag></Contents>");
    let (is_truncated, keys) = (!next.is_empty(), names.iter().map(key).collect::<String>());
    let document =
        format!("<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>{next}{keys}</ListBucketResult>");
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{document}", document.len())
}

/// As versitygw lists a key with a control character: in its place, under another name. Its other keys must not be
/// taken for shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_out_of_order_is_an_error_and_not_an_incomplete_list() {
    let odd = "\u{fffd}odd".to_owned();
    for place in [0, 500, 999] {
        let mut names: Vec<String> = (0..1_300).map(|number| format!("k{number:04}")).collect();
        names.insert(place, odd.clone());
        let (first, second) = (page(&names[..1000], Some("on")), page(&names[1000..], None));
        let answer = move |seen: &Seen| if seen.path.contains("token=on") { second.clone() } else { first.clone() };
        let server = Recorder::by(answer).await;
        let [store, _] = server.both(S3Settings::default()).await;
        let mut request = ListRequest { limit: 1000, ..ListRequest::default() };
        let error = loop {
            match store.list(&request).await {
                Ok(page) => {
                    (request.start_after, request.token) = (Some(page.next.expect("there are more")), page.token)
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
        assert!(error.context.contains("out of order") && error.context.contains("odd"), "{error}");
    }
    // Where all is on one page, nothing is left out.
    let whole = page(&[odd, "a".to_owned()], None);
    let server = Recorder::answering(whole).await;
    let [store, _] = server.both(S3Settings::default()).await;
    let page = store.list(&ListRequest { limit: 1000, ..ListRequest::default() }).await.unwrap();
    assert_eq!(page.objects.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), ["a", "\u{fffd}odd"]);
}

/// From a server that knows only ListObjects, or behind a proxy that removes the token.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_does_not_say_how_it_goes_on_is_an_error() {
    let document = "<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>a prefix/a</Key><Size>1</Size>\
                    <ETag>\"t\"</ETag></Contents></ListBucketResult>";
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{document}", document.len());
    let server = Recorder::answering(answer).await;
    let [store, _] = server.both(S3Settings::default()).await;
    let error = store.list(&ListRequest { limit: 1000, ..ListRequest::default() }).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert!(error.context.contains("continuation token"), "{error}");
}

/// MinIO answers with only the object of that name, if there is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_one_key_is_not_the_last_one() {
    let names = ["dir/", "dir/x", "dir/y"];
    let server = Recorder::by(move |seen| {
        let is_alone = seen.path.contains("max-keys=1&") || seen.path.ends_with("max-keys=1");
        let from = usize::from(seen.path.contains("start-after="));
        let shown = if is_alone { &names[..1] } else { &names[from..] };
        let keys = shown
            .iter()
            .map(|name| format!("<Contents><Key>a prefix/{name}</Key><Size>1</Size><ETag>\"t\"</ETag></Contents>"));
        let keys: String = keys.collect();
        let document = format!("<ListBucketResult><IsTruncated>false</IsTruncated>{keys}</ListBucketResult>");
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{document}", document.len())
    })
    .await;
    let [store, _] = server.both(S3Settings::default()).await;
    let mut request = ListRequest { prefix: "dir/".to_owned(), limit: 1, ..ListRequest::default() };
    let first = store.list(&request).await.unwrap();
    assert_eq!(first.objects.len(), 1);
    assert_eq!((first.objects[0].key.as_str(), first.next.as_deref()), ("dir/", Some("dir/")));
    request = ListRequest { start_after: first.next, ..request };
    let second = store.list(&request).await.unwrap();
    assert_eq!((second.objects[0].key.as_str(), second.next.as_deref()), ("dir/x", Some("dir/x")));
    request.limit = 2;
    let rest = store.list(&request).await.unwrap();
    assert_eq!(rest.objects.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), names[1..]);
}

/// As MinIO does for delimiters other than `/`. Without a delimiter, it continues.
#[tokio::test(flavor = "multi_thread")]
async fn common_prefixes_are_made_here_where_tokens_lead_back() {
    let page = |names: &str, next: Option<&str>| {
        let next =
            next.map(|next| format!("<NextContinuationToken>{next}</NextContinuationToken>")).unwrap_or_default();
        let is_truncated = !next.is_empty();
        let document =
            format!("<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>{next}{names}</ListBucketResult>");
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{document}", document.len())
    };
    let key = |name: &str| format!("<Contents><Key>a prefix/{name}</Key><Size>1</Size><ETag>\"t\"</ETag></Contents>");
    let group = "<CommonPrefixes><Prefix>a prefix/a-</Prefix></CommonPrefixes>";
    let server =
        Recorder::by(move |seen| match (seen.path.contains("delimiter="), seen.path.contains("continuation-token=")) {
            (true, _) => page(group, Some("back")),
            (false, false) => page(&(key("a-1") + &key("a-2") + &key("b")), Some("on")),
            (false, true) => page(&(key("c-1") + &key("d")), None),
        })
        .await;
    let [store, _] = server.both(S3Settings::default()).await;
    let delimiter = Some("-".to_owned());
    let mut request = ListRequest { delimiter, limit: 1, ..ListRequest::default() };
    let mut names = Vec::new();
    loop {
        let page = store.list(&request).await.unwrap();
        names.extend(page.objects.into_iter().map(|object| object.key).chain(page.prefixes));
        let Some(next) = page.next else { break };
        (request.start_after, request.token) = (Some(next), page.token);
    }
    assert_eq!(names, ["a-", "b", "c-", "d"]);
}
