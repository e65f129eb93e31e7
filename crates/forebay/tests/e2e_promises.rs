//! Promises that only a whole server can break: sizes and memory, full disks, conditions under contention, stops,
//! policy changes.

mod harness;

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aws_sdk_s3::Client;
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::operation::put_object::PutObjectOutput;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;
use forebay_env::random::SeededRandom;
use futures::{StreamExt, TryStreamExt};
use harness::eventually;
use harness::ledger::{Ledger, check_bucket, list, read};
use harness::proxy::{Mood, Proxy};
use harness::server::{Home, RealS3, Server};

const BUCKET: &str = "bucket";
const GIB: usize = 1 << 30;

async fn with_bucket(home: &Home) -> Server {
    let server = home.start();
    server.client.create_bucket().bucket(BUCKET).send().await.expect("a bucket");
    server
}

/// The most memory that a process has had resident, in KiB.
fn peak_memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a running process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux tells VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// The pieces of an object that nobody holds whole.
fn pieces(seed: u64, size: usize) -> impl Iterator<Item = Bytes> + Send {
    let piece = 1 << 20;
    (0..size.div_ceil(piece))
        .map(move |index| SeededRandom::new(seed + index as u64).bytes(piece.min(size - index * piece)).into())
}

/// Sends an object in one request, with its length known and nothing else.
async fn put_streamed(client: &Client, key: &str, seed: u64, size: usize) {
    let body = http_body_util::StreamBody::new(
        futures::stream::iter(pieces(seed, size)).map(|bytes| Ok::<_, std::io::Error>(hyper::body::Frame::data(bytes))),
    );
    let body = parking_lot::Mutex::new(body);
    let request = client.put_object().bucket(BUCKET).key(key).content_length(size as i64);
    let request = request.body(ByteStream::from_body_1_x(Streamed { body, size: size as u64 }));
    request.send().await.expect("a large object is taken");
}

/// The SDK wants bodies to be `Sync` and to know their size.
struct Streamed<B> {
    body: parking_lot::Mutex<B>,
    size: u64,
}

impl<B: hyper::body::Body + Unpin> hyper::body::Body for Streamed<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<B::Data>, B::Error>>> {
        std::pin::Pin::new(self.body.get_mut()).poll_frame(context)
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.size)
    }
}

