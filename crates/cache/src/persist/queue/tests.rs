use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_env::Requester;
use forebay_env::clock::ManualClock;

use super::*;

fn queue() -> (Queue, Arc<ManualClock>) {
    let (env, clock) = Env::simulated(3);
    let backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(3600) };
    let mounts = ["slow", "sound"].map(|name| BucketName::new(name).unwrap()).into();
    (Queue::new(env, backoff, Duration::ZERO, 256, mounts), clock)
}

fn path(key: &str) -> ObjectPath {
    ObjectPath::parse("bucket", key).unwrap()
}

fn entry(since: u64) -> Entry {
    Entry { dirty_since: Generation(since), dirty_since_ms: since, size: 100 }
}

fn take(queue: &Queue) -> Option<ObjectPath> {
    let now = queue.env.clock.monotonic();
    let mut state = queue.state.lock();
    state.release_due(now);
    state.take(now)
}

#[test]
fn the_longest_dirty_goes_first_and_one_request_per_key_runs() {
    let (queue, _) = queue();
    queue.push(path("b"), entry(2));
    queue.push(path("a"), entry(3));
    queue.push(path("c"), entry(1));
    assert_eq!(take(&queue), Some(path("c")));
    queue.push(path("c"), entry(9));
    assert_eq!(take(&queue), Some(path("b")));
    assert_eq!(take(&queue), Some(path("a")));
    assert_eq!(take(&queue), None, "c runs already");
    queue.succeeded(&path("c"));
    assert_eq!(take(&queue), Some(path("c")), "c was written again while it ran");
    queue.succeeded(&path("c"));
    assert_eq!((take(&queue), queue.oldest_ms()), (None, Some(2)));
}

#[test]
fn what_comes_when_nothing_is_ready_waits_for_more() {
    let (mut queue, clock) = queue();
    queue.delay = Duration::from_millis(5);
    let keys = ["a", "b", "c"].map(path);
    queue.push(keys[0].clone(), entry(1));
    clock.advance(Duration::from_millis(4));
    queue.push(keys[1].clone(), entry(2));
    assert_eq!(take(&queue), None, "more may come");
    clock.advance(Duration::from_millis(1));
    assert_eq!(take(&queue), Some(keys[0].clone()));
    queue.push(keys[2].clone(), entry(3));
    assert_eq!(
        [take(&queue), take(&queue)],
        [Some(keys[1].clone()), Some(keys[2].clone())],
        "behind others nothing waits"
    );
    for key in keys {
        queue.succeeded(&key);
    }
    queue.push(path("d"), entry(4));
    assert_eq!(take(&queue), None, "nothing was ready");
}

fn push_many(queue: &Queue, bucket: &str, count: u64, size: u64) {
    for number in 0..count {
        let path = ObjectPath::parse(bucket, &format!("{size} {number}")).unwrap();
        queue.push(path, Entry { size, ..entry(number) });
    }
}

fn take_all(queue: &Queue) -> Vec<ObjectPath> {
    std::iter::from_fn(|| take(queue)).collect()
}

#[test]
fn neither_small_nor_large_uploads_of_a_slow_under_store_keep_others() {
    let (queue, _) = queue();
    push_many(&queue, "slow", 1000, 100);
    assert_eq!(take_all(&queue).len(), 256);
    push_many(&queue, "slow", 1000, LARGE_BYTES + 1);
    let slow = take_all(&queue);
    assert_eq!(slow.len(), LARGE_UPLOADS_MAX);
    push_many(&queue, "sound", 1, 100);
    push_many(&queue, "sound", 1, LARGE_BYTES + 1);
    push_many(&queue, "bucket", 1, 100);
    let others = take_all(&queue);
    assert_eq!(others.len(), 3, "{others:?}");
    // They continue as long as they succeed.
    for path in others {
        queue.succeeded(&path);
        queue.push(path.clone(), entry(2000));
        assert_eq!(take_all(&queue), [path]);
    }
    for path in slow {
        queue.failed(&path, Blame::Object);
    }
    assert!(take_all(&queue).len() >= LARGE_UPLOADS_MAX / 2, "what failed has given its place back");
}

