//! Space: what the under store does not have never leaves, what it has makes room, and each path keeps to its share.

use forebay_cache::ErrorKind;
use forebay_env::Requester;
use forebay_types::shares::largest_share;
use forebay_types::{ByteSize, EvictionOrder, PinnedFull, PolicyRule, StorageState, Tags, WriteMode};

use crate::support::gate::Way;
use crate::support::{Bench, Setup, kind, others_go_on, path, pattern, rule};

const MIB: usize = 1 << 20;

/// Room for 64 objects of 1 MiB; the memory tier hides nothing.
fn small_disk(mode: WriteMode) -> Setup {
    Setup::new(mode).capacity(64 << 20).settings(|settings| settings.memory_object_max = ByteSize(0))
}

/// Bytes of an object that are in the cache.
async fn cached(bench: &Bench, key: &str) -> u64 {
    bench.head(key).await.expect("it exists").cached_bytes
}

/// Full, refused with an error that SDKs try again, and all right by itself.
#[tokio::test]
async fn writes_are_refused_while_pinned_data_fills_its_share_and_go_on_by_themselves() {
    let bench = small_disk(WriteMode::WriteBack).open().await;
    bench.background.set(Way::Closed);
    let mut written = 0;
    let refused = loop {
        match bench.put(&format!("{written:03}"), pattern(written, MIB)).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind, ErrorKind::SlowDown);
    let status = bench.cache.status();
    assert!((17..=19).contains(&written), "{written} MiB of 64 are about 0.3");
    assert!(status.pinned_bytes <= status.capacity_bytes * 3 / 10, "{status:?}");
    bench.delete("000").await.unwrap();
    bench.put("small", "fits").await.unwrap();
    for n in 1..written {
        assert_eq!(bench.get(&format!("{n:03}")).await.unwrap(), pattern(n, MIB));
    }
    bench.background.set(Way::Open);
    bench.drain().await;
    bench.put("more", pattern(1, MIB)).await.unwrap();
    bench.drain().await;
    assert_eq!(bench.under.contents().len() as u64, written + 1);
}

/// Each change of the tags of an object that waits for the under store writes its record again. Small records have no
/// room, either: in the share of pinned data, or, where that is all of the cache, on its disks.
#[tokio::test]
async fn tags_are_refused_like_writes_while_there_is_no_room() {
    for pinned_ratio in [0.3, 1.0] {
        let setup = small_disk(WriteMode::WriteBack).settings(|settings| settings.pinned_ratio = pinned_ratio);
        let bench = setup.open().await;
        bench.background.set(Way::Closed);
        bench.put("key", "value").await.unwrap();
        let mut written = 0;
        for size in [MIB, MIB / 16, 4096, 64] {
            while bench.put(&format!("{written:04}"), pattern(written, size)).await.is_ok() {
                written += 1;
            }
        }
        let (key, tags) = (path("key"), Tags::from([("is".to_owned(), "new".to_owned())]));
        for wanted in [tags.clone(), Tags::new()] {
            let refused = kind(bench.cache.set_tags(&key, wanted).await);
            assert_eq!(refused, Some(ErrorKind::SlowDown), "{pinned_ratio}");
        }
        assert_eq!(bench.cache.tags(&key).await.unwrap(), Tags::new());
        bench.background.set(Way::Open);
        bench.drain().await;
        bench.put("key", "newer").await.unwrap();
        bench.cache.set_tags(&key, tags.clone()).await.unwrap();
        assert_eq!(bench.cache.tags(&key).await.unwrap(), tags);
    }
}

