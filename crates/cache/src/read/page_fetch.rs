//! Reads pages from disk, or fetches them from the under store once for all readers of one requester that want them.

use std::sync::Arc;

use bytes::Bytes;
use forebay_store::Piece;
use forebay_types::ByteRange;
use forebay_ufs::{ByteStream, ErrorKind as UfsKind, RemoteBody};

use crate::metrics::Tier;
use crate::read::fetches::{FetchedPage, Page};
use crate::read::pages::{Pages, broken_off, pages_of};
use crate::read::remote::Version;
use crate::worker::Worker;
use crate::{Error, Result};

/// Bytes that pages take from a body that was requested before its size was known. Separate requests fetch the pages
/// after them, several at once.
const FIRST_BODY_BYTES_MAX: u64 = 4 << 20;

impl Worker {
    /// Reads `wanted`, which lies within one page, from the store or the under store. `is_rest`: the same reader has
    /// read other bytes of the page before.
    ///
    /// # Errors
    /// `PreconditionFailed` when the under store has another version by now.
    pub(crate) async fn read_page(
        self: Arc<Self>,
        version: Version,
        wanted: ByteRange,
        is_rest: bool,
    ) -> Result<Vec<Bytes>> {
        if let Some(found) = self.read_local(&version, wanted).await {
            self.metrics.read(Tier::disk, &version.path.bucket, &version.rule, wanted.len());
            return Ok(found);
        }
        // The whole page was fetched then, and could not be stored.
        if is_rest {
            return self.fetch_piece(&version, wanted).await.map(|piece| vec![piece]);
        }
        let page_size = self.settings.page_size.0;
        let index = wanted.start / page_size;
        let window = ByteRange::new(index * page_size, ((index + 1) * page_size).min(version.size));
        let (bucket, rule) = (version.path.bucket.clone(), Arc::clone(&version.rule));
        let Page { data: page, tier } = self.fetch_page(version, window).await.map_err(|error| error.shared())?;
        self.metrics.read(tier, &bucket, &rule, wanted.len());
        let start = (wanted.start - window.start) as usize;
        let wanted = page.slice(start..start + wanted.len() as usize);
        // A slice would keep the whole page in memory, for as long as a slow client needs for its piece.
        Ok(vec![if wanted.len() <= page.len() / 2 { Bytes::copy_from_slice(&wanted) } else { wanted }])
    }

    /// All of `wanted`, if it is here and undamaged.
    async fn read_local(&self, version: &Version, wanted: ByteRange) -> Option<Vec<Bytes>> {
        let present = self.store.peek(&Self::store_key(&version.path));
        let present = present.filter(|object| object.generation() == version.generation);
        let object = present.as_ref().unwrap_or(&version.opened);
        let mut found = Vec::new();
        for piece in object.pieces(wanted) {
            match piece {
                // Damaged bytes of a clean copy count as missing.
                Piece::Cached(range) => found.push(object.read(range).await.ok()?),
                Piece::Missing(_) => return None,
            }
        }
        Some(found)
    }

    /// Fetches a page, once for all readers of one requester that want it.
    pub(crate) async fn fetch_page(self: &Arc<Self>, version: Version, window: ByteRange) -> FetchedPage {
        let (flight, page) = self.fetches.pages.begin(&(version.generation, window.start));
        if let Some(flight) = flight {
            let worker = Arc::clone(self);
            // A task of its own, because other readers may still wait when the first one has gone.
            forebay_env::spawn(async move {
                flight.end(worker.fetch_and_fill(&version, window).await.map_err(Arc::new));
            });
        }
        page.await.unwrap_or_else(|_| Err(Arc::new(broken_off())))
    }

