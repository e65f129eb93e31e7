//! Conditional requests: what they compare with, what their refusals show, and what they cost.

use forebay_cache::{Attributes, Conditions, Error, ErrorKind, GetObject, PutObject, Result, TagCondition, Written};
use forebay_env::Task;
use forebay_types::{ETag, SystemHeaders, WriteMode};
use forebay_ufs::ErrorKind as UfsKind;
use forebay_ufs::memory::Mood;

use md5::{Digest, Md5};

use crate::faults::SETTLED;
use crate::support::gate::Way;
use crate::support::{Bench, get_request, if_absent, if_matches, incoming, kind, path, rule, until};

fn unless_matches(etag: &ETag) -> Conditions {
    Conditions { if_none_match: Some(TagCondition::OneOf(vec![etag.clone()])), ..Conditions::default() }
}

async fn get_if(bench: &Bench, conditions: Conditions) -> Result<()> {
    bench.cache.get(GetObject { conditions, ..get_request("key", None) }).await.map(drop)
}

/// What went wrong, and the tag of the object that the error shows.
fn shown(result: Result<impl Sized>) -> Option<(ErrorKind, Option<ETag>)> {
    result.err().map(|Error { kind, object, .. }| (kind, object.map(|object| object.etag)))
}

#[tokio::test]
async fn a_write_unless_the_object_has_a_tag_is_taken_when_it_has_another() {
    for mode in [WriteMode::WriteBack, WriteMode::WriteThrough] {
        let bench = Bench::new(mode).await;
        let first = bench.put("key", "one").await.unwrap().etag;
        let second = bench.put_if("key", "two", unless_matches(&ETag::new("another"))).await.unwrap().etag;
        let refused = bench.put_if("key", "three", unless_matches(&second)).await;
        assert_eq!(kind(refused), Some(ErrorKind::PreconditionFailed), "{mode:?}");
        bench.put_if("key", "four", unless_matches(&first)).await.unwrap();
        assert_eq!(bench.get("key").await.unwrap(), "four", "{mode:?}");
    }
}

/// 304 and 412 carry its tag, so that the client knows what to ask for next.
#[tokio::test]
async fn a_condition_that_fails_shows_the_object() {
    for mode in [WriteMode::WriteBack, WriteMode::WriteThrough, WriteMode::NoCache] {
        let bench = Bench::new(mode).await;
        let etag = bench.put("key", "value").await.unwrap().etag;
        let other = ETag::new("another");
        let failed = Some((ErrorKind::PreconditionFailed, Some(etag.clone())));
        assert_eq!(shown(get_if(&bench, if_matches(&other)).await), failed, "{mode:?}");
        assert_eq!(shown(bench.put_if("key", "x", if_matches(&other)).await), failed, "{mode:?}");
        assert_eq!(shown(bench.put_if("key", "x", if_absent()).await), failed, "{mode:?}");
        let unchanged = Some((ErrorKind::NotModified, Some(etag.clone())));
        assert_eq!(shown(get_if(&bench, unless_matches(&etag)).await), unchanged, "{mode:?}");
    }
}

#[tokio::test]
async fn a_read_whose_condition_fails_fetches_no_bytes() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.put_outside("key", "from outside".into());
    assert_eq!(kind(get_if(&bench, if_matches(&ETag::new("another"))).await), Some(ErrorKind::PreconditionFailed));
    assert_eq!((bench.foreground.heads(), bench.foreground.gets().len()), (1, 0));
    assert_eq!(bench.get("key").await.unwrap(), "from outside");
}

/// A client that knows what others wrote past the cache names it. The copy here is of before, and still fresh.
#[tokio::test]
async fn what_a_condition_was_checked_against_is_what_the_write_replaces() {
    for is_delete in [false, true] {
        let bench = Bench::new(WriteMode::WriteBack).await;
        let ours = bench.put("key", "ours").await.unwrap().etag;
        bench.drain().await;
        bench.under.put_outside("key", "theirs".into());
        assert_eq!(bench.get("key").await.unwrap(), "ours", "the copy is fresh");
        let refused = bench.put_if("key", "next", if_matches(&ours)).await;
        let shown = shown(refused).and_then(|(_, etag)| etag).expect("the error shows what is there");
        assert_eq!(bench.get("key").await.unwrap(), "theirs", "who was refused can read why");
        bench.put_if("key", "again", if_matches(&shown)).await.unwrap();
        bench.drain().await;
        bench.under.put_outside("key", "theirs again".into());
        let theirs = if_matches(&ETag::from_md5(Md5::digest("theirs again").into()));
        match is_delete {
            true => bench.cache.delete(&path("key"), &theirs).await.unwrap(),
            false => drop(bench.put_if("key", "next", theirs).await.unwrap()),
        }
        bench.drain().await;
        assert_eq!((bench.cache.status().conflicts, bench.metric("forebay_abandoned_deletes_total")), (0, 0.0));
        bench.age_metadata();
        match is_delete {
            true => assert_eq!((bench.under("key"), kind(bench.get("key").await)), (None, Some(ErrorKind::NotFound))),
            false => assert_eq!(
                (bench.under("key").unwrap(), bench.get("key").await.unwrap()),
                ("next".into(), "next".into())
            ),
        }
    }
}