/// The tags are set while the object is being recorded as persisted, so they go to the under store, which is slow.
#[tokio::test]
async fn tags_that_are_set_in_the_under_store_take_no_room_meanwhile() {
    let bench = small_disk(WriteMode::WriteBack).open().await;
    bench.put("first", "value").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Closed);
    bench.put("key", pattern(1, MIB / 16)).await.unwrap();
    bench.advancing("the upload waits", || bench.background.waiting() == 1).await;
    bench.disk.hold_syncs(true);
    bench.background.set(Way::Open);
    bench.advancing("the under store has the object", || bench.under("key").is_some()).await;
    others_go_on().await;
    assert!(bench.cache.status().pinned_bytes > 0, "it is not recorded yet");
    bench.foreground.set(Way::Closed);
    let tags = Tags::from([("is".to_owned(), "new".to_owned())]);
    let (cache, wanted) = (bench.cache.clone(), tags.clone());
    let tagging = forebay_env::spawn(async move { cache.set_tags(&path("key"), wanted).await });
    others_go_on().await;
    bench.background.set(Way::Closed);
    bench.disk.hold_syncs(false);
    bench.advancing("the tags wait for the under store", || bench.foreground.waiting() == 1).await;
    let mut written = 0;
    for size in [MIB, MIB / 16, 4096, 64] {
        while bench.put(&format!("{written:04}"), pattern(written, size)).await.is_ok() {
            written += 1;
        }
    }
    bench.foreground.set(Way::Open);
    tagging.join().await.unwrap();
    assert_eq!(bench.cache.tags(&path("key")).await.unwrap(), tags);
    assert_eq!(kind(bench.put("more", pattern(2, 64)).await), Some(ErrorKind::SlowDown), "no room has come back");
}

#[tokio::test]
async fn an_object_that_never_fits_is_not_told_to_come_back() {
    let bench = small_disk(WriteMode::WriteBack).open().await;
    assert_eq!(kind(bench.put("key", pattern(1, 20 * MIB)).await), Some(ErrorKind::InsufficientStorage));
    assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound));
}

#[tokio::test]
async fn a_path_may_write_through_while_pinned_data_fills_its_share() {
    let setup = small_disk(WriteMode::WriteBack).policy(|rule| rule.pinned_full = Some(PinnedFull::WriteThrough));
    let bench = setup.open().await;
    bench.background.set(Way::Closed);
    for n in 0..40 {
        bench.put(&format!("{n:03}"), pattern(n, MIB)).await.unwrap();
    }
    let dirty = bench.cache.status().dirty_objects;
    assert!((17..=19).contains(&dirty), "{dirty}");
    assert_eq!(bench.under.contents().len() as u64, 40 - dirty);
    assert_eq!(bench.state("039").await, StorageState::Clean);
    bench.background.set(Way::Open);
    bench.drain().await;
    for n in 0..40 {
        assert_eq!(bench.under(&format!("{n:03}")).unwrap(), pattern(n, MIB));
    }
}

/// No persistence, no eviction, however much else comes.
#[tokio::test]
async fn what_only_the_cache_has_stays_while_everything_else_makes_room() {
    let mut setup = small_disk(WriteMode::WriteThrough);
    setup.policies.push(rule("/bucket/dirty/", WriteMode::WriteBack));
    setup.policies.push(rule("/bucket/transient/", WriteMode::Transient));
    let mut bench = setup.open().await;
    bench.background.set(Way::Closed);
    for n in 0..6 {
        bench.put(&format!("dirty/{n}"), pattern(n, MIB)).await.unwrap();
        bench.put(&format!("transient/{n}"), pattern(10 + n, MIB)).await.unwrap();
    }
    for round in 0..3 {
        for n in 0..100 {
            bench.put(&format!("clean/{n}"), pattern(round * 100 + n, MIB)).await.unwrap();
        }
        for n in 0..6 {
            assert_eq!(bench.get(&format!("dirty/{n}")).await.unwrap(), pattern(n, MIB));
            assert_eq!(bench.get(&format!("transient/{n}")).await.unwrap(), pattern(10 + n, MIB));
        }
        if round == 1 {
            bench.background.set(Way::Cut);
            bench.restart().await;
            bench.background.set(Way::Closed);
        }
    }
    assert_eq!(bench.get("clean/3").await.unwrap(), pattern(203, MIB), "from the under store, if need be");
    bench.background.set(Way::Open);
    bench.drain().await;
    for n in 0..6 {
        assert_eq!(bench.under(&format!("dirty/{n}")).unwrap(), pattern(n, MIB));
        assert!(bench.under(&format!("transient/{n}")).is_none());
    }
}

