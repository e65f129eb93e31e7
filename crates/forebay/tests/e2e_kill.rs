//! SIGKILL at random moments: what was acknowledged is there after every restart, and in the under store at the end.

mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_s3::Client;
use forebay_env::Env;
use forebay_env::random::{Random, SeededRandom};
use harness::ledger::{Ledger, check_bucket, check_directory};
use harness::server::Home;

const BUCKET: &str = "bucket";
const WRITERS: u64 = 8;
const KEYS_OF_A_WRITER: u64 = 100;

/// Ten, a hundred with everything, or as many as `FOREBAY_TEST_ROUNDS` says.
fn rounds() -> u64 {
    let wanted = std::env::var("FOREBAY_TEST_ROUNDS").ok();
    let wanted = wanted.map(|text| text.parse().expect("FOREBAY_TEST_ROUNDS is a number"));
    wanted.unwrap_or(if harness::everything() { 100 } else { 10 })
}

/// Writes, deletes and reads until told to stop or until the server is gone.
async fn write(client: Client, writer: u64, mut ledger: Ledger, random: SeededRandom, stop: Arc<AtomicBool>) -> Ledger {
    while !stop.load(Ordering::Relaxed) {
        let key = format!("writer-{writer}/key-{:03}", random.below(KEYS_OF_A_WRITER));
        match random.below(1000) {
            0..650 => ledger.put(&client, BUCKET, &key, size(&random)).await,
            650..800 => ledger.delete(&client, BUCKET, &key).await,
            800..804 => ledger.put_in_parts(&client, BUCKET, &key, (5 << 20) + random.below(300_000) as usize).await,
            // A read before the kill: what was acknowledged is seen at once. The answer may be lost.
            _ => harness::ledger::read(&client, BUCKET, &key).await.is_ok(),
        };
    }
    ledger
}

fn size(random: &SeededRandom) -> usize {
    let largest = match random.below(100) {
        0..5 => return 0,
        5..60 => 2 << 10,
        60..90 => 64 << 10,
        90..99 => 300 << 10,
        _ => 2 << 20,
    };
    random.below(largest) as usize
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_kills() {
    let random = harness::random();
    let clock = Env::real().clock;
    // Small segments and snapshots, so that kills also hit their changes.
    let home = Home::new("WRITE_BACK")
        .setting("FOREBAY_STORE_SEGMENT_SIZE", "8 MiB")
        .setting("FOREBAY_STORE_SNAPSHOT_LOG_SIZE", "16 MiB")
        // What a process has asked of a directory ends with it.
        .setting("FOREBAY_CACHE_SETTLE_TIME", "1 s");
    let mut server = home.start();
    server.client.create_bucket().bucket(BUCKET).send().await.expect("a bucket");
    let mut ledgers: Vec<Ledger> = (0..WRITERS).map(|writer| Ledger::new(writer << 40)).collect();
    let rounds = rounds();
    for round in 1..=rounds {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |(writer, ledger)| {
            let seeded = SeededRandom::new(random.next_u64());
            forebay_env::spawn(write(server.client.clone(), writer, ledger, seeded, Arc::clone(&stop)))
        };
        let writers: Vec<_> = (0..).zip(ledgers).map(start).collect();
        clock.sleep(Duration::from_millis(50 + random.below(400))).await;
        server.kill();
        stop.store(true, Ordering::Relaxed);
        ledgers = Vec::new();
        for writer in writers {
            ledgers.push(writer.join().await);
        }
        server = home.start();
        let checks = ledgers.into_iter().map(|mut ledger| {
            let client = server.client.clone();
            forebay_env::spawn(async move {
                ledger.check_all(&client, BUCKET).await;
                ledger
            })
        });
        ledgers = Vec::new();
        for check in checks.collect::<Vec<_>>() {
            ledgers.push(check.join().await);
        }
        if round % 10 == 0 || round == rounds {
            let operations: u64 = ledgers.iter().map(|ledger| ledger.operations).sum();
            let model = ledgers.iter().flat_map(Ledger::present).collect();
            println!(
                "round {round}: {operations} operations acknowledged, {} objects",
                std::collections::BTreeMap::len(&model)
            );
            check_bucket(&server.client, BUCKET, &model).await;
        }
    }
    server.drained().await;
    let model = ledgers.iter().flat_map(Ledger::present).collect();
    check_directory(&home.under().join(BUCKET), &model);
    check_bucket(&server.client, BUCKET, &model).await;
    let status = server.status();
    assert_eq!(status["conflicts"], 0, "{status}");
}
