//! The admin listener: health, readiness, metrics and the core of the admin API.
//!
//! It is apart from the S3 listener and begins to answer before the store is open, so that probes see "starting" instead of a
//! refused connection. `/healthz`, `/readyz` and `/metrics` need no credentials, since probes and scrapers rarely have
//! any: they hold counts and names of buckets, never keys of objects and never secrets. Everything under `/api/` wants HTTP Basic
//! with the access key and secret key of a user who has an `admin` grant.

mod access;
pub mod api;
mod audit;
mod health;
mod persist;
mod policies;
mod problem;
mod server;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use forebay_auth::Users;
use forebay_cache::Cache;
use forebay_logs::AuditLog;
use prometheus_client::registry::Registry;

pub use api::{ConfigurationEntry, Notice, Notices, Severity, UnderStores};
pub use server::run;

/// Largest body of an admin request, in bytes: thousands of policy rules fit.
const BODY_BYTES_MAX: usize = 1 << 20;

/// What there is once the store has been recovered.
pub struct Running {
    pub cache: Cache,
    pub users: Users,
    pub registry: Registry,
    pub notices: Notices,
    pub configuration: Vec<ConfigurationEntry>,
    pub under_stores: Arc<dyn UnderStores>,
}

/// The admin service, shared by clones.
#[derive(Clone, Default)]
pub struct Admin {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    running: OnceLock<Running>,
    stopping: AtomicBool,
    audit: AuditLog,
}

impl Admin {
    /// With a log of what is changed here and of who was refused.
    pub fn audited(audit: AuditLog) -> Self {
        Self { shared: Arc::new(Shared { audit, ..Shared::default() }) }
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

    fn router(&self) -> Router {
        Router::new()
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::readyz))
            .route("/metrics", get(health::metrics))
            .route("/api/v1/status", get(health::status))
            .route("/api/v1/policies", get(policies::list).put(policies::replace))
            .route("/api/v1/policies/resolve", get(policies::resolve))
            .route("/api/v1/persist", post(persist::persist))
            .fallback(problem::no_such_page)
            .method_not_allowed_fallback(problem::no_such_method)
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .layer(axum::middleware::from_fn_with_state(self.clone(), audit::record))
            .with_state(self.clone())
    }
}
