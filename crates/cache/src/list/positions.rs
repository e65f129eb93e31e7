//! Where listings of under stores continue, and the changes that have reached an under store since a listing began.
//!
//! A listing continues best with the under store's own token, because MinIO leaves out keys after some names when it is
//! asked to start there. But the data behind a token may be as old as the first page: MinIO keeps whole listings for
//! their later pages. An object that was written here before the listing may have left the catalog since. It is then
//! neither in the catalog nor in the listing. For as long as a token may be used, this module therefore keeps changes
//! that leave the catalog, and overlays them on the pages of older listings. It does so for kept pages, too
//! ([`super::pages`]).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::records;
use forebay_env::sync::Mutex;
use forebay_env::{Env, Requester};
use forebay_types::{BucketName, ObjectPath};
use serde::{Deserialize, Serialize};

use crate::{ListObjects, ListedObject};

/// Positions of listings that are remembered, at a few hundred bytes each. Other listings continue by name. The oldest
/// position of the requester that has most of them is forgotten first.
const POSITIONS_MAX: usize = 4096;

/// How long a client may take between two pages. MinIO forgets a listing after some minutes.
pub(crate) const POSITION_AGE_MAX: Duration = Duration::from_secs(600);

/// Changes that are remembered, at a few hundred bytes each. Listings that are older continue by name.
const CHANGES_MAX: usize = 65_536;

/// The position at which a listing continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// The last name that has been shown.
    pub(crate) after: Option<String>,
    /// The under store's page with the next names. It may begin with names that have been shown.
    pub(crate) page: PageStart,
    /// The number of names that were requested for that page, if it begins with names that have been shown. With fewer,
    /// it would not contain the next names. Otherwise 0.
    pub(crate) page_limit: usize,
    /// The number of the last change before the under store's listing began.
    pub(crate) since: u64,
    /// When the under store's listing began.
    pub(crate) begun: Duration,
}

/// Where a page of an under store begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PageStart {
    Behind(Option<String>),
    Token(String),
}

#[derive(PartialEq, Eq, Hash, Clone)]
struct PageKey {
    /// Nobody replaces the position of another.
    requester: Requester,
    bucket: BucketName,
    prefix: String,
    delimiter: Option<String>,
    after: String,
}

struct Known {
    position: Position,
    until: Duration,
}

/// The change of an object in the under store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    Written(ListedObject),
    Deleted,
    /// Only the under store knows.
    Unknown,
}

/// A place in the log of changes of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangeMark {
    /// Another one after each start.
    pub(crate) log: u64,
    /// The number of the last change.
    pub(crate) number: u64,
}

pub(crate) struct Positions {
    env: Env,
    /// See [`ChangeMark::log`].
    log: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: HashMap<PageKey, Known>,
    /// In the order of expiry. A position that was stored again occurs twice.
    ends: VecDeque<(Duration, PageKey)>,
    /// How many of `ends` each requester has. Those that have none are not in it.
    counts: BTreeMap<Requester, usize>,
    /// Listings in flight.
    listings: usize,
    /// Changes are kept until then, for pages.
    kept_until: Duration,
    changes: Changes,
}

/// Changes that left the catalog because the under store has them.
#[derive(Default)]
struct Changes {
    /// The number of the last change.
    last: u64,
    /// The number of the last change that was forgotten.
    forgotten: u64,
    /// By key in the catalog.
    by_key: BTreeMap<Bytes, (u64, Change)>,
    /// In order, including changes that a later one of the same key has replaced.
    by_number: VecDeque<(u64, Bytes)>,
}

/// Changes are kept while this exists.
pub(crate) struct Listing<'a>(&'a Positions);

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().listings -= 1;
    }
}

impl Positions {
    pub(crate) fn new(env: Env) -> Self {
        Self { log: env.random.next_u64(), env, state: Mutex::default() }
    }

    /// The position at which a listing begins or continues.
    pub(crate) fn begin(&self, bucket: &BucketName, request: &ListObjects) -> (Listing<'_>, Position) {
        let mut state = self.state.lock();
        state.listings += 1;
        let known = request.start_after.as_deref().and_then(|after| state.known.get(&page_key(bucket, request, after)));
        let now = self.env.clock.monotonic();
        let known = known.filter(|known| known.until > now && known.position.since >= state.changes.forgotten);
        let position = known.map(|known| known.position.clone());
        drop(state);
        (Listing(self), position.unwrap_or_else(|| self.by_name(request.start_after.clone())))
    }

    /// A position that continues by name only.
    pub(crate) fn by_name(&self, after: Option<String>) -> Position {
        let (since, begun) = (self.now(), self.env.clock.monotonic());
        Position { page: PageStart::Behind(after.clone()), after, page_limit: 0, since, begun }
    }

