//! Requests of clients: how they have come, and what answers them.

use std::io;
use std::net::IpAddr;

use async_trait::async_trait;
use http::{Request, Response};
use serde::{Deserialize, Serialize};

use crate::message::{PeerBody, RequestBody};

/// How a client has reached the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub ip: Option<IpAddr>,
    /// `http` or `https`
    pub is_encrypted: bool,
    /// Version of TLS and cipher suite, as logs name them.
    pub tls: Option<(String, String)>,
}

/// What answers requests of clients.
#[async_trait]
pub trait ClientRequests: Send + Sync + 'static {
    /// Answers a client's request that has come to another worker. It is not passed on again.
    ///
    /// # Errors
    /// The other worker gets no answer.
    async fn answer(&self, request: Request<RequestBody>, origin: Origin) -> io::Result<Response<PeerBody>>;
}