/// A hot set that fits, and a stream of objects that are read never or once.
#[tokio::test]
async fn each_order_keeps_what_it_is_for() {
    for (order, keeps_hot) in [(EvictionOrder::Fifo, false), (EvictionOrder::Lru, true), (EvictionOrder::S3Fifo, true)]
    {
        let bench = small_disk(WriteMode::WriteThrough).policy(|rule| rule.eviction = Some(order)).open().await;
        for n in 0..8 {
            bench.put(&format!("hot/{n}"), pattern(n, MIB)).await.unwrap();
        }
        let gets = bench.foreground.gets().len();
        for n in 0..200 {
            for hot in 0..8 {
                if order != EvictionOrder::Fifo {
                    assert_eq!(bench.get(&format!("hot/{hot}")).await.unwrap(), pattern(hot, MIB));
                }
            }
            bench.put(&format!("cold/{n}"), pattern(1000 + n, MIB)).await.unwrap();
        }
        let mut hot = 0;
        for n in 0..8 {
            hot += cached(&bench, &format!("hot/{n}")).await;
        }
        let evicted = cached(&bench, "cold/0").await;
        assert_eq!(evicted, 0, "{order:?}: what nobody reads has made room");
        if keeps_hot {
            assert_eq!((hot, bench.foreground.gets().len()), (8 << 20, gets), "{order:?}: never fetched again");
        } else {
            assert_eq!(hot, 0, "{order:?}");
        }
    }
}

/// Read or not, and however much else is read. What is too much for that still makes room.
#[tokio::test]
async fn what_leaves_last_stays_while_there_is_anything_else() {
    let mut setup = small_disk(WriteMode::WriteThrough);
    setup.policies.push(PolicyRule { eviction: Some(EvictionOrder::Last), ..PolicyRule::for_path("/bucket/last/") });
    let bench = setup.open().await;
    for n in 0..16 {
        bench.put(&format!("last/{n}"), pattern(n, MIB)).await.unwrap();
        bench.put(&format!("before/{n}"), pattern(n, MIB)).await.unwrap();
    }
    for n in 0..200 {
        bench.put(&format!("read/{n}"), pattern(n, MIB)).await.unwrap();
        for back in 0..4 {
            bench.get(&format!("read/{}", n - n.min(back))).await.unwrap();
        }
    }
    for n in 0..16 {
        assert_eq!(cached(&bench, &format!("last/{n}")).await, MIB as u64, "{n}");
    }
    for n in 16..200 {
        bench.put(&format!("last/{n}"), pattern(n, MIB)).await.unwrap();
    }
    assert_eq!(bench.get("last/199").await.unwrap(), pattern(199, MIB));
    assert_eq!(cached(&bench, "read/0").await, 0);
}

#[tokio::test]
async fn a_path_keeps_to_its_quota_and_takes_nobody_elses_room() {
    let mut setup = small_disk(WriteMode::WriteThrough);
    setup.policies.push(PolicyRule { cache_quota: Some(ByteSize(8 << 20)), ..PolicyRule::for_path("/bucket/scan/") });
    let bench = setup.open().await;
    for n in 0..10 {
        bench.put(&format!("other/{n}"), pattern(n, MIB)).await.unwrap();
    }
    for n in 0..24 {
        bench.put(&format!("scan/{n:02}"), pattern(n, MIB)).await.unwrap();
    }
    let mut scanned = u64::MAX;
    while scanned > 8 << 20 {
        bench.clock.advance(std::time::Duration::from_secs(1));
        tokio::task::yield_now().await;
        scanned = 0;
        for n in 0..24 {
            scanned += cached(&bench, &format!("scan/{n:02}")).await;
        }
    }
    assert!(scanned >= 6 << 20, "{scanned}: no more is evicted than must be");
    for n in 0..10 {
        assert_eq!(cached(&bench, &format!("other/{n}")).await, MIB as u64);
    }
}

