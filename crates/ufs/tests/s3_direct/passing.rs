//! Reads that pass through, and the circuit breaker.

use forebay_ufs::governor::{Governed, GovernorSettings, Lane, Work, govern};

use super::*;

/// The second one closes the connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_passes_through_opens_the_circuit_only_when_the_under_store_has_failed() {
    for answer in ["HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", ""] {
        let server = Recorder::answering(answer).await;
        let [store, _] = server.both(S3Settings::default()).await;
        let settings = GovernorSettings { circuit_failures: 2, ..GovernorSettings::default() };
        let governor = govern(&Env::real(), &settings, None);
        let governed = Governed::new(Arc::new(store), Arc::clone(&governor), Lane::Foreground);
        let target = governed.s3().expect("S3");
        let get = |key: &str| target.client.get_object().bucket("bucket").key(key).version_id("7").send();
        for _ in 0..3 {
            let failed = target.read(get("")).await.expect("the circuit is closed");
            assert!(failed.is_err(), "nothing is sent without a key");
        }
        assert!(server.seen.lock().is_empty() && !governor.is_open(Work::Read));
        for _ in 0..2 {
            assert!(target.read(get("key")).await.expect("the circuit is closed").is_err());
        }
        assert!(governor.is_open(Work::Read), "{answer:?}");
    }
}
