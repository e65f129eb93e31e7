//! What end-to-end tests share: the server as a process of its own, clients, and a model of what must be there.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod ledger;
pub mod proxy;
pub mod server;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region, StalledStreamProtectionConfig};
use forebay_env::Env;
use forebay_env::random::{Random, SeededRandom, SystemRandom};

pub const ACCESS_KEY: &str = "root";
pub const SECRET_KEY: &str = "a-secret-for-tests";

/// How long a condition may take to come true.
const PATIENCE: Duration = Duration::from_secs(120);

/// A client that tries once, so that every answer is seen. It speaks plain HTTP: one for TLS reads all certificates of
/// the system first, which takes longer than a start of the server.
pub fn client(endpoint: &str) -> Client {
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(endpoint)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new(ACCESS_KEY, SECRET_KEY, None, None, "tests"))
        .force_path_style(true)
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::builder().operation_timeout(PATIENCE).build())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .build();
    Client::from_conf(config)
}

/// Random numbers of `FOREBAY_TEST_SEED`, or of a seed that is printed.
pub fn random() -> Arc<dyn Random> {
    let given =
        std::env::var("FOREBAY_TEST_SEED").ok().map(|text| text.parse().expect("FOREBAY_TEST_SEED is a number"));
    let seed = given.unwrap_or_else(|| SystemRandom.next_u64());
    println!("FOREBAY_TEST_SEED={seed}");
    Arc::new(SeededRandom::new(seed))
}

/// Whether tests that take long by their numbers take them all: `make test-all` says so.
pub fn everything() -> bool {
    std::env::var("FOREBAY_TEST_EVERYTHING").is_ok_and(|text| !text.is_empty())
}

/// Waits until `holds`.
///
/// # Panics
/// When it takes too long.
pub async fn eventually<T>(what: &str, mut holds: impl AsyncFnMut() -> Option<T>) -> T {
    let clock = Env::real().clock;
    let began = clock.monotonic();
    loop {
        if let Some(found) = holds().await {
            return found;
        }
        assert!(clock.monotonic() - began < PATIENCE, "{what}: not within {PATIENCE:?}");
        clock.sleep(Duration::from_millis(20)).await;
    }
}
