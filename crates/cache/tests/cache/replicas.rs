//! Copies of writes at other workers: `writeReplicas`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use forebay_cache::{
    Attributes, Cache, CompletePart, Conditions, CopyId, ErrorKind, Fate, HeldBytes, JobFinding, JobKind, NewCopy,
    PartPage, PutObject, UploadRef, Written,
};
use forebay_catalog::records::{self, ObjectRecord, PartRecord};
use forebay_catalog::{SlotCount, SlotSet};
use forebay_env::{Clock, Task};
use forebay_store::{Commit, ValueWrite};
use forebay_types::{ByteSize, Durability, Generation, Period, PolicyRule, ReplicasMissing, Tags, WriteMode};
use futures::{FutureExt, StreamExt};

use crate::held::{Answer, Others, THERE};
use crate::multipart::{PART, complete, completion, create, put_part, small_parts};
use crate::reads::small_pages;
use crate::support::gate::Way;
use crate::support::jobs::{findings, request, start, told};
use crate::support::{self, Bench, HERE, Setup, collect, kind, others_go_on, path, pattern, until};

/// A worker that is the home of all keys and another one that is the home of none.
struct Pair {
    here: Bench,
    there: Bench,
    /// Whom the home asks.
    others: Others,
}

fn two(rule: &mut PolicyRule) {
    rule.write_replicas = Some(2);
}

/// Without a home.
async fn holder(name: &'static str, others: &Others, setup: Setup) -> Bench {
    let slots = Some(SlotSet::none(SlotCount::new(8).expect("slots")));
    Setup { worker: Some((name, Arc::new(others.clone()))), slots, ..setup }.open().await
}

/// The under store takes nothing.
async fn pair_of(setup: Setup, holders: Setup) -> Pair {
    pair_and_homes(setup, holders).await.0
}

/// And whom the other worker asks.
async fn pair_and_homes(setup: Setup, holders: Setup) -> (Pair, Others) {
    let (others, homes) = (Others::new(), Others::new());
    let there = holder(THERE, &homes, holders).await;
    others.answer(THERE, Answer::From(there.cache.clone()));
    let slots = Some(SlotSet::none(SlotCount::new(8).expect("slots")).others());
    let here = Setup { worker: Some((HERE, Arc::new(others.clone()))), slots, ..setup }.policy(two).open().await;
    homes.answer(HERE, Answer::From(here.cache.clone()));
    here.background.set(Way::Closed);
    (Pair { here, there, others }, homes)
}

async fn pair() -> Pair {
    pair_of(Setup::new(WriteMode::WriteBack), Setup::new(WriteMode::WriteBack)).await
}

fn record(bench: &Bench, key: &str) -> ObjectRecord {
    let found = bench.store.value(&records::object_key(&path(key))).expect("a record");
    ObjectRecord::decode(&found.value).expect("a record")
}

fn copy_of(key: &str, generation: Generation) -> CopyId {
    CopyId { key: records::object_key(&path(key)), generation }
}

/// What a worker gives to others that ask for this copy.
async fn given(cache: &Cache, id: &CopyId) -> Option<Bytes> {
    let held = cache.held(&id.key, id.generation).await.expect("an answer")?;
    Some(collect(held.stream).await.expect("the bytes"))
}

#[tokio::test]
async fn a_write_is_on_two_workers_before_it_is_acknowledged() {
    let Pair { here, there, .. } = pair().await;
    here.put("key", "on both").await.unwrap();
    let written = record(&here, "key");
    assert_eq!(written.holders.names().collect::<Vec<_>>(), [HERE, THERE]);
    let id = copy_of("key", written.generation);
    assert_eq!(given(&there.cache, &id).await.unwrap(), "on both");
    let detail = here.cache.object_detail(&path("key")).await.unwrap();
    assert_eq!(detail.replicas, 2);
    // Nobody sees it before the home has committed it.
    assert!(there.store.peek(&id.key).is_none());
    there.advancing("the copy is shown", || there.store.peek(&id.key).is_some()).await;
    assert!(there.cache.status().pinned_bytes > 0);
    assert_eq!(given(&there.cache, &id).await.unwrap(), "on both");
    here.background.set(Way::Open);
    here.drain().await;
    there.advancing("nobody wants it any more", || there.cache.status().pinned_bytes == 0).await;
}

/// A copy is about to go, or is that of another worker.
#[tokio::test]
async fn what_stays_is_counted_at_its_home_alone() {
    let Pair { here, there, .. } = pair().await;
    let size = 100_000;
    here.put("dirty", pattern(1, size)).await.unwrap();
    let upload = create(&here, "uploaded").await;
    let part = put_part(&here, &upload, 1, size).await;
    there.advancing("the copies are shown", || there.cache.status().pinned_bytes >= 2 * size as u64).await;
    let kept = || here.cache.status().kept_bytes;
    assert!((size as u64..size as u64 + 1000).contains(&kept()), "{}", kept());
    assert_eq!(there.cache.status().kept_bytes, 0);
    complete(&here, &upload, &[part]).await.unwrap();
    assert_eq!(kept(), 0, "it goes to the under store");
    here.cache.set_policies(vec![support::rule("/", WriteMode::Transient)], None, "test", "edit").await.unwrap();
    here.put("transient", pattern(2, size)).await.unwrap();
    assert_eq!(kept(), size as u64);
    assert_eq!(there.cache.status().kept_bytes, 0);
    here.delete("transient").await.unwrap();
    assert_eq!(kept(), 0);
}

#[tokio::test]
async fn a_worker_that_has_started_again_asks_for_its_copies_at_once() {
    let holders = Setup::new(WriteMode::WriteBack).settings(|settings| {
        settings.leftover_interval = Period::from_secs(1_000_000);
    });
    let Pair { here, mut there, others } = pair_of(Setup::new(WriteMode::WriteBack), holders).await;
    here.put("key", "on both").await.unwrap();
    let key = records::object_key(&path("key"));
    there.advancing("the copy is shown", || there.store.peek(&key).is_some()).await;
    there.close().await;
    here.background.set(Way::Open);
    here.drain().await;
    there.reopen().await;
    others.answer(THERE, Answer::From(there.cache.clone()));
    assert!(there.cache.status().pinned_bytes > 0);
    there.advancing("nobody wants it any more", || there.cache.status().pinned_bytes == 0).await;
}