#[test]
fn buckets_of_one_under_store_get_as_much_as_each_other() {
    let (queue, _) = queue();
    push_many(&queue, "bucket", 2000, 100);
    let mut under_way = take_all(&queue);
    push_many(&queue, "other", 2000, 100);
    for _ in 0..1000 {
        queue.succeeded(&under_way.remove(0));
        under_way.extend(take_all(&queue));
    }
    let of = |bucket: &str| under_way.iter().filter(|path| path.bucket.as_str() == bucket).count();
    assert!(of("bucket").abs_diff(of("other")) <= 1 && of("other") > 100, "{} {}", of("bucket"), of("other"));
}

#[test]
fn objects_of_a_megabyte_are_under_way_half_as_often() {
    let (queue, _) = queue();
    push_many(&queue, "bucket", 1000, LARGE_BYTES);
    assert_eq!(take_all(&queue).len(), 128);
}

/// A waiting object is overwritten: it moves to the lane of its new size and is counted there.
#[test]
fn an_object_that_has_grown_while_it_waited_is_large() {
    let (queue, clock) = queue();
    let large = |path: &ObjectPath| queue.push(path.clone(), Entry { size: LARGE_BYTES + 1, ..entry(9) });
    let under_way = || {
        let state = queue.state.lock();
        let has = |shares: &TenantShares| {
            shares.has(&Tenant { mount: None, bucket: path("a").bucket, requester: Requester::NOBODY }).1
        };
        (has(&state.shares.small), has(&state.shares.large))
    };
    queue.push(path("a"), entry(1));
    large(&path("a"));
    assert_eq!((take(&queue), under_way()), (Some(path("a")), (0, 1)));
    queue.push(path("a"), entry(10));
    let Pause { pause, .. } = queue.failed(&path("a"), Blame::Object);
    clock.advance(pause);
    assert_eq!((take(&queue), under_way()), (Some(path("a")), (SMALL_UPLOAD, 0)));
    let Pause { pause, .. } = queue.failed(&path("a"), Blame::Object);
    large(&path("a"));
    clock.advance(pause);
    assert_eq!((take(&queue), under_way()), (Some(path("a")), (0, 1)));
    queue.succeeded(&path("a"));
    assert_eq!(under_way(), (0, 0));
}

/// Whatever their sizes.
#[test]
fn keys_that_always_fail_keep_no_other_from_being_tried() {
    for [failing, sound] in [[100, 100], [100, LARGE_BYTES + 1], [LARGE_BYTES + 1, 100]] {
        check_failing_and_sound(failing, sound);
    }
}

fn check_failing_and_sound(failing_size: u64, sound_size: u64) {
    let (queue, clock) = queue();
    let failing: Vec<_> = (0..16).map(|number| path(&format!("{number:02}"))).collect();
    let push = |key: &ObjectPath, since, size| queue.push(key.clone(), Entry { size, ..entry(since) });
    (0..).zip(&failing).for_each(|(since, key)| push(key, since, failing_size));
    push(&path("sound"), 99, sound_size);
    assert!(failing.iter().all(|key| take(&queue).as_ref() == Some(key)));
    for key in &failing {
        queue.failed(key, Blame::UnderStore);
    }
    clock.advance(Duration::from_secs(1));
    let oldest = take(&queue).expect("all that was in flight fails for one reason, and makes one pause");
    queue.failed(&oldest, Blame::UnderStore);
    clock.advance(Duration::from_secs(2));
    assert_eq!(take(&queue), Some(path("sound")), "after the oldest comes the newest");
}

