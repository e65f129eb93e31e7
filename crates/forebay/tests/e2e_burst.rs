//! A burst of small objects is taken at local speed, and drains.

mod harness;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use harness::ledger::{Content, Ledger, check_directory, list};
use harness::server::Home;

const BUCKET: &str = "burst";
/// Every day, and with everything.
const OBJECTS: [u64; 2] = [10_000, 100_000];
const WRITERS: u64 = 64;

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_drains_completely() {
    let objects = OBJECTS[usize::from(harness::everything())];
    let home = Home::new("WRITE_BACK").setting("FOREBAY_STORE_SIZE", "4 GiB");
    let server = home.start();
    server.client.create_bucket().bucket(BUCKET).send().await.expect("a bucket");
    let clock = forebay_env::Env::real().clock;
    let began = clock.monotonic();
    let next = Arc::new(AtomicU64::new(0));
    let writer = |writer: u64| {
        let (client, next) = (server.client.clone(), Arc::clone(&next));
        forebay_env::spawn(async move {
            let mut ledger = Ledger::new(writer << 40);
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= objects {
                    return ledger;
                }
                let key = format!("{:03}/{index:06}", index % 500);
                let size = 64 + (index * 37 % 960) as usize;
                assert!(ledger.put(&client, BUCKET, &key, size).await, "{key} is refused");
            }
        })
    };
    let writers: Vec<_> = (0..WRITERS).map(writer).collect();
    let mut model: BTreeMap<String, Content> = BTreeMap::new();
    for writer in writers {
        model.extend(writer.join().await.present());
    }
    println!(
        "when the last of {} objects was acknowledged, {} were not yet persisted",
        model.len(),
        server.status()["dirtyObjects"]
    );
    let sizes: BTreeMap<_, _> = model.iter().map(|(key, content)| (key.clone(), content.size)).collect();
    assert!(list(&server.client, BUCKET).await == sizes, "the list while it drains");
    server.drained().await;
    println!("everything was persisted after {:?}", clock.monotonic() - began);
    check_directory(&home.under().join(BUCKET), &model);
    assert!(list(&server.client, BUCKET).await == sizes, "the list of what has drained");
}