#[tokio::test]
async fn a_version_takes_the_place_of_the_one_before_it() {
    let Pair { here, there, .. } = pair().await;
    here.put("key", "first").await.unwrap();
    let first = copy_of("key", record(&here, "key").generation);
    there.advancing("the first is shown", || there.store.peek(&first.key).is_some()).await;
    here.put("key", "second").await.unwrap();
    let second = copy_of("key", record(&here, "key").generation);
    let shown = || there.store.peek(&second.key).map(|object| object.generation());
    // As long as the second is not shown, the first stays.
    assert_eq!(shown(), Some(first.generation));
    assert_eq!(given(&there.cache, &second).await.unwrap(), "second");
    there.advancing("the second is shown", || shown() == Some(second.generation)).await;
    assert_eq!(given(&there.cache, &first).await, None);
    here.delete("key").await.unwrap();
    there.advancing("nobody wants it any more", || there.cache.status().pinned_bytes == 0).await;
}

#[tokio::test]
async fn too_few_workers_take_no_write_unless_it_goes_through() {
    let Pair { here, others, .. } = pair().await;
    others.workers.lock().clear();
    let error = here.put("key", "alone").await.unwrap_err();
    assert_eq!((error.kind, error.retry_after.is_some()), (ErrorKind::SlowDown, true));
    assert!(error.context.contains("writeReplicas"), "{}", error.context);
    assert_eq!(kind(here.get("key").await), Some(ErrorKind::NotFound));
    assert_eq!(kind(here.cache.create_upload(support::create_upload(path("key"))).await), Some(ErrorKind::SlowDown));
    let through = |mode| PolicyRule {
        write_replicas: Some(2),
        when_replicas_missing: Some(ReplicasMissing::WriteThrough),
        ..support::rule("/", mode)
    };
    here.cache.set_policies(vec![through(WriteMode::WriteBack)], None, "test", "test").await.unwrap();
    here.put("key", "through").await.unwrap();
    assert_eq!(here.under("key").unwrap(), "through");
    assert!(here.is_drained());
    here.cache.set_policies(vec![through(WriteMode::Transient)], None, "test", "test").await.unwrap();
    assert_eq!(kind(here.put("key", "nowhere").await), Some(ErrorKind::SlowDown));
    assert_eq!(here.metric("forebay_replicas_missing_total"), 4.0);
}

#[tokio::test]
async fn a_worker_that_takes_no_copy_is_passed_over_for_a_while() {
    let Pair { here, there, others } = pair().await;
    let homes = Others::new();
    homes.answer(HERE, Answer::From(here.cache.clone()));
    let third = holder("third", &homes, Setup::new(WriteMode::WriteBack)).await;
    others.answer("third", Answer::From(third.cache.clone()));
    here.put("key", "on two").await.unwrap();
    let first = record(&here, "key").holders.names().nth(1).unwrap().to_owned();
    let (gone, left) = if first == THERE { (THERE, "third") } else { ("third", THERE) };
    others.answer(gone, Answer::Nothing);
    here.put("key", "on two others").await.unwrap();
    assert_eq!(record(&here, "key").holders.names().collect::<Vec<_>>(), [HERE, left]);
    // It is not asked again for some seconds.
    others.answer(gone, Answer::From(if gone == THERE { there.cache.clone() } else { third.cache.clone() }));
    here.put("key", "again").await.unwrap();
    assert_eq!(record(&here, "key").holders.names().nth(1), Some(left));
    here.clock.advance(std::time::Duration::from_secs(6));
    here.put("key", "at last").await.unwrap();
    assert_eq!(record(&here, "key").holders.names().nth(1), Some(gone));
}

/// It is alive, but hangs or is cut off from the home of the key.
#[tokio::test]
async fn a_worker_that_does_not_answer_holds_up_writes_for_a_second_at_most_and_rarely() {
    let three = three(Setup::new).await;
    let here = &three.here;
    here.put("key", "on two").await.unwrap();
    let id = copy_of("key", record(here, "key").generation);
    let [(silent, _), (other, _)] = three.by_copy(&id);
    *three.others.silent.lock() = silent.to_owned();
    let (mut slow, begun) = (0, here.clock.monotonic());
    while here.clock.monotonic() < begun + Duration::from_secs(60) {
        let write = here.put("key", "next");
        let mut write = std::pin::pin!(write);
        let before = here.clock.monotonic();
        let written = loop {
            if let Some(written) = (&mut write).now_or_never() {
                break written;
            }
            others_go_on().await;
            here.clock.advance(Duration::from_millis(100));
            assert!(here.clock.monotonic() < before + Duration::from_secs(2));
        };
        written.unwrap();
        slow += usize::from(here.clock.monotonic() >= before + Duration::from_secs(1));
        assert_eq!(record(here, "key").holders.names().nth(1), Some(other));
        here.pass_seconds(1).await;
    }
    assert!((1..=5).contains(&slow), "{slow} of 60 writes");
    three.others.silent.lock().clear();
    here.pass_seconds(6).await;
    here.put("key", "still on the other").await.unwrap();
    assert_eq!(record(here, "key").holders.names().nth(1), Some(other));
    three.others.workers.lock().remove(other);
    here.put("key", "there are no others").await.unwrap();
    assert_eq!(record(here, "key").holders.names().nth(1), Some(silent));
}

