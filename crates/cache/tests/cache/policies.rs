//! Path policies change at run time: their versions are counted and kept, and a change of mode loses nothing.

use std::sync::Arc;

use forebay_cache::{
    Attributes, CompletePart, CompleteUpload, Conditions, ErrorKind, PolicyVersion, PutObject, ReplacedRules, UploadRef,
};
use forebay_catalog::records::{self, PolicyRecord, PolicyVersionRecord};
use forebay_catalog::{SlotCount, SlotSet};
use forebay_store::{Commit, ValueWrite};
use forebay_types::{ByteSize, Durability, Period, PolicyRule, StorageState, WriteMode};
use futures::StreamExt;
use tokio::sync::Notify;

use crate::support::gate::Way;
use crate::support::{
    Bench, Setup, collect, create_upload, get_request, incoming, incoming_stream, kind, others_go_on, path, pattern,
    rule, until,
};

const MODES: [WriteMode; 5] =
    [WriteMode::WriteThrough, WriteMode::WriteBack, WriteMode::Transient, WriteMode::ReadOnly, WriteMode::NoCache];

async fn set(bench: &Bench, rules: Vec<PolicyRule>) -> u64 {
    bench.cache.set_policies(rules, None, "anna", "edit").await.expect("rules")
}

async fn history(bench: &Bench) -> Vec<PolicyVersion> {
    bench.cache.policy_history().await.expect("history")
}

#[tokio::test]
async fn versions_are_counted_from_one_and_told_with_what_they_changed() {
    let mut bench = Bench::new(WriteMode::WriteThrough).await;
    assert_eq!(bench.cache.policies().1, 1);
    bench.clock.advance(std::time::Duration::from_secs(7));
    assert_eq!(set(&bench, vec![rule("/", WriteMode::WriteBack)]).await, 2);
    assert_eq!(set(&bench, vec![rule("/", WriteMode::WriteBack)]).await, 2, "nothing has changed");
    assert_eq!(set(&bench, vec![]).await, 3);
    for restart in [false, true] {
        if restart {
            bench.restart().await;
        }
        assert_eq!(bench.cache.policies().1, 3);
        let all = history(&bench).await;
        assert_eq!(all.iter().map(|version| version.version).collect::<Vec<_>>(), [3, 2, 1]);
        assert_eq!((all[2].by.as_str(), all[2].reason.as_str()), ("configuration", "configuration"));
        assert_eq!((all[1].by.as_str(), all[1].reason.as_str()), ("anna", "edit"));
        assert_eq!(all[1].time_ms, all[2].time_ms + 7_000);
        let change = &all[1].changes[..];
        assert_eq!(change.len(), 1);
        assert_eq!((change[0].path.as_str(), change[0].setting.as_str()), ("/", "writeMode"));
        assert_eq!(change[0].before.as_deref(), Some("\"WRITE_THROUGH\""));
        assert_eq!(change[0].after.as_deref(), Some("\"WRITE_BACK\""));
        assert_eq!(bench.cache.policies_at(2).await.unwrap(), [rule("/", WriteMode::WriteBack)]);
        assert_eq!(kind(bench.cache.policies_at(4).await), Some(ErrorKind::NotFound));
    }
}

#[tokio::test]
async fn the_last_hundred_versions_are_kept() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    for n in 0..120_u64 {
        let quota = PolicyRule { cache_quota: Some(ByteSize(n)), ..PolicyRule::for_path("/bucket/") };
        assert_eq!(set(&bench, vec![quota]).await, n + 2);
    }
    let all = history(&bench).await;
    // The first one is of the configuration, which has made no more.
    assert_eq!((all.len(), all[0].version, all[98].version, all[99].version), (100, 121, 23, 1));
    assert_eq!(kind(bench.cache.policies_at(22).await), Some(ErrorKind::NotFound));
    assert_eq!(bench.cache.policies_at(23).await.unwrap()[0].cache_quota, Some(ByteSize(21)));
}

