//! How to reach under stores, in addition to their URLs.

use std::sync::Arc;

use crate::governor::{CallObserver, GovernorSettings};
use crate::s3::{S3Credentials, S3Settings};

/// How to reach an under store, in addition to its URL.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Used instead of those from the environment and the profile files.
    pub credentials: Option<S3Credentials>,
    pub s3: S3Settings,
    pub governor: GovernorSettings,
    pub observer: Option<Arc<dyn CallObserver>>,
}
