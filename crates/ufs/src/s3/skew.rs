//! How far a server's clock is from ours. Signatures are valid for a few minutes only, and this machine's clock may be
//! wrong, or jump.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_s3::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_async::time::TimeSource;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use forebay_env::Clock;

/// Smaller differences are ignored. It is less than the 15 minutes that S3 tolerates, so that no refusal for this
/// reason is taken for another. The SDK has the same threshold.
const SKEW_MS: u64 = 4 * 60 * 1000;

/// The time that all requests of a client are signed with. It replaces the SDK's own correction, which does not see
/// requests that bypass the SDK, and recognises only some servers' codes.
#[derive(Clone)]
pub(super) struct Skew {
    clock: Arc<dyn Clock>,
    ahead_ms: Arc<AtomicI64>,
}

impl Skew {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, ahead_ms: Arc::default() }
    }

    /// How far the server's clock is ahead of ours, in milliseconds.
    pub(super) fn ahead_ms(&self) -> i64 {
        self.ahead_ms.load(Ordering::Relaxed)
    }

    /// Learns from the answer to a refused request. An answer from a proxy's cache shows an old time.
    pub(super) fn learn(&self, response: &HttpResponse) {
        let date = response.headers().get("date").and_then(|date| DateTime::from_str(date, Format::HttpDate).ok());
        let Some(theirs) = date.and_then(|date| date.to_millis().ok()) else { return };
        let ahead_ms = theirs.saturating_sub_unsigned(self.clock.unix_ms());
        let is_refusal = response.status().as_u16() == 403 && response.headers().get("age").is_none();
        if is_refusal && ahead_ms.abs_diff(self.ahead_ms()) > SKEW_MS {
            tracing::warn!(
                seconds = ahead_ms / 1000,
                "this machine's clock differs from the under store's: requests are signed with the under store's time. Run an NTP client"
            );
            self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Skew").field("ahead_ms", &self.ahead_ms()).finish_non_exhaustive()
    }
}

impl TimeSource for Skew {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.clock.unix_ms().saturating_add_signed(self.ahead_ms()))
    }
}

impl Intercept for Skew {
    fn name(&self) -> &'static str {
        "Skew"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.learn(context.response());
        Ok(())
    }
}
