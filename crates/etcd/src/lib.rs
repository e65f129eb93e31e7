//! The engine of a cluster over etcd: see docs/rfcs/etcd.md.
//!
//! [`EtcdEngine`] is a [`forebay_catalog::Engine`]. It speaks gRPC with few calls of etcd, whose messages are written
//! here by hand.

mod engine;
mod failure;
mod history;
mod login;
mod maintenance;
mod member;
mod members;
mod messages;
mod settings;
mod transaction;

pub use engine::EtcdEngine;
pub use maintenance::{MemberHealth, MemberStatus};
pub use settings::{EtcdSettings, EtcdUser, InvalidSetting};
