//! Pages of listings that are kept at another worker than the home of their keys.

use std::time::Duration;

use forebay_types::{Period, WriteMode};
use forebay_ufs::memory::MemoryUnderStore;

use crate::faults::SETTLED;
use crate::held::Answer;
use crate::list_ttl::{check, listed};
use crate::read_leases::{Pair, no_slots, pair_of};
use crate::support::gate::Way;
use crate::support::{HERE, Setup, until};

/// Both have the same under store, and keep pages for an hour. The second one has listed the bucket, which had `a`.
async fn pair(mode: WriteMode) -> Pair {
    let under = MemoryUnderStore::default();
    under.put_outside("a", "out".into());
    let setup = || {
        let setup = Setup::new(mode).policy(|rule| rule.list_ttl = Some(Period::from_secs(3600)));
        Setup { under: Some(under.clone()), ..setup }
    };
    let pair = pair_of(setup(), setup()).await;
    check(&pair.there, "", &["a"], 1).await;
    pair
}

#[tokio::test]
async fn what_a_home_has_written_shows_at_once_in_pages_of_another_worker() {
    for mode in [WriteMode::WriteThrough, WriteMode::WriteBack] {
        let Pair { here, there, .. } = &pair(mode).await;
        check(there, "", &["a"], 0).await;
        here.put("b", "here").await.unwrap();
        check(there, "", &["a", "b"], 0).await;
        here.drain().await;
        check(there, "", &["a", "b"], 0).await;
        here.delete("a").await.unwrap();
        here.drain().await;
        check(there, "", &["b"], 0).await;
        // What others change waits for the TTL, by the clock of the worker that keeps the page.
        there.under.put_outside("c", "out".into());
        here.clock.advance(Duration::from_secs(3600));
        check(there, "", &["b"], 0).await;
        there.clock.advance(Duration::from_secs(3600));
        check(there, "", &["b", "c"], 1).await;
    }
}

#[tokio::test]
async fn a_write_of_a_home_that_has_no_answer_is_looked_for_until_it_is_settled() {
    let Pair { here, there, .. } = &pair(WriteMode::WriteThrough).await;
    here.foreground.set(Way::Late);
    here.put("b", "late").await.unwrap_err();
    here.foreground.set(Way::Open);
    check(there, "", &["a"], 1).await;
    here.foreground.land().await.unwrap();
    check(there, "", &["a", "b"], 1).await;
    here.clock.advance(SETTLED);
    here.cache.sweep().await.unwrap();
    check(there, "", &["a", "b"], 1).await;
    check(there, "", &["a", "b"], 0).await;
}

#[tokio::test]
async fn a_write_of_a_home_in_flight_is_looked_for_each_time() {
    let Pair { here, there, .. } = &pair(WriteMode::WriteThrough).await;
    here.foreground.set(Way::Closed);
    let (cache, put) = (here.cache.clone(), crate::read_leases::put("b", "here"));
    let putting = forebay_env::spawn(async move { cache.put(put).await });
    until("the write is at the under store", || here.foreground.waiting() == 1).await;
    check(there, "", &["a"], 1).await;
    check(there, "", &["a"], 1).await;
    here.foreground.set(Way::Open);
    putting.join().await.unwrap();
    check(there, "", &["a", "b"], 0).await;
}

/// It has begun to count its changes anew.
#[tokio::test]
async fn a_page_is_not_used_once_a_home_was_started_again() {
    let mut pair = pair(WriteMode::WriteThrough).await;
    pair.here.put("b", "here").await.unwrap();
    pair.here.reopen().await;
    pair.homes.answer(HERE, Answer::From(pair.here.cache.clone()));
    check(&pair.there, "", &["a", "b"], 1).await;
    check(&pair.there, "", &["a", "b"], 0).await;
}

/// Their home meanwhile has changed what it liked.
#[tokio::test]
async fn a_page_is_not_used_once_a_home_has_been_without_slots() {
    let Pair { here, there, .. } = &pair(WriteMode::WriteThrough).await;
    let all = no_slots().others();
    here.cache.lose(&all).await.unwrap();
    there.under.put_outside("b", "by another home".into());
    // Taken, and not all is known of them yet.
    check(there, "", &["a", "b"], 1).await;
    there.under.put_outside("c", "by another home".into());
    check(there, "", &["a", "b", "c"], 1).await;
    here.cache.gain(&all).await.unwrap();
    there.under.put_outside("d", "by others".into());
    check(there, "", &["a", "b", "c", "d"], 1).await;
    check(there, "", &["a", "b", "c", "d"], 0).await;
}

#[tokio::test]
async fn a_worker_without_slots_need_not_answer() {
    let Pair { there, homes, .. } = &pair(WriteMode::WriteThrough).await;
    homes.answer("away", Answer::Nothing);
    check(there, "", &["a"], 0).await;
    there.clock.advance(Duration::from_secs(3600));
    check(there, "", &["a"], 1).await;
    check(there, "", &["a"], 0).await;
}

/// A listing says of a stale copy at its home what a HEAD would, as long as the slots stay there.
#[tokio::test]
async fn a_home_validates_its_copies_by_its_pages() {
    let Pair { here, .. } = &pair(WriteMode::WriteThrough).await;
    here.put("b", "here").await.unwrap();
    here.age_metadata();
    listed(here, "").await;
    let heads = here.foreground.heads();
    assert_eq!(here.get("b").await.unwrap(), "here");
    assert_eq!(here.foreground.heads(), heads);
    here.age_metadata();
    let all = no_slots().others();
    here.cache.lose(&all).await.unwrap();
    here.cache.gain(&all).await.unwrap();
    assert_eq!(here.get("b").await.unwrap(), "here");
    assert_eq!(here.foreground.heads(), heads + 1);
}
