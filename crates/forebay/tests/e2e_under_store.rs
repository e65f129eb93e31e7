//! An S3 under store that is slow, throttles, fails, hangs, loses answers, carries requests out late, or is gone.

mod harness;

use std::collections::BTreeMap;

use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::primitives::ByteStream;
use harness::eventually;
use harness::ledger::{Ledger, check_bucket, list, read};
use harness::proxy::{Mood, Proxy};
use harness::server::{Home, RealS3, Server};

const BUCKET: &str = "bucket";
const POLICIES: &str = r#"[
    {"path": "/", "writeMode": "WRITE_BACK", "metadataTtl": "0 s"},
    {"path": "/bucket/through/", "writeMode": "WRITE_THROUGH"}
]"#;

/// Forebay before a proxy before a real S3 server.
struct Stage {
    server: Server,
    home: Home,
    proxy: Proxy,
    s3: RealS3,
}

impl Stage {
    /// With short times, so that recovery is a matter of seconds.
    async fn set() -> Self {
        let s3 = RealS3::start().await;
        let proxy = Proxy::start(s3.port).await;
        let home = Home::new("WRITE_BACK")
            .under_store(&format!("s3://?endpoint={}", proxy.endpoint))
            .setting("FOREBAY_UNDER_STORE_S3_REQUEST_TIMEOUT", "1 s")
            .setting("FOREBAY_UNDER_STORE_LIMITS_CIRCUIT_PAUSE_MAX", "1 s")
            .setting("FOREBAY_CACHE_PERSIST_BACKOFF_MIN", "100 ms")
            .setting("FOREBAY_CACHE_PERSIST_BACKOFF_MAX", "1 s")
            .setting("FOREBAY_CACHE_SETTLE_TIME", "2 s");
        let server = home.start();
        server.client.create_bucket().bucket(BUCKET).send().await.expect("a bucket");
        server.set_policies(POLICIES);
        Self { server, home, proxy, s3 }
    }

    /// The under store is well again: everything arrives, in order, and both sides are equal.
    async fn check_recovery(&self, ledger: &Ledger) {
        self.proxy.set(Mood::Well);
        self.server.drained().await;
        self.proxy.check_order();
        check_bucket(&self.s3.client, BUCKET, &ledger.present()).await;
        check_bucket(&self.server.client, BUCKET, &ledger.present()).await;
        let status = self.server.status();
        assert_eq!(status["conflicts"], 0, "{status}");
    }
}

