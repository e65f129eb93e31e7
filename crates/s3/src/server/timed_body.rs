//! Bodies that must keep moving.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use forebay_env::Clock;
use futures::Stream;
use futures::future::BoxFuture;
use http_body::Body;
use s3s::StdError;

use crate::metrics::Metrics;
use crate::s3s_fixes::BodyError;

/// A body that ends with [`BodyError::TooSlow`] when fewer than the least bytes come in a window. A new window begins
/// as soon as these bytes have come, and only time in which we wait counts.
pub(crate) struct TimedBody<B> {
    body: Pin<Box<B>>,
    clock: Arc<dyn Clock>,
    window: Duration,
    least: u64,
    came: u64,
    timer: Option<BoxFuture<'static, ()>>,
    metrics: Arc<Metrics>,
}

impl<B> TimedBody<B> {
    /// `window` is its length and the least bytes in it.
    pub(crate) fn new(body: B, clock: Arc<dyn Clock>, window: (Duration, u64), metrics: Arc<Metrics>) -> Self {
        Self { body: Box::pin(body), clock, window: window.0, least: window.1, came: 0, timer: None, metrics }
    }

    fn start_timer(&self) -> BoxFuture<'static, ()> {
        let (clock, window) = (Arc::clone(&self.clock), self.window);
        Box::pin(async move { clock.sleep(window).await })
    }
}

impl<B> Stream for TimedBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<StdError>,
{
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match self.body.as_mut().poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers of the transfer are not ours: aws-chunked carries its own.
                    let Ok(data) = frame.into_data() else { continue };
                    self.metrics.received(data.len());
                    self.came += data.len() as u64;
                    if self.came >= self.least {
                        (self.came, self.timer) = (0, None);
                    }
                    return Poll::Ready(Some(Ok(data)));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {}
            }
            let fresh = self.timer.is_none().then(|| self.start_timer());
            let timer = self.timer.get_or_insert_with(|| fresh.expect("made when there was none"));
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            return Poll::Ready(Some(Err(BodyError::TooSlow.into())));
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;
    use futures::{SinkExt, StreamExt};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use prometheus_client::registry::Registry;

    use super::*;

    #[tokio::test]
    async fn a_body_that_stands_still_ends_and_one_that_moves_does_not() {
        let (env, clock) = Env::simulated(1);
        let (mut sender, receiver) = futures::channel::mpsc::channel::<Result<Frame<Bytes>, StdError>>(1);
        let metrics = Arc::new(Metrics::register(&mut Registry::default()));
        let mut body = TimedBody::new(StreamBody::new(receiver), env.clock, (Duration::from_secs(30), 4), metrics);
        for _ in 0..5 {
            assert!(futures::poll!(body.next()).is_pending());
            clock.advance(Duration::from_secs(20));
            sender.send(Ok(Frame::data(Bytes::from_static(b"moving")))).await.unwrap();
            assert_eq!(body.next().await.unwrap().unwrap(), "moving");
        }
        assert!(futures::poll!(body.next()).is_pending());
        sender.send(Ok(Frame::data(Bytes::from_static(b"x")))).await.unwrap();
        assert_eq!(body.next().await.unwrap().unwrap(), "x");
        clock.advance(Duration::from_secs(31));
        let error = body.next().await.unwrap().unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&BodyError::TooSlow));
    }
}
