//! Clients that go away in the middle of a request: what they began is done whole or not at all, and nothing is
//! forgotten.

use std::pin::pin;

use forebay_cache::{Attributes, CompletePart, CompleteUpload, Conditions, UploadRef};
use forebay_types::{ByteSize, WriteMode};
use futures::poll;

use crate::support::gate::Way;
use crate::support::{Bench, Setup, create_upload, incoming, kind, path, rule};

/// How often a request is polled at most before its client goes away; by then it has ended by itself.
const POLLS_MAX: usize = 400;

/// Polls `request` so many times, with everything else getting its turn in between, then drops it. Whether it had
/// ended.
async fn abandon(request: impl Future<Output = ()>, polls: usize) -> bool {
    let mut request = pin!(request);
    for _ in 0..polls {
        if poll!(request.as_mut()).is_ready() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// Lets what goes on without its client come to its end.
async fn settle(bench: &Bench) {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    bench.drain().await;
}

async fn check(bench: &Bench, what: &str, allowed: &[Option<&str>]) {
    settle(bench).await;
    let read = bench.get("key").await.ok();
    let read = read.as_ref().map(|body| std::str::from_utf8(body).expect("text"));
    assert!(allowed.contains(&read), "{what}: {read:?}");
    let under = bench.under("key");
    assert_eq!(under.as_deref(), read.map(str::as_bytes), "{what}: the under store has what is read here");
    assert_eq!(bench.keys().await.len(), usize::from(read.is_some()), "{what}");
    assert!(!bench.cache.has_failed(), "{what}: background work goes on");
    // The key is as good as any.
    bench.put("key", "afterwards").await.unwrap_or_else(|error| panic!("{what}: {error}"));
    settle(bench).await;
    assert_eq!(bench.under("key").expect("the next write"), "afterwards", "{what}");
    assert_eq!(bench.cache.status().pinned_bytes, 0, "{what}");
}

#[tokio::test]
async fn an_abandoned_write_is_done_whole_or_not_at_all() {
    for mode in [WriteMode::WriteBack, WriteMode::WriteThrough, WriteMode::NoCache] {
        for polls in 0..POLLS_MAX {
            let bench = Bench::new(mode).await;
            bench.put("key", "before").await.unwrap();
            settle(&bench).await;
            let ended = abandon(async { drop(bench.put("key", "after").await) }, polls).await;
            check(&bench, &format!("{mode:?} put, {polls}"), &[Some("before"), Some("after")]).await;
            if ended {
                break;
            }
        }
    }
}

#[tokio::test]
async fn an_abandoned_delete_is_done_whole_or_not_at_all() {
    for mode in [WriteMode::WriteBack, WriteMode::WriteThrough, WriteMode::NoCache] {
        for polls in 0..POLLS_MAX {
            let bench = Bench::new(mode).await;
            bench.put("key", "before").await.unwrap();
            settle(&bench).await;
            let ended = abandon(async { drop(bench.delete("key").await) }, polls).await;
            check(&bench, &format!("{mode:?} delete, {polls}"), &[Some("before"), None]).await;
            if ended {
                break;
            }
        }
    }
}

#[tokio::test]
async fn an_abandoned_completion_is_done_whole_or_not_at_all() {
    for polls in 0..POLLS_MAX {
        let setup = Setup::new(WriteMode::WriteBack).settings(|settings| settings.part_size_min = ByteSize(1));
        let bench = setup.open().await;
        let upload_id = bench.cache.create_upload(create_upload(path("key"))).await.unwrap();
        let upload = UploadRef { path: path("key"), upload_id };
        let part = bench.cache.put_part(&upload, 1, incoming("whole".into())).await.unwrap();
        let parts = vec![CompletePart { number: 1, etag: part.etag, checksums: Vec::new() }];
        let conditions = Conditions::default();
        let complete = CompleteUpload {
            upload: upload.clone(),
            parts,
            checksums: Vec::new(),
            checksum_kind: None,
            size: None,
            conditions,
        };
        let ended = abandon(async { drop(bench.cache.complete_upload(complete).await) }, polls).await;
        // Gone already, or gone now.
        settle(&bench).await;
        let _ = bench.cache.abort_upload(&upload).await;
        check(&bench, &format!("complete, {polls}"), &[Some("whole"), None]).await;
        if ended {
            break;
        }
    }
}

/// A request of an abandoned write may be carried out late, like one whose answer was lost.
#[tokio::test]
async fn an_abandoned_write_through_does_not_land_on_a_later_one() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.foreground.set(Way::Closed);
    let ended = abandon(async { drop(bench.put("key", "first").await) }, POLLS_MAX).await;
    assert!(!ended && bench.foreground.waiting() == 1, "it waits for the under store");
    let cache = bench.cache.clone();
    let (_, version) = cache.policies();
    cache.set_policies(vec![rule("/", WriteMode::WriteBack)], Some(version), "test", "edit").await.unwrap();
    let second = forebay_env::spawn(async move {
        let conditions = Conditions::default();
        let attributes = Attributes::default();
        let request =
            forebay_cache::PutObject { path: path("key"), body: incoming("second".into()), attributes, conditions };
        kind(cache.put(request).await)
    });
    for _ in 0..POLLS_MAX {
        tokio::task::yield_now().await;
    }
    bench.foreground.set(Way::Open);
    assert_eq!(second.join().await, None);
    settle(&bench).await;
    assert_eq!(bench.under("key").unwrap(), "second");
    assert!(bench.generations("key").is_sorted());
}
