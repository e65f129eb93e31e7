//! Settings of the S3 endpoint.

use std::time::Duration;

use forebay_auth::Secret;

use crate::redirect::Redirect;

/// What the binary decides.
#[derive(Debug, Clone)]
pub struct S3Settings {
    /// Domain under which buckets are addressed as `bucket.domain`. Path style works with and without it.
    pub domain: Option<String>,
    /// The region of all buckets; credential scopes must name it.
    pub region: String,
    /// Number of the account that owns all buckets, for callers who say which one they expect. `None`: any is right.
    pub account_id: Option<String>,
    /// What continuation tokens are authenticated with: must be the same after a restart. The root user's secret does.
    pub token_secret: Secret,
    /// Most connections at once; others wait in the kernel's queue.
    pub connections_max: usize,
    /// Most of them from one address; more are closed at once.
    pub connections_per_address_max: usize,
    /// How long the headers of a request may take, and how long a connection may stay idle before them.
    pub header_timeout: Duration,
    /// In every window of this length a body must move by `body_bytes_per_window_min`, or the connection ends. An
    /// answer has four of them.
    pub body_window: Duration,
    pub body_bytes_per_window_min: u64,
    /// How long requests in flight may continue after a shutdown has begun.
    pub shutdown_deadline: Duration,
    /// Whose requests are redirected to the home of their object, when that is another worker.
    pub redirect: Redirect,
    /// Whether plain reads pass `s3s` by. Only who compares both ways says no.
    pub fast_path: bool,
}

impl S3Settings {
    /// The defaults, with the secret that tokens are authenticated with.
    pub fn new(token_secret: Secret) -> Self {
        Self {
            domain: None,
            region: "us-east-1".to_owned(),
            account_id: None,
            token_secret,
            connections_max: 4096,
            connections_per_address_max: 2048,
            // A slow client must not hold a connection for free.
            header_timeout: Duration::from_secs(10),
            body_window: Duration::from_secs(30),
            body_bytes_per_window_min: 30 << 10,
            shutdown_deadline: Duration::from_secs(30),
            redirect: Redirect::Never,
            fast_path: true,
        }
    }
}
