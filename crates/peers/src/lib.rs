//! What workers of a cluster say to one another: questions of one cache to another, and requests of clients that are
//! answered at another worker.
//!
//! The protocol is HTTP/1.1 over TLS 1.3, and frames for small requests of clients. Both ends prove that they have the
//! key of the cluster ([`Identity`]), so a message is neither forged, altered, replayed nor read by others. The version
//! of the protocol is negotiated in the handshake. docs/rfcs/workers-talk.md has the reasons.

mod answer;
mod ask;
mod client;
mod connect;
mod error;
mod forward;
mod frames;
mod identity;
mod message;
mod question;
mod requests;
mod server;
mod settings;

pub use answer::Answers;
pub use client::{Members, Peers};
pub use error::{Error, Result};
pub use identity::{ClusterKey, Identity, protocols};
pub use message::{PeerBody, RequestBody};
pub use requests::{ClientRequests, Origin};
pub use server::PeerServer;
pub use settings::{OwnSettings, WorkerSettings};