#[tokio::test]
async fn whoever_asks_gets_all_that_has_gathered() {
    let (mut queue, clock) = queue();
    queue.delay = Duration::from_millis(5);
    let queue = Arc::new(queue);
    let ask = || {
        let queue = Arc::clone(&queue);
        forebay_env::spawn(async move { queue.next().await })
    };
    let asking = [ask(), ask(), ask()];
    tokio::task::yield_now().await;
    for (since, key) in ["a", "b", "c"].into_iter().enumerate() {
        queue.push(path(key), entry(since as u64));
    }
    let mut got = Vec::new();
    for one in asking {
        while !one.is_finished() {
            tokio::task::yield_now().await;
            clock.advance(Duration::from_millis(1));
        }
        got.push(one.join().await);
    }
    got.sort_unstable();
    assert_eq!(got, ["a", "b", "c"].map(path));
}

#[test]
fn a_failed_object_pauses_longer_each_time_but_no_longer_than_the_maximum() {
    let (queue, clock) = queue();
    queue.push(path("a"), entry(1));
    let mut last = Duration::ZERO;
    for failures in 1..40_u32 {
        assert_eq!(take(&queue), Some(path("a")));
        let Pause { pause, .. } = queue.failed(&path("a"), Blame::Object);
        let full = Duration::from_secs(1).saturating_mul(1 << (failures - 1).min(20)).min(Duration::from_secs(3600));
        assert!(pause >= full / 2 && pause <= full, "{pause:?} after {failures} failures");
        assert_eq!(take(&queue), None);
        clock.advance(pause);
        last = pause;
    }
    assert!(last >= Duration::from_secs(1800));
}

#[test]
fn a_directory_with_a_long_backlog_holds_up_no_other() {
    let (queue, clock) = queue();
    let path = |directory: &str, n: u64| path(&format!("{directory}/{n}"));
    let group = |path: &ObjectPath| queue.state.lock().group_of(path);
    let others = ["b", "c", "d", "e", "f"].into_iter().filter(|name| group(&path(name, 0)) != group(&path("a", 0)));
    let other = others.into_iter().next().expect("not all share one group");
    (0..100).for_each(|n| queue.push(path("a", n), entry(n)));
    let under_way: Vec<_> = (0..10).map(|_| take(&queue).expect("they are ready")).collect();
    assert_eq!(under_way, (0..10).map(|n| path("a", n)).collect::<Vec<_>>(), "alone it has all, in its order");
    (0..20).for_each(|n| queue.push(path(other, n), entry(1000 + n)));
    for n in 0..10 {
        assert_eq!(take(&queue), Some(path(other, n)), "as many as the other has");
    }
    // From then on in turn, as uploads end.
    let next: Vec<_> = [take(&queue), take(&queue)].into_iter().flatten().collect();
    assert!(next.contains(&path("a", 10)) && next.contains(&path(other, 10)), "{next:?}");
    for path in under_way.iter().chain(&next) {
        queue.succeeded(path);
    }
    assert_eq!(take(&queue), Some(path("a", 11)), "all of its own have ended");
    let pause = queue.failed(&path("a", 11), Blame::Object).pause;
    (0..10).for_each(|n| queue.succeeded(&path(other, n)));
    clock.advance(pause);
    assert_eq!(take(&queue), Some(path("a", 11)), "the older one where both have as much");
}

#[test]
fn what_was_refused_and_is_written_again_waits_no_longer_than_the_shortest_pause() {
    let (queue, clock) = queue();
    for (key, blame, is_in_flight) in [
        ("refused", Blame::Object, false),
        ("held up", Blame::UnderStore, false),
        ("refused after it was overwritten", Blame::Object, true),
    ] {
        let key = path(key);
        queue.push(key.clone(), entry(1));
        let mut pause = Duration::ZERO;
        while pause < Duration::from_secs(4) {
            clock.advance(CIRCUIT_PAUSE_MAX.max(pause));
            assert_eq!(take(&queue), Some(key.clone()));
            pause = queue.failed(&key, blame).pause;
        }
        if is_in_flight {
            clock.advance(pause);
            assert_eq!(take(&queue), Some(key.clone()));
        }
        queue.push(key.clone(), entry(2));
        if is_in_flight {
            queue.failed(&key, blame);
        }
        let is_hurried = blame == Blame::Object;
        assert_eq!(queue.next_try(&key) == Some(Duration::from_secs(1)), is_hurried, "{key}");
        clock.advance(Duration::from_secs(1));
        assert_eq!(take(&queue).is_some(), is_hurried, "{key}");
        if is_in_flight {
            assert!(queue.failed(&key, blame).pause <= Duration::from_secs(1), "the first failure of this version");
            clock.advance(Duration::from_secs(1));
            assert_eq!(take(&queue), Some(key.clone()));
        }
        if !is_hurried {
            clock.advance(CIRCUIT_PAUSE_MAX.max(pause));
            assert_eq!(take(&queue), Some(key.clone()));
        }
        queue.succeeded(&key);
    }
}