    /// Takes the first pages of a version from a body in flight, instead of sending requests for them.
    pub(crate) fn expect_pages(self: &Arc<Self>, version: &Version, body: ByteStream) {
        let pages = pages_of(ByteRange::of_size(version.size), self.settings.page_size.0);
        let pages = pages.take_while(|page| page.start < FIRST_BODY_BYTES_MAX);
        // There is no flight if a reader that has just found the new copy is fetching the page, too. Readers of other
        // requesters may be as well. All get the same bytes, and the store keeps those that come first.
        let promise = |window: ByteRange| (window, self.fetches.pages.begin(&(version.generation, window.start)).0);
        let promised: Vec<_> = pages.map(promise).collect();
        let (worker, version) = (Arc::clone(self), version.clone());
        // Ends with the body, or when the under store's client times out.
        forebay_env::spawn(async move {
            let _permit = worker.fetches.permit(&worker.buckets.tenant(&version.path.bucket), version.size).await;
            let mut pages = Pages::of(body);
            let mut failed = None;
            for (window, flight) in promised {
                let result = match &failed {
                    None => pages.expected(&version, window).await.map(of_under_store).map_err(Arc::new),
                    Some(error) => Err(Arc::clone(error)),
                };
                match &result {
                    Ok(page) => worker.fill(&version, window, &page.data).await,
                    Err(error) => failed = Some(Arc::clone(error)),
                }
                if let Some(flight) = flight {
                    flight.end(result);
                }
            }
        });
    }

    async fn fetch_and_fill(&self, version: &Version, window: ByteRange) -> Result<Page> {
        // The flight that fetched the page may have ended between the caller's check and this flight.
        if self.has_all(version, window)
            && let Some(found) = self.read_local(version, window).await
        {
            return Ok(of_under_store(found.concat().into()));
        }
        let _permit = self.fetches.permit(&self.buckets.tenant(&version.path.bucket), window.len()).await;
        if let Some(page) = self.page_of_former_home(version, window).await {
            self.fill(version, window, &page).await;
            return Ok(Page { data: page, tier: Tier::worker });
        }
        let mut pages = Pages::of(self.ask_for_bytes(version, window).await?);
        let page = pages.next(&version.path, window.len()).await?;
        pages.end(&version.path).await?;
        self.fill(version, window, &page).await;
        Ok(of_under_store(page))
    }

    /// Fetches bytes that are not kept.
    async fn fetch_piece(&self, version: &Version, wanted: ByteRange) -> Result<Bytes> {
        let bucket = &version.path.bucket;
        let _permit = self.fetches.permit(&self.buckets.tenant(bucket), wanted.len()).await;
        let mut body = Pages::of(self.ask_for_bytes(version, wanted).await?);
        let piece = body.next(&version.path, wanted.len()).await?;
        body.end(&version.path).await?;
        self.metrics.read(Tier::under_store, bucket, &version.rule, wanted.len());
        Ok(piece)
    }

    /// Asks the under store for bytes of a version.
    ///
    /// # Errors
    /// `PreconditionFailed` when the under store has another version by now.
    pub(super) async fn ask_for_bytes(&self, version: &Version, wanted: ByteRange) -> Result<ByteStream> {
        // A request without a range returns the object's checksum, if the under store has one, and the client verifies
        // it.
        let range = (wanted.len() < version.size).then_some(wanted);
        let fetched = version.under_store.get(&version.path.key, range, Some(&version.remote_etag)).await;
        let same =
            |body: RemoteBody| body.object.must_be(version.size, &version.etag, &version.remote_etag).map(|()| body);
        match fetched.and_then(same) {
            Ok(body) => {
                self.home.silent_buckets.heard(&version.path.bucket);
                Ok(body.stream)
            }
            Err(error) => {
                self.note_told(&version.path, Some(&error));
                if matches!(error.kind, UfsKind::Precondition | UfsKind::NotFound | UfsKind::InvalidName) {
                    self.home.validity.invalidate(version.generation);
                    self.outdated(&version.path, Some(version.generation));
                }
                Err(Error::from(error).of_read())
            }
        }
    }

    pub(crate) fn has_all(&self, version: &Version, window: ByteRange) -> bool {
        self.store.peek(&Self::store_key(&version.path)).is_some_and(|object| {
            object.generation() == version.generation
                && object.pieces(window).iter().all(|piece| matches!(piece, Piece::Cached(_)))
        })
    }
}

fn of_under_store(data: Bytes) -> Page {
    Page { data, tier: Tier::under_store }
}
