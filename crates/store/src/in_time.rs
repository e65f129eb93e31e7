//! Waits for work on a disk, as long as the disk answers.

use std::sync::Arc;

use crate::directory::unanswered::STALLED_AFTER;
use crate::fills::UnappliedFill;
use crate::inner::Inner;
use crate::permits::Permit;
use crate::record::Draft;
use crate::segment::SegmentKind;
use crate::stream::Streamed;
use crate::{Error, ErrorKind, Result};

impl Inner {
    pub(crate) fn is_stalled(&self, directory: usize) -> bool {
        self.volumes[directory].directory.unanswered.is_stalled()
    }

    /// Appends a record to a stream. When the disk stalls, the caller gets an error, but the append still runs to its
    /// end and keeps `permit` until then. What has begun can't be taken back: it counts as unanswered, and its errors
    /// count.
    ///
    /// # Errors
    /// `Busy` when the disk does not answer: the record is garbage when it does. `Full` and `Failed`.
    pub(crate) async fn append_in_time(
        self: &Arc<Self>,
        directory: usize,
        kind: SegmentKind,
        draft: Draft,
        permit: Option<Permit>,
    ) -> Result<Streamed> {
        let inner = Arc::clone(self);
        let unapplied = self.stream(directory, kind).begin();
        let waiting = unapplied.as_ref().map(UnappliedFill::waiting);
        let appended = async move {
            let _permit = permit;
            inner.stream(directory, kind).append_begun(draft, unapplied).await
        };
        let appended = self.in_time(directory, async { forebay_env::spawn(appended).join().await }).await?;
        if let Some(waiting) = waiting {
            waiting.ends();
        }
        appended
    }

    /// Waits until `bytes` more may be in memory for a disk.
    ///
    /// # Errors
    /// `Busy` when the disk does not answer.
    pub(crate) async fn permit_in_time(&self, directory: usize, bytes: usize) -> Result<Permit> {
        self.in_time(directory, self.volumes[directory].permits.take(bytes)).await
    }

    async fn in_time<T>(&self, directory: usize, work: impl Future<Output = T>) -> Result<T> {
        let mut work = std::pin::pin!(work);
        // A disk that is only busy is waited for: it answers, though other requests come first.
        let mut pause = STALLED_AFTER;
        while !self.is_stalled(directory) {
            tokio::select! { biased; done = &mut work => return Ok(done), () = self.env.clock.sleep(pause) => {} }
            pause = STALLED_AFTER / 5;
        }
        let disk = self.volumes[directory].directory.disk.label();
        Err(Error::new(ErrorKind::Busy, format!("{disk} does not answer")))
    }
}