#[test]
fn what_is_removed_is_not_tried() {
    let (queue, clock) = queue();
    let [ready, delayed, running] = ["c ready", "b delayed", "a running"].map(path);
    queue.push(delayed.clone(), entry(1));
    take(&queue);
    queue.failed(&delayed, Blame::Access);
    queue.push(running.clone(), entry(2));
    assert_eq!(take(&queue), Some(running.clone()));
    queue.push(ready.clone(), entry(3));
    for path in [&ready, &delayed, &running] {
        queue.remove(path);
    }
    clock.advance(Duration::from_secs(3600));
    assert_eq!((take(&queue), queue.delayed(), queue.running()), (None, 0, 1));
    queue.succeeded(&running);
    assert_eq!((queue.running(), queue.oldest_ms()), (0, None));
    assert!(queue.state.lock().buckets.values().all(|bucket| bucket.canary.is_none()));
}

#[test]
fn an_outage_while_a_bucket_is_refused_forgets_neither_the_refusal_nor_who_waits_for_its_end() {
    let (queue, clock) = queue();
    let keys = ["a", "b", "c"].map(path);
    keys.iter().for_each(|key| queue.push(key.clone(), entry(1)));
    let refuse = |key: &ObjectPath| {
        let pause = queue.failed(key, Blame::Access).pause;
        queue.note_answer(key, false, Blame::Access, "AccessDenied");
        pause
    };
    let refused = || queue.without_access().into_iter().map(|(_, error)| error).collect::<Vec<_>>();
    let tries: Vec<_> = (0..3).map(|_| take(&queue).unwrap()).collect();
    for key in &tries {
        refuse(key);
    }
    let canary = tries[0].clone();
    for _ in 1..REFUSED_MIN {
        assert_eq!(refused(), [""; 0], "one refusal may have come from a proxy");
        // The others wait for longer and longer.
        let mut next = None;
        while next.as_ref() != Some(&canary) {
            clock.advance(Duration::from_millis(100));
            next = take(&queue);
            for other in next.iter().filter(|key| **key != canary) {
                refuse(other);
            }
        }
        refuse(&canary);
    }
    assert_eq!(refused(), ["AccessDenied"]);
    // The under store is away for a moment.
    clock.advance(CIRCUIT_PAUSE_MAX);
    let first = take(&queue).unwrap();
    queue.failed(&first, Blame::UnderStore);
    queue.note_answer(&first, false, Blame::UnderStore, "connection refused");
    assert_eq!(refused(), ["AccessDenied"], "it is still so");
    clock.advance(CIRCUIT_PAUSE_MAX);
    let next = take(&queue).unwrap();
    queue.succeeded(&next);
    assert_eq!(refused(), [""; 0]);
    let left: Vec<_> = std::iter::from_fn(|| take(&queue)).collect();
    assert_eq!(left.len(), 2, "at once: {left:?}");
    // The bucket is gone, until nothing waits for it any more.
    for _ in 0..REFUSED_MIN {
        assert_eq!(refused(), [""; 0]);
        queue.failed(&left[0], Blame::UnderStore);
        queue.note_answer(&left[0], true, Blame::UnderStore, "NoSuchBucket");
    }
    assert_eq!(refused(), ["NoSuchBucket"]);
    queue.succeeded(&left[1]);
    assert_eq!(refused(), [""; 0]);
    for _ in 0..REFUSED_MIN {
        queue.note_answer(&left[0], true, Blame::UnderStore, "NoSuchBucket");
    }
    assert_eq!(refused(), ["NoSuchBucket"]);
    queue.remove(&left[0]);
    assert_eq!(refused(), [""; 0]);
}