/// A longer path with a quota of its own neither adds to that of a shorter one, nor stays when that is exceeded.
#[tokio::test]
async fn what_has_a_quota_of_its_own_counts_for_that_of_a_shorter_path() {
    let mut setup = small_disk(WriteMode::WriteThrough);
    for (path, quota) in [("/bucket/scan/", 8 << 20), ("/bucket/scan/own/", 1 << 40)] {
        setup.policies.push(PolicyRule { cache_quota: Some(ByteSize(quota)), ..PolicyRule::for_path(path) });
    }
    let bench = setup.open().await;
    for n in 0..12 {
        bench.put(&format!("scan/own/{n:02}"), pattern(n, MIB)).await.unwrap();
    }
    for n in 0..4 {
        bench.put(&format!("scan/{n:02}"), pattern(n, MIB)).await.unwrap();
    }
    bench.put("other", pattern(1, MIB)).await.unwrap();
    bench.advancing("the quota holds", || bench.cache.status().evictable_bytes <= 9 << 20).await;
    for key in ["scan/00", "scan/03", "other"] {
        assert_eq!(cached(&bench, key).await, MIB as u64, "{key} was written after most of the others");
    }
    assert_eq!(cached(&bench, "scan/own/00").await, 0);
}

/// Also where their bytes lie between those of the path with the quota, and nobody reads them.
#[tokio::test]
async fn a_scan_within_its_quota_evicts_nothing_of_others() {
    let mut setup = small_disk(WriteMode::WriteThrough);
    setup.policies.push(PolicyRule { cache_quota: Some(ByteSize(4 << 20)), ..PolicyRule::for_path("/bucket/scan/") });
    let bench = setup.open().await;
    for n in 0..30 {
        bench.put(&format!("other/{n}"), pattern(n, MIB)).await.unwrap();
        for scan in 0..4 {
            bench.put(&format!("scan/{n}/{scan}"), pattern(n, MIB)).await.unwrap();
        }
        bench.advancing("the quota holds", || bench.cache.status().evictable_bytes <= (n + 6) << 20).await;
    }
    for n in 0..30 {
        assert_eq!(cached(&bench, &format!("other/{n}")).await, MIB as u64, "{n}");
    }
}

/// A full disk is an error for the write, and nothing else.
#[tokio::test]
async fn a_full_disk_is_a_clear_error_and_leaves_nothing_half_done() {
    for size in [1000, 4 * MIB] {
        let bench = small_disk(WriteMode::WriteBack).open().await;
        bench.put("before", "value").await.unwrap();
        bench.drain().await;
        bench.disk.fail_writes(Some(std::io::ErrorKind::StorageFull));
        let full = kind(bench.put("key", pattern(1, size)).await);
        assert_eq!(full, Some(ErrorKind::SlowDown), "{size} bytes");
        assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound), "{size} bytes");
        assert_eq!(bench.get("before").await.unwrap(), "value");
        bench.disk.fail_writes(None);
        bench.advancing("writes go on by themselves", || bench.cache.status().failed_directories.is_empty()).await;
        bench.put("key", pattern(1, size)).await.unwrap();
        bench.drain().await;
        assert_eq!(bench.under("key").unwrap(), pattern(1, size));
    }
}

