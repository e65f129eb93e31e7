//! The names of a directory in the order of keys, as a listing takes them.
//!
//! A NameNode tells up to a thousand names at a time, from any name on, in the order of signed bytes. That is the order
//! of keys, but for two things. A directory is in its place with a slash: `a-b` comes before `a/`, and behind `a`. And
//! signed bytes put what is not ASCII first. So:
//!
//! - The names of a small directory come in one page, and are sorted here.
//! - In a large one whose names are ASCII, reading continues where the last page of the list ended. Directories that
//!   are due later than their name are held back. Those from before that place are looked up: they are among the
//!   beginnings of the name there.
//! - As soon as a name that is not ASCII might be due, the whole directory is read, and the first names from the place
//!   on are taken.

use super::paths::{self, MARKER};
use super::remote::{Remote, Status};
use crate::Result;

/// Most names that are taken from a large directory with names that are not ASCII.
const HELD_MAX: usize = 4096;

/// Behind all names that continue a beginning in ASCII.
const LAST: u8 = 0x7f;

/// Longest name.
const NAME_BYTES_MAX: usize = 255;

/// A file, or a directory on the way to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// What it adds to a key. Ends with `/` for a directory, and is empty for the marker of the directory itself.
    pub(super) component: String,
    pub(super) status: Status,
}

/// Names of a directory from one name on, without gaps.
pub(super) struct Stretch {
    pub(super) entries: Vec<Entry>,
    /// Where the next stretch begins. `None` when there are no more names.
    pub(super) next: Option<String>,
}

/// A walk through the names of one directory.
pub(super) struct Names<'a> {
    remote: &'a Remote,
    path: String,
    state: State,
}

enum State {
    Begin,
    /// Continues behind a name that has been read.
    Reading(Cursor),
    /// Reads all names each time.
    Whole,
}

/// Where reading continues in a large directory whose names seem to be ASCII.
struct Cursor {
    /// Where the next stretch is expected to begin.
    from: String,
    /// The last name that was read.
    after: Vec<u8>,
    /// Directories that are due later than their name.
    held: Vec<Entry>,
    /// Where reading began. Names that are not ASCII and continue one of its first `unseen` beginnings come before it,
    /// and were not read.
    origin: String,
    unseen: usize,
}

impl Entry {
    pub(super) fn is_directory(&self) -> bool {
        self.component.ends_with('/')
    }

    /// `None` for files that are not objects.
    fn new(status: Status) -> Option<Self> {
        let component = match (&*status.name, status.is_directory) {
            (name, true) => format!("{name}/"),
            (MARKER, false) => String::new(),
            (name, false) if paths::is_own(name) => return None,
            (name, false) => name.to_owned(),
        };
        Some(Self { component, status })
    }
}

impl<'a> Names<'a> {
    pub(super) fn new(remote: &'a Remote, path: String) -> Self {
        Self { remote, path, state: State::Begin }
    }

    /// The names whose components are not less than `from`. `None` when the directory is gone.
    pub(super) async fn next(&mut self, from: &str) -> Result<Option<Stretch>> {
        let cursor = match std::mem::replace(&mut self.state, State::Whole) {
            State::Begin => {
                let Some(page) = self.remote.page(&self.path, b"").await? else { return Ok(None) };
                if page.is_last {
                    return Ok(Some(Stretch { entries: sorted(page.entries, from), next: None }));
                }
                self.seek(from).await?
            }
            State::Reading(cursor) if cursor.from == from => Some(cursor),
            State::Reading(_) => self.seek(from).await?,
            State::Whole => None,
        };
        match cursor {
            Some(cursor) => self.read(from, cursor).await,
            None => self.take_from_all(from).await,
        }
    }

