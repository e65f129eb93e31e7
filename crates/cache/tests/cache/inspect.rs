//! What operators are told of objects, and that telling leaves no trace.

use forebay_cache::{CacheState, CacheTier, CachedPage, CachedRange, ErrorKind, ListObjects, ObjectDetail};
use forebay_types::{BucketName, ByteSize, WriteMode};
use forebay_ufs::ErrorKind as UfsKind;
use forebay_ufs::memory::Mood;

use crate::support::gate::Way;
use crate::support::{BUCKET, Bench, Setup, kind, path, pattern, rule};

async fn list(bench: &Bench, request: ListObjects) -> CachedPage {
    let bucket = BucketName::new(BUCKET).expect("bucket");
    bench.cache.list_cached(&bucket, &ListObjects { limit: 100, ..request }).await.expect("a list")
}

async fn detail(bench: &Bench, key: &str) -> ObjectDetail {
    bench.cache.object_detail(&path(key)).await.expect("a detail")
}

#[tokio::test]
async fn a_listing_says_where_each_object_stands() {
    let large = 3 << 20;
    let bench = Setup::new(WriteMode::WriteBack).settings(|s| s.memory_object_max = ByteSize(1 << 20)).open().await;
    bench.under.put_outside("unknown", "1234".into());
    bench.under.put_outside("part", pattern(1, large));
    bench.put("both", "base").await.unwrap();
    bench.drain().await;
    bench.get_range("part", 0, 10).await.unwrap();
    bench.put("clean", pattern(2, large)).await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Closed);
    bench.put("both", "ours").await.unwrap();
    bench.under.put_outside("both", "them".into());
    bench.background.set(Way::Open);
    bench.advancing("the conflict is noticed", || bench.cache.status().conflicts == 1).await;
    bench.background.set(Way::Closed);
    bench.put("dirty", "small").await.unwrap();
    bench.put("dir/deep", "small").await.unwrap();
    let rules = vec![rule("/", WriteMode::Transient)];
    bench.cache.set_policies(rules, None, "test", "edit").await.unwrap();
    bench.put("here", pattern(3, large)).await.unwrap();

    let page = list(&bench, ListObjects { delimiter: Some("/".to_owned()), ..ListObjects::default() }).await;
    assert_eq!(page.prefixes, ["dir/"]);
    let told: Vec<_> = page.objects.iter().map(|o| (o.key.as_str(), o.state, o.tier, o.cached_bytes)).collect();
    let large = large as u64;
    assert_eq!(
        told,
        [
            ("both", CacheState::Conflict, CacheTier::Memory, 4),
            ("clean", CacheState::Clean, CacheTier::Disk, large),
            ("dirty", CacheState::Dirty, CacheTier::Memory, 5),
            ("here", CacheState::Transient, CacheTier::Disk, large),
            ("part", CacheState::Clean, CacheTier::UnderStore, 1 << 20),
            ("unknown", CacheState::Clean, CacheTier::UnderStore, 0),
        ]
    );
    assert_eq!(page.objects[2].etag, bench.head("dirty").await.unwrap().info.etag.as_str());
    let page = list(&bench, ListObjects { prefix: "d".to_owned(), ..ListObjects::default() }).await;
    assert_eq!(page.objects.len(), 2);
}

#[tokio::test]
async fn a_copy_of_an_older_version_is_not_told_as_one_of_the_present() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.put("key", "before").await.unwrap();
    bench.under.put_outside("key", "after!".into());
    let page = list(&bench, ListObjects::default()).await;
    assert_eq!((page.objects[0].cached_bytes, page.objects[0].tier), (0, CacheTier::UnderStore));
    let told = detail(&bench, "key").await;
    assert_eq!((told.cached_bytes, told.tier, told.generation), (0, CacheTier::UnderStore, None));
    assert_eq!(bench.get("key").await.unwrap(), "before", "looking changes nothing");
}

#[tokio::test]
async fn a_detail_tells_ranges_tags_metadata_and_tiers() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.under.put_outside("key", pattern(1, (3 << 20) + 5));
    let before = detail(&bench, "key").await;
    assert_eq!((before.cached_bytes, before.generation, before.state), (0, None, CacheState::Clean));
    assert_eq!(bench.cache.status().evictable_bytes, 0, "nothing is adopted by looking");
    bench.get_range("key", 0, 1).await.unwrap();
    bench.get_range("key", 3 << 20, (3 << 20) + 1).await.unwrap();
    let told = detail(&bench, "key").await;
    let (first, last) = ((0, 1 << 20), (3 << 20, (3 << 20) + 5));
    let ranges = [first, last].map(|(start, end)| CachedRange { start, end });
    assert_eq!((told.cached_ranges.as_slice(), told.cached_bytes), (&ranges[..], (1 << 20) + 5));
    assert_eq!((told.path.as_str(), told.page_size, told.replicas), ("/bucket/key", 1 << 20, 1));
    assert!(told.remote_etag.is_some() && told.generation.is_some() && told.dirty_since_ms.is_none());
    assert_eq!(kind(bench.cache.object_detail(&path("none")).await), Some(ErrorKind::NotFound));

    let mut request = forebay_cache::PutObject {
        path: path("put"),
        body: crate::support::incoming("value".into()),
        attributes: forebay_cache::Attributes::default(),
        conditions: forebay_cache::Conditions::default(),
    };
    request.attributes.user = [("name".to_owned(), "value".to_owned())].into();
    request.attributes.tags = [("tag".to_owned(), "1".to_owned())].into();
    request.attributes.headers.content_type = Some("text/plain".to_owned());
    bench.cache.put(request).await.unwrap();
    let told = detail(&bench, "put").await;
    assert_eq!((told.tier, told.content_type.as_deref()), (CacheTier::Memory, Some("text/plain")));
    assert_eq!((told.user_metadata["name"].as_str(), told.tags["tag"].as_str()), ("value", "1"));
}