#[test]
fn one_success_releases_all_that_waited_for_the_under_store() {
    let (queue, clock) = queue();
    let keys: Vec<_> = (0..20).map(|n| path(&format!("k{n:02}"))).collect();
    keys.iter().enumerate().for_each(|(n, key)| queue.push(key.clone(), entry(n as u64)));
    while let Some(key) = take(&queue) {
        queue.failed(&key, Blame::UnderStore);
    }
    let ready = || queue.state.lock().buckets.values().map(|b| b.ready.small.len()).sum::<usize>();
    assert!(ready() >= 20 - CIRCUIT_FAILURES as usize, "an open circuit lets the rest wait without failing");
    clock.advance(CIRCUIT_PAUSE_MAX);
    let probe = take(&queue).expect("one probe goes");
    assert_eq!(take(&queue), None, "only one probe goes");
    queue.succeeded(&probe);
    let mut rest = 0;
    while take(&queue).is_some() {
        rest += 1;
    }
    assert_eq!(rest, 19);
}

/// However many others wait.
#[test]
fn a_success_looks_only_at_what_waits_for_the_under_store_of_its_bucket() {
    let (queue, _) = queue();
    let keys = ["a", "b"].map(path);
    for key in &keys {
        queue.push(key.clone(), entry(1));
        assert_eq!(take(&queue).as_ref(), Some(key));
    }
    queue.failed(&keys[0], Blame::UnderStore);
    // They have no slots, so a look at one of them panics.
    let later = queue.env.clock.monotonic() + Duration::from_secs(3600);
    for (bucket, blame) in [("bucket", Blame::Access), ("other", Blame::Access), ("other", Blame::UnderStore)] {
        let key = ObjectPath::parse(bucket, &format!("{blame:?}")).unwrap();
        queue.state.lock().delayed.insert(later, key, blame);
    }
    queue.succeeded(&keys[1]);
    assert_eq!((take(&queue).as_ref(), queue.delayed()), (Some(&keys[0]), 3));
}

#[test]
fn probes_wait_longer_each_time_but_no_longer_than_the_maximum() {
    let (queue, clock) = queue();
    for n in 0..20 {
        queue.push(path(&n.to_string()), entry(n));
    }
    for _ in 0..CIRCUIT_FAILURES {
        let taken = take(&queue).unwrap();
        queue.failed(&taken, Blame::UnderStore);
    }
    let mut full = Duration::from_secs(1);
    for failures in 0..10 {
        let probe_at = queue.state.lock().buckets.values().find_map(|bucket| bucket.probe_at).unwrap();
        let pause = probe_at - queue.env.clock.monotonic();
        assert!(pause >= full / 2 && pause <= full, "{pause:?} after {failures} probes");
        clock.advance(pause);
        let probe = take(&queue).expect("a probe");
        queue.failed(&probe, Blame::UnderStore);
        full = (full * 2).min(CIRCUIT_PAUSE_MAX);
    }
}

#[test]
fn a_success_in_one_bucket_says_nothing_of_another() {
    let (queue, _) = queue();
    let path = |bucket: &str, number: u64| ObjectPath::parse(bucket, &number.to_string()).unwrap();
    let count = u64::from(CIRCUIT_FAILURES) + 1;
    for number in 0..count {
        queue.push(path("bucket", number), entry(2 * number));
        queue.push(path("other", number), entry(2 * number + 1));
    }
    while let Some(taken) = take(&queue) {
        queue.failed(&taken, Blame::UnderStore);
    }
    queue.hurry(&path("bucket", 0));
    let taken: Vec<_> = std::iter::from_fn(|| take(&queue)).collect();
    assert_eq!(taken, (0..count).map(|number| path("bucket", number)).collect::<Vec<_>>());
}

