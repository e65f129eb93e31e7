//! Tags that are set by themselves.

use forebay_cache::ErrorKind;
use forebay_types::limits::ATTRIBUTES_BYTES_MAX;
use forebay_types::{SystemHeaders, Tags, UserMetadata, WriteMode, header_bytes};

use crate::reads::copy;
use crate::support::gate::Way;
use crate::support::{Bench, kind, path};

/// Tags that take so many bytes in the header of an upload.
fn tags_of(bytes: usize) -> Tags {
    // Each letter of these takes six bytes there.
    let long = |key: &str| (key.to_owned(), "é".repeat(250));
    let mut tags = Tags::from(["a", "b", "c", "d"].map(long));
    let room = bytes - header_bytes(&SystemHeaders::default(), &UserMetadata::new(), &tags) - 3;
    tags.insert("e".to_owned(), "x".repeat(room));
    assert_eq!(header_bytes(&SystemHeaders::default(), &UserMetadata::new(), &tags), bytes);
    tags
}

/// Together with the object they go in a header, which is short; later they go by themselves.
#[tokio::test]
async fn many_tags_wait_until_the_under_store_has_the_object() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("key", "value").await.unwrap();
    let (largest, larger) = (tags_of(ATTRIBUTES_BYTES_MAX), tags_of(ATTRIBUTES_BYTES_MAX + 1));
    let key = path("key");
    assert_eq!(kind(bench.cache.set_tags(&key, larger.clone()).await), Some(ErrorKind::SlowDown));
    assert!(bench.cache.tags(&key).await.unwrap().is_empty());
    bench.cache.set_tags(&key, largest.clone()).await.unwrap();
    assert_eq!(bench.cache.tags(&key).await.unwrap(), largest);
    bench.background.set(Way::Open);
    bench.drain().await;
    assert_eq!(bench.cache.tags(&key).await.unwrap(), largest);
    bench.cache.set_tags(&key, larger.clone()).await.unwrap();
    assert_eq!(bench.cache.tags(&key).await.unwrap(), larger);
}

#[tokio::test]
async fn an_object_that_never_goes_to_the_under_store_takes_all_tags_at_once() {
    let bench = Bench::new(WriteMode::Transient).await;
    bench.put("key", "value").await.unwrap();
    let tags = tags_of(ATTRIBUTES_BYTES_MAX + 1);
    bench.cache.set_tags(&path("key"), tags.clone()).await.unwrap();
    assert_eq!(bench.cache.tags(&path("key")).await.unwrap(), tags);
}

/// It could never be persisted.
#[tokio::test]
async fn a_copy_that_inherits_more_than_an_upload_takes_is_refused_where_the_upload_would_come_later() {
    for mode in [WriteMode::WriteBack, WriteMode::WriteThrough, WriteMode::Transient] {
        let bench = Bench::new(mode).await;
        bench.under.put_outside("source", "value".into());
        for (tags, is_taken) in [(tags_of(ATTRIBUTES_BYTES_MAX + 1), false), (tags_of(ATTRIBUTES_BYTES_MAX), true)] {
            bench.cache.set_tags(&path("source"), tags.clone()).await.unwrap();
            let copied = bench.cache.copy(copy()).await;
            if is_taken || mode != WriteMode::WriteBack {
                copied.unwrap();
                assert_eq!(bench.cache.tags(&path("target")).await.unwrap(), tags, "{mode:?}");
            } else {
                assert_eq!(kind(copied), Some(ErrorKind::InvalidRequest));
                assert_eq!(kind(bench.get("target").await), Some(ErrorKind::NotFound));
            }
        }
    }
}
