//! Prefetches pages for sequential readers.

use std::sync::Arc;

use forebay_types::ByteRange;

use crate::read::remote::Version;
use crate::worker::Worker;

impl Worker {
    /// Remembers the end of a read, and prefetches the next pages when this read begins where the last one ended.
    pub(crate) fn follow_reader(self: &Arc<Self>, version: &Version, range: ByteRange) {
        let before = self.fetches.readers.get(&version.generation.0);
        self.fetches.readers.insert(version.generation.0, range.end);
        if before != Some(range.start) || range.end >= version.size {
            return;
        }
        let page_size = self.settings.page_size.0;
        let first = range.end.div_ceil(page_size);
        let last = version.size.div_ceil(page_size).min(first + u64::from(self.settings.read_ahead_pages));
        for index in first..last {
            let window = ByteRange::new(index * page_size, ((index + 1) * page_size).min(version.size));
            let (worker, version) = (Arc::clone(self), version.clone());
            if worker.has_all(&version, window) {
                continue;
            }
            forebay_env::spawn(async move {
                if let Err(error) = worker.fetch_page(version, window).await {
                    tracing::debug!(%error, "a page could not be read ahead");
                }
            });
        }
    }
}
