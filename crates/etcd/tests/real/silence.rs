//! Members that are dead, or hang.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_catalog::{Engine, ErrorKind};
use forebay_etcd::EtcdEngine;

use crate::servers::{
    Etcd, check, check_kind, commit_in_time, impatient, put, settings, value, wait_until, wait_until_read,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_member_stops_nobody_and_without_all_of_them_nothing_is_promised() {
    let mut etcd = Etcd::start(3).await;
    // Each begins with one by chance.
    let engines: Vec<_> = (0..6).map(|_| etcd.engine()).collect();
    let mut version = commit_in_time(&engines[0], &[], &[put("key", "0")]).await;
    etcd.kill(0);
    for (number, engine) in engines.iter().enumerate() {
        // The next leader is there: a commit before may be lost with the last one.
        wait_until_read(engine).await;
        let writes = [put("key", format!("{number}"))];
        version = commit_in_time(engine, &[check("key", Some(version))], &writes).await;
    }
    (1..3).for_each(|index| etcd.kill(index));
    for engine in &engines {
        let checks = [check("key", Some(version))];
        let error = engine.commit(&checks, &[put("key", "lost")]).await.expect_err("all are dead");
        // A connection that breaks while something is sent can't be told from one that breaks afterwards.
        assert!(matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Unknown), "{error}");
        check_kind(engine.commit(&checks, &[put("key", "lost")]).await, ErrorKind::Unavailable, "refused");
        check_kind(engine.get(b"key").await, ErrorKind::Unavailable, "refused");
        check_kind(engine.scan(b"a", b"z", 9).await, ErrorKind::Unavailable, "refused");
    }
    assert!(engines[0].status().await.iter().all(|member| member.status.is_err()));
    (0..3).for_each(|index| etcd.run(index));
    for engine in &engines {
        wait_until_read(engine).await;
        assert_eq!(value(engine, "key").await, Some("5".into()), "what was refused was not done");
    }
    commit_in_time(&engines[0], &[check("key", Some(version))], &[put("key", "again")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_hangs_stops_nobody() {
    let etcd = Etcd::start(3).await;
    let engines: Vec<_> = (0..4).map(|_| etcd.engine()).collect();
    for (number, engine) in engines.iter().enumerate() {
        commit_in_time(engine, &[], &[put(&format!("early-{number}"), "")]).await;
    }
    etcd.pause(1);
    // Those that have met it, and such that begin with it.
    let all = engines.into_iter().chain((0..4).map(|_| etcd.engine())).enumerate();
    let tasks = all.map(|(number, engine)| {
        forebay_env::spawn(async move {
            let key = format!("late-{number}");
            if number % 2 == 0 {
                // A read asks another member by itself, when there is a leader.
                wait_until_read(&engine).await;
                commit_in_time(&engine, &[], &[put(&key, "done")]).await;
            } else if let Err(error) = engine.commit(&[], &[put(&key, "done")]).await {
                // One that was sent to it is unknown, and the next one is not sent to it.
                assert!(matches!(error.kind, ErrorKind::Unknown | ErrorKind::Unavailable), "{error}");
                wait_until_read(&engine).await;
                commit_in_time(&engine, &[], &[put(&key, "done")]).await;
            }
            assert_eq!(value(&engine, &key).await, Some("done".into()));
            // It is not asked again.
            for _ in 0..20 {
                engine.commit(&[], &[put(&key, "done")]).await.expect("the others are well");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.join().await;
    }
    etcd.resume(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_the_others_does_nothing() {
    let etcd = Etcd::start(3).await;
    let engine = impatient(&etcd.settings());
    commit_in_time(&engine, &[], &[put("key", "first")]).await;
    etcd.pause(0);
    etcd.pause(1);
    let error = engine.commit(&[], &[put("key", "second")]).await.expect_err("there is no majority");
    assert!(matches!(error.kind, ErrorKind::Unknown | ErrorKind::Unavailable), "{error}");
    check_kind(engine.get(b"key").await, ErrorKind::Unavailable, "a read");
    check_kind(engine.commit(&[], &[put("key", "third")]).await, ErrorKind::Unavailable, "a commit");
    etcd.resume(0);
    etcd.resume(1);
    wait_until_read(&engine).await;
    assert_ne!(value(&engine, "key").await, Some("third".into()), "what is unavailable is never done");
}

/// Two clusters would be two engines.
#[tokio::test(flavor = "multi_thread")]
async fn members_of_another_cluster_are_not_asked() {
    let (mut one, other) = tokio::join!(Etcd::start(1), Etcd::start(1));
    let known = impatient(&one.settings());
    known.commit(&[], &[put("key", "of one")]).await.expect("etcd writes");
    let settings = settings(vec![one.endpoint(0), other.endpoint(0)]);
    // One that has begun with the first member.
    let mixed = loop {
        let engine = impatient(&settings);
        if value(&engine, "key").await.is_some() {
            break engine;
        }
    };
    one.kill(0);
    // The first may be unknown.
    mixed.commit(&[], &[put("key", "wrong")]).await.expect_err("nobody is there");
    for _ in 0..4 {
        check_kind(mixed.get(b"key").await, ErrorKind::Unavailable, "");
        check_kind(mixed.commit(&[], &[put("key", "wrong")]).await, ErrorKind::Unavailable, "");
    }
    assert_eq!(value(&other.engine(), "key").await, None);
    one.run(0);
    wait_until_read(&mixed).await;
    assert_eq!(value(&mixed, "key").await, Some("of one".into()));
}

/// What workers have counted.
#[derive(Default)]
struct Counts {
    done: AtomicU64,
    unknown: AtomicU64,
    is_over: AtomicBool,
}

async fn count(engine: EtcdEngine, counts: Arc<Counts>) {
    while !counts.is_over.load(Ordering::Relaxed) {
        let found = match engine.get(b"counter").await {
            Ok(found) => found,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
                continue;
            }
        };
        let text = found.as_ref().map_or("0".into(), |found| String::from_utf8_lossy(&found.value).into_owned());
        let next = text.parse::<u64>().expect("a number") + 1;
        let checks = [check("counter", found.map(|found| found.version))];
        match engine.commit(&checks, &[put("counter", next.to_string())]).await {
            Ok(_) => drop(counts.done.fetch_add(1, Ordering::Relaxed)),
            Err(error) if error.kind == ErrorKind::Unknown => drop(counts.unknown.fetch_add(1, Ordering::Relaxed)),
            Err(error) => {
                assert!(matches!(error.kind, ErrorKind::Conflict | ErrorKind::Unavailable), "{error}");
            }
        }
    }
}

/// What is done counts once, what is refused never.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_add_up_while_members_die_one_after_the_other() {
    let mut etcd = Etcd::start(3).await;
    let counts = Arc::new(Counts::default());
    let workers: Vec<_> =
        (0..3).map(|_| forebay_env::spawn(count(impatient(&etcd.settings()), Arc::clone(&counts)))).collect();
    let progress = async || {
        let before = counts.done.load(Ordering::Relaxed);
        wait_until(async || counts.done.load(Ordering::Relaxed) > before + 20).await;
    };
    progress().await;
    for index in 0..3 {
        etcd.kill(index);
        progress().await;
        etcd.run(index);
        etcd.wait_until_well().await;
    }
    counts.is_over.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().await;
    }
    let found = value(&etcd.engine(), "counter").await.expect("a value");
    let found: u64 = String::from_utf8_lossy(&found).parse().expect("a number");
    let (done, unknown) = (counts.done.load(Ordering::Relaxed), counts.unknown.load(Ordering::Relaxed));
    assert!((done..=done + unknown).contains(&found), "{found}: {done} are done, of {unknown} it is unknown");
}
