//! Requests to the under store while the lease of the worker ends.

use std::sync::Arc;
use std::time::Duration;

use forebay_cache::ErrorKind;
use forebay_env::{Clock, Process};
use forebay_types::{Generation, StorageState, WriteMode};
use parking_lot::Mutex;

use crate::support::gate::Way;
use crate::support::{Bench, Setup, if_absent, kind, others_go_on, path, until};

const LEASE: Duration = Duration::from_secs(10);

type LeasedUntil = Arc<Mutex<Duration>>;

async fn open(mode: WriteMode) -> (Bench, LeasedUntil) {
    let leased_until = Arc::new(Mutex::new(LEASE));
    let bench = Setup { leased_until: Some(Arc::clone(&leased_until)), ..Setup::new(mode) }.open().await;
    (bench, leased_until)
}

fn renew(bench: &Bench, leased_until: &LeasedUntil) {
    *leased_until.lock() = bench.clock.monotonic() + LEASE;
}

#[tokio::test]
async fn a_request_goes_on_while_the_lease_is_renewed_and_is_given_up_when_it_ends() {
    let (bench, leased_until) = open(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("key", "dirty").await.unwrap();
    until("it is on its way", || bench.background.waiting() == 1).await;
    for _ in 0..30 {
        renew(&bench, &leased_until);
        bench.pass_seconds(1).await;
    }
    assert_eq!((bench.background.waiting(), bench.background.puts()), (1, 1), "the lease lasts");
    bench.pass_seconds(LEASE.as_secs()).await;
    until("it is given up", || bench.background.waiting() == 0).await;
    bench.background.set(Way::Open);
    bench.pass_seconds(3600).await;
    assert_eq!(bench.background.puts(), 1, "nothing is sent without a lease");
    // It may have left: what it was for waits until it can't land any more.
    let renewed = bench.clock.monotonic();
    *leased_until.lock() = Duration::MAX;
    bench.advancing("it is persisted", || bench.is_drained()).await;
    assert!(bench.clock.monotonic() - renewed < 2 * bench.setup.settings.persist_backoff_max.0);
    assert_eq!(bench.under("key").unwrap(), "dirty");
}

/// The engine may have named bytes that this worker has, and has not heard of.
#[tokio::test]
async fn a_worker_without_a_lease_does_not_say_that_it_lacks_bytes() {
    let (bench, leased_until) = open(WriteMode::WriteBack).await;
    let key = forebay_catalog::records::object_key(&path("key"));
    assert!(bench.cache.held(&key, Generation(1)).await.unwrap().is_none());
    *leased_until.lock() = Duration::ZERO;
    bench.pass_seconds(1).await;
    assert_eq!(bench.cache.held(&key, Generation(1)).await.err().map(|error| error.kind), Some(ErrorKind::Unavailable));
}

#[tokio::test]
async fn clients_do_not_wait_behind_the_end_of_the_lease() {
    let (bench, leased_until) = open(WriteMode::WriteThrough).await;
    bench.foreground.set(Way::Closed);
    let put = bench.put("key", "never answered");
    let end = async {
        until("it is on its way", || bench.foreground.waiting() == 1).await;
        bench.pass_seconds(LEASE.as_secs()).await;
    };
    let (put, ()) = futures::future::join(put, end).await;
    assert_eq!(kind(put), Some(ErrorKind::Unavailable));
    bench.foreground.set(Way::Open);
    assert_eq!(kind(bench.put("other", "without a lease").await), Some(ErrorKind::Unavailable));
    assert_eq!(bench.foreground.puts(), 1);
    renew(&bench, &leased_until);
    bench.put("other", "with a lease").await.unwrap();
    assert_eq!(kind(bench.put("key", "too early").await), Some(ErrorKind::SlowDown), "the first may still land");
}

/// What the process was about to send when it was stopped must not be sent when it continues: another worker may be the
/// home of the key by then.
#[tokio::test]
async fn a_process_that_was_stopped_sends_nothing_after_its_lease() {
    let process = Process::default();
    let (bench, _leased_until) = process.run(open(WriteMode::WriteBack)).await;
    bench.background.set(Way::Closed);
    bench.put("key", "dirty").await.unwrap();
    until("it is on its way", || bench.background.waiting() == 1).await;
    process.stop();
    bench.background.set(Way::Open);
    bench.clock.advance(LEASE);
    others_go_on().await;
    assert_eq!(bench.under("key"), None);
    process.resume();
    until("it is given up", || bench.background.waiting() == 0).await;
    others_go_on().await;
    assert_eq!(bench.under("key"), None);
    process.kill();
}

#[tokio::test]
async fn after_the_lease_the_rest_of_a_body_is_not_sent() {
    let (bench, leased_until) = open(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put("key", "dirty").await.unwrap();
    until("it is on its way", || bench.background.waiting() == 1).await;
    assert_eq!(bench.background.read_body(5).await.unwrap(), "dirty");
    *leased_until.lock() = Duration::ZERO;
    let rest = bench.background.read_body(5).await;
    assert_eq!(rest.err().map(|error| error.kind), Some(forebay_ufs::ErrorKind::Ambiguous));
}

/// Nobody has taken its keys over, and the under store has the object.
#[tokio::test]
async fn what_could_not_be_recorded_without_a_lease_is_recorded_with_the_next_one() {
    let (bench, leased_until) = open(WriteMode::WriteBack).await;
    let ends = Arc::clone(&leased_until);
    bench.background.after_next_put(move || *ends.lock() = Duration::ZERO);
    bench.put("key", "dirty").await.unwrap();
    let failures = "forebay_persist_failures_total{kind=\"Unavailable\"}";
    until("it is not recorded", || bench.metric(failures) > 0.0).await;
    assert_eq!(bench.under("key").unwrap(), "dirty");
    *leased_until.lock() = Duration::MAX;
    bench.advancing("it is recorded", || bench.is_drained()).await;
    assert_eq!(bench.state("key").await, StorageState::Clean);
    assert_eq!(bench.generations("key").len(), 1, "it is found there");
}

/// The same where the object has no stamp to be found by, whatever the next version is.
#[tokio::test]
async fn an_upload_without_a_stamp_that_was_not_recorded_is_no_write_of_others() {
    for is_answered in [true, false] {
        for (next, expected) in [(None, Some("first")), (Some("second"), Some("second")), (Some(""), None)] {
            let (bench, leased_until) = open(WriteMode::WriteBack).await;
            if is_answered {
                let ends = Arc::clone(&leased_until);
                bench.background.after_next_put(move || *ends.lock() = Duration::ZERO);
                bench.put_without_stamp("key", "first", if_absent()).await.unwrap();
                let failures = "forebay_persist_failures_total{kind=\"Unavailable\"}";
                until("it is not recorded", || bench.metric(failures) > 0.0).await;
            } else {
                bench.background.set(Way::Closed);
                bench.put_without_stamp("key", "first", if_absent()).await.unwrap();
                until("it is on its way", || bench.background.waiting() == 1).await;
                bench.pass_seconds(LEASE.as_secs()).await;
                until("it is given up", || bench.background.waiting() == 0).await;
                others_go_on().await;
                // It has left, and lands.
                bench.under.put_outside("key", "first".into());
                bench.background.set(Way::Open);
            }
            *leased_until.lock() = Duration::MAX;
            match next {
                None => {}
                Some("") => bench.delete("key").await.unwrap(),
                Some(body) => drop(bench.put("key", body).await.unwrap()),
            }
            bench.drain().await;
            let case = format!("{next:?}, answered: {is_answered}");
            let abandoned = bench.metric("forebay_abandoned_deletes_total");
            assert_eq!((bench.cache.status().conflicts, abandoned), (0, 0.0), "{case}");
            assert_eq!(bench.under("key"), expected.map(Into::into), "{case}");
        }
    }
}

/// The bucket's reason stays what the under store has answered.
#[tokio::test]
async fn a_catalog_that_fails_is_no_refusal_of_the_under_store() {
    let (bench, leased_until) = open(WriteMode::WriteBack).await;
    *leased_until.lock() = Duration::MAX;
    bench.background.set(Way::Refuse("key".to_owned(), forebay_ufs::ErrorKind::Denied));
    bench.put("key", "dirty").await.unwrap();
    let refused = || bench.cache.status().refused_buckets;
    bench.advancing("the bucket is told", || !refused().is_empty()).await;
    let told = refused();
    assert!(told[0].error.contains("the gate refuses"), "{told:?}");
    let ends = Arc::clone(&leased_until);
    bench.background.after_next_put(move || *ends.lock() = Duration::ZERO);
    bench.background.set(Way::Open);
    let failures = "forebay_persist_failures_total{kind=\"Unavailable\"}";
    bench.advancing("it is not recorded", || bench.metric(failures) > 0.0).await;
    // The failure is counted just before it is noted.
    others_go_on().await;
    assert_eq!(refused(), told);
    *leased_until.lock() = Duration::MAX;
    bench.advancing("it is recorded", || bench.is_drained()).await;
    assert!(refused().is_empty());
}
