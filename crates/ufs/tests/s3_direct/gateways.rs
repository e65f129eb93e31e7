//! Something in front of S3 answers instead of it, or removes what only S3 sends.

use std::sync::atomic::AtomicBool;

use super::*;

/// A server with one object, behind something that may answer instead of it, or remove what only S3 sends.
#[derive(Default)]
struct Behind {
    /// ETag, size and stamp.
    object: Mutex<Option<(String, usize, String)>>,
    /// Methods that are answered with a short page.
    pages: Mutex<Vec<&'static str>>,
    /// Methods whose answers lack all headers that begin with `x-amz-`.
    stripped: Mutex<Vec<&'static str>>,
    denies_lists: AtomicBool,
    /// PUTs are carried out, and answered with an ETag of something else.
    mistells_tags: AtomicBool,
}

const ALL: [&str; 4] = ["PUT", "DELETE", "HEAD", "GET"];

impl Behind {
    async fn start() -> (Arc<Self>, Recorder) {
        let behind = Arc::new(Self::default());
        let answering = Arc::clone(&behind);
        (behind, Recorder::by(move |seen| answering.answer(seen)).await)
    }

    fn answer(&self, seen: &Seen) -> String {
        let is = |methods: &Mutex<Vec<&'static str>>| methods.lock().contains(&seen.method.as_str());
        let answer = |status: &str, headers: &str, length: usize, body: &str| {
            let id = if is(&self.stripped) { "" } else { "x-amz-request-id: 1\r\n" };
            let headers: String = headers
                .lines()
                .filter(|line| !(id.is_empty() && line.starts_with("x-amz-")))
                .map(|line| format!("{line}\r\n"))
                .collect();
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{id}{headers}\r\n{body}")
        };
        if is(&self.pages) {
            let body = if seen.method == "GET" { "ok" } else { "" };
            return format!("HTTP/1.1 200 X\r\nETag: \"page\"\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
        let mut object = self.object.lock();
        let described =
            |(etag, _, stamp): &(String, usize, String)| format!("ETag: {etag}\nx-amz-meta-forebay-stamp: {stamp}\n");
        match (seen.method.as_str(), seen.path.contains("list-type=2"), &*object) {
            ("PUT", _, _) => {
                let stamp = seen.headers.get("x-amz-meta-forebay-stamp").cloned().unwrap_or_default();
                // The SDK sends it in chunks.
                let decoded = seen.headers.get("x-amz-decoded-content-length");
                let size = decoded.map_or(seen.body.len(), |size| size.parse().expect("a number"));
                let put = (format!("\"{size}\""), size, stamp);
                let mistells = self.mistells_tags.load(Ordering::SeqCst);
                let headers = format!("ETag: {}\n", if mistells { "\"made-up\"" } else { put.0.as_str() });
                *object = Some(put);
                answer("200 X", &headers, 0, "")
            }
            ("DELETE", _, _) => {
                *object = None;
                answer("204 X", "", 0, "")
            }
            ("GET", true, _) if self.denies_lists.load(Ordering::SeqCst) => {
                let document = "<Error><Code>AccessDenied</Code></Error>";
                answer("403 X", "", document.len(), document)
            }
            ("GET", true, _) => {
                let asked = |name: &str| {
                    let rest = seen.path.split_once(&format!("&{name}=")).map_or("", |(_, rest)| rest);
                    percent_encoding::percent_decode_str(rest.split('&').next().unwrap_or_default())
                        .decode_utf8_lossy()
                        .into_owned()
                };
                let listed = object.as_ref().map_or(String::new(), |(etag, size, _)| {
                    format!("<Contents><Key>a prefix/a</Key><Size>{size}</Size><ETag>{etag}</ETag></Contents>")
                });
                let prefix = asked("prefix");
                let document = format!(
                    "<ListBucketResult><Name>bucket</Name><Prefix>{prefix}</Prefix>{listed}</ListBucketResult>"
                );
                answer("200 X", "", document.len(), &document)
            }
            ("HEAD", _, Some(object)) => answer("200 X", &described(object), object.1, ""),
            (_, _, Some(object)) => answer("200 X", &described(object), object.1, &"b".repeat(object.1)),
            ("HEAD", _, None) => answer("404 X", "", 0, ""),
            (_, _, None) => {
                let document = "<Error><Code>NoSuchKey</Code></Error>";
                answer("404 X", "", document.len(), document)
            }
        }
    }
}

async fn put_bytes(store: &S3Store, bytes: usize) -> Result<(), ErrorKind> {
    let body = Bytes::from(vec![b'b'; bytes]);
    let upload = upload(described(bytes as u64), &body, Condition::Always);
    let upload = Upload { generation: Generation(bytes as u64), ..upload };
    store.put(&key("a"), upload).await.map(drop).map_err(|error| error.kind)
}

async fn delete_it(store: &S3Store) -> Result<(), ErrorKind> {
    store.delete(&key("a"), Condition::Always).await.map_err(|error| error.kind)
}

/// The size of the object according to HEAD, GET and a listing.
async fn sizes(store: &S3Store) -> [Result<u64, ErrorKind>; 3] {
    let head = store.head(&key("a")).await.map(|object| object.info.size);
    let get = store.get(&key("a"), None, None).await.map(|body| body.object.info.size);
    let request = ListRequest { limit: 10, ..ListRequest::default() };
    let listed = store.list(&request).await.map(|page| page.objects.first().map_or(0, |object| object.size));
    [head, get, listed].map(|size| size.map_err(|error| error.kind))
}

/// A gateway under repair answers instead of S3, with a short answer that lacks what S3 puts into each one.
#[tokio::test(flavor = "multi_thread")]
async fn a_success_that_may_be_of_somebody_before_s3_is_looked_at() {
    const NOBODY: Result<(), ErrorKind> = Err(ErrorKind::Ambiguous);
    const UNSEEN: [Result<u64, ErrorKind>; 3] = [Err(ErrorKind::Unavailable); 3];
    for way in 0..2 {
        let (behind, server) = Behind::start().await;
        let store = &server.both(S3Settings::default()).await[way];
        let pages = |methods: &[&'static str]| *behind.pages.lock() = methods.to_vec();
        let strips = |methods: &[&'static str]| *behind.stripped.lock() = methods.to_vec();
        // Nothing is known about the endpoint yet.
        pages(&ALL);
        assert_eq!((put_bytes(store, 4).await, delete_it(store).await, sizes(store).await), (NOBODY, NOBODY, UNSEEN));
        // Some answer has had an id, but none to these operations.
        pages(&[]);
        store.list(&ListRequest { limit: 10, ..ListRequest::default() }).await.expect("a listing");
        pages(&ALL);
        assert_eq!((put_bytes(store, 4).await, delete_it(store).await, sizes(store).await), (NOBODY, NOBODY, UNSEEN));
        pages(&[]);
        assert_eq!((put_bytes(store, 4).await, sizes(store).await), (Ok(()), [Ok(4); 3]));
        pages(&ALL);
        assert_eq!((put_bytes(store, 5).await, delete_it(store).await, sizes(store).await), (NOBODY, NOBODY, UNSEEN));
        // Where ids are removed, the truth still shows: by the stamp, or in a listing.
        pages(&[]);
        for stripped in [&["PUT"][..], &["HEAD"], &["GET"], &["DELETE"], &["HEAD", "PUT"], &ALL] {
            strips(stripped);
            assert_eq!((put_bytes(store, 6).await, sizes(store).await), (Ok(()), [Ok(6); 3]), "{stripped:?}");
            assert_eq!(delete_it(store).await, Ok(()), "{stripped:?}");
            assert_eq!(sizes(store).await, [Err(ErrorKind::NotFound), Err(ErrorKind::NotFound), Ok(0)], "{stripped:?}");
            // Whatever was true before, a page is not believed.
            assert_eq!(put_bytes(store, 7).await, Ok(()));
            pages(stripped);
            assert!(!stripped.contains(&"PUT") || put_bytes(store, 8).await == NOBODY, "{stripped:?}");
            assert!(!stripped.contains(&"DELETE") || delete_it(store).await == NOBODY, "{stripped:?}");
            pages(&[]);
            assert_eq!(sizes(store).await, [Ok(7); 3], "{stripped:?}");
        }
    }
}

/// Everything that such a server says is believed, once a listing has shown what it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_sends_no_ids_is_looked_at_once() {
    for way in 0..2 {
        let (behind, server) = Behind::start().await;
        *behind.stripped.lock() = ALL.to_vec();
        let store = &server.both(S3Settings::default()).await[way];
        assert_eq!((put_bytes(store, 4).await, put_bytes(store, 5).await), (Ok(()), Ok(())));
        assert_eq!((sizes(store).await, delete_it(store).await), ([Ok(5); 3], Ok(())));
        let methods: Vec<String> = server.seen.lock().iter().map(|seen| seen.method.clone()).collect();
        assert_eq!(
            methods,
            ["PUT", "GET", "PUT", "HEAD", "GET", "GET", "DELETE"],
            "one listing more than was asked for"
        );
    }
}

/// Without the right to list, nothing can be checked: the answer to an operation counts until one has had an id.
#[tokio::test(flavor = "multi_thread")]
async fn where_lists_are_denied_an_operation_is_believed_that_never_had_an_id() {
    for way in 0..2 {
        let (behind, server) = Behind::start().await;
        behind.denies_lists.store(true, Ordering::SeqCst);
        let strips = |methods: &[&'static str]| *behind.stripped.lock() = methods.to_vec();
        let store = &server.both(S3Settings::default()).await[way];
        strips(&["HEAD", "GET"]);
        assert_eq!(put_bytes(store, 4).await, Ok(()));
        let read = async || [sizes(store).await[0], sizes(store).await[1]];
        assert_eq!(read().await, [Ok(4); 2]);
        strips(&[]);
        assert_eq!(read().await, [Ok(4); 2]);
        strips(&["HEAD", "GET"]);
        assert_eq!(read().await, [Err(ErrorKind::Unavailable); 2]);
    }
    // A page that gives only a status says nothing about the endpoint.
    let server = Recorder::by(|seen| {
        let status = if seen.method == "GET" { "403 X" } else { "200 X" };
        format!("HTTP/1.1 {status}\r\nETag: \"page\"\r\nContent-Length: 0\r\n\r\n")
    })
    .await;
    for store in server.both(S3Settings::default()).await {
        assert_eq!(put_bytes(&store, 4).await, Err(ErrorKind::Ambiguous));
    }
}

/// A gateway answers a PUT with the ETag of the object that is there already.
#[tokio::test(flavor = "multi_thread")]
async fn the_tag_of_an_older_object_proves_nothing() {
    for way in 0..2 {
        let (behind, server) = Behind::start().await;
        let store = &server.both(S3Settings::default()).await[way];
        assert_eq!(sizes(store).await[2], Ok(0));
        *behind.object.lock() = Some(("\"page\"".to_owned(), 4, String::new()));
        *behind.pages.lock() = vec!["PUT"];
        assert_eq!(put_bytes(store, 6).await, Err(ErrorKind::Ambiguous));
        assert_eq!(sizes(store).await, [Ok(4); 3]);
    }
}

/// The answer to the upload is not believed, so its ETag isn't either.
#[tokio::test(flavor = "multi_thread")]
async fn the_tag_of_an_object_that_was_looked_at_is_the_one_that_it_has() {
    for way in 0..2 {
        let (behind, server) = Behind::start().await;
        let store = &server.both(S3Settings::default()).await[way];
        assert_eq!(sizes(store).await[2], Ok(0));
        *behind.stripped.lock() = vec!["PUT"];
        behind.mistells_tags.store(true, Ordering::SeqCst);
        let upload = upload(described(4), &Bytes::from_static(b"body"), Condition::Always);
        let stored = store.put(&key("a"), upload).await.unwrap();
        assert_eq!(stored.remote_etag, ETag::new("4"));
    }
}

/// A gateway answers for S3, which then does not have the part.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_only_a_gateway_has_confirmed_is_no_fault_of_the_object() {
    for part in [
        "HTTP/1.1 204 X\r\n\r\n",
        "HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 X\r\nETag: \"page\"\r\nContent-Length: 0\r\n\r\n",
    ] {
        let server = Recorder::by(move |seen| {
            let (status, document) = match seen.method.as_str() {
                "PUT" => return part.to_owned(),
                "DELETE" => return DELETED.to_owned(),
                "POST" if seen.path.contains("uploads") => {
                    ("200 X", "<InitiateMultipartUploadResult><UploadId>one</UploadId></InitiateMultipartUploadResult>")
                }
                _ => ("400 X", "<Error><Code>InvalidPart</Code></Error>"),
            };
            let length = document.len();
            format!("HTTP/1.1 {status}\r\nx-amz-request-id: 1\r\nContent-Length: {length}\r\n\r\n{document}")
        })
        .await;
        let settings = S3Settings { multipart_threshold: ByteSize(1), ..S3Settings::default() };
        let [store, _] = server.both(settings).await;
        let upload = upload(described(4), &Bytes::from_static(b"body"), Condition::Always);
        let error = store.put(&key("a"), upload).await.expect_err("there is no such part");
        assert_eq!(error.kind, ErrorKind::Unavailable, "{part}: {error}");
        let completes = |seen: &Seen| seen.method == "POST" && seen.path.contains("uploadId=one");
        let is_completed = server.seen.lock().iter().any(completes);
        assert_eq!(is_completed, part.contains("ETag"), "{part}: a completion could only fail");
    }
}