/// Who reads the object, changes it, and writes it unless it has changed, comes to an end.
#[tokio::test]
async fn a_write_that_is_refused_because_others_have_deleted_the_object_shows_that() {
    for mode in [WriteMode::WriteBack, WriteMode::WriteThrough] {
        let bench = Bench::new(mode).await;
        let ours = bench.put("key", "ours").await.unwrap().etag;
        bench.drain().await;
        assert_eq!(bench.keys().await, ["key"]);
        bench.under.delete_outside("key");
        assert_eq!(bench.get("key").await.unwrap(), "ours", "the copy is fresh");
        assert_eq!(kind(bench.put_if("key", "next", if_matches(&ours)).await), Some(ErrorKind::NotFound), "{mode:?}");
        assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound), "{mode:?}");
        assert!(bench.keys().await.is_empty(), "{mode:?}");
    }
}

/// Who writes only what is not there replaces nothing that others write before the upload.
#[tokio::test]
async fn what_others_write_under_a_write_of_what_was_absent_stays() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Closed);
    bench.put_if("key", "ours", if_absent()).await.unwrap();
    bench.under.put_outside("key", "theirs".into());
    bench.background.set(Way::Open);
    bench.advancing("the conflict is noticed", || bench.cache.status().conflicts == 1).await;
    assert_eq!((bench.under("key").unwrap(), bench.get("key").await.unwrap()), ("theirs".into(), "ours".into()));
}

/// The delete of such a write deletes nothing of theirs either, whether the write was sent before or not.
#[tokio::test]
async fn what_others_write_under_a_delete_of_what_was_absent_stays() {
    for is_sent in [false, true] {
        let bench = Bench::new(WriteMode::WriteBack).await;
        if is_sent {
            bench.background.set(Way::Closed);
        } else {
            bench.background.set(Way::Refuse("key".to_owned(), UfsKind::Unavailable));
        }
        bench.put_if("key", "ours", if_absent()).await.unwrap();
        until("its upload was tried", || bench.background.waiting() == 1 || bench.background.refusals() > 0).await;
        bench.under.put_outside("key", "theirs".into());
        bench.delete("key").await.unwrap();
        bench.background.set(Way::Open);
        bench.advancing("the delete is abandoned", || bench.metric("forebay_abandoned_deletes_total") == 1.0).await;
        assert_eq!(bench.under("key").unwrap(), "theirs", "{is_sent}");
        assert_eq!(bench.get("key").await.unwrap(), "theirs", "{is_sent}");
        assert_eq!(bench.cache.status().tombstones, 0, "{is_sent}");
    }
}

/// Others write after our delete, and the write that follows it here has not arrived when it is deleted.
#[tokio::test]
async fn what_others_write_after_a_delete_stays_under_the_next_one() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.put("key", "first").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Closed);
    bench.delete("key").await.unwrap();
    until("the delete is on its way", || bench.background.waiting() == 1).await;
    bench.under.refuse_objects(Some(refuses_cold));
    put_cold(&bench, "second").await.unwrap();
    let before = bench.background.puts();
    bench.background.set(Way::Open);
    bench.advancing("the second write was tried", || bench.background.puts() > before).await;
    bench.under.put_outside("key", "theirs".into());
    bench.delete("key").await.unwrap();
    bench.advancing("the delete is abandoned", || bench.metric("forebay_abandoned_deletes_total") == 1.0).await;
    assert_eq!((bench.under("key").unwrap(), bench.get("key").await.unwrap()), ("theirs".into(), "theirs".into()));
}

fn refuses_cold(_key: &str, class: Option<&str>) -> Option<UfsKind> {
    (class == Some("COLD")).then_some(UfsKind::InvalidStorageClass)
}

async fn put_cold(bench: &Bench, body: &'static str) -> Result<Written> {
    let headers = SystemHeaders { storage_class: Some("COLD".to_owned()), ..SystemHeaders::default() };
    let attributes = Attributes { headers, ..Attributes::default() };
    let (body, conditions) = (incoming(body.into()), Conditions::default());
    bench.cache.put(PutObject { path: path("key"), body, attributes, conditions }).await
}

