//! What workers of a cluster say to one another: questions of one cache to another, and requests of clients that are
//! answered at another worker.
//!
//! The protocol is HTTP/1.1 over TLS 1.3. Both ends prove that they have the key of the cluster ([`Identity`]), so a
//! message is neither forged, altered, replayed nor read by others. The version of the protocol is negotiated in the
//! handshake. docs/rfcs/peer-protocol.md has the reasons.

mod answer;
mod ask;
mod client;
mod connect;
mod error;
mod forward;
mod identity;
mod message;
mod question;
mod server;
mod settings;

pub use answer::Answers;
pub use client::{Members, Peers};
pub use error::{Error, Result};
pub use forward::Origin;
pub use identity::{ClusterKey, Identity};
pub use message::PeerBody;
pub use server::{ClientRequests, PeerServer};
pub use settings::{OwnSettings, WorkerSettings};
