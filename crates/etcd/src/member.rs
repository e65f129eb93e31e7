//! One member of etcd, and the connection to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_env::Clock;
use http::uri::PathAndQuery;
use parking_lot::Mutex;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::failure::{CallError, What};
use crate::messages::Call;

/// Bytes of an answer. Scans that are longer come in parts.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// For how long after an answer a member is taken to be well: a transaction is sent to no other.
const WELL_FOR: Duration = Duration::from_secs(10);

pub(crate) type Token = MetadataValue<Ascii>;

pub(crate) struct Member {
    endpoint: Endpoint,
    timeout: Duration,
    /// `None` until somebody calls, and after a failure. Calls in flight keep their own.
    channel: Mutex<Option<Channel>>,
    /// When it answered last, unless it has failed since.
    answered: Mutex<Option<Duration>>,
    has_failed: AtomicBool,
}

impl Member {
    pub(crate) fn new(endpoint: Endpoint, timeout: Duration) -> Self {
        let (channel, answered) = (Mutex::default(), Mutex::default());
        Self { endpoint, timeout, channel, answered, has_failed: AtomicBool::new(false) }
    }

    pub(crate) fn name(&self) -> String {
        self.endpoint.uri().to_string().trim_end_matches('/').to_owned()
    }

    /// How long a call may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn is_well(&self, clock: &dyn Clock) -> bool {
        self.answered.lock().is_some_and(|answered| clock.monotonic() < answered + WELL_FOR)
    }

    /// The next call makes a new connection: whatever is sent over this one may get lost.
    pub(crate) fn failed(&self, failure: &CallError) {
        *self.answered.lock() = None;
        *self.channel.lock() = None;
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            tracing::warn!(member = self.name(), error = failure.text, "a member of etcd does not answer");
        }
    }

    pub(crate) fn has_answered(&self, clock: &dyn Clock) {
        *self.answered.lock() = Some(clock.monotonic());
        if self.has_failed.swap(false, Ordering::Relaxed) {
            tracing::info!(member = self.name(), "a member of etcd answers again");
        }
    }

    /// Sends a request once.
    pub(crate) async fn call<C: Call>(
        &self,
        clock: &dyn Clock,
        call: C,
        token: Option<Token>,
    ) -> Result<C::Answer, CallError> {
        let channel = self.channel.lock().get_or_insert_with(|| self.endpoint.connect_lazy()).clone();
        let mut request = tonic::Request::new(call);
        // The member learns the timeout, too: it should not begin work that nobody waits for.
        request.set_timeout(self.timeout);
        if let Some(token) = token {
            request.metadata_mut().insert("token", token);
        }
        let exchange = async {
            let mut client = Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
            client.ready().await.map_err(|error| CallError::new(What::NotDone, error.to_string()))?;
            let method = PathAndQuery::from_static(C::METHOD);
            client.unary(request, method, ProstCodec::default()).await.map_err(|status| CallError::of(&status))
        };
        tokio::select! {
            biased;
            answer = exchange => {
                let answer: tonic::Response<C::Answer> = answer?;
                Ok(answer.into_inner())
            }
            () = clock.sleep(self.timeout) => {
                Err(CallError::new(What::NoAnswer, format!("no answer within {:?}", self.timeout)))
            }
        }
    }
}