/// A HEAD and a GET show that there is nothing to delete.
#[tokio::test]
async fn a_delete_of_what_was_absent_and_never_sent_ends_without_one() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::Refuse("key".to_owned(), UfsKind::Unavailable));
    bench.put_if("key", "ours", if_absent()).await.unwrap();
    bench.delete("key").await.unwrap();
    bench.background.set(Way::Open);
    bench.drain().await;
    assert!(bench.under.applied().is_empty());
    assert_eq!(bench.metric("forebay_abandoned_deletes_total"), 0.0);
}

fn putting(bench: &Bench, body: &'static str, conditions: Conditions) -> Task<Result<Written>> {
    let (cache, body) = (bench.cache.clone(), incoming(body.into()));
    let request = PutObject { path: path("key"), body, attributes: Attributes::default(), conditions };
    forebay_env::spawn(async move { cache.put(request).await })
}

fn deleting(bench: &Bench, conditions: Conditions) -> Task<Result<()>> {
    let cache = bench.cache.clone();
    forebay_env::spawn(async move { cache.delete(&path("key"), &conditions).await })
}

/// A write through that gets no answer, under a policy that writes back from then on. The next answer to a HEAD waits.
async fn lose_write_through(bench: &Bench) {
    bench.foreground.set(Way::Late);
    assert_eq!(kind(bench.put("key", "lost").await), Some(ErrorKind::Unavailable));
    let (_, version) = bench.cache.policies();
    let rules = vec![rule("/", WriteMode::WriteBack)];
    bench.cache.set_policies(rules, Some(version), "test", "edit").await.expect("policies");
    bench.foreground.set(Way::HoldAnswers);
}

/// The lost write lands while the answer to the question for the object is on its way.
async fn land_under_question(bench: &Bench) {
    until("the under store was asked", || bench.foreground.waiting() == 1).await;
    bench.foreground.land().await.expect("it lands");
    bench.clock.advance(SETTLED);
    bench.foreground.set(Way::Open);
}

/// The under store was asked before the settle time was over, and answered afterwards.
#[tokio::test]
async fn our_own_request_that_lands_after_the_question_of_a_write_is_replaced() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    lose_write_through(&bench).await;
    let put = putting(&bench, "next", if_absent());
    land_under_question(&bench).await;
    put.join().await.unwrap();
    bench.drain().await;
    assert_eq!(bench.cache.status().conflicts, 0);
    assert_eq!((bench.under("key").unwrap(), bench.get("key").await.unwrap()), ("next".into(), "next".into()));
}

#[tokio::test]
async fn our_own_request_that_lands_after_the_question_of_a_delete_is_deleted() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    let first = bench.put("key", "first").await.unwrap().etag;
    lose_write_through(&bench).await;
    let delete = deleting(&bench, if_matches(&first));
    land_under_question(&bench).await;
    delete.join().await.unwrap();
    bench.drain().await;
    assert_eq!(bench.metric("forebay_abandoned_deletes_total"), 0.0);
    assert_eq!((bench.under("key"), kind(bench.get("key").await)), (None, Some(ErrorKind::NotFound)));
}

/// Only who set a condition waits for the under store.
#[tokio::test]
async fn a_write_does_not_wait_for_the_question_of_another_one() {
    for is_delete in [false, true] {
        let bench = Bench::new(WriteMode::WriteBack).await;
        bench.foreground.set(Way::HoldAnswers);
        let conditional = putting(&bench, "conditional", if_absent());
        until("the under store was asked", || bench.foreground.waiting() == 1).await;
        let plain = putting(&bench, "plain", Conditions::default());
        until("the plain write is done", || plain.is_finished()).await;
        plain.join().await.unwrap();
        if is_delete {
            let delete = deleting(&bench, Conditions::default());
            until("the delete is done", || delete.is_finished()).await;
            delete.join().await.unwrap();
        }
        bench.foreground.set(Way::Open);
        let refused = (!is_delete).then_some(ErrorKind::PreconditionFailed);
        assert_eq!(kind(conditional.join().await), refused, "the condition is checked against what is there now");
        bench.drain().await;
        let expected = if is_delete { "conditional" } else { "plain" };
        assert_eq!((bench.under("key").unwrap(), bench.cache.status().conflicts), (expected.into(), 0));
    }
}