    /// The cursor at a component. `None` when names that are not ASCII may be due there.
    async fn seek(&self, from: &str) -> Result<Option<Cursor>> {
        let (origin, is_behind) = from.strip_suffix(char::MAX).map_or((from, false), |origin| (origin, true));
        if !origin.is_ascii() {
            return Ok(None);
        }
        let mut held = Vec::new();
        for end in 0..=origin.len() {
            // `a/` is not less than `a-b`, and neither is `a` itself, nor `a/`, than `a`.
            let is_due = if end == origin.len() { !is_behind } else { origin.as_bytes()[end] <= b'/' };
            let name = if end == 0 { MARKER } else { &origin[..end] };
            if !is_due || name.contains('/') || (end == 0 && !from.is_empty()) {
                continue;
            }
            let status = self.remote.status(&paths::join(&self.path, name)).await?;
            held.extend(status.map(|status| Status { name: name.to_owned(), ..status }).and_then(Entry::new));
        }
        held.retain(|entry| *entry.component >= *from);
        let mut after = origin.as_bytes().to_vec();
        if is_behind {
            after.resize(NAME_BYTES_MAX.max(after.len()), LAST);
        }
        let unseen = origin.len();
        Ok(Some(Cursor { from: from.to_owned(), after, held, origin: origin.to_owned(), unseen }))
    }

    /// Reads one page at a cursor.
    async fn read(&mut self, from: &str, mut cursor: Cursor) -> Result<Option<Stretch>> {
        let Some(page) = self.remote.page(&self.path, &cursor.after).await? else { return Ok(None) };
        let last = page.entries.last().filter(|_| !page.is_last).map(|last| last.name.clone());
        if !page.entries.iter().all(|entry| entry.name.is_ascii())
            || self.has_unseen(&mut cursor, last.as_deref()).await?
        {
            return self.take_from_all(from).await;
        }
        let entries = page.entries.into_iter().filter_map(Entry::new).filter(|entry| !entry.component.is_empty());
        cursor.held.extend(entries);
        cursor.held.sort_by(|a, b| a.component.cmp(&b.component));
        let Some(last) = last else { return Ok(Some(Stretch { entries: cursor.held, next: None })) };
        let due = cursor.held.partition_point(|entry| entry.component <= last);
        let later = cursor.held.split_off(due);
        let entries = std::mem::replace(&mut cursor.held, later);
        let next = format!("{last}\0");
        (cursor.from, cursor.after) = (next.clone(), last.into_bytes());
        self.state = State::Reading(cursor);
        Ok(Some(Stretch { entries, next: Some(next) }))
    }

    /// Whether there are names that are not ASCII, were not read, and are due up to `last`.
    async fn has_unseen(&self, cursor: &mut Cursor, last: Option<&str>) -> Result<bool> {
        let same = |last: &str| cursor.origin.bytes().zip(last.bytes()).take_while(|(a, b)| a == b).count();
        let first_due = last.map_or(0, |last| same(last) + 1);
        for end in first_due..cursor.unseen {
            let beginning = &cursor.origin.as_bytes()[..end];
            // Below all characters that are not ASCII.
            let page = self.remote.page(&self.path, &[beginning, &[0x80]].concat()).await?;
            let first = page.as_ref().and_then(|page| page.entries.first()).map(|first| first.name.as_bytes());
            let rest = first.and_then(|name| name.strip_prefix(beginning));
            if rest.and_then(<[u8]>::first).is_some_and(|byte| !byte.is_ascii()) {
                return Ok(true);
            }
        }
        cursor.unseen = cursor.unseen.min(first_due);
        Ok(false)
    }

    /// Reads the whole directory, and takes the first names.
    async fn take_from_all(&mut self, from: &str) -> Result<Option<Stretch>> {
        self.state = State::Whole;
        let (mut held, mut after, mut is_cut) = (Vec::new(), Vec::new(), false);
        loop {
            let Some(page) = self.remote.page(&self.path, &after).await? else { return Ok(None) };
            after = page.entries.last().map(|last| last.name.clone().into_bytes()).unwrap_or_default();
            held.append(&mut sorted(page.entries, from));
            held.sort_by(|a: &Entry, b| a.component.cmp(&b.component));
            is_cut |= held.len() > HELD_MAX;
            held.truncate(HELD_MAX);
            if page.is_last || after.is_empty() {
                let next = held.last().filter(|_| is_cut).map(|last| format!("{}\0", last.component));
                return Ok(Some(Stretch { entries: held, next }));
            }
        }
    }
}

fn sorted(statuses: Vec<Status>, from: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> =
        statuses.into_iter().filter_map(Entry::new).filter(|entry| *entry.component >= *from).collect();
    entries.sort_by(|a, b| a.component.cmp(&b.component));
    entries
}