    /// Remembers the position of the listing after the page that ends with `after`.
    pub(crate) fn keep(&self, bucket: &BucketName, request: &ListObjects, after: &str, at: Position) {
        let until = self.env.clock.monotonic() + POSITION_AGE_MAX;
        let key = page_key(bucket, request, after);
        let position = Position { after: Some(after.to_owned()), ..at };
        let mut state = self.state.lock();
        *state.counts.entry(key.requester).or_default() += 1;
        state.ends.push_back((until, key.clone()));
        state.known.insert(key, Known { position, until });
        while state.ends.len() > POSITIONS_MAX {
            state.end_first_of_most();
        }
    }

    /// The bucket is deleted, and may be created again.
    pub(crate) fn forget(&self, bucket: &BucketName) {
        let mut state = self.state.lock();
        state.known.retain(|key, _| key.bucket != *bucket);
        state.changes.forget_all();
    }

    /// Forgets everything: other workers may have changed any key.
    pub(crate) fn forget_all(&self) {
        let mut state = self.state.lock();
        state.known.clear();
        state.changes.forget_all();
    }

    /// Keeps changes until then, for a page that is requested now.
    pub(crate) fn keep_changes(&self, until: Duration) {
        let mut state = self.state.lock();
        state.kept_until = state.kept_until.max(until);
    }

    /// The present mark of the log.
    pub(crate) fn mark(&self) -> ChangeMark {
        self.mark_at(self.now())
    }

    /// The mark of a change of this process.
    pub(crate) fn mark_at(&self, number: u64) -> ChangeMark {
        ChangeMark { log: self.log, number }
    }

    /// The number of the last change. A page that is requested now by name, not by token, contains all changes up to
    /// it.
    pub(crate) fn now(&self) -> u64 {
        self.state.lock().changes.last
    }

    /// The under store has a new state of the object. Called before the object's record leaves the catalog.
    pub(crate) fn changed(&self, path: &ObjectPath, change: impl FnOnce() -> Change) {
        let now = self.env.clock.monotonic();
        let mut state = self.state.lock();
        while state.ends.front().is_some_and(|(until, _)| *until <= now) {
            state.end(0);
        }
        if state.listings == 0 && state.known.is_empty() && state.kept_until <= now {
            state.changes.forget_all();
        } else {
            state.changes.add(records::object_key(path), change());
        }
    }

    /// Changes of keys from `from` up to but not including `to`, with numbers above `since`, by key. `None` when some
    /// of them were forgotten.
    pub(crate) fn changes(&self, from: &Bytes, to: &Bytes, since: u64) -> Option<Vec<(ObjectPath, Change)>> {
        let state = self.state.lock();
        if since < state.changes.forgotten {
            return None;
        }
        if from >= to {
            return Some(Vec::new());
        }
        let range = state.changes.by_key.range(from.clone()..to.clone());
        let newer = range.filter(|(_, (number, _))| *number > since);
        Some(newer.filter_map(|(key, (_, change))| Some((records::parse_object_key(key)?, change.clone()))).collect())
    }
}

fn page_key(bucket: &BucketName, request: &ListObjects, after: &str) -> PageKey {
    let (prefix, delimiter) = (request.prefix.clone(), request.delimiter.clone());
    PageKey { requester: Requester::present(), bucket: bucket.clone(), prefix, delimiter, after: after.to_owned() }
}

impl State {
    /// The first that ends of the requester that has most.
    fn end_first_of_most(&mut self) {
        let most = self.counts.iter().max_by_key(|(_, count)| **count).map(|(requester, _)| *requester);
        let at = self.ends.iter().position(|(_, key)| Some(key.requester) == most);
        self.end(at.unwrap_or(0));
    }

    /// Removes one of `ends`, and its position, unless that was stored again.
    fn end(&mut self, at: usize) {
        let Some((until, key)) = self.ends.remove(at) else { return };
        if let Some(count) = self.counts.get_mut(&key.requester) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&key.requester);
            }
        }
        if self.known.get(&key).is_some_and(|known| known.until == until) {
            self.known.remove(&key);
        }
    }
}

impl Changes {
    fn add(&mut self, key: Bytes, change: Change) {
        self.last += 1;
        self.by_key.insert(key.clone(), (self.last, change));
        self.by_number.push_back((self.last, key));
        while self.by_number.len() > CHANGES_MAX {
            let Some((number, key)) = self.by_number.pop_front() else { return };
            if self.by_key.get(&key).is_some_and(|(last, _)| *last == number) {
                self.by_key.remove(&key);
            }
            self.forgotten = number;
        }
    }