#[tokio::test]
async fn parts_objects_and_tags_have_copies() {
    let Pair { here, there, .. } = pair_of(small_parts(WriteMode::WriteBack), small_parts(WriteMode::WriteBack)).await;
    let upload = create(&here, "key").await;
    let parts = [put_part(&here, &upload, 1, PART).await, put_part(&here, &upload, 2, PART).await];
    let part = records::part_key(&upload.upload_id, 2);
    let part_record = PartRecord::decode(&here.store.value(&part).unwrap().value).unwrap();
    assert_eq!(part_record.holders.names().collect::<Vec<_>>(), [HERE, THERE]);
    there.advancing("the part is shown", || there.store.peek(&part).is_some()).await;
    complete(&here, &upload, &parts).await.unwrap();
    let whole = copy_of("key", record(&here, "key").generation);
    assert_eq!(given(&there.cache, &whole).await.unwrap(), here.get("key").await.unwrap());
    let tags = Tags::from([("is".to_owned(), "new".to_owned())]);
    here.cache.set_tags(&path("key"), tags).await.unwrap();
    let tagged = record(&here, "key");
    assert_eq!(tagged.holders.names().collect::<Vec<_>>(), [HERE, THERE]);
    let tagged = copy_of("key", tagged.generation);
    assert!(tagged.generation > whole.generation);
    assert_eq!(given(&there.cache, &tagged).await.unwrap().len(), 2 * PART);
    there
        .advancing("the parts are given up", || there.store.peek(&part).is_none_or(|object| !object.is_pinned()))
        .await;
}

/// A worker that has no piece of an object gets the bytes.
#[tokio::test]
async fn what_can_not_be_made_of_pieces_is_sent_whole() {
    let Pair { here, there, others } =
        pair_of(small_parts(WriteMode::WriteBack), small_parts(WriteMode::WriteBack)).await;
    let upload = create(&here, "key").await;
    let parts = [put_part(&here, &upload, 1, PART).await, put_part(&here, &upload, 2, PART).await];
    let homes = Others::new();
    homes.answer(HERE, Answer::From(here.cache.clone()));
    let third = holder("third", &homes, small_parts(WriteMode::WriteBack)).await;
    others.workers.lock().remove(THERE);
    others.answer("third", Answer::From(third.cache.clone()));
    complete(&here, &upload, &parts).await.unwrap();
    let whole = copy_of("key", record(&here, "key").generation);
    assert_eq!(given(&third.cache, &whole).await.unwrap().len(), 2 * PART);
    assert_eq!(given(&there.cache, &whole).await, None);
}

#[tokio::test]
async fn a_copy_of_a_write_that_fails_is_dropped() {
    let setup = Setup { others: Some(Arc::default()), ..Setup::new(WriteMode::WriteBack) };
    let changed = setup.others.clone().expect("it was set");
    let Pair { here, there, .. } = pair_of(setup, Setup::new(WriteMode::WriteBack)).await;
    here.put("key", "stays").await.unwrap();
    let stays = record(&here, "key");
    // As if another worker were the home by now.
    let key = records::object_key(&path("key"));
    changed.ahead.lock().push(ValueWrite { key: key.clone(), value: Some(stays.encode()) });
    here.put("key", "fails").await.unwrap_err();
    let named = copy_of("key", stays.generation);
    there.advancing("the first is shown", || there.store.peek(&key).is_some()).await;
    there.pass_seconds(5).await;
    assert_eq!(there.store.peek(&key).unwrap().generation(), stays.generation);
    assert_eq!(given(&there.cache, &named).await.unwrap(), "stays");
    assert_eq!(here.cache.fates(&[named]).await, [Fate::Named]);
}

/// A copy for `key`, which claims to have `size` bytes.
fn copy(generation: Generation, bytes: &'static [u8], size: u64) -> NewCopy {
    let stream = futures::stream::once(async move { Ok(Bytes::from_static(bytes)) }).boxed();
    let bytes = HeldBytes { size, metadata: Bytes::new(), annex: Bytes::new(), stream };
    NewCopy { id: copy_of("key", generation), path: path("key"), pieces: Vec::new(), bytes }
}

#[tokio::test]
async fn a_worker_takes_no_copy_of_what_is_at_home_there_or_has_no_room() {
    let Pair { here, there, .. } = pair().await;
    let copy = |size| copy(Generation(7), b"7 bytes", size);
    assert_eq!(kind(here.cache.take_copy(copy(7)).await), Some(ErrorKind::Unavailable));
    assert_eq!(kind(there.cache.take_copy(copy(1 << 40)).await), Some(ErrorKind::InsufficientStorage));
    assert_eq!(kind(there.cache.take_copy(copy(8)).await), Some(ErrorKind::Unavailable));
    assert!(there.cache.take_copy(copy(7)).await.unwrap());
    // The home has never heard of it.
    let id = copy_of("key", Generation(7));
    assert_eq!(given(&there.cache, &id).await.unwrap(), "7 bytes");
    assert_eq!(here.cache.fates(std::slice::from_ref(&id)).await, [Fate::Gone]);
    there.pass_seconds(3).await;
    assert_eq!(given(&there.cache, &id).await, None);
}

/// A home that does not answer may yet commit what it has sent.
#[tokio::test]
async fn copies_stay_while_the_home_does_not_answer() {
    let (others, homes) = (Others::new(), Others::new());
    let there = holder(THERE, &homes, Setup::new(WriteMode::WriteBack)).await;
    others.answer(THERE, Answer::From(there.cache.clone()));
    let here = Setup { worker: Some((HERE, Arc::new(others.clone()))), ..Setup::new(WriteMode::WriteBack) };
    let here = here.policy(two).open().await;
    here.background.set(Way::Closed);
    here.put("key", "on both").await.unwrap();
    let id = copy_of("key", record(&here, "key").generation);
    there.pass_seconds(600).await;
    assert!(there.store.peek(&id.key).is_none());
    assert_eq!(given(&there.cache, &id).await.unwrap(), "on both");
    homes.answer(HERE, Answer::From(here.cache.clone()));
    there.advancing("the copy is shown", || there.store.peek(&id.key).is_some()).await;
}

#[tokio::test]
async fn a_single_worker_refuses_rules_that_need_others() {
    let here = Bench::new(WriteMode::WriteBack).await;
    let mut rule = support::rule("/", WriteMode::WriteBack);
    two(&mut rule);
    let error = here.cache.set_policies(vec![rule], None, "test", "test").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument);
    assert!(error.context.contains("single worker"), "{}", error.context);
}

