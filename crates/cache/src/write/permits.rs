//! Permits for requests that change the under store: only the home of a key sends them.
//!
//! The under store knows nothing of leases, so a request that is sent too late could overwrite a write of the next
//! home. A request is therefore polled only while the lease lasts, and given up when it ends. Everything sent by then
//! lands within the settle time, and the next home waits that long.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use forebay_ufs::ErrorKind;

use crate::worker::Worker;

/// A request to the under store was given up.
pub(crate) fn lease_ended(kind: ErrorKind) -> forebay_ufs::Error {
    forebay_ufs::Error::new(kind, "this worker's lease has ended")
}

/// The lease ended before the request did.
pub(crate) struct LeaseEnded {
    /// Whether any part of the request may have been sent.
    may_be_sent: bool,
}

impl Worker {
    /// Runs a request that changes the under store.
    ///
    /// # Errors
    /// Those of the request. When the lease ends first: `Unavailable` if nothing was sent, otherwise `Ambiguous`.
    pub(crate) async fn permitted<T>(
        &self,
        request: impl Future<Output = forebay_ufs::Result<T>>,
    ) -> forebay_ufs::Result<T> {
        self.while_leased(request).await.unwrap_or_else(|ended| {
            let kind = if ended.may_be_sent { ErrorKind::Ambiguous } else { ErrorKind::Unavailable };
            Err(lease_ended(kind))
        })
    }

    /// As [`Worker::permitted`], for a request of any kind.
    pub(crate) async fn while_leased<T>(&self, request: impl Future<Output = T>) -> Result<T, LeaseEnded> {
        let lease = || self.catalog.lease();
        if lease().is_none() {
            return Ok(request.await);
        }
        let mut request = pin!(request);
        let mut may_be_sent = false;
        while let Some(left) = lease().filter(|left| !left.is_zero()) {
            let mut ends = pin!(self.env.clock.sleep(left));
            let answer = poll_fn(|context| {
                // A process that was suspended checks its lease first when it continues.
                if lease() == Some(Duration::ZERO) {
                    return Poll::Ready(None);
                }
                may_be_sent = true;
                match request.as_mut().poll(context) {
                    Poll::Ready(answer) => Poll::Ready(Some(answer)),
                    Poll::Pending => ends.as_mut().poll(context).map(|()| None),
                }
            });
            if let Some(answer) = answer.await {
                return Ok(answer);
            }
        }
        Err(LeaseEnded { may_be_sent })
    }
}
