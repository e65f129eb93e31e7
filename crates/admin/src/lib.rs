//! The admin listener: health, readiness, metrics, the admin API and the console.
//!
//! It is apart from the S3 listener and begins to answer before the store is open, so that probes see "starting"
//! instead of a refused connection. `/healthz`, `/readyz` and `/metrics` need no credentials, since probes and scrapers
//! rarely have any: they hold counts and names of buckets, never keys of objects and never secrets. Everything under
//! `/api/` wants HTTP Basic with the access key and secret key of a user who has an `admin` grant, or a session that
//! began with those.

mod access;
pub mod api;
mod audit;
mod body_timeout;
mod cluster;
mod configuration;
mod console;
mod content;
mod health;
mod input;
mod jobs;
mod objects;
mod openapi;
mod origin;
mod overview;
mod persist;
mod policies;
mod problem;
mod reserve;
mod responses;
mod sampler;
mod server;
mod session;
mod undeliverable;
mod under_stores;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use forebay_auth::Users;
use forebay_cache::Cache;
use forebay_env::Env;
use forebay_logs::AuditLog;
use http::{HeaderValue, StatusCode, header};
use prometheus_client::registry::Registry;
use tokio_rustls::TlsAcceptor;
use utoipa::openapi::OpenApi;

pub use api::{Cluster, ConfigurationEntry, FirstRound, LeavingRefused, Notice, Notices, Severity, UnderStores};
use persist::Persisting;
use sampler::Sampler;
pub use server::run;
use session::cookie;
use session::table::Sessions;
use session::throttle::Throttle;

/// Largest body of an admin request, in bytes: thousands of policy rules fit. Contents of objects have a limit of their
/// own.
const BODY_BYTES_MAX: usize = 1 << 20;

/// What there is once the store has been recovered.
pub struct Running {
    pub cache: Cache,
    pub users: Users,
    pub registry: Registry,
    pub notices: Notices,
    pub configuration: Vec<ConfigurationEntry>,
    pub under_stores: Arc<dyn UnderStores>,
    /// `None` for a worker that is alone.
    pub cluster: Option<Arc<dyn Cluster>>,
}

/// The admin service, shared by clones.
#[derive(Clone)]
pub struct Admin {
    shared: Arc<Shared>,
}

struct Shared {
    env: Env,
    tls: Option<TlsAcceptor>,
    started_ms: u64,
    running: OnceLock<Running>,
    stopping: AtomicBool,
    audit: AuditLog,
    sampler: Sampler,
    sessions: Sessions,
    throttle: Throttle,
    persisting: Persisting,
    description: OpenApi,
}

impl Admin {
    /// With `tls`, the listener speaks nothing else. `audit` gets what is changed here and who was refused.
    pub fn new(env: Env, tls: Option<TlsAcceptor>, audit: AuditLog) -> Self {
        let shared = Shared {
            started_ms: env.clock.unix_ms(),
            env,
            tls,
            audit,
            running: OnceLock::new(),
            stopping: AtomicBool::new(false),
            sampler: Sampler::default(),
            sessions: Sessions::default(),
            throttle: Throttle::default(),
            persisting: Persisting::default(),
            description: openapi::description(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Ends the time in which `/readyz` says "starting".
    ///
    /// # Panics
    /// When called twice.
    pub fn ready(&self, running: Running) {
        assert!(self.shared.running.set(running).is_ok(), "a worker starts once");
    }

    /// From now on `/readyz` says "stopping", so that load balancers send requests elsewhere.
    pub fn stopping(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
    }

    fn running(&self) -> Option<&Running> {
        self.shared.running.get()
    }

    fn audit(&self) -> &AuditLog {
        &self.shared.audit
    }

    fn is_stopping(&self) -> bool {
        self.shared.stopping.load(Ordering::Relaxed)
    }

    fn env(&self) -> &Env {
        &self.shared.env
    }

    /// Whether connections are of TLS.
    fn is_encrypted(&self) -> bool {
        self.shared.tls.is_some()
    }

    fn started_ms(&self) -> u64 {
        self.shared.started_ms
    }

    fn sampler(&self) -> &Sampler {
        &self.shared.sampler
    }

    fn sessions(&self) -> &Sessions {
        &self.shared.sessions
    }

    fn throttle(&self) -> &Throttle {
        &self.shared.throttle
    }

    fn persisting(&self) -> &Persisting {
        &self.shared.persisting
    }

    fn description(&self) -> &OpenApi {
        &self.shared.description
    }

    /// Only what probes and scrapers request. They get it however many other clients are connected.
    fn probes(&self) -> Router {
        let router = self.vital().fallback(problem::too_many_connections);
        router.layer(middleware::from_fn(finish)).with_state(self.clone())
    }

    fn vital(&self) -> Router<Self> {
        Router::new()
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::readyz))
            .route("/metrics", get(health::metrics))
    }

    fn router(&self) -> Router {
        Router::from(openapi::api())
            .merge(self.vital())
            .route("/", get(console::to_console))
            .route("/console", get(console::to_console))
            .route("/console/", get(console::index))
            .route("/console/{*name}", get(console::file))
            .fallback(problem::no_such_page)
            .method_not_allowed_fallback(problem::no_such_method)
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .layer(middleware::from_fn(finish))
            .layer(middleware::from_fn_with_state(self.clone(), audit::record))
            .layer(middleware::from_fn_with_state(self.clone(), body_timeout::end_stalled_bodies))
            .with_state(self.clone())
    }
}

/// What all answers have: they are what they say they are, and nobody keeps them.
async fn finish(request: Request, next: Next) -> Response {
    let by_browser = origin::is_browser(request.headers()) || cookie::of(request.headers()).is_some();
    let mut response = next.run(request).await;
    let is_refused = response.status() == StatusCode::UNAUTHORIZED;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if is_refused && by_browser {
        headers.insert(header::WWW_AUTHENTICATE, cookie::CHALLENGE);
    }
    response
}