/// A copy takes room before it is shown.
#[tokio::test]
async fn a_full_worker_refuses_copies_until_others_are_given_up() {
    let setup = || Setup::new(WriteMode::WriteBack);
    let small = setup().settings(|settings| settings.pinned_ratio = 0.001);
    let Pair { here, there, .. } = pair_of(setup(), small).await;
    let size = there.cache.status().pinned_bytes_max / 4;
    let body = || Bytes::from(vec![1; size as usize]);
    let mut written = 0;
    while written < 10 && here.put(&format!("key-{written}"), body()).await.is_ok() {
        written += 1;
    }
    assert!((1..=4).contains(&written), "{written} of {} bytes", ByteSize(size));
    let error = here.put("more", body()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::SlowDown);
    here.background.set(Way::Open);
    here.drain().await;
    there.pass_seconds(5).await;
    assert_eq!(there.cache.status().pinned_bytes, 0);
    here.clock.advance(std::time::Duration::from_secs(6));
    here.put("more", body()).await.unwrap();
}

fn begin_to_put(bench: &Bench, body: &'static str) -> Task<forebay_cache::Result<Written>> {
    let cache = bench.cache.clone();
    forebay_env::spawn(async move {
        let body = support::incoming(Bytes::from_static(body.as_bytes()));
        let (attributes, conditions) = Default::default();
        cache.put(PutObject { path: path("key"), body, attributes, conditions }).await
    })
}

/// Until its commit has ended, the home does not know whether a copy is wanted.
#[tokio::test]
async fn a_copy_stays_while_its_write_is_in_flight() {
    let Pair { here, there, others } = pair().await;
    here.put("key", "before").await.unwrap();
    let before = record(&here, "key").generation;
    let all = others.permits.forget_permits(usize::MAX);
    let asked = others.asked.load(Ordering::Relaxed);
    let put = begin_to_put(&here, "in flight");
    until("the copy is taken", || others.asked.load(Ordering::Relaxed) > asked).await;
    there.pass_seconds(30).await;
    let key = records::object_key(&path("key"));
    assert_eq!(there.store.peek(&key).unwrap().generation(), before, "the write may fail");
    others.permits.add_permits(all);
    put.join().await.unwrap();
    let id = copy_of("key", record(&here, "key").generation);
    assert_eq!(given(&there.cache, &id).await.unwrap(), "in flight");
}

#[tokio::test]
async fn an_older_copy_does_not_come_back() {
    let homes = Others::new();
    let there = holder(THERE, &homes, Setup::new(WriteMode::WriteBack)).await;
    homes.answer(HERE, Answer::Naming);
    let key = records::object_key(&path("key"));
    let shown = || there.store.peek(&key).map(|object| object.generation());
    assert!(there.cache.take_copy(copy(Generation(8), b"newer", 5)).await.unwrap());
    there.advancing("the newer one is shown", || shown() == Some(Generation(8))).await;
    // It was long on its way.
    assert!(there.cache.take_copy(copy(Generation(7), b"older", 5)).await.unwrap());
    there.pass_seconds(5).await;
    assert_eq!(shown(), Some(Generation(8)));
    assert_eq!(given(&there.cache, &copy_of("key", Generation(7))).await, None);
}

/// A copy is shown and the next one of the same key prepared while the log waits for one sync.
#[tokio::test]
async fn a_copy_that_is_being_shown_is_not_dropped_for_the_next_one() {
    let Pair { here, mut there, .. } = pair().await;
    here.put("key", "named").await.unwrap();
    let (key, named) = (records::object_key(&path("key")), record(&here, "key").generation);
    let take = |copy: NewCopy| {
        let cache = there.cache.clone();
        forebay_env::spawn(async move { cache.take_copy(copy).await })
    };
    there.disk.hold_syncs(true);
    let other =
        NewCopy { id: copy_of("other", Generation(1)), path: path("other"), ..copy(Generation(1), b"other", 5) };
    let first = take(other);
    there.pass_seconds(2).await;
    let next = take(copy(Generation(named.0 + 1), b"never committed", 15));
    there.pass_seconds(1).await;
    there.disk.hold_syncs(false);
    assert!(first.join().await.unwrap() && next.join().await.unwrap());
    there.pass_seconds(5).await;
    assert_eq!(there.store.peek(&key).unwrap().generation(), named);
    there.close().await;
    there.reopen().await;
    assert_eq!(there.store.peek(&key).unwrap().generation(), named);
}

#[tokio::test]
async fn a_worker_that_gains_slots_shows_the_copies_that_records_name() {
    let Pair { here, there, .. } = pair().await;
    here.put("key", "named").await.unwrap();
    here.put("other", "not named").await.unwrap();
    // Of the first, the former home has committed the record before it was gone.
    let (key, other) = (records::object_key(&path("key")), copy_of("other", record(&here, "other").generation));
    let writes = vec![ValueWrite { key: key.clone(), value: here.store.value(&key).map(|found| found.value) }];
    let commit = Commit { writes, ..Commit::default() };
    there.store.commit(commit, Durability::Fsync).await.unwrap();
    assert!(there.store.peek(&key).is_none());
    there.cache.gain(&SlotSet::none(SlotCount::new(8).unwrap()).others()).await.unwrap();
    assert!(there.store.peek(&key).unwrap().is_pinned());
    assert_eq!(there.get("key").await.unwrap(), "named");
    assert_eq!(given(&there.cache, &other).await, None);
}