/// Evicting changes memory only, so the next start finds the copy in a log.
#[tokio::test]
async fn a_copy_that_was_evicted_does_not_come_back_when_its_object_is_gone() {
    for mode in [WriteMode::WriteThrough, WriteMode::NoCache] {
        for delete in [true, false] {
            let setup = small_disk(WriteMode::WriteThrough).policy(|rule| rule.cache_quota = Some(ByteSize(1 << 20)));
            let mut bench = setup.open().await;
            bench.put("key", "older").await.unwrap();
            for n in 0..8 {
                bench.put(&format!("other/{n}"), pattern(n, MIB / 2)).await.unwrap();
            }
            // No look at the key, which would make a copy of its metadata.
            bench.advancing("the quota holds", || bench.cache.status().evictable_bytes <= 1 << 20).await;
            bench.cache.set_policies(vec![rule("/", mode)], None, "test", "edit").await.unwrap();
            if delete {
                bench.delete("key").await.unwrap();
            } else {
                bench.put("key", "newer").await.unwrap();
            }
            bench.power_loss(3).await;
            bench.foreground.set(Way::Cut);
            let read = bench.get("key").await.ok();
            assert_ne!(read.as_deref(), Some(b"older".as_slice()), "{mode:?}, deleted: {delete}");
        }
    }
}

/// With nothing else here it would fit, to the byte.
#[tokio::test]
async fn only_what_is_larger_than_all_that_may_be_pinned_never_fits() {
    let bench = small_disk(WriteMode::WriteBack).open().await;
    bench.background.set(Way::Closed);
    bench.put("other", "value").await.unwrap();
    let limit = (bench.cache.status().capacity_bytes as f64 * bench.setup.settings.pinned_ratio) as u64;
    let largest = largest_share(largest_share(limit));
    for (size, refusal) in [(largest, ErrorKind::SlowDown), (largest + 1, ErrorKind::InsufficientStorage)] {
        // It is refused before its body is read.
        let body = crate::support::incoming_stream(futures::StreamExt::boxed(futures::stream::pending()), size);
        let (path, attributes, conditions) = (path("key"), Default::default(), Default::default());
        let request = forebay_cache::PutObject { path, body, attributes, conditions };
        let put = Requester::named("somebody").gets(bench.cache.put(request));
        assert_eq!(kind(put.await), Some(refusal), "{size} bytes");
    }
}

/// Also for what was there before.
#[tokio::test]
async fn a_quota_that_is_just_kept_evicts_nothing_and_one_that_is_exceeded_a_twentieth_of_it() {
    const OBJECTS: u64 = 40;
    let bench = Bench::new(WriteMode::WriteThrough).await;
    for n in 0..OBJECTS {
        bench.put(&format!("{n:02}"), pattern(n, 4096)).await.unwrap();
    }
    let held = || bench.cache.status().evictable_bytes;
    let used = held();
    let set = async |quota: u64| {
        let rule = PolicyRule { cache_quota: Some(ByteSize(quota)), ..rule("/", WriteMode::WriteThrough) };
        bench.cache.set_policies(vec![rule], None, "test", "edit").await.expect("rules");
        bench.pass_seconds(5).await;
    };
    set(used).await;
    assert_eq!((held(), bench.metric("forebay_evicted_bytes_total")), (used, 0.0));
    set(used - 1).await;
    let target = (used - 1) * 19 / 20;
    assert!((target - used / OBJECTS..=target).contains(&held()), "{} of {used} bytes", held());
    assert_eq!(bench.metric("forebay_evicted_bytes_total"), (used - held()) as f64);
}

/// Whether reads count is for the policy to say.
#[tokio::test]
async fn what_is_read_stays_under_lru_and_leaves_under_fifo() {
    for order in [EvictionOrder::Fifo, EvictionOrder::Lru] {
        let setup = small_disk(WriteMode::WriteThrough).capacity(32 << 20);
        let bench = setup.policy(|rule| rule.eviction = Some(order)).open().await;
        let body = pattern(1, MIB);
        bench.put("read", body.clone()).await.unwrap();
        for n in 0..60 {
            bench.put(&format!("cold/{n}"), body.clone()).await.unwrap();
            bench.get("read").await.unwrap();
        }
        let fetched = !bench.foreground.gets().is_empty();
        assert_eq!(fetched, order == EvictionOrder::Fifo, "{order:?}");
        let evicted = bench.metric("forebay_evicted_bytes_total") as u64;
        assert!((30 * MIB as u64..=60 * MIB as u64).contains(&evicted), "{order:?}: {evicted} bytes made room");
    }
}