#[tokio::test]
async fn tries_to_persist_are_told_with_the_next_one() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.set_mood(Mood::Refuse(UfsKind::Unavailable));
    bench.put("key", "value").await.unwrap();
    bench.advancing("the upload has failed", || bench.metrics().contains("persist_failures_total{")).await;
    let told = detail(&bench, "key").await;
    assert_eq!(told.state, CacheState::Dirty);
    assert!(told.next_try_in_ms.is_some_and(|pause| pause <= 3_600_000), "{told:?}");
    assert!(told.dirty_since_ms.is_some());
    let failed = told.persist_events.last().unwrap();
    assert_eq!((failed.outcome.as_str(), failed.bytes), ("failed", 5));
    assert!(failed.error.as_ref().is_some_and(|error| error.contains("under store")));
    bench.under.set_mood(Mood::Well);
    bench.drain().await;
    bench.delete("key").await.unwrap();
    bench.drain().await;
    bench.put("key", "again").await.unwrap();
    bench.drain().await;
    let told = detail(&bench, "key").await;
    let outcomes: Vec<_> = told.persist_events.iter().map(|event| event.outcome.as_str()).collect();
    assert_eq!(outcomes[..3], ["stored", "deleted", "stored"], "the newest first");
    assert_eq!(told.persist_events[0].generation, told.generation.unwrap());
    assert_eq!((told.next_try_in_ms, told.state), (None, CacheState::Clean));
}

/// Nothing is fetched, counted or brought into memory.
#[tokio::test]
async fn looking_does_not_count_as_reading() {
    let mut bench = Bench::new(WriteMode::WriteThrough).await;
    bench.put("key", "value").await.unwrap();
    bench.restart().await;
    for _ in 0..3 {
        assert_eq!(detail(&bench, "key").await.tier, CacheTier::Disk);
        let page = list(&bench, ListObjects::default()).await;
        assert_eq!(page.objects[0].tier, CacheTier::Disk);
    }
    assert!(!bench.metrics().contains("forebay_reads_total{"));
    assert!(bench.foreground.gets().is_empty());
    bench.get("key").await.unwrap();
    assert_eq!(detail(&bench, "key").await.tier, CacheTier::Memory);
}

/// What is here is told when the under store is out of reach, and only then.
#[tokio::test]
async fn an_under_store_that_does_not_answer_is_told_apart_from_one_that_refuses() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.put("key", "value").await.unwrap();
    let asked = async |key: &str, refusal| {
        bench.foreground.set(Way::Refuse(key.to_owned(), refusal));
        bench.cache.object_detail(&path(key)).await
    };
    let told = asked("key", UfsKind::Unavailable).await.unwrap();
    assert_eq!((told.cached_bytes, told.tier, told.state), (5, CacheTier::Memory, CacheState::Clean));
    assert!(told.remote_etag.is_some() && told.generation.is_some());
    assert_eq!(kind(asked("none", UfsKind::Unavailable).await), Some(ErrorKind::Unavailable));
    for key in ["key", "none"] {
        assert_eq!(kind(asked(key, UfsKind::Denied).await), Some(ErrorKind::AccessDenied), "{key}");
        let gone = asked(key, UfsKind::NotFound).await.unwrap_err();
        assert_eq!((gone.kind, gone.to_string()), (ErrorKind::NotFound, format!("{BUCKET}/{key} does not exist")));
    }
}

#[tokio::test]
async fn a_thousand_ranges_are_told_and_no_more() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.under.put_outside("key", pattern(1, 2 << 20));
    bench.get_range("key", 1 << 20, 1 << 20).await.unwrap();
    let key = forebay_catalog::records::object_key(&path("key"));
    let generation = bench.store.peek(&key).unwrap().generation();
    for n in 0..1001 {
        assert!(bench.store.fill(&key, generation, 2 * n, "x".into()).await.unwrap());
    }
    let told = detail(&bench, "key").await;
    assert_eq!((told.cached_bytes, told.cached_ranges.len()), ((1 << 20) + 1001, 1000));
    assert_eq!(told.cached_ranges.last(), Some(&CachedRange { start: 1998, end: 1999 }));
}
