//! Hundreds of unclean starts: nothing that is raised at a start may run out.

mod harness;

use harness::client;
use harness::server::{Home, free_port};

const BUCKET: &str = "bucket";
const STARTS: usize = 400;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_takes_writes_after_400_unclean_starts() {
    let port = free_port();
    let home = Home::new("WRITE_BACK").at_port(port).setting("FOREBAY_CACHE_SETTLE_TIME", "1 s");
    // One for all: its first request takes longer than a start.
    let client = client(&format!("http://127.0.0.1:{port}"));
    for start in 0..STARTS {
        let server = home.start();
        if start == 0 {
            client.create_bucket().bucket(BUCKET).send().await.expect("a bucket");
        }
        let put =
            client.put_object().bucket(BUCKET).key(format!("key-{start}")).body(start.to_string().into_bytes().into());
        put.send().await.unwrap_or_else(|error| panic!("start {start}: {error:?}"));
        server.kill();
    }
    let server = home.start();
    for start in 0..STARTS {
        let got = client.get_object().bucket(BUCKET).key(format!("key-{start}")).send().await.expect("an object");
        let bytes = got.body.collect().await.expect("its body").into_bytes();
        assert_eq!(bytes, start.to_string().into_bytes());
    }
    server.drained().await;
}
