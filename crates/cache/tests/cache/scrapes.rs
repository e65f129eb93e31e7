//! What Prometheus is told.

use forebay_cache::ErrorKind;
use forebay_types::{ByteSize, WriteMode};

use crate::support::gate::Way;
use crate::support::{Bench, Setup, kind, pattern};

const PAGE: u64 = 64 << 10;

#[tokio::test]
async fn reads_that_needed_no_request_are_counted() {
    let setup = Setup::new(WriteMode::WriteBack).settings(|settings| {
        settings.page_size = ByteSize(PAGE);
        settings.memory_object_max = ByteSize(0);
    });
    let bench = setup.open().await;
    let avoided = || {
        let of =
            |operation: &str| bench.metric(&format!("forebay_requests_avoided_total{{operation=\"{operation}\"}}"));
        (of("get") as u64, of("head") as u64)
    };
    let body = pattern(1, 4 * PAGE as usize);
    bench.under.put_outside("key", body.clone());
    bench.get_range("key", 0, 9).await.unwrap();
    assert_eq!(avoided(), (0, 0), "nothing was known");
    bench.get_range("key", 5, 20).await.unwrap();
    assert_eq!(avoided(), (1, 0), "its page is here");
    bench.get_range("key", 2 * PAGE, 2 * PAGE).await.unwrap();
    bench.get("key").await.unwrap();
    assert_eq!(avoided(), (1, 0), "pages were missing");
    bench.get("key").await.unwrap();
    bench.head("key").await.unwrap();
    assert_eq!(avoided(), (2, 1), "all of it is here, and believed");
    bench.age_metadata();
    bench.get("key").await.unwrap();
    bench.age_metadata();
    bench.head("key").await.unwrap();
    assert_eq!(avoided(), (2, 1), "it was asked whether it is what the under store has");
    bench.background.set(Way::Closed);
    bench.put("dirty", "value").await.unwrap();
    bench.get("dirty").await.unwrap();
    bench.head("dirty").await.unwrap();
    assert_eq!(avoided(), (3, 2), "nobody else has it");
}

#[tokio::test]
async fn the_age_of_the_backlog_is_told_in_seconds_and_what_memory_holds_in_bytes() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let gauges = || {
        let age = bench.metric("forebay_oldest_dirty_age_seconds");
        (age, bench.metric("forebay_persist_running"), bench.metric("forebay_persist_delayed"))
    };
    bench.background.set(Way::Closed);
    bench.put("key", pattern(1, 5000)).await.unwrap();
    bench.pass_seconds(5).await;
    assert_eq!(gauges(), (5.0, 1.0, 0.0));
    let held = bench.metric("forebay_memory_tier_bytes");
    assert!((5000.0..7000.0).contains(&held), "{held}");
    bench.background.set(Way::Refuse("key".to_owned(), forebay_ufs::ErrorKind::Denied));
    bench.pass_seconds(1).await;
    assert_eq!(gauges(), (6.0, 0.0, 1.0));
    bench.background.set(Way::Open);
    bench.drain().await;
    bench.pass_seconds(1).await;
    assert_eq!(gauges(), (0.0, 0.0, 0.0));
}

/// Nobody would find it there.
#[tokio::test]
async fn what_is_written_past_the_cache_takes_no_memory() {
    let bench = Bench::new(WriteMode::NoCache).await;
    bench.put("key", pattern(1, 5000)).await.unwrap();
    bench.pass_seconds(1).await;
    assert_eq!(bench.metric("forebay_memory_tier_bytes"), 0.0);
}

#[tokio::test]
async fn a_copy_that_others_have_made_old_is_counted_and_takes_no_more_room() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let changes = || bench.metric("forebay_external_changes_total");
    bench.under.put_outside("key", pattern(1, 5000));
    bench.get("key").await.unwrap();
    bench.age_metadata();
    bench.get("key").await.unwrap();
    assert_eq!(changes(), 0.0);
    assert!(bench.cache.status().evictable_bytes >= 5000);
    bench.under.put_outside("key", pattern(2, 5000));
    bench.age_metadata();
    assert_eq!(bench.get("key").await.unwrap(), pattern(2, 5000));
    assert_eq!(changes(), 1.0);
    bench.under.delete_outside("key");
    bench.age_metadata();
    assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound));
    assert_eq!((changes(), bench.cache.status().evictable_bytes), (2.0, 0));
}