/// Of many that compare with one version, one swaps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_at_once_are_made_one_after_the_other() {
    let bench = Arc::new(Bench::new(WriteMode::WriteThrough).await);
    let writers: Vec<_> = (0..20_u64)
        .map(|n| {
            let bench = Arc::clone(&bench);
            let quota = PolicyRule { cache_quota: Some(ByteSize(n)), ..PolicyRule::for_path("/") };
            let version = n.is_multiple_of(2).then_some(1);
            forebay_env::spawn(async move { bench.cache.set_policies(vec![quota], version, "x", "edit").await })
        })
        .collect();
    let mut made = Vec::new();
    for writer in writers {
        match writer.join().await {
            Ok(version) => made.push(version),
            Err(error) => assert_eq!(error.kind, ErrorKind::Conflict, "{error}"),
        }
    }
    made.sort_unstable();
    assert_eq!(made, (2..2 + made.len() as u64).collect::<Vec<_>>());
    let (rules, version) = bench.cache.policies();
    assert_eq!(version, *made.last().unwrap());
    assert_eq!(bench.cache.policies_at(version).await.unwrap(), rules.rules());
}

#[tokio::test]
async fn a_configuration_that_differs_makes_a_version() {
    let mut bench = Bench::new(WriteMode::WriteThrough).await;
    set(&bench, vec![rule("/", WriteMode::WriteBack)]).await;
    bench.setup.policies = vec![rule("/", WriteMode::Transient)];
    bench.restart().await;
    let newest = history(&bench).await.remove(0);
    assert_eq!((newest.version, newest.by.as_str()), (3, "configuration"));
    assert_eq!(newest.changes[0].before.as_deref(), Some("\"WRITE_BACK\""), "against what was in force");
    set(&bench, vec![rule("/", WriteMode::NoCache)]).await;
    // What was tried out at run time goes into the file.
    bench.setup.policies = vec![rule("/", WriteMode::NoCache)];
    bench.restart().await;
    assert_eq!(bench.cache.policies().1, 4, "nothing has changed");
    assert_eq!(history(&bench).await[0].by, "anna");
    set(&bench, vec![rule("/", WriteMode::WriteBack)]).await;
    bench.restart().await;
    assert_eq!(bench.cache.resolve(&path("x")).write_mode, WriteMode::WriteBack, "the file has not changed since");
}

#[tokio::test]
async fn rules_of_run_time_that_the_configuration_replaces_are_told_until_the_next_change() {
    let mut bench = Bench::new(WriteMode::WriteThrough).await;
    assert_eq!(bench.cache.replaced_rules(), None);
    let file = vec![rule("/", WriteMode::WriteThrough), rule("/bucket/file/", WriteMode::NoCache)];
    bench.setup.policies = file.clone();
    bench.restart().await;
    assert_eq!(bench.cache.replaced_rules(), None, "nobody has set a rule at run time");
    let more = [rule("/bucket/one/", WriteMode::Transient), rule("/bucket/two/", WriteMode::WriteBack)];
    set(&bench, file.iter().cloned().chain(more.clone()).collect()).await;
    let version = bench.cache.policies().1;
    bench.restart().await;
    assert_eq!(bench.cache.replaced_rules(), None, "the file has not changed");
    // One of the two is in the file now.
    bench.setup.policies = vec![rule("/", WriteMode::WriteBack), more[0].clone()];
    bench.restart().await;
    assert_eq!(bench.cache.replaced_rules(), Some(ReplacedRules { rules: 1, version }));
    let before = bench.cache.policies_at(version).await.unwrap();
    set(&bench, before).await;
    assert_eq!(bench.cache.replaced_rules(), None);
    assert_eq!(bench.cache.resolve(&path("two/x")).write_mode, WriteMode::WriteBack);
}

/// A catalog of a release that did not count.
#[tokio::test]
async fn rules_without_a_number_get_the_next_one() {
    let mut bench = Bench::new(WriteMode::WriteThrough).await;
    set(&bench, vec![rule("/", WriteMode::WriteBack)]).await;
    bench.close().await;
    let (rules, configured) = (vec![rule("/", WriteMode::Transient)], vec![rule("/", WriteMode::WriteThrough)]);
    bench.write_record(records::policy_key(), Some(PolicyRecord { rules, configured, revision: 0 }.encode())).await;
    bench.reopen().await;
    assert_eq!(bench.cache.resolve(&path("x")).write_mode, WriteMode::Transient);
    assert_eq!(bench.cache.policies().1, 3);
    assert_eq!(set(&bench, vec![]).await, 4);
}

