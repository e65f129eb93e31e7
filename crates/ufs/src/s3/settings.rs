//! Settings of an under store on S3.

use std::fmt;
use std::time::Duration;

use forebay_types::{ByteSize, Period};
use serde::{Deserialize, Serialize};

/// Keys from Forebay's own configuration.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Credentials {
    pub access_key: String,
    pub secret_key: String,
    pub session_token: Option<String>,
}

impl fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Limits and switches that operators may change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct S3Settings {
    /// Objects above this size are uploaded in parts.
    pub multipart_threshold: ByteSize,
    /// Size of the parts. Larger for objects that would have more than 10,000.
    pub part_size: ByteSize,
    /// Parts of one object that are uploaded concurrently.
    pub parts_at_once: u32,
    /// Longest wait for a connection.
    pub connect_timeout: Period,
    /// Longest wait for an answer, in addition to the time that an upload takes at `upload_rate_min`.
    pub request_timeout: Period,
    /// Least bytes per second of an upload. Slower ones are given up.
    pub upload_rate_min: ByteSize,
    /// Asks the metadata service of a cloud instance for credentials when nothing else has any.
    pub instance_credentials: bool,
    /// Aborts all multipart uploads that have been incomplete for too long, no matter who began them. For places that
    /// nobody else writes to: S3 does not say who began an upload.
    pub sweep_uploads: bool,
}

impl Default for S3Settings {
    fn default() -> Self {
        Self {
            multipart_threshold: ByteSize(64 << 20),
            part_size: ByteSize(16 << 20),
            parts_at_once: 4,
            connect_timeout: Period::from_secs(5),
            request_timeout: Period::from_secs(30),
            upload_rate_min: ByteSize(1 << 20),
            instance_credentials: false,
            sweep_uploads: false,
        }
    }
}

impl S3Settings {
    /// The longest that a request with a body of `bytes` may take.
    pub(super) fn deadline(&self, bytes: u64) -> Duration {
        self.request_timeout.0 + Duration::from_secs(bytes / self.upload_rate_min.0.max(1))
    }
}