/// The disk did not answer for a while, and the worker that has sent the copy is gone.
#[tokio::test]
async fn a_copy_that_was_prepared_while_its_slot_came_here_is_found() {
    let sender = Setup { worker: Some((HERE, Arc::new(Others::new()))), ..Setup::new(WriteMode::WriteBack) };
    let here = sender.open().await;
    here.background.set(Way::Closed);
    here.put("key", "re-sent").await.unwrap();
    let id = copy_of("key", record(&here, "key").generation);
    let bytes = here.cache.held(&id.key, id.generation).await.unwrap().unwrap();
    let copy = NewCopy { id: id.clone(), path: path("key"), pieces: Vec::new(), bytes };
    let (homes, slots) = (Others::new(), Arc::<support::Others>::default());
    homes.answer(HERE, Answer::Nothing);
    let setup = Setup { others: Some(Arc::clone(&slots)), ..Setup::new(WriteMode::WriteBack) };
    let there = holder(THERE, &homes, setup).await;
    there.background.set(Way::Closed);
    let writes = vec![ValueWrite { key: id.key.clone(), value: here.store.value(&id.key).map(|found| found.value) }];
    there.store.commit(Commit { writes, ..Commit::default() }, Durability::Fsync).await.unwrap();
    // It takes the slot up, and comes to know of that only while the copy is being prepared.
    let all = SlotSet::none(SlotCount::new(8).unwrap()).others();
    there.cache.gain(&all).await.unwrap();
    there.advancing("nobody has the bytes", || there.cache.status().missing_objects == 1).await;
    there.disk.hold_syncs(true);
    let taking = {
        let cache = there.cache.clone();
        forebay_env::spawn(async move { cache.take_copy(copy).await })
    };
    others_go_on().await;
    assert!(!taking.is_finished());
    *slots.moved.lock() = Some(all);
    there.disk.hold_syncs(false);
    assert!(taking.join().await.unwrap());
    there.pass_seconds(5).await;
    assert_eq!(there.store.peek(&id.key).map(|object| object.generation()), Some(id.generation));
    assert_eq!(there.get("key").await.unwrap(), "re-sent");
    assert_eq!(there.cache.status().missing_objects, 0);
}

/// A home and two workers that take copies.
struct Three {
    here: Bench,
    there: Bench,
    third: Bench,
    others: Others,
}

async fn three(setup: fn(WriteMode) -> Setup) -> Three {
    let Pair { here, there, others } = pair_of(setup(WriteMode::WriteBack), setup(WriteMode::WriteBack)).await;
    let homes = Others::new();
    homes.answer(HERE, Answer::From(here.cache.clone()));
    let third = holder("third", &homes, setup(WriteMode::WriteBack)).await;
    others.answer("third", Answer::From(third.cache.clone()));
    let three = Three { here, there, third, others };
    three.complete_at(&[THERE, "third"]).await;
    three
}