#[tokio::test]
async fn a_history_that_cannot_be_read_is_an_error_and_no_empty_one() {
    let mut bench = Bench::new(WriteMode::WriteThrough).await;
    bench.close().await;
    let mut damaged = bench_version().encode().to_vec();
    damaged[0] = 9;
    bench.write_record(records::policy_version_key(1), Some(damaged.into())).await;
    bench.reopen().await;
    assert_eq!(kind(bench.cache.policy_history().await), Some(ErrorKind::Internal));
}

fn bench_version() -> PolicyVersionRecord {
    PolicyVersionRecord {
        revision: 1,
        time_ms: 0,
        by: String::new(),
        reason: String::new(),
        rules: Vec::new(),
        changes: Vec::new(),
    }
}

/// A record that only the operating system has may go with the power while its upload is under way: the request is
/// noted before, also when the path asks for `fsync` by then.
#[tokio::test]
async fn a_stricter_durability_does_not_forget_requests_for_what_was_written_before() {
    for seed in crate::support::seeds(8) {
        let setup = Setup::new(WriteMode::WriteBack).policy(|rule| rule.durability = Some(Durability::Os));
        let mut bench = setup.open().await;
        bench.put("key", "base").await.unwrap();
        bench.drain().await;
        bench.background.set(Way::Closed);
        let (begun, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let body = {
            let (begun, release) = (Arc::clone(&begun), Arc::clone(&release));
            let bytes = async move {
                begun.notify_one();
                release.notified().await;
                Ok("unsynced".into())
            };
            incoming_stream(futures::stream::once(bytes).boxed(), 8)
        };
        let (attributes, conditions) = (Attributes::default(), Conditions::default());
        let request = PutObject { path: path("key"), body, attributes, conditions };
        let cache = bench.cache.clone();
        let writer = forebay_env::spawn(async move { cache.put(request).await });
        begun.notified().await;
        set(&bench, vec![rule("/", WriteMode::WriteBack)]).await;
        release.notify_one();
        writer.join().await.unwrap();
        until("the upload is under way", || bench.background.waiting() == 1).await;
        bench.power_loss(seed).await;
        bench.put("key", "newer").await.unwrap();
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(bench.under("key").unwrap(), "base", "nothing goes before the earlier request is settled");
        bench.drain().await;
        assert_eq!(bench.under("key").unwrap(), "newer");
    }
}

/// The first answer promised less.
#[tokio::test]
async fn a_delete_that_is_repeated_under_a_stricter_durability_survives_a_power_cut() {
    for seed in crate::support::seeds(8) {
        let setup = Setup::new(WriteMode::WriteBack).policy(|rule| rule.durability = Some(Durability::Os));
        // A request that is about to be sent would be noted, and that syncs.
        let setup = setup.settings(|settings| settings.persist_delay = Period::from_secs(600));
        // What is synced on one disk syncs nothing on the other.
        let mut bench = setup.with_spare_disk().open().await;
        let keys: Vec<_> = (0..8).map(|number| format!("key/{number}")).collect();
        for key in &keys {
            bench.under.put_outside(key, "value".into());
            bench.delete(key).await.unwrap();
        }
        set(&bench, vec![rule("/", WriteMode::WriteBack)]).await;
        for key in &keys {
            bench.delete(key).await.unwrap();
        }
        bench.power_loss(seed).await;
        for key in &keys {
            assert_eq!(kind(bench.get(key).await), Some(ErrorKind::NotFound), "seed {seed}: {key}");
        }
    }
}

/// An object is on its way here while the rules change.
#[tokio::test]
async fn a_new_quota_holds_for_objects_in_flight() {
    for is_read in [false, true] {
        let bench = Bench::new(WriteMode::WriteThrough).await;
        let (cache, release) = (bench.cache.clone(), Arc::new(Notify::new()));
        let moving = if is_read {
            bench.under.put_outside("key", pattern(1, 10_000));
            bench.foreground.set(Way::HoldReads);
            forebay_env::spawn(
                async move { collect(cache.get(get_request("key", None)).await?.stream).await.map(drop) },
            )
        } else {
            let released = Arc::clone(&release);
            let bytes = async move {
                released.notified().await;
                Ok(pattern(1, 10_000))
            };
            let body = incoming_stream(futures::stream::once(bytes).boxed(), 10_000);
            let (attributes, conditions) = (Attributes::default(), Conditions::default());
            let request = PutObject { path: path("key"), body, attributes, conditions };
            forebay_env::spawn(async move { cache.put(request).await.map(drop) })
        };
        others_go_on().await;
        let quota = PolicyRule { cache_quota: Some(ByteSize(1000)), ..rule("/", WriteMode::WriteThrough) };
        set(&bench, vec![quota]).await;
        bench.foreground.set(Way::Open);
        release.notify_one();
        moving.join().await.unwrap();
        until("it is here", || bench.cache.status().evictable_bytes >= 10_000).await;
        bench.advancing("the quota holds", || bench.cache.status().evictable_bytes < 1000).await;
    }
}

/// What each mode leaves of a key when nothing more happens to it but time.
fn settled(mode: WriteMode, body: &str) -> Option<String> {
    match mode {
        WriteMode::WriteThrough | WriteMode::WriteBack | WriteMode::NoCache => Some(body.to_owned()),
        WriteMode::Transient | WriteMode::ReadOnly => None,
    }
}

struct Upload {
    upload: UploadRef,
    part: CompletePart,
}

/// An upload with one part, or none where the mode refuses it.
async fn begin(bench: &Bench, key: &str) -> Option<Upload> {
    let request = create_upload(path(key));
    let upload_id = bench.cache.create_upload(request).await.ok()?;
    let upload = UploadRef { path: path(key), upload_id };
    let written = bench.cache.put_part(&upload, 1, incoming("parts".into())).await.expect("a part");
    Some(Upload { upload, part: CompletePart { number: 1, etag: written.etag, checksums: Vec::new() } })
}

async fn complete(bench: &Bench, upload: Upload) -> Option<ErrorKind> {
    let request = CompleteUpload {
        upload: upload.upload,
        parts: vec![upload.part],
        checksums: Vec::new(),
        checksum_kind: None,
        size: None,
        conditions: Conditions::default(),
    };
    kind(bench.cache.complete_upload(request).await)
}

/// Writes under the first mode, with nothing getting through to the under store any more where that can wait. Returns
/// the upload under way.
async fn write_before(bench: &Bench, from: WriteMode) -> Option<Upload> {
    bench.under.put_outside("theirs", "theirs".into());
    bench.under.put_outside("buried", "buried".into());
    bench.under.put_outside("both", "base".into());
    assert_eq!(bench.get("both").await.expect("it works"), "base");
    let refused = (from == WriteMode::ReadOnly).then_some(ErrorKind::AccessDenied);
    if from == WriteMode::WriteBack {
        bench.background.set(Way::Closed);
        bench.put("both", "ours").await.expect("it works");
        bench.under.put_outside("both", "them".into());
        bench.background.set(Way::Open);
        bench.advancing("the conflict is noticed", || bench.cache.status().conflicts == 1).await;
        bench.background.set(Way::Closed);
    }
    for key in ["kept", "again", "gone", "marked"] {
        assert_eq!(kind(bench.put(key, format!("{key} 1")).await), refused);
    }
    if from != WriteMode::Transient {
        assert_eq!(kind(bench.delete("buried").await), refused);
    }
    begin(bench, "parts").await
}

async fn check_before(bench: &Bench, from: WriteMode, what: &str) {
    let present = from != WriteMode::ReadOnly;
    for key in ["kept", "again", "gone", "marked"] {
        let found = bench.get(key).await.ok();
        assert_eq!(found, present.then(|| format!("{key} 1").into()), "{what}: {key}");
    }
    assert_eq!(bench.get("theirs").await.expect("it works"), "theirs", "{what}");
    let buried = matches!(from, WriteMode::WriteBack | WriteMode::WriteThrough | WriteMode::NoCache);
    assert_eq!(bench.get("buried").await.is_err(), buried, "{what}");
    let both = if from == WriteMode::WriteBack { "ours" } else { "base" };
    assert_eq!(bench.get("both").await.expect("it works"), both, "{what}");
    assert_eq!(bench.keys().await.contains(&"kept".to_owned()), present, "{what}");
    assert_eq!(bench.keys().await.contains(&"buried".to_owned()), !buried, "{what}");
}

/// What was dirty, transient, in conflict, buried or under way in one mode, in every other.
#[tokio::test]
async fn every_change_of_mode_keeps_what_was_acknowledged() {
    for from in MODES {
        for to in MODES {
            let what = format!("{from} to {to}");
            let setup = Setup::new(from).settings(|settings| settings.part_size_min = ByteSize(1));
            let mut bench = setup.open().await;
            let upload = write_before(&bench, from).await;
            set(&bench, vec![rule("/", to)]).await;
            check_before(&bench, from, &what).await;
            bench.background.set(Way::Open);

            let refused = (to == WriteMode::ReadOnly).then_some(ErrorKind::AccessDenied);
            assert_eq!(kind(bench.put("again", "again 2").await), refused, "{what}");
            assert_eq!(kind(bench.delete("gone").await), refused, "{what}");
            let was_there = from != WriteMode::ReadOnly;
            if let (Some(upload), None) = (upload, refused) {
                assert_eq!(complete(&bench, upload).await, None, "{what}");
            }
            for power_loss in [false, true] {
                if power_loss {
                    bench.power_loss(3).await;
                    // The configuration is the same: the change has outlived the process.
                    assert_eq!(bench.cache.resolve(&path("x")).write_mode, to, "{what}");
                }
                let again = if refused.is_some() { was_there.then_some("again 1") } else { Some("again 2") };
                let gone = (refused.is_some() && was_there).then_some("gone 1");
                let parts = (refused.is_none() && was_there).then_some("parts");
                let kept = was_there.then_some("kept 1");
                for (key, body) in [("again", again), ("gone", gone), ("parts", parts), ("kept", kept)] {
                    let found = bench.get(key).await.ok().map(|found| String::from_utf8(found.to_vec()).unwrap());
                    assert_eq!(found.as_deref(), body, "{what}: {key}");
                }
                bench.drain().await;
                bench.cache.persist("/").await.unwrap();
                let under = |key: &str| bench.under(key).map(|found| String::from_utf8(found.to_vec()).unwrap());
                assert_eq!(under("kept"), settled(from, "kept 1"), "{what}");
                assert_eq!(under("marked"), settled(from, "marked 1"), "{what}");
                assert_eq!(under("theirs").as_deref(), Some("theirs"), "{what}");
                let last = if refused.is_some() { settled(from, "gone 1") } else { None };
                assert_eq!(under("gone"), last, "{what}");
                let made = if was_there { settled(to, "parts") } else { None };
                assert_eq!(under("parts"), made, "{what}");
                match (settled(to, "again 2"), under("again")) {
                    (Some(newest), found) => assert_eq!(found, Some(newest), "{what}"),
                    // The dirty one may have been on its way when the one that stays here replaced it.
                    (None, found) if from == WriteMode::WriteBack && to == WriteMode::Transient => {
                        assert!(found.is_none() || found.as_deref() == Some("again 1"), "{what}");
                    }
                    (None, found) => assert_eq!(found, settled(from, "again 1"), "{what}"),
                }
                let both = if from == WriteMode::WriteBack { "them" } else { "base" };
                assert_eq!(under("both").as_deref(), Some(both), "{what}: a conflict replaces nothing");
            }
            let transient = from == WriteMode::Transient;
            if was_there {
                let state = bench.state("kept").await;
                assert_eq!(state == StorageState::Transient, transient, "{what}: {state:?}");
            }
        }
    }
}

/// The next write decides, in whichever mode.
#[tokio::test]
async fn a_conflict_ends_with_the_next_write_in_any_mode() {
    for to in [WriteMode::WriteThrough, WriteMode::NoCache, WriteMode::WriteBack, WriteMode::Transient] {
        let bench = Bench::new(WriteMode::WriteBack).await;
        write_before(&bench, WriteMode::WriteBack).await;
        set(&bench, vec![rule("/", to)]).await;
        bench.background.set(Way::Open);
        bench.put("both", "decided").await.unwrap();
        assert_eq!(bench.get("both").await.unwrap(), "decided", "{to}");
        bench.drain().await;
        let there = if to == WriteMode::Transient { "them" } else { "decided" };
        assert_eq!(bench.under("both").unwrap(), there, "{to}");
        assert_eq!(bench.cache.status().conflicts, 0, "{to}");
    }
}

/// A write that has begun ends in the mode in which it began.
#[tokio::test]
async fn a_write_under_way_keeps_its_mode() {
    let bench = Arc::new(Bench::new(WriteMode::WriteThrough).await);
    bench.foreground.set(Way::Closed);
    let writer = {
        let bench = Arc::clone(&bench);
        forebay_env::spawn(async move { bench.put("key", "value").await })
    };
    until("the write is under way", || bench.foreground.waiting() == 1).await;
    set(&bench, vec![rule("/", WriteMode::Transient)]).await;
    bench.foreground.set(Way::Open);
    writer.join().await.unwrap();
    assert_eq!(bench.under("key").unwrap(), "value");
    assert_eq!(bench.state("key").await, StorageState::Clean);
}

/// Reads are counted by the path of the longest rule that holds.
#[tokio::test]
async fn reads_are_counted_by_the_path_of_the_rule() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    set(&bench, vec![rule("/bucket/in/", WriteMode::WriteBack)]).await;
    bench.put("in/x", "value").await.unwrap();
    bench.put("out", "value").await.unwrap();
    bench.get("in/x").await.unwrap();
    bench.get("out").await.unwrap();
    bench.get("out").await.unwrap();
    let text = bench.metrics();
    let line = |path: &str| format!("forebay_reads_total{{tier=\"memory\",bucket=\"bucket\",path=\"{path}\"}}");
    assert!(text.contains(&format!("{} 1\n", line("/bucket/in/"))), "{text}");
    assert!(text.contains(&format!("{} 2\n", line("/"))), "{text}");
}