#[test]
fn access_that_is_back_is_noticed_soon_and_lets_all_go_that_lacked_it() {
    let (queue, clock) = queue();
    let path = |bucket: &str, number: u64| ObjectPath::parse(bucket, &number.to_string()).unwrap();
    for number in 0..10 {
        for bucket in ["bucket", "other", "slow"] {
            queue.push(path(bucket, number), entry(number));
        }
    }
    // All of them wait for about an hour, but for one of each bucket.
    for _ in 0..20 {
        let taken: Vec<_> = std::iter::from_fn(|| take(&queue)).collect();
        taken.iter().for_each(|path| {
            queue.failed(path, Blame::Access);
        });
        clock.advance(Duration::from_secs(3600));
    }
    let taken: Vec<_> = std::iter::from_fn(|| take(&queue)).collect();
    taken.iter().for_each(|path| {
        queue.failed(path, Blame::Access);
    });
    clock.advance(CIRCUIT_PAUSE_MAX);
    let canaries: Vec<_> = std::iter::from_fn(|| take(&queue)).collect();
    assert_eq!(canaries.len(), 3);
    let here = canaries.iter().find(|path| path.bucket.as_str() == "bucket").unwrap();
    queue.succeeded(here);
    let mut released: Vec<_> = std::iter::from_fn(|| take(&queue)).map(|path| path.bucket.to_string()).collect();
    released.sort_unstable();
    let expected = std::iter::repeat_n("bucket", 9).chain(std::iter::repeat_n("other", 9));
    assert_eq!(released, expected.collect::<Vec<_>>(), "not of another under store");
    // What is refused again is so for reasons of its own, whatever becomes of the others that were let go.
    let again = canaries.iter().find(|path| path.bucket.as_str() == "other").unwrap();
    queue.failed(again, Blame::Access);
    let another = (0..10).map(|number| path("other", number)).find(|path| path != again).unwrap();
    queue.succeeded(&another);
    assert_eq!(take(&queue), None);
}

#[test]
fn objects_at_fault_that_are_taken_after_all_let_the_others_go() {
    let (queue, clock) = queue();
    let fail = |path: &ObjectPath| {
        queue.failed(path, Blame::UnderStore);
    };
    for number in 0..3 {
        queue.push(path(&format!("bad{number}")), entry(number));
    }
    for round in 0..20 {
        std::iter::from_fn(|| take(&queue)).collect::<Vec<_>>().iter().for_each(fail);
        queue.push(path(&format!("good{round}")), entry(100));
        queue.succeeded(&take(&queue).unwrap());
        clock.advance(Duration::from_secs(3600));
    }
    std::iter::from_fn(|| take(&queue)).skip(1).collect::<Vec<_>>().iter().for_each(fail);
    assert_eq!(take(&queue), None);
    queue.succeeded(&path("bad0"));
    assert_eq!(std::iter::from_fn(|| take(&queue)).count(), 2);
}

/// Tries of some objects that always fail, while the under store takes others, in no time at all.
fn tries_beside_others(blame: Blame) -> usize {
    let (queue, _) = queue();
    for number in 0..5 {
        queue.push(path(&format!("bad{number}")), entry(number));
    }
    let mut tries = 0;
    for round in 0..20 {
        queue.push(path(&format!("good{round}")), entry(100 + round));
        let taken: Vec<_> = std::iter::from_fn(|| take(&queue)).collect();
        let (bad, good): (Vec<_>, Vec<_>) = taken.into_iter().partition(|path| path.key.as_str().starts_with("bad"));
        assert_eq!(good.len(), 1, "the circuit is closed");
        tries += bad.len();
        bad.iter().for_each(|path| {
            queue.failed(path, blame);
        });
        queue.succeeded(&good[0]);
    }
    tries
}