impl Three {
    /// The one of the two that has a copy, and the other one.
    fn by_copy(&self, id: &CopyId) -> [(&'static str, &Bench); 2] {
        let both = [(THERE, &self.there), ("third", &self.third)];
        match self.there.cache.has_copies(std::slice::from_ref(id)) == [true] {
            true => both,
            false => [both[1], both[0]],
        }
    }

    async fn complete_at(&self, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let needs = || self.here.cache.needs().expect("an answer");
        self.here.advancing("all have their copies", || needs().complete_at.as_ref() == Some(&names)).await;
        assert_eq!(self.here.cache.status().under_replicated, 0);
    }
}

#[tokio::test]
async fn what_a_lost_worker_had_is_copied_to_another_one() {
    let three = three(Setup::new).await;
    let here = &three.here;
    here.put("key", "on two").await.unwrap();
    here.put("gone", "on two").await.unwrap();
    here.delete("gone").await.unwrap();
    let id = copy_of("key", record(here, "key").generation);
    let [(first, _), (second, bench)] = three.by_copy(&id);
    three.complete_at(&[THERE, "third"]).await;
    assert_eq!(given(&bench.cache, &id).await, None);
    three.others.workers.lock().remove(first);
    three.complete_at(&[second]).await;
    assert_eq!(record(here, "key").holders.names().collect::<Vec<_>>(), [HERE, second]);
    assert_eq!(record(here, "key").generation, id.generation);
    assert_eq!(given(&bench.cache, &id).await.unwrap(), "on two");
    assert_eq!(here.cache.status().dirty_objects, 1);
    // It is like any other copy.
    bench.advancing("the copy is shown", || bench.store.peek(&id.key).is_some()).await;
    here.background.set(Way::Open);
    here.drain().await;
    bench.advancing("nobody wants it any more", || bench.cache.status().pinned_bytes == 0).await;
}

#[tokio::test]
async fn a_worker_that_has_lost_its_disks_gets_its_copies_again() {
    let Pair { here, others, .. } = pair().await;
    here.put("key", "on two").await.unwrap();
    let id = copy_of("key", record(&here, "key").generation);
    let homes = Others::new();
    homes.answer(HERE, Answer::From(here.cache.clone()));
    let empty = holder(THERE, &homes, Setup::new(WriteMode::WriteBack)).await;
    others.answer(THERE, Answer::From(empty.cache.clone()));
    // It was away for so short a time that nobody has seen that.
    others.life.fetch_add(1, Ordering::Relaxed);
    assert_eq!((here.cache.status().under_replicated, here.cache.needs().unwrap().complete_at), (1, None));
    let is_safe = || here.cache.status().under_replicated == 0;
    here.advancing("it is safe", is_safe).await;
    assert_eq!(given(&empty.cache, &id).await.unwrap(), "on two");
    // Sweeps ask, too.
    let empty = holder(THERE, &homes, Setup::new(WriteMode::WriteBack)).await;
    others.answer(THERE, Answer::From(empty.cache.clone()));
    here.cache.sweep().await.unwrap();
    here.advancing("it has its copy", || empty.cache.has_copies(std::slice::from_ref(&id)) == [true]).await;
}

/// The others have copies, and it has to fetch the bytes first.
#[tokio::test]
async fn a_home_without_the_bytes_counts_itself_for_nothing() {
    let Pair { mut here, there, others } = pair().await;
    here.put("key", "on two").await.unwrap();
    let value = here.store.value(&records::object_key(&path("key"))).unwrap().value;
    let is_safe = |here: &Bench| here.cache.status().under_replicated == 0;
    here.advancing("it is safe", || is_safe(&here)).await;
    here.delete("key").await.unwrap();
    let key = records::object_key(&path("key"));
    here.close().await;
    here.write_record(key, Some(value)).await;
    let all = others.permits.forget_permits(usize::MAX);
    here.reopen().await;
    here.background.set(Way::Closed);
    here.pass_seconds(10).await;
    assert!(!is_safe(&here), "one copy is all there is");
    assert_eq!(there.cache.status().under_replicated, 0);
    others.permits.add_permits(all);
    here.advancing("it is safe", || is_safe(&here)).await;
    assert_eq!(here.get("key").await.unwrap(), "on two");
}

#[tokio::test]
async fn a_worker_without_room_for_a_large_copy_takes_small_ones() {
    let setup = || Setup::new(WriteMode::WriteBack);
    let small = setup().settings(|settings| settings.pinned_ratio = 0.001);
    let Pair { here, there, .. } = pair_of(setup(), small).await;
    let room = there.cache.status().pinned_bytes_max;
    let body = |size: u64| Bytes::from(vec![1; size as usize]);
    here.put("small", "fits").await.unwrap();
    assert_eq!(kind(here.put("large", body(room + 1)).await), Some(ErrorKind::SlowDown));
    here.put("small", "fits, too").await.unwrap();
    // It is not asked again at once.
    let error = here.put("larger", body(room + 2)).await.unwrap_err();
    assert!(error.context.contains("and 0 can take one"), "{}", error.context);
}

#[tokio::test]
async fn parts_of_uploads_are_copied_again() {
    let three = three(small_parts).await;
    let here = &three.here;
    let upload = create(here, "key").await;
    let parts = [put_part(here, &upload, 1, PART).await, put_part(here, &upload, 2, PART).await];
    let part = |number| {
        let key = records::part_key(&upload.upload_id, number);
        let generation = PartRecord::decode(&here.store.value(&key).unwrap().value).unwrap().generation;
        CopyId { key, generation }
    };
    let [(first, _), (second, bench)] = three.by_copy(&part(1));
    three.others.workers.lock().remove(first);
    three.complete_at(&[second]).await;
    assert_eq!(bench.cache.has_copies(&[part(1), part(2)]), [true, true]);
    let record = PartRecord::decode(&here.store.value(&part(2).key).unwrap().value).unwrap();
    assert_eq!(record.holders.names().collect::<Vec<_>>(), [HERE, second]);
    complete(here, &upload, &parts).await.unwrap();
    assert_eq!(here.get("key").await.unwrap().len(), 2 * PART);
}

#[tokio::test]
async fn what_no_worker_takes_a_copy_of_is_told_and_tried_again() {
    let Pair { here, there, others } = pair().await;
    here.put("key", "on two").await.unwrap();
    let id = copy_of("key", record(&here, "key").generation);
    others.workers.lock().clear();
    here.pass_seconds(2).await;
    assert_eq!((here.cache.status().under_replicated, here.cache.needs().unwrap().complete_at), (1, None));
    // It does not say whether it has one.
    others.answer(THERE, Answer::Nothing);
    here.pass_seconds(20).await;
    assert_eq!(here.cache.needs().unwrap().complete_at, None);
    others.answer(THERE, Answer::From(there.cache.clone()));
    here.advancing("it has a copy", || here.cache.needs().unwrap().complete_at.is_some()).await;
    assert_eq!(given(&there.cache, &id).await.unwrap(), "on two");
}

#[tokio::test]
async fn policies_say_how_many_copies_there_are() {
    let three = three(Setup::new).await;
    let here = &three.here;
    here.put("key", "on two").await.unwrap();
    let id = copy_of("key", record(here, "key").generation);
    three.complete_at(&[THERE, "third"]).await;
    let rule = |replicas| PolicyRule { write_replicas: Some(replicas), ..support::rule("/", WriteMode::WriteBack) };
    here.cache.set_policies(vec![rule(3)], None, "test", "test").await.unwrap();
    let has = |bench: &Bench| bench.cache.has_copies(std::slice::from_ref(&id)) == [true];
    here.advancing("there are three", || has(&three.there) && has(&three.third)).await;
    three.complete_at(&[THERE, "third"]).await;
    assert_eq!(record(here, "key").holders.names().count(), 3);
    three.others.workers.lock().remove("third");
    here.advancing("they are too few", || here.cache.status().under_replicated == 1).await;
    here.cache.set_policies(vec![rule(2)], None, "test", "test").await.unwrap();
    three.complete_at(&[THERE]).await;
}

/// It was sent to a worker that was there when it began.
#[tokio::test]
async fn a_write_that_goes_on_while_a_worker_is_lost_has_its_copies_in_the_end() {
    let three = three(Setup::new).await;
    let (here, others) = (&three.here, &three.others);
    here.put("key", "on two").await.unwrap();
    let [(first, _), (second, bench)] = three.by_copy(&copy_of("key", record(here, "key").generation));
    here.delete("key").await.unwrap();
    let all = others.permits.forget_permits(usize::MAX);
    let asked = others.asked.load(Ordering::Relaxed);
    let put = begin_to_put(here, "newer");
    until("the copy is taken", || others.asked.load(Ordering::Relaxed) > asked).await;
    others.workers.lock().remove(first);
    here.pass_seconds(5).await;
    assert_eq!(here.cache.needs().unwrap().complete_at, None);
    others.permits.add_permits(all);
    put.join().await.unwrap();
    assert_eq!(here.get("key").await.unwrap(), "newer");
    three.complete_at(&[second]).await;
    let id = copy_of("key", record(here, "key").generation);
    assert_eq!(given(&bench.cache, &id).await.unwrap(), "newer");
}

/// Uploads a part and closes the cache. When that opens again, the record is there and the bytes are not.
async fn part_without_bytes(here: &Bench) -> (UploadRef, CompletePart) {
    let upload = create(here, "key").await;
    let part = put_part(here, &upload, 1, PART).await;
    let keys = [records::upload_key(&upload.path, &upload.upload_id), records::part_key(&upload.upload_id, 1)];
    let records = keys.map(|key| (here.store.value(&key).expect("a record").value, key));
    here.cache.abort_upload(&upload).await.expect("nothing refuses it");
    here.close().await;
    for (value, key) in records {
        here.write_record(key, Some(value)).await;
    }
    (upload, part)
}

/// Its client may upload it again, much later. No drain waits for that.
#[tokio::test]
async fn a_lost_part_is_no_copy_to_wait_for() {
    let Pair { mut here, others, .. } = pair().await;
    part_without_bytes(&here).await;
    others.answer(THERE, Answer::Nothing);
    here.reopen().await;
    here.advancing("it is lost", || here.cache.status().missing_parts == 1).await;
    here.advancing("all else has its copies", || here.cache.needs().unwrap().complete_at.is_some()).await;
}

/// Trying again would not help its client.
#[tokio::test]
async fn a_completion_asks_for_a_part_that_no_worker_has() {
    let Pair { mut here, there, others } = pair().await;
    let (upload, part) = part_without_bytes(&here).await;
    others.answer(THERE, Answer::Nothing);
    here.reopen().await;
    let refused = complete(&here, &upload, &[part]).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidPart);
    assert!(refused.context.contains("Part 1") && refused.context.contains("again"), "{refused}");
    others.answer(THERE, Answer::From(there.cache.clone()));
    let again = put_part(&here, &upload, 1, PART).await;
    complete(&here, &upload, &[again]).await.unwrap();
    assert_eq!(here.get("key").await.unwrap().len(), PART);
}