async fn check_streamed(client: &Client, key: &str, seed: u64, size: usize) {
    let found = client.get_object().bucket(BUCKET).key(key).send().await.expect("a large object is read");
    assert_eq!(found.content_length(), Some(size as i64));
    let mut body = found.body;
    let mut rest = Bytes::new();
    for piece in pieces(seed, size) {
        let mut compared = 0;
        while compared < piece.len() {
            if rest.is_empty() {
                rest = body.next().await.expect("more bytes").expect("the body arrives");
            }
            let length = rest.len().min(piece.len() - compared);
            assert!(rest.split_to(length) == piece[compared..compared + length], "{key} has other bytes");
            compared += length;
        }
    }
    assert!(rest.is_empty() && body.next().await.is_none(), "{key} is too long");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_every_size_pass_through_bounded_memory() {
    let home =
        Home::new("WRITE_BACK").setting("FOREBAY_STORE_SIZE", "8 GiB").setting("FOREBAY_CACHE_MEMORY_SIZE", "32 MiB");
    let server = with_bucket(&home).await;
    let client = &server.client;
    let mut ledger = Ledger::new(0);
    for size in [0, 1, 10 << 10, 5 << 20] {
        assert!(ledger.put(client, BUCKET, &format!("size-{size}"), size).await);
    }
    assert!(ledger.put_in_parts(client, BUCKET, "parts", 23 << 20).await);
    ledger.check_all(client, BUCKET).await;
    put_streamed(client, "large", 7, GIB).await;
    check_streamed(client, "large", 7, GIB).await;
    server.drained().await;
    ledger.check_all(client, BUCKET).await;
    check_streamed(client, "large", 7, GIB).await;
    let size = std::fs::metadata(home.under().join(BUCKET).join("large")).expect("it is persisted").len();
    assert_eq!(size, GIB as u64);
    let peak = peak_memory(server.id());
    println!("the server's peak of resident memory: {} MiB", peak >> 10);
    // 64 MiB wait for the disks at most, 32 MiB are the memory tier, and the rest are buffers of requests; 1 GiB would
    // be seen.
    assert!(peak < 400 << 10, "{peak} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_parts_make_one_object() {
    let home = Home::new("WRITE_BACK").setting("FOREBAY_CACHE_PART_SIZE_MIN", "1 B");
    let server = with_bucket(&home).await;
    let begun = server.client.create_multipart_upload().bucket(BUCKET).key("parts").send().await.expect("an upload");
    let id = begun.upload_id().expect("an id").to_owned();
    let part = |number: i32| Bytes::from(format!("part {number:05}\n"));
    let sent = (1..=10_000).map(|number| {
        let request = server.client.upload_part().bucket(BUCKET).key("parts").upload_id(&id).part_number(number);
        let request = request.body(part(number).into());
        async move {
            let sent = request.send().await?;
            let completed = CompletedPart::builder().part_number(number).set_e_tag(sent.e_tag);
            Ok::<_, aws_sdk_s3::Error>(completed.set_checksum_crc32(sent.checksum_crc32).build())
        }
    });
    let parts: Vec<_> = futures::stream::iter(sent).buffered(32).try_collect().await.expect("every part is taken");
    let parts = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
    let complete = server.client.complete_multipart_upload().bucket(BUCKET).key("parts").upload_id(&id);
    let done = complete.multipart_upload(parts).send().await.expect("the upload completes");
    assert!(done.e_tag().is_some_and(|tag| tag.ends_with("-10000\"")), "{done:?}");
    let whole: Vec<u8> = (1..=10_000).flat_map(part).collect();
    let found = read(&server.client, BUCKET, "parts").await.expect("a read").expect("the object");
    assert!(found == whole);
    server.drained().await;
    assert!(std::fs::read(home.under().join(BUCKET).join("parts")).expect("it is persisted") == whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_create_one_key_exactly_one_wins() {
    for mode in ["WRITE_THROUGH", "WRITE_BACK", "TRANSIENT", "NO_CACHE"] {
        let home = Home::new(mode);
        let server = with_bucket(&home).await;
        let contend = |number: u32| {
            let request = server.client.put_object().bucket(BUCKET).key("lock").if_none_match("*");
            request.body(format!("writer {number}").into_bytes().into()).send()
        };
        let answers = futures::future::join_all((0..50).map(contend)).await;
        let won = answers.iter().filter(|answer| answer.is_ok()).count();
        let codes: BTreeSet<_> = answers.iter().filter_map(|answer| answer.as_ref().err()?.code()).collect();
        assert_eq!(won, 1, "{mode}: {codes:?}");
        assert!(
            codes.iter().all(|code| matches!(*code, "PreconditionFailed" | "ConditionalRequestConflict")),
            "{mode}: {codes:?}"
        );
        let winner = answers.iter().position(Result::is_ok).expect("one has won");
        let found = read(&server.client, BUCKET, "lock").await.expect("a read").expect("the object");
        assert_eq!(found, format!("writer {winner}"), "{mode}");
    }
}

async fn replace(client: &Client, tag: &str, number: u64) -> Option<PutObjectOutput> {
    let request = client.put_object().bucket(BUCKET).key("counter").if_match(tag);
    match request.body(number.to_string().into_bytes().into()).send().await {
        Ok(written) => Some(written),
        Err(error) if matches!(error.code(), Some("PreconditionFailed" | "ConditionalRequestConflict")) => None,
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compare_and_swap_counts_right() {
    for mode in ["WRITE_THROUGH", "WRITE_BACK"] {
        let home = Home::new(mode);
        let server = with_bucket(&home).await;
        server
            .client
            .put_object()
            .bucket(BUCKET)
            .key("counter")
            .body(ByteStream::from_static(b"0"))
            .send()
            .await
            .expect("put");
        let count = || {
            let client = server.client.clone();
            forebay_env::spawn(async move {
                let mut counted = 0;
                while counted < 10 {
                    let found = client.get_object().bucket(BUCKET).key("counter").send().await.expect("a read");
                    let tag = found.e_tag().expect("a tag").to_owned();
                    let text = found.body.collect().await.expect("the body").into_bytes();
                    let number: u64 = String::from_utf8_lossy(&text).parse().expect("a number");
                    counted += u64::from(replace(&client, &tag, number + 1).await.is_some());
                }
            })
        };
        for counter in (0..8).map(|_| count()).collect::<Vec<_>>() {
            counter.join().await;
        }
        let found = read(&server.client, BUCKET, "counter").await.expect("a read").expect("the object");
        assert_eq!(found, "80", "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_under_load_finishes_requests_and_leaves_nothing_to_recover() {
    let home = Home::new("WRITE_BACK");
    let server = with_bucket(&home).await;
    let acknowledged = Arc::new(AtomicU64::new(0));
    let write = |writer: u64| {
        let (client, acknowledged) = (server.client.clone(), Arc::clone(&acknowledged));
        forebay_env::spawn(async move {
            let mut ledger = Ledger::new(writer << 40);
            for index in 0.. {
                if !ledger.put(&client, BUCKET, &format!("{writer}/{index}"), 3000).await {
                    break;
                }
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            ledger
        })
    };
    let writers: Vec<_> = (0..8).map(write).collect();
    eventually("the load is on", async || (acknowledged.load(Ordering::Relaxed) > 500).then_some(())).await;
    server.terminate();
    assert_eq!(server.ended().await, Some(0));
    let mut ledgers = Vec::new();
    for writer in writers {
        ledgers.push(writer.join().await);
    }
    let server = home.start();
    for ledger in &mut ledgers {
        ledger.check_all(&server.client, BUCKET).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_change_under_load_without_a_failed_request() {
    let home = Home::new("WRITE_THROUGH");
    let server = with_bucket(&home).await;
    let stop = Arc::new(AtomicBool::new(false));
    let work = |writer: u64| {
        let (client, stop) = (server.client.clone(), Arc::clone(&stop));
        forebay_env::spawn(async move {
            let mut ledger = Ledger::new(writer << 40);
            for index in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("{writer}/{}", index % 20);
                let done = match index % 5 {
                    0 => ledger.delete(&client, BUCKET, &key).await,
                    _ => ledger.put(&client, BUCKET, &key, 2000).await,
                };
                assert!(done, "{key} is refused");
                ledger.check(&client, BUCKET, &key).await;
            }
            ledger
        })
    };
    let workers: Vec<_> = (0..4).map(work).collect();
    for round in 0..30 {
        let mode = ["WRITE_BACK", "NO_CACHE", "WRITE_THROUGH"][round % 3];
        server.set_policies(&format!(r#"[{{"path": "/", "writeMode": "{mode}"}}]"#));
        let before = server.status()["dirtyObjects"].clone();
        assert!(before.is_u64());
        list(&server.client, BUCKET).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut model = std::collections::BTreeMap::new();
    for worker in workers {
        model.extend(worker.join().await.present());
    }
    check_bucket(&server.client, BUCKET, &model).await;
    server.drained().await;
    harness::ledger::check_directory(&home.under().join(BUCKET), &model);
    let (_, policies) = server.admin("GET", "/api/v1/policies", "");
    server.terminate();
    assert_eq!(server.ended().await, Some(0));
    assert_eq!(home.start().admin("GET", "/api/v1/policies", "").1, policies, "policies survive a restart");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_dirty_is_served_whatever_the_policy_becomes() {
    let s3 = RealS3::start().await;
    let proxy = Proxy::start(s3.port).await;
    let home = Home::new("WRITE_BACK")
        .under_store(&format!("s3://?endpoint={}", proxy.endpoint))
        .setting("FOREBAY_CACHE_PERSIST_BACKOFF_MAX", "1 s")
        .setting("FOREBAY_CACHE_SETTLE_TIME", "1 s");
    let server = with_bucket(&home).await;
    let mut ledger = Ledger::new(0);
    proxy.set(Mood::Failing);
    assert!(ledger.put(&server.client, BUCKET, "dirty", 5000).await);
    for mode in ["NO_CACHE", "READ_ONLY", "TRANSIENT", "WRITE_THROUGH"] {
        server.set_policies(&format!(r#"[{{"path": "/", "writeMode": "{mode}"}}]"#));
        ledger.check_all(&server.client, BUCKET).await;
    }
    proxy.set(Mood::Well);
    server.drained().await;
    check_bucket(&s3.client, BUCKET, &ledger.present()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_cache_says_slow_down_still_deletes_and_recovers_by_itself() {
    let s3 = RealS3::start().await;
    let proxy = Proxy::start(s3.port).await;
    let home = Home::new("WRITE_BACK")
        .under_store(&format!("s3://?endpoint={}", proxy.endpoint))
        .setting("FOREBAY_STORE_SIZE", "64 MiB")
        .setting("FOREBAY_CACHE_PERSIST_BACKOFF_MAX", "1 s")
        .setting("FOREBAY_UNDER_STORE_LIMITS_CIRCUIT_PAUSE_MAX", "1 s")
        .setting("FOREBAY_CACHE_SETTLE_TIME", "1 s");
    let server = with_bucket(&home).await;
    let client = &server.client;
    let mut ledger = Ledger::new(0);
    proxy.set(Mood::Gone);
    let mut index = 0;
    while ledger.put(client, BUCKET, &format!("fill/{index}"), 200_000).await {
        index += 1;
        assert!(index < 1000, "a cache of 64 MiB takes no 200 MB");
    }
    println!("{index} objects of 200 KB fit into the pinned share of 64 MiB");
    let refused = client.put_object().bucket(BUCKET).key("more").body(vec![0; 200_000].into()).send().await;
    let refused = refused.expect_err("the pinned share is full");
    let answer = refused.raw_response().expect("an answer");
    assert_eq!((refused.code(), answer.status().as_u16()), (Some("SlowDown"), 503));
    assert!(answer.headers().get("retry-after").is_some());
    for deleted in 0..5 {
        assert!(ledger.delete(client, BUCKET, &format!("fill/{deleted}")).await, "deletes need no room");
    }
    for taken in 0..index {
        ledger.check(client, BUCKET, &format!("fill/{taken}")).await;
    }
    proxy.set(Mood::Well);
    server.drained().await;
    for more in 0..300 {
        let key = format!("more/{more}");
        eventually("there is room again", async || ledger.put(client, BUCKET, &key, 200_000).await.then_some(())).await;
    }
    server.drained().await;
    ledger.check_all(client, BUCKET).await;
    check_bucket(&s3.client, BUCKET, &ledger.present()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn few_file_descriptors_slow_clients_down_and_lose_nothing() {
    let home = Home::new("WRITE_BACK");
    let mut command = home.command();
    // As `ulimit -n` in the shell that starts it; the server raises the soft limit to the hard one.
    let limited = std::mem::replace(&mut command, std::process::Command::new("sh"));
    command.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]).arg(limited.get_program()).args(limited.get_args());
    command.env_clear().envs(limited.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).process_group(0);
    let server = home.start_command(command);
    server.client.create_bucket().bucket(BUCKET).send().await.expect("a bucket");
    let address = server.s3.trim_start_matches("http://").to_owned();
    let idle: Vec<_> = (0..200).map_while(|_| TcpStream::connect(&address).ok()).collect();
    assert!(idle.len() > 64, "the kernel takes more connections than the process");
    drop(idle);
    let mut ledger = Ledger::new(0);
    eventually("requests are answered again", async || {
        ledger.put(&server.client, BUCKET, "key", 1000).await.then_some(())
    })
    .await;
    ledger.check_all(&server.client, BUCKET).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_an_object_stands_is_told() {
    let home = Home::new("WRITE_THROUGH");
    let server = with_bucket(&home).await;
    server.set_policies(r#"[{"path": "/bucket/scratch/", "writeMode": "TRANSIENT"}]"#);
    for (key, state) in [("through", "clean"), ("scratch/a", "transient")] {
        server
            .client
            .put_object()
            .bucket(BUCKET)
            .key(key)
            .body(ByteStream::from_static(b"x"))
            .send()
            .await
            .expect("put");
        let told = state_of(&server, key).await;
        assert!(told.contains(state), "{key}: {told}");
    }
    assert!(!home.under().join(BUCKET).join("scratch").exists(), "transient objects stay here");
}

/// The `x-forebay-state` header of a HEAD.
async fn state_of(server: &Server, key: &str) -> String {
    let hour = PresigningConfig::expires_in(std::time::Duration::from_secs(60)).expect("a minute");
    let url = server.client.head_object().bucket(BUCKET).key(key).presigned(hour).await.expect("a URL");
    let target = url.uri().trim_start_matches(&server.s3);
    let answer = harness::server::exchange(server.s3.trim_start_matches("http://"), "HEAD", target);
    let header = answer.lines().find_map(|line| line.strip_prefix("x-forebay-state: "));
    header.unwrap_or_else(|| panic!("no state in {answer}")).to_owned()
}