/// Writes, overwrites and deletes; all of it must be acknowledged.
async fn work(stage: &Stage, ledger: &mut Ledger, name: &str) {
    let client = &stage.server.client;
    for round in 0..3 {
        for index in 0..40 {
            let key = format!("{name}/{index:02}");
            let done = match (index + round) % 7 {
                0 => ledger.delete(client, BUCKET, &key).await,
                _ => ledger.put(client, BUCKET, &key, 100 + index * round * 500).await,
            };
            assert!(done, "{key} is refused while the under store is {name}");
        }
    }
    ledger.check_all(client, BUCKET).await;
    let sizes: BTreeMap<_, _> = ledger.present().into_iter().map(|(key, content)| (key, content.size)).collect();
    if name == "Slow" {
        assert!(list(client, BUCKET).await == sizes, "the list while the under store is {name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_go_on_and_drain_whatever_the_under_store_does() {
    let stage = Stage::set().await;
    let moods = [Mood::Slow, Mood::Throttling, Mood::Failing, Mood::Hanging, Mood::Gone, Mood::LosingAnswers];
    for (number, mood) in (1..).zip(moods) {
        stage.proxy.set(mood);
        let mut ledger = Ledger::new(number << 40);
        work(&stage, &mut ledger, &format!("{mood:?}")).await;
        stage.check_recovery(&ledger).await;
        for key in ledger.present().keys() {
            assert!(ledger.delete(&stage.server.client, BUCKET, key).await);
        }
        stage.server.drained().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_through_that_fails_leaves_nothing_and_says_so() {
    let stage = Stage::set().await;
    let client = &stage.server.client;
    for mood in [Mood::Throttling, Mood::Failing, Mood::Hanging, Mood::Gone] {
        let key = format!("through/{mood:?}");
        stage.proxy.set(mood);
        let error = client.put_object().bucket(BUCKET).key(&key).body(ByteStream::from_static(b"x")).send().await;
        let error = error.expect_err("the under store does not have it");
        let status = error.raw_response().map(|response| response.status().as_u16());
        assert!(matches!(status, Some(500 | 503)), "{mood:?}: {error:?}");
        let missed = client.get_object().bucket(BUCKET).key("never/read").send().await.expect_err("nobody knows");
        assert_ne!(missed.code(), Some("NoSuchKey"), "what can't be asked is not absent: {mood:?}");
        stage.proxy.set(Mood::Well);
        eventually("reads work again", async || read(client, BUCKET, "never/read").await.ok()).await;
        // A request that was cut off is settled, one way or the other: both sides agree.
        let here = eventually("the key can be read", async || read(client, BUCKET, &key).await.ok()).await;
        let there = read(&stage.s3.client, BUCKET, &key).await.expect("the real server answers");
        assert_eq!((here, there), (None, None), "{mood:?}");
    }
    assert!(stage.server.status()["dirtyObjects"] == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_lands_late_is_followed_by_what_came_after_it() {
    let stage = Stage::set().await;
    let client = &stage.server.client;
    let mut ledger = Ledger::new(0);
    for (key, last) in [("overwritten", true), ("deleted", false)] {
        stage.proxy.set(Mood::HoldingPuts);
        assert!(ledger.put(client, BUCKET, key, 1000).await);
        let path = format!("/{BUCKET}/{key}");
        eventually("the upload is under way", async || stage.proxy.has_seen_put(&path).then_some(())).await;
        let done =
            if last { ledger.put(client, BUCKET, key, 2000).await } else { ledger.delete(client, BUCKET, key).await };
        assert!(done);
        stage.check_recovery(&ledger).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_upload_and_commit_neither_loses_nor_repeats_wrongly() {
    let mut stage = Stage::set().await;
    let mut ledger = Ledger::new(0);
    for round in 0..5 {
        let (kept, deleted) = (format!("kept-{round}"), format!("deleted-{round}"));
        assert!(ledger.put(&stage.server.client, BUCKET, &deleted, 500).await);
        stage.server.drained().await;
        stage.proxy.set(Mood::LosingAnswers);
        assert!(ledger.put(&stage.server.client, BUCKET, &kept, 1000).await);
        assert!(ledger.delete(&stage.server.client, BUCKET, &deleted).await);
        let path = format!("/{BUCKET}/{kept}");
        eventually("the upload is done", async || {
            stage.proxy.applied().iter().any(|done| done.path == path).then_some(())
        })
        .await;
        stage.server.kill();
        stage.proxy.set(Mood::Well);
        stage.server = stage.home.start();
        assert!(ledger.put(&stage.server.client, BUCKET, &deleted, 700).await);
        ledger.check_all(&stage.server.client, BUCKET).await;
        stage.check_recovery(&ledger).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_others_make_are_noticed() {
    let stage = Stage::set().await;
    let (client, outside) = (&stage.server.client, &stage.s3.client);
    let put = async |body: &'static str| {
        outside
            .put_object()
            .bucket(BUCKET)
            .key("theirs")
            .body(ByteStream::from_static(body.as_bytes()))
            .send()
            .await
            .expect("put");
    };
    let get = async || {
        read(client, BUCKET, "theirs").await.expect("a read").map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    for body in ["first", "other", "third"] {
        put(body).await;
        assert_eq!(get().await.as_deref(), Some(body), "the same length, other bytes");
    }
    outside.delete_object().bucket(BUCKET).key("theirs").send().await.expect("delete");
    assert_eq!(get().await, None);
    assert!(list(client, BUCKET).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_is_kept_and_told_and_overwrites_nobody() {
    let stage = Stage::set().await;
    // What the under store holds must be known: without a TTL it never is, and the last writer wins.
    stage.server.set_policies(r#"[{"path": "/", "writeMode": "WRITE_BACK", "metadataTtl": "1 h"}]"#);
    let client = &stage.server.client;
    let mut ledger = Ledger::new(0);
    assert!(ledger.put(client, BUCKET, "contended", 100).await);
    stage.server.drained().await;
    stage.proxy.set(Mood::Failing);
    assert!(ledger.put(client, BUCKET, "contended", 200).await);
    let theirs = ByteStream::from_static(b"theirs");
    stage.s3.client.put_object().bucket(BUCKET).key("contended").body(theirs).send().await.expect("put");
    stage.proxy.set(Mood::Well);
    eventually("the conflict is told", async || (stage.server.status()["conflicts"] == 1).then_some(())).await;
    ledger.check_all(client, BUCKET).await;
    let there = read(&stage.s3.client, BUCKET, "contended").await.expect("the real server answers");
    assert_eq!(there.as_deref(), Some(&b"theirs"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_cached_is_served_after_a_restart_without_the_under_store() {
    let mut stage = Stage::set().await;
    stage.server.set_policies(r#"[{"path": "/", "writeMode": "WRITE_BACK"}]"#);
    let mut ledger = Ledger::new(0);
    for index in 0..20 {
        assert!(ledger.put(&stage.server.client, BUCKET, &format!("warm/{index}"), 5000 * index).await);
    }
    stage.server.drained().await;
    let dirty = Ledger::new(1 << 40);
    for (mood, mut dirty) in [(Mood::Gone, dirty), (Mood::Hanging, Ledger::new(2 << 40))] {
        stage.server.terminate();
        assert_eq!(stage.server.ended().await, Some(0));
        stage.proxy.set(mood);
        stage.server = stage.home.start();
        ledger.check_all(&stage.server.client, BUCKET).await;
        assert!(
            dirty.put(&stage.server.client, BUCKET, &format!("new/{mood:?}"), 1000).await,
            "known buckets take writes"
        );
        dirty.check_all(&stage.server.client, BUCKET).await;
        stage.proxy.set(Mood::Well);
        stage.server.drained().await;
    }
}