/// The worker that may have it is back, and has not answered yet.
#[tokio::test]
async fn a_completion_does_not_believe_for_ever_that_a_part_is_lost() {
    let Pair { mut here, others, .. } = pair().await;
    let (upload, part) = part_without_bytes(&here).await;
    others.answer(THERE, Answer::Nothing);
    here.reopen().await;
    here.advancing("it is lost", || here.cache.status().missing_parts == 1).await;
    let all = others.permits.forget_permits(usize::MAX);
    let (cache, request) = (here.cache.clone(), completion(&upload, std::slice::from_ref(&part)));
    let completing = forebay_env::spawn(async move { cache.complete_upload(request).await });
    here.advancing("it waits no longer", || completing.is_finished()).await;
    assert_eq!(kind(completing.join().await), Some(ErrorKind::Unavailable));
    others.permits.add_permits(all);
    here.advancing("all have answered", || here.cache.status().missing_parts == 1).await;
    assert_eq!(kind(complete(&here, &upload, &[part]).await), Some(ErrorKind::InvalidPart));
}

/// A client that completes the upload with the parts of a list must not get a shorter object.
#[tokio::test]
async fn a_part_that_a_worker_may_have_which_is_away_is_listed() {
    let Pair { mut here, others, .. } = pair().await;
    let (upload, part) = part_without_bytes(&here).await;
    others.workers.lock().remove(THERE);
    here.reopen().await;
    let numbers = |page: PartPage| page.parts.iter().map(|listed| listed.part.number).collect::<Vec<_>>();
    assert_eq!(numbers(here.cache.list_parts(&upload, 0, 10).await.unwrap()), [1]);
    assert_eq!(kind(complete(&here, &upload, &[part]).await), Some(ErrorKind::Unavailable));
    assert_eq!(numbers(here.cache.list_parts(&upload, 0, 10).await.unwrap()), [1], "it was asked for in vain");
    others.answer(THERE, Answer::Nothing);
    here.advancing("it is lost", || here.cache.status().missing_parts == 1).await;
    assert_eq!(numbers(here.cache.list_parts(&upload, 0, 10).await.unwrap()), [0; 0]);
}

/// No memory tier hides the disk.
async fn pair_on_disk() -> Pair {
    pair_of(small_pages(), small_pages()).await
}

/// A small object is in the log, and a large one in a segment of its own.
#[tokio::test]
async fn damaged_bytes_of_the_home_are_repaired_with_those_of_another_worker() {
    for size in [1000, 1 << 20] {
        let Pair { mut here, there: _there, others } = pair_on_disk().await;
        let body = pattern(3, size);
        here.put("key", body.clone()).await.unwrap();
        let written = record(&here, "key").generation;
        assert!(here.damage(&body[600..632]).await > 0);
        assert_eq!(here.get("key").await.unwrap(), body, "{size} bytes");
        // From here on, it has them alone.
        others.workers.lock().clear();
        assert_eq!(here.get("key").await.unwrap(), body, "{size} bytes");
        if size == 1 << 20 {
            // The start finds the records of both.
            here.kill().await;
            assert_eq!(here.get("key").await.unwrap(), body);
        }
        here.background.set(Way::Cut);
        here.restart().await;
        assert_eq!(record(&here, "key").generation, written);
        assert_eq!(here.get("key").await.unwrap(), body, "{size} bytes");
        here.background.set(Way::Open);
        here.drain().await;
        assert_eq!(here.under("key").unwrap(), body, "{size} bytes");
    }
}

#[tokio::test]
async fn damaged_bytes_of_the_home_are_persisted_from_those_of_another_worker() {
    let Pair { here, there: _there, .. } = pair_on_disk().await;
    let body = pattern(3, 1000);
    here.put("key", body.clone()).await.unwrap();
    assert!(here.damage(&body[600..632]).await > 0);
    here.background.set(Way::Open);
    here.drain().await;
    assert_eq!(here.under("key").unwrap(), body);
}

#[tokio::test]
async fn a_damaged_description_of_the_home_is_repaired_with_that_of_another_worker() {
    let Pair { mut here, there: _there, .. } = pair_on_disk().await;
    let user = [("name".to_owned(), "unmistakable".to_owned())].into();
    let attributes = Attributes { user, ..Attributes::default() };
    let (body, conditions) = (support::incoming("value".into()), Conditions::default());
    here.cache.put(PutObject { path: path("key"), body, attributes, conditions }).await.unwrap();
    let written = here.head("key").await.unwrap().info;
    // It is in memory until the stop.
    here.background.set(Way::Cut);
    here.close().await;
    assert!(here.damage(b"unmistakable").await > 0);
    here.reopen().await;
    assert_eq!(here.head("key").await.unwrap().info, written);
    assert_eq!(here.get("key").await.unwrap(), "value");
}

