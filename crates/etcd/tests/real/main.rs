//! The engine over real members of etcd, which these tests start.

mod home;
mod outcomes;
mod promises;
mod relay;
mod room;
mod security;
mod servers;
mod silence;
