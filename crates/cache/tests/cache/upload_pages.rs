//! Lists of parts and of uploads, page by page without gap or double.

use forebay_cache::{ListUploads, UploadPage};
use forebay_types::{BucketName, WriteMode};

use crate::multipart::{PART, complete, create, put_part, small_parts};
use crate::support::{BUCKET, Bench};

#[tokio::test]
async fn parts_are_listed_page_by_page() {
    let bench = small_parts(WriteMode::WriteBack).open().await;
    let upload = create(&bench, "key").await;
    let numbers = [1, 2, 3, 5, 10_000];
    let mut expected = Vec::new();
    for (size, number) in (PART as u64..).zip(numbers) {
        let part = put_part(&bench, &upload, number, size as usize).await;
        expected.push((number, size, part.etag));
    }
    for limit in 1..=6 {
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let page = bench.cache.list_parts(&upload, after, limit).await.unwrap();
            let parts = page.parts.into_iter().map(|listed| (listed.part.number, listed.part.size, listed.etag));
            let before = found.len();
            found.extend(parts);
            assert_eq!(page.is_truncated, found.len() < expected.len(), "{limit} behind {after}");
            if !page.is_truncated {
                break;
            }
            assert_eq!(found.len() - before, limit, "behind {after}");
            after = found[found.len() - 1].0;
        }
        assert_eq!(found, expected, "{limit}");
    }
    let behind = |after| bench.cache.list_parts(&upload, after, 1000);
    assert!(behind(10_000).await.unwrap().parts.is_empty());
    assert_eq!(behind(4).await.unwrap().parts.len(), 2, "there is no part of this number");
    let none = bench.cache.list_parts(&upload, 0, 0).await.unwrap();
    assert!(none.parts.is_empty() && !none.is_truncated, "it would be the next page, too");
}

/// Keys of uploads and common prefixes in their order.
fn names(page: &UploadPage) -> Vec<String> {
    let mut names: Vec<_> = page.uploads.iter().map(|upload| upload.key.clone()).collect();
    names.extend(page.prefixes.iter().cloned());
    names.sort();
    names
}

async fn check(bench: &Bench, prefix: &str, delimiter: Option<&str>, expected: &[&str]) {
    let bucket = BucketName::new(BUCKET).expect("a bucket");
    for limit in 1..=expected.len() + 1 {
        let mut request = ListUploads {
            prefix: prefix.to_owned(),
            delimiter: delimiter.map(str::to_owned),
            limit,
            ..ListUploads::default()
        };
        let mut found = Vec::new();
        loop {
            let page = bench.cache.list_uploads(&bucket, &request).await.expect("a page");
            let names = names(&page);
            assert!(names.len() == limit || !page.is_truncated, "{request:?}: only the last page may be short");
            found.extend(names);
            assert_eq!(page.is_truncated, found.len() < expected.len(), "{request:?}");
            assert_eq!(page.is_truncated, page.next_key_marker.is_some(), "{request:?}");
            (request.key_marker, request.upload_id_marker) = (page.next_key_marker, page.next_upload_id_marker);
            if !page.is_truncated {
                break;
            }
        }
        assert_eq!(found, expected, "{request:?}");
    }
}

#[tokio::test]
async fn uploads_and_their_common_prefixes_are_listed_page_by_page() {
    let bench = small_parts(WriteMode::WriteBack).open().await;
    for key in ["d//z", "b//2", "c", "a", "b//1//x", "d//y//2", "a", "b/3", "d//y//1", "é//1"] {
        create(&bench, key).await;
    }
    let done = create(&bench, "b//0").await;
    let part = put_part(&bench, &done, 1, PART).await;
    complete(&bench, &done, &[part]).await.unwrap();
    let all = ["a", "a", "b//1//x", "b//2", "b/3", "c", "d//y//1", "d//y//2", "d//z", "é//1"];
    check(&bench, "", None, &all).await;
    check(&bench, "", Some(""), &all).await;
    check(&bench, "", Some("//"), &["a", "a", "b//", "b/3", "c", "d//", "é//"]).await;
    check(&bench, "", Some("/"), &["a", "a", "b/", "c", "d/", "é/"]).await;
    check(&bench, "b", Some("//"), &["b//", "b/3"]).await;
    check(&bench, "d//", Some("//"), &["d//y//", "d//z"]).await;
    check(&bench, "d//", Some("/"), &["d//y/", "d//z"]).await;
    check(&bench, "e", Some("/"), &[]).await;
    let request = ListUploads { limit: 0, ..ListUploads::default() };
    let none = bench.cache.list_uploads(&BucketName::new(BUCKET).unwrap(), &request).await.unwrap();
    assert!(none.uploads.is_empty() && !none.is_truncated, "it would be the next page, too");
}
