//! Users, their access keys and what they may do.
//!
//! The root user comes from the environment and may do everything; all others come from a TOML file that is watched.
//! Nobody else has any right, and requests without a signature have only what an `[[anonymous]]` grant gives them.
//!
//! ```toml
//! [[user]]
//! name = "etl"
//! access_key = "ETLKEY0000000000"
//! secret_key = "a long random secret"
//! grants = [{ path = "/lake/raw", allow = ["read", "write", "list"] }]
//!
//! [[anonymous]]
//! path = "/public"
//! allow = ["read"]
//! ```

mod document;
mod file;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod grant;
mod secret;
mod user;
mod users;
mod watch;

pub use document::Document;
pub use file::InvalidFile;
pub use grant::{Action, Grant};
pub use secret::{Secret, equal_in_constant_time};
pub use user::{RootUser, User};
pub use users::{FileCounts, Users};
