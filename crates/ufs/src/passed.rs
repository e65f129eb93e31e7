//! What happened to a request that passes through to S3. Its answer does not say: an error may come from the under
//! store, from the way there, or from this side, which may have sent nothing.

use std::cell::Cell;

use aws_sdk_s3::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_runtime_api::box_error::BoxError;

tokio::task_local! {
    /// Of the call that this task makes.
    static OUTCOME: Cell<Outcome>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// For example without credentials.
    NotSent,
    /// It was sent, or the under store could not be reached.
    Unanswered,
    /// With this status.
    Answered(u16),
}

/// Makes a call, and returns what the under store did with it. The SDK calls interceptors in the task of the call.
pub(crate) async fn observed<T>(call: impl Future<Output = T>) -> (T, Outcome) {
    let call = async {
        let output = call.await;
        (output, OUTCOME.with(Cell::get))
    };
    OUTCOME.scope(Cell::new(Outcome::NotSent), call).await
}

/// Notes what happened, if somebody observes it.
pub(crate) fn note(outcome: Outcome) {
    let _ = OUTCOME.try_with(|cell| cell.set(outcome));
}

/// Notes what happens to the requests of a client.
#[derive(Debug)]
pub(crate) struct Noted;

impl Intercept for Noted {
    fn name(&self) -> &'static str {
        "Noted"
    }

    fn read_before_transmit(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        note(Outcome::Unanswered);
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        note(Outcome::Answered(context.response().status().as_u16()));
        Ok(())
    }
}