/// What was there was known, but after a crash nothing tells what its upload has left there from a write of others.
#[tokio::test]
async fn an_upload_without_a_stamp_before_a_crash_is_no_write_of_others() {
    for was_there in [false, true] {
        let mut bench = Bench::new(WriteMode::WriteBack).await;
        if was_there {
            bench.put("key", "base").await.unwrap();
            bench.drain().await;
        } else {
            assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound));
        }
        bench.under.set_mood(Mood::Refuse(UfsKind::Unavailable));
        bench.put_without_stamp("key", "ours", Conditions::default()).await.unwrap();
        bench.kill().await;
        bench.under.put_outside("key", "ours".into());
        bench.under.set_mood(Mood::Well);
        bench.drain().await;
        assert_eq!((bench.under("key").unwrap(), bench.cache.status().conflicts), ("ours".into(), 0), "{was_there}");
    }
}

/// What a version without a stamp replaces here has not been sent, and its base counts only where a client has set a
/// condition.
#[tokio::test]
async fn what_others_write_under_a_version_without_a_stamp_stays_where_an_earlier_one_had_a_condition() {
    let cases = [(Conditions::default(), ("second", 0)), (if_absent(), ("theirs", 1))];
    for (conditions, (expected, conflicts)) in cases {
        let mut bench = Bench::new(WriteMode::WriteBack).await;
        assert_eq!(kind(bench.get("key").await), Some(ErrorKind::NotFound));
        bench.background.set(Way::Cut);
        bench.put_if("key", "first", conditions).await.unwrap();
        bench.put_without_stamp("key", "second", Conditions::default()).await.unwrap();
        bench.under.put_outside("key", "theirs".into());
        bench.kill().await;
        bench.drain().await;
        assert_eq!((bench.under("key").unwrap(), bench.cache.status().conflicts), (expected.into(), conflicts));
        assert_eq!(bench.get("key").await.unwrap(), "second");
    }
}

/// Its metadata leaves no room for the stamp, so it looks like a write of others.
#[tokio::test]
async fn an_upload_without_a_stamp_that_got_no_answer_is_no_write_of_others() {
    for (next, expected) in [(None, Some("first")), (Some("second"), Some("second")), (Some(""), None)] {
        let bench = Bench::new(WriteMode::WriteBack).await;
        bench.background.set(Way::Late);
        bench.put_without_stamp("key", "first", if_absent()).await.unwrap();
        until("its upload got no answer", || bench.background.stragglers() == 1).await;
        bench.background.set(Way::Open);
        bench.background.land().await.unwrap();
        match next {
            None => {}
            Some("") => bench.delete("key").await.unwrap(),
            Some(body) => drop(bench.put("key", body).await.unwrap()),
        }
        bench.clock.advance(SETTLED);
        bench.drain().await;
        assert_eq!((bench.cache.status().conflicts, bench.metric("forebay_abandoned_deletes_total")), (0, 0.0));
        assert_eq!(bench.under("key"), expected.map(Into::into), "{next:?}");
    }
}

/// It was written before the answer for what it replaces had come, which tells what is there.
#[tokio::test]
async fn an_upload_without_a_stamp_that_has_waited_for_another_is_no_write_of_others_after_a_crash() {
    for is_delete in [false, true] {
        let mut bench = Bench::new(WriteMode::WriteBack).await;
        bench.put("key", "base").await.unwrap();
        bench.drain().await;
        bench.background.set(Way::Closed);
        match is_delete {
            true => bench.delete("key").await.unwrap(),
            false => drop(bench.put("key", "first").await.unwrap()),
        }
        bench.advancing("the first request waits", || bench.background.waiting() == 1).await;
        bench.put_without_stamp("key", "second", Conditions::default()).await.unwrap();
        // The first request gets through, and the next one waits.
        bench.under.set_mood(Mood::Hang);
        bench.background.set(Way::Open);
        until("it has got through", || bench.background.waiting() == 0).await;
        bench.background.set(Way::Closed);
        bench.under.set_mood(Mood::Well);
        bench.advancing("the next upload waits", || bench.background.waiting() == 1).await;
        bench.kill().await;
        // It has landed, and the crash came before that was recorded.
        bench.under.put_outside("key", "second".into());
        bench.drain().await;
        assert_eq!((bench.under("key").unwrap(), bench.cache.status().conflicts), ("second".into(), 0), "{is_delete}");
    }
}

/// As with a version that is known for sure.
#[tokio::test]
async fn a_write_without_room_for_a_stamp_replaces_what_is_there_also_after_an_etag_that_was_made_up() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.background.set(Way::MistellEtags);
    bench.put("key", "first").await.unwrap();
    bench.drain().await;
    bench.background.set(Way::Open);
    bench.under.put_outside("key", "theirs".into());
    bench.put_without_stamp("key", "second", Conditions::default()).await.unwrap();
    bench.drain().await;
    assert_eq!((bench.under("key").unwrap(), bench.cache.status().conflicts), ("second".into(), 0));
}
