//! A disk that does not answer for long: clients are told, and what they began is done or not, as a whole.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_cache::{Attributes, Conditions, ErrorKind, PutObject, Result, Written};
use forebay_env::Task;
use forebay_store::STALLED_AFTER;
use forebay_types::{Period, WriteMode};

use crate::multipart::{complete, create, put_part};
use crate::support::gate::Way;
use crate::support::{Bench, Setup, create_upload, incoming, kind, others_go_on, path, until};

fn begin_put(bench: &Bench, key: &str, body: &str) -> Task<Result<Written>> {
    let (cache, body) = (bench.cache.clone(), body.to_owned());
    let (attributes, conditions) = (Attributes::default(), Conditions::default());
    let put = PutObject { path: path(key), body: incoming(body.into()), attributes, conditions };
    forebay_env::spawn(async move { cache.put(put).await })
}

/// Time passes in steps, so that whoever looks at it from time to time does.
async fn pass_patience(bench: &Bench) {
    for _ in 0..6 {
        bench.clock.advance(STALLED_AFTER / 5);
        others_go_on().await;
    }
}

#[tokio::test]
async fn clients_do_not_wait_for_a_disk_that_does_not_answer() {
    let bench = Bench::new(WriteMode::Transient).await;
    bench.put("key", "first").await.unwrap();
    bench.put("other", "first").await.unwrap();
    bench.disk.hold_syncs(true);
    let waiting = begin_put(&bench, "key", "second");
    let cache = bench.cache.clone();
    let deleting = forebay_env::spawn(async move { cache.delete(&path("other"), &Conditions::default()).await });
    others_go_on().await;
    bench.clock.advance(STALLED_AFTER / 2);
    others_go_on().await;
    assert!(!waiting.is_finished() && !deleting.is_finished(), "it may be busy");
    pass_patience(&bench).await;
    assert!(waiting.is_finished() && deleting.is_finished());
    assert_eq!(kind(waiting.join().await), Some(ErrorKind::Unavailable), "nobody knows what becomes of it");
    assert_eq!(kind(deleting.join().await), Some(ErrorKind::Unavailable));
    let again = begin_put(&bench, "key", "third");
    let cache = bench.cache.clone();
    let upload = forebay_env::spawn(async move { cache.create_upload(create_upload(path("upload"))).await });
    others_go_on().await;
    assert!(again.is_finished() && upload.is_finished(), "nothing more is begun");
    assert_eq!(kind(again.join().await), Some(ErrorKind::SlowDown));
    assert_eq!(kind(upload.join().await), Some(ErrorKind::SlowDown));
    assert_eq!(bench.get("key").await.unwrap(), "first", "what is read has been acknowledged");
    assert_eq!(bench.metric("forebay_rejected_disk_stalled_total"), 4.0);
    bench.disk.hold_syncs(false);
    others_go_on().await;
    assert_eq!(bench.get("key").await.unwrap(), "second", "what was begun is done");
    assert_eq!(kind(bench.get("other").await), Some(ErrorKind::NotFound));
    bench.put("key", "fourth").await.unwrap();
    assert_eq!(bench.get("key").await.unwrap(), "fourth");
}

/// The under store's time is not the disk's.
#[tokio::test]
async fn slow_uploads_are_waited_for_while_disks_answer() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    bench.foreground.set(Way::Closed);
    let waiting = begin_put(&bench, "key", "first");
    pass_patience(&bench).await;
    pass_patience(&bench).await;
    assert!(!waiting.is_finished());
    bench.foreground.set(Way::Open);
    waiting.join().await.unwrap();
    assert_eq!(bench.under("key").unwrap(), "first");
}

/// Another program may replace the object while the disk takes its time.
#[tokio::test]
async fn an_uploaded_copy_is_as_fresh_as_the_answer_to_its_upload() {
    let with = Setup::new(WriteMode::WriteThrough).policy(|rule| rule.metadata_ttl = Some(Period::from_secs(1)));
    let bench = with.open().await;
    let upload = create(&bench, "key").await;
    let parts = [put_part(&bench, &upload, 1, 100).await];
    bench.foreground.set(Way::Closed);
    let is_complete = AtomicBool::new(false);
    let meanwhile = async {
        until("the object is on its way", || bench.foreground.waiting() == 1).await;
        bench.disk.hold_syncs(true);
        bench.foreground.set(Way::Open);
        until("the object is there", || bench.under("key").is_some()).await;
        others_go_on().await;
        bench.under.put_outside("key", "of another program".into());
        bench.clock.advance(Duration::from_secs(2));
        assert!(!is_complete.load(Ordering::Relaxed), "the disk takes its time");
        bench.disk.hold_syncs(false);
    };
    let completing = async {
        complete(&bench, &upload, &parts).await.unwrap();
        is_complete.store(true, Ordering::Relaxed);
    };
    futures::join!(completing, meanwhile);
    assert_eq!(bench.get("key").await.unwrap(), "of another program");
}