/// A user who may change the rules of one prefix can make and delete them for ever.
#[tokio::test]
async fn reads_by_rules_that_are_gone_are_not_shown_any_more() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let shown = || {
        let text = bench.metrics();
        let count = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        (count("forebay_reads_total{"), count("forebay_read_bytes_total{"))
    };
    let reads_by =
        |path: &str| bench.metric(&format!("forebay_reads_total{{tier=\"memory\",bucket=\"bucket\",path=\"{path}\"}}"));
    let key = "k".repeat(20);
    bench.put(&key, "value").await.unwrap();
    bench.get(&key).await.unwrap();
    assert_eq!(shown(), (1, 1), "of the rule of all paths");
    for length in 1..=key.len() {
        let path = format!("/bucket/{}", &key[..length]);
        set(&bench, vec![rule("/", WriteMode::WriteBack), rule(&path, WriteMode::WriteBack)]).await;
        bench.get(&key).await.unwrap();
        assert_eq!((shown(), reads_by(&path)), ((2, 2), 1.0), "{path}");
    }
    set(&bench, vec![]).await;
    assert_eq!((shown(), reads_by("/")), ((1, 1), 1.0), "without rules, it stands for all paths");
}

/// The catalog has it, and its answer did not come.
#[tokio::test]
async fn a_change_that_got_no_answer_is_in_force_from_the_next_one_on() {
    let bench = Bench::new(WriteMode::WriteThrough).await;
    let (rules, configured) = (vec![rule("/", WriteMode::WriteBack)], vec![rule("/", WriteMode::WriteThrough)]);
    let value = Some(PolicyRecord { rules, configured, revision: 2 }.encode());
    let writes = vec![ValueWrite { key: records::policy_key(), value }];
    bench.store.commit(Commit { writes, ..Commit::default() }, Durability::Fsync).await.unwrap();
    let refused = bench.cache.set_policies(vec![rule("/", WriteMode::NoCache)], Some(1), "anna", "edit").await;
    assert_eq!(kind(refused), Some(ErrorKind::Conflict));
    assert_eq!(bench.cache.policies().1, 2);
    assert_eq!(bench.cache.resolve(&path("x")).write_mode, WriteMode::WriteBack);
}

#[tokio::test]
async fn a_rule_has_no_longer_path_than_an_object() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let of_length = |bytes: usize| rule(&format!("/{}", "x".repeat(bytes - 1)), WriteMode::WriteBack);
    let refused = bench.cache.set_policies(vec![of_length(1090)], None, "anna", "edit").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidArgument, "{refused}");
    bench.cache.set_policies(vec![of_length(1089)], None, "anna", "edit").await.unwrap();
}

/// A worker that is alone keeps them in its own log.
#[tokio::test]
async fn a_cluster_takes_no_more_rules_than_its_engine_can_keep() {
    let rules = || (0..4000).map(|number| rule(&format!("/bucket/{number:0120}/"), WriteMode::WriteBack)).collect();
    let slots = SlotSet::none(SlotCount::new(8).unwrap()).others();
    let others = Some(Arc::default());
    let bench = Setup { slots: Some(slots), others, ..Setup::new(WriteMode::WriteBack) }.open().await;
    let refused = bench.cache.set_policies(rules(), None, "anna", "edit").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidArgument, "{refused}");
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.cache.set_policies(rules(), None, "anna", "edit").await.unwrap();
}