#[test]
fn objects_that_fail_while_others_are_taken_wait_for_their_own_pauses() {
    assert_eq!(tries_beside_others(Blame::UnderStore), 5 * (1 + FAILURES_ALONE as usize));
    assert_eq!(tries_beside_others(Blame::Throttling), 5, "who asks for fewer requests does not get more");
}

#[test]
fn nothing_waits_long_for_an_under_store_that_is_back() {
    for blame in [Blame::UnderStore, Blame::Throttling] {
        let (queue, clock) = queue();
        queue.push(path("a"), entry(1));
        for _ in 0..20 {
            queue.failed(&take(&queue).unwrap(), blame);
            clock.advance(Duration::from_secs(3600));
        }
        queue.failed(&take(&queue).unwrap(), blame);
        // Its pause, which is no longer than that of the circuit.
        clock.advance(CIRCUIT_PAUSE_MAX);
        assert_eq!(take(&queue), Some(path("a")), "{blame:?}");
    }
}

#[test]
fn an_outage_is_no_objects_fault() {
    let (queue, clock) = queue();
    queue.push(path("a"), entry(1));
    queue.push(path("b"), entry(2));
    for _ in 0..20 {
        for taken in std::iter::from_fn(|| take(&queue)).collect::<Vec<_>>() {
            queue.failed(&taken, Blame::UnderStore);
        }
        clock.advance(Duration::from_secs(3600));
    }
    let first = take(&queue).unwrap();
    queue.succeeded(&first);
    assert!(take(&queue).is_some(), "the other one goes at once");
}

#[test]
fn what_somebody_else_has_persisted_does_not_wait_for_its_pause() {
    let (queue, _) = queue();
    queue.push(path("a"), entry(1));
    take(&queue).unwrap();
    queue.failed(&path("a"), Blame::Object);
    assert_eq!(take(&queue), None);
    queue.hurry(&path("a"));
    assert_eq!(take(&queue), Some(path("a")));
}

#[test]
fn what_failed_together_does_not_come_back_together() {
    let (queue, _) = queue();
    for n in 0..20 {
        queue.push(path(&n.to_string()), entry(n));
    }
    let taken = std::iter::from_fn(|| take(&queue));
    let pauses: BTreeSet<_> = taken.map(|path| queue.failed(&path, Blame::Object).pause).collect();
    assert!(pauses.len() > 10, "{pauses:?}");
}

#[test]
fn how_long_a_key_waits_is_told() {
    let (queue, clock) = queue();
    assert_eq!(queue.next_try(&path("a")), None);
    queue.push(path("a"), entry(1));
    assert_eq!(queue.next_try(&path("a")), Some(Duration::ZERO), "it is ready");
    take(&queue).unwrap();
    assert_eq!(queue.next_try(&path("a")), Some(Duration::ZERO), "it is in flight");
    let Pause { pause, .. } = queue.failed(&path("a"), Blame::Object);
    assert_eq!(queue.next_try(&path("a")), Some(pause));
    clock.advance(pause);
    assert_eq!(queue.next_try(&path("a")), Some(Duration::ZERO));
}

#[test]
fn an_object_that_must_wait_is_no_probe() {
    let (queue, clock) = queue();
    for n in 0..10 {
        queue.push(path(&n.to_string()), entry(n));
    }
    for _ in 0..CIRCUIT_FAILURES {
        let taken = take(&queue).unwrap();
        queue.failed(&taken, Blame::UnderStore);
    }
    assert_eq!(take(&queue), None, "the circuit is open");
    clock.advance(CIRCUIT_PAUSE_MAX);
    let first = take(&queue).unwrap();
    assert_eq!(take(&queue), None, "one probe at a time");
    queue.failed(&first, Blame::Nobody(Duration::from_secs(30)));
    assert!(take(&queue).is_some(), "nothing was sent");
}