    fn forget_all(&mut self) {
        self.last += 1;
        self.forgotten = self.last;
        self.by_key.clear();
        self.by_number.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(after: Option<&str>) -> ListObjects {
        ListObjects { start_after: after.map(str::to_owned), limit: 1000, ..ListObjects::default() }
    }

    fn bucket() -> BucketName {
        BucketName::new("bucket").unwrap()
    }

    fn path(key: &str) -> ObjectPath {
        ObjectPath::parse("bucket", key).unwrap()
    }

    fn token() -> PageStart {
        PageStart::Token("token".to_owned())
    }

    fn by_name() -> PageStart {
        PageStart::Behind(Some("m".to_owned()))
    }

    fn changes(positions: &Positions, since: u64) -> Vec<String> {
        let (from, to) = records::object_prefix_range(&bucket(), "");
        positions
            .changes(&from, &to, since)
            .expect("all are known")
            .into_iter()
            .map(|(path, _)| path.key.as_str().to_owned())
            .collect()
    }

    #[test]
    fn a_listing_goes_on_by_its_token_and_sees_what_changed_since() {
        let (env, clock) = Env::simulated(1);
        let positions = Positions::new(env);
        positions.changed(&path("before"), || Change::Deleted);
        let (listing, first) = positions.begin(&bucket(), &request(None));
        positions.changed(&path("meanwhile"), || Change::Deleted);
        positions.keep(&bucket(), &request(None), "m", Position { page: token(), ..first.clone() });
        drop(listing);
        positions.changed(&path("after"), || Change::Deleted);
        let (_listing, next) = positions.begin(&bucket(), &request(Some("m")));
        assert_eq!((next.page, next.since), (token(), first.since));
        assert_eq!(changes(&positions, next.since), ["after", "meanwhile"]);
        let other = ListObjects { delimiter: Some("/".to_owned()), ..request(Some("m")) };
        assert_eq!(positions.begin(&bucket(), &other).1.page, by_name());
        clock.advance(POSITION_AGE_MAX);
        assert_eq!(positions.begin(&bucket(), &request(Some("m"))).1.page, by_name());
    }

    #[test]
    fn a_listing_that_is_older_than_what_is_remembered_goes_on_by_name() {
        let (env, clock) = Env::simulated(1);
        let positions = Positions::new(env);
        let (listing, first) = positions.begin(&bucket(), &request(None));
        positions.keep(&bucket(), &request(None), "m", Position { page: token(), ..first.clone() });
        drop(listing);
        for number in 0..=CHANGES_MAX {
            positions.changed(&path(&format!("{number}")), || Change::Deleted);
        }
        let (from, to) = records::object_prefix_range(&bucket(), "");
        assert_eq!(positions.changes(&from, &to, first.since), None);
        assert_eq!(changes(&positions, first.since + 1).len(), CHANGES_MAX);
        assert_eq!(positions.begin(&bucket(), &request(Some("m"))).1.page, by_name());
        // Nothing is kept when no listing is in flight any more.
        clock.advance(POSITION_AGE_MAX);
        positions.changed(&path("last"), || Change::Deleted);
        assert!(changes(&positions, positions.now()).is_empty());
        assert!(positions.state.lock().known.is_empty());
    }

    #[test]
    fn places_are_bounded() {
        let (env, _) = Env::simulated(1);
        let positions = Positions::new(env);
        for number in 0..2 * POSITIONS_MAX {
            let at = positions.by_name(None);
            positions.keep(&bucket(), &request(None), &number.to_string(), at);
        }
        let state = positions.state.lock();
        assert_eq!((state.known.len(), state.counts.values().sum::<usize>()), (POSITIONS_MAX, POSITIONS_MAX));
    }

    #[test]
    fn a_requester_with_many_positions_takes_none_of_others() {
        let (env, clock) = Env::simulated(1);
        let positions = Positions::new(env);
        let (quiet, busy) = (Requester::named("quiet"), Requester::named("busy"));
        let keep = |requester: Requester, after: &str| {
            let at = Position { page: token(), ..positions.by_name(None) };
            requester.gets_step(|| positions.keep(&bucket(), &request(None), after, at));
        };
        let page = |requester: Requester, after: &str| {
            let (_listing, at) = requester.gets_step(|| positions.begin(&bucket(), &request(Some(after))));
            at.page
        };
        keep(quiet, "m");
        for number in 0..10_000 {
            keep(busy, &number.to_string());
        }
        // The other is at the same name.
        keep(busy, "m");
        assert_eq!((page(quiet, "m"), page(busy, "9999")), (token(), token()));
        assert_eq!(page(busy, "1"), PageStart::Behind(Some("1".to_owned())), "its own oldest ones go");
        assert_eq!(positions.state.lock().known.len(), POSITIONS_MAX);
        clock.advance(POSITION_AGE_MAX);
        positions.changed(&path("key"), || Change::Deleted);
        let state = positions.state.lock();
        assert!(state.known.is_empty() && state.counts.is_empty());
    }
}