#[tokio::test]
async fn damaged_bytes_of_the_home_count_as_no_copy() {
    let Pair { here, there: _there, others } = pair_on_disk().await;
    let body = pattern(3, 1000);
    here.put("key", body.clone()).await.unwrap();
    here.advancing("it is safe", || here.cache.status().under_replicated == 0).await;
    assert!(here.damage(&body[600..632]).await > 0);
    let all = others.permits.forget_permits(usize::MAX);
    let cache = here.cache.clone();
    let reading = forebay_env::spawn(async move { cache.get(support::get_request("key", None)).await });
    here.advancing("it is counted", || here.cache.status().under_replicated == 1).await;
    here.advancing("it waits no longer", || reading.is_finished()).await;
    assert_eq!(kind(reading.join().await), Some(ErrorKind::Unavailable));
    others.permits.add_permits(all);
    here.advancing("it is safe again", || here.cache.status().under_replicated == 0).await;
    assert_eq!(here.get("key").await.unwrap(), body);
}

/// As when the worker with the other copy is drained.
#[tokio::test]
async fn a_further_copy_of_damaged_bytes_is_made_from_those_of_another_worker() {
    let three = three(|_| small_pages()).await;
    let (here, body) = (&three.here, pattern(3, 1000));
    here.put("key", body.clone()).await.unwrap();
    let id = copy_of("key", record(here, "key").generation);
    three.complete_at(&[THERE, "third"]).await;
    assert!(here.damage(&body[600..632]).await > 0);
    let rule = PolicyRule { write_replicas: Some(3), ..support::rule("/", WriteMode::WriteBack) };
    here.cache.set_policies(vec![rule], None, "test", "test").await.unwrap();
    let has = |bench: &Bench| bench.cache.has_copies(std::slice::from_ref(&id)) == [true];
    here.advancing("there are three", || has(&three.there) && has(&three.third)).await;
    for bench in [&three.there, &three.third] {
        assert_eq!(given(&bench.cache, &id).await.unwrap(), body);
    }
    three.complete_at(&[THERE, "third"]).await;
    assert_eq!(here.get("key").await.unwrap(), body);
}

/// Until a worker has them after all.
#[tokio::test]
async fn bytes_that_are_damaged_everywhere_are_an_error() {
    let Pair { here, there, others } = pair_on_disk().await;
    let body = pattern(3, 1000);
    here.put("key", body.clone()).await.unwrap();
    assert!(here.damage(&body[600..632]).await > 0);
    others.answer(THERE, Answer::Damaged(there.cache.clone()));
    assert_eq!(kind(here.get("key").await), Some(ErrorKind::Corrupt));
    assert_eq!(here.cache.status().missing_objects, 1);
    others.answer(THERE, Answer::From(there.cache.clone()));
    assert_eq!(here.get("key").await.unwrap(), body);
    assert_eq!(here.cache.status().missing_objects, 0);
}

/// What a scrub finds here. The job goes on, as the other worker does no share of it.
async fn scrubbed(bench: &Bench) -> Vec<JobFinding> {
    let id = start(bench, request(JobKind::Scrub, "/")).await;
    let first = records::job_finding_key(&id, 0);
    bench.advancing("the damage is found", || bench.store.value(&first).is_some()).await;
    findings(bench, &id).await
}

#[tokio::test]
async fn a_scrub_replaces_a_damaged_copy_with_the_bytes_of_its_home() {
    let Pair { here, there, .. } = pair_on_disk().await;
    let body = pattern(3, 1000);
    here.put("key", body.clone()).await.unwrap();
    let id = copy_of("key", record(&here, "key").generation);
    let is_shown = || there.store.peek(&id.key).is_some();
    there.advancing("the copy is shown", is_shown).await;
    assert!(there.damage(&body[600..632]).await > 0);
    let found = scrubbed(&there).await;
    assert_eq!(told(&found), [("/bucket/key", "corrupt")]);
    assert!(found[0].detail.contains("replaced with the bytes of another worker"), "{}", found[0].detail);
    assert_eq!(given(&there.cache, &id).await.unwrap(), body);
    there.advancing("the other copy is shown", is_shown).await;
    assert_eq!(given(&there.cache, &id).await.unwrap(), body);
    assert_eq!(there.cache.has_copies(std::slice::from_ref(&id)), [true]);
}

#[tokio::test]
async fn a_damaged_copy_counts_as_none_and_another_one_is_sent() {
    let (Pair { here, there, others }, homes) = pair_and_homes(small_pages(), small_pages()).await;
    let body = pattern(3, 1000);
    here.put("key", body.clone()).await.unwrap();
    let id = copy_of("key", record(&here, "key").generation);
    let is_shown = || there.store.peek(&id.key).is_some();
    there.advancing("the copy is shown", is_shown).await;
    assert!(there.damage(&body[600..632]).await > 0);
    homes.answer(HERE, Answer::Nothing);
    let found = scrubbed(&there).await;
    assert!(found[0].detail.contains("counted as no copy, and kept"), "{}", found[0].detail);
    assert!(is_shown(), "nobody has given other bytes");
    let has = || there.cache.has_copies(std::slice::from_ref(&id)) == [true];
    assert!(!has());
    homes.answer(HERE, Answer::From(here.cache.clone()));
    // The copies are counted when a worker starts again.
    others.life.store(1, Ordering::Relaxed);
    here.advancing("another one is sent", has).await;
    here.advancing("it is safe", || here.cache.status().under_replicated == 0).await;
    there.advancing("the other copy is shown", is_shown).await;
    assert_eq!(given(&there.cache, &id).await.unwrap(), body);
}

/// Their records are at the home of the upload alone.
#[tokio::test]
async fn a_scrub_reads_copies_of_parts() {
    let Pair { here, there, .. } = pair_of(small_parts(WriteMode::WriteBack), small_parts(WriteMode::WriteBack)).await;
    let upload = create(&here, "key").await;
    put_part(&here, &upload, 1, PART).await;
    let key = records::part_key(&upload.upload_id, 1);
    let generation = PartRecord::decode(&here.store.value(&key).unwrap().value).unwrap().generation;
    there.advancing("the part is shown", || there.store.peek(&key).is_some()).await;
    assert!(there.damage(&pattern(1, PART)[600..632]).await > 0);
    let found = scrubbed(&there).await;
    assert_eq!(told(&found), [("/", "corrupt")]);
    assert!(found[0].detail.starts_with(&format!("part 1 of the upload {}", upload.upload_id)), "{}", found[0].detail);
    assert_eq!(there.cache.has_copies(&[CopyId { key, generation }]), [false]);
}
