//! The requests of clients and their answers, key by key.

use std::collections::{BTreeMap, BTreeSet};

use crate::content::{ContentId, TagsId};

/// What tells an object from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) content: ContentId,
    pub(crate) tags: TagsId,
}

/// What a key holds.
pub(crate) type Value = Option<Version>;

/// What must hold for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    None,
    Absent,
    Is(ContentId),
}

impl Guard {
    pub(crate) fn holds(self, value: Value) -> bool {
        match self {
            Self::None => true,
            Self::Absent => value.is_none(),
            Self::Is(content) => value.is_some_and(|version| version.content == content),
        }
    }
}

/// What an operation does to a key, or says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The key held this content.
    Read(Option<ContentId>),
    /// The object had these tags.
    ReadTags(Option<TagsId>),
    /// The condition of a write did not hold.
    Refused(Guard),
    /// Of one of these values: who has an object copied does not see what tags the copy got.
    Write { to: Vec<Value>, guard: Guard },
    /// A write without an answer: it was done or not, or may yet be done.
    Maybe { to: Vec<Value>, guard: Guard },
    /// The object got these tags.
    Retag(TagsId),
    /// The same without an answer.
    MaybeRetag(TagsId),
}

impl Effect {
    /// Whether it changes nothing.
    pub(crate) fn is_read(&self) -> bool {
        match self {
            Self::Read(_) | Self::ReadTags(_) | Self::Refused(_) => true,
            Self::Write { .. } | Self::Maybe { .. } | Self::Retag(_) | Self::MaybeRetag(_) => false,
        }
    }

    /// Whether it replaces what is there, whatever that is.
    pub(crate) fn overwrites(&self) -> bool {
        matches!(self, Self::Write { guard: Guard::None, .. } | Self::Maybe { guard: Guard::None, .. })
    }

    /// What it leaves of a value; nothing when it could not have happened then.
    pub(crate) fn after(&self, value: Value) -> Vec<Value> {
        let retagged = |tags: TagsId| value.map(|version| Some(Version { tags, ..version })).into_iter().collect();
        match self {
            Self::Read(seen) if *seen == value.map(|version| version.content) => vec![value],
            Self::ReadTags(seen) if *seen == value.map(|version| version.tags) => vec![value],
            Self::Refused(guard) if !guard.holds(value) => vec![value],
            Self::Write { to, guard } | Self::Maybe { to, guard } if guard.holds(value) => to.clone(),
            Self::Retag(tags) | Self::MaybeRetag(tags) => retagged(*tags),
            Self::Read(_) | Self::ReadTags(_) | Self::Refused(_) | Self::Write { .. } | Self::Maybe { .. } => {
                Vec::new()
            }
        }
    }
}

/// One operation on one key. Moments are numbers that grow with every beginning and every end.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) effect: Effect,
    pub(crate) begun: u64,
    /// `None`: it may take effect at any later time.
    pub(crate) ended: Option<u64>,
}

/// All operations of a run.
#[derive(Default)]
pub(crate) struct History {
    moment: u64,
    keys: BTreeMap<String, Vec<Entry>>,
    open: BTreeMap<u64, Open>,
    /// What copies of objects made of parts are.
    copies: BTreeMap<ContentId, ContentId>,
    /// The latest time that any answer so far has shown for each key, with the moment of that answer.
    times: BTreeMap<String, Vec<(u64, u64)>>,
    /// Since when they count.
    times_since: BTreeMap<String, u64>,
}

/// A write without an answer yet.
struct Open {
    /// That of the process that was asked.
    machine: usize,
    key: String,
    entry: Entry,
    /// The key that is copied: any content that it has may be written.
    source: Option<String>,
}

impl History {
    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// The moment now, for operations of many keys.
    pub(crate) fn now(&mut self) -> u64 {
        self.tick()
    }

    /// Notes what a copy of an object made of parts is.
    pub(crate) fn made_of_parts(&mut self, content: ContentId, copy: ContentId) {
        self.copies.insert(content, copy);
    }

    /// Whether such a content may come from an object made of parts as well.
    pub(crate) fn is_copy_of_parts(&self, content: ContentId) -> bool {
        self.copies.values().any(|copy| *copy == content)
    }

    /// Notes that a write begins, and what it does if nobody tells. Returns its number.
    pub(crate) fn begin(&mut self, machine: usize, key: &str, name: String, effect: Effect) -> u64 {
        let begun = self.tick();
        let entry = Entry { name, effect, begun, ended: None };
        self.open.insert(begun, Open { machine, key: key.to_owned(), entry, source: None });
        begun
    }

    /// Notes that a copy begins. Returns its number.
    pub(crate) fn begin_copy(&mut self, machine: usize, from: &str, to: &str, name: String) -> u64 {
        let begun = self.tick();
        let entry = Entry { name, effect: Effect::Maybe { to: Vec::new(), guard: Guard::None }, begun, ended: None };
        self.open.insert(begun, Open { machine, key: to.to_owned(), entry, source: Some(from.to_owned()) });
        begun
    }

    /// Notes that a write has had this effect.
    pub(crate) fn end(&mut self, number: u64, effect: Effect) {
        let ended = Some(self.tick());
        if let Some(Open { key, entry, .. }) = self.open.remove(&number) {
            self.keys.entry(key).or_default().push(Entry { effect, ended, ..entry });
        }
    }

    /// Notes that nothing came of a write, and that nothing will.
    pub(crate) fn end_without_effect(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// Notes that nobody knows the outcome of a write.
    pub(crate) fn end_without_answer(&mut self, number: u64) {
        let Some(Open { key, mut entry, source, .. }) = self.open.remove(&number) else { return };
        if let (Some(source), Effect::Maybe { to, .. }) = (source, &mut entry.effect) {
            *to = self.copies_of(&source);
        }
        self.keys.entry(key).or_default().push(entry);
    }

    /// Notes what was read since `begun`.
    pub(crate) fn read(&mut self, key: &str, name: String, begun: u64, effect: Effect) {
        let ended = Some(self.tick());
        self.keys.entry(key.to_owned()).or_default().push(Entry { name, effect, begun, ended });
    }

    /// Notes the time that an answer has shown, which was asked for at `begun`. Returns the later time that an answer
    /// before that has shown, if one has.
    pub(crate) fn shown(&mut self, key: &str, begun: u64, time_ms: u64) -> Option<u64> {
        let ended = self.tick();
        if self.times_since.get(key).is_some_and(|since| begun < *since) {
            return None;
        }
        let times = self.times.entry(key.to_owned()).or_default();
        let before = times.iter().filter(|(at, _)| *at < begun).map(|(_, time_ms)| *time_ms).max();
        times.push((ended, time_ms));
        before.filter(|before| *before > time_ms)
    }

    /// An older version is back by right, with its time. Who began to read before may tell of the newer one yet.
    pub(crate) fn forget_times(&mut self, key: &str) {
        let now = self.tick();
        self.times.remove(key);
        self.times_since.insert(key.to_owned(), now);
    }

    /// An older version may be back at any time, with its time.
    pub(crate) fn ignore_times(&mut self, key: &str) {
        self.times_since.insert(key.to_owned(), u64::MAX);
    }

    /// The process on a machine has died: what had no answer gets none.
    pub(crate) fn crash(&mut self, machine: usize) {
        let open = self.open.iter().filter(|(_, open)| open.machine == machine).map(|(number, _)| *number);
        let open: Vec<u64> = open.collect();
        open.into_iter().for_each(|number| self.end_without_answer(number));
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (&String, &Vec<Entry>)> {
        self.keys.iter()
    }

    /// All that a copy of a key may be.
    pub(crate) fn copies_of(&self, key: &str) -> Vec<Value> {
        self.copies_besides(key, &mut BTreeSet::new())
    }

    /// [`History::copies_of`] a key, without what only copies of those that were `seen` can have brought.
    fn copies_besides(&self, key: &str, seen: &mut BTreeSet<String>) -> Vec<Value> {
        if !seen.insert(key.to_owned()) {
            return Vec::new();
        }
        let done = self.keys.get(key).into_iter().flatten();
        let opened = || self.open.values().filter(|open| open.key == key);
        let open = opened().map(|open| &open.entry);
        // A copy that has no answer yet may have landed, too.
        let sources = opened().filter_map(|open| open.source.as_deref());
        let copied: Vec<Value> = sources.flat_map(|source| self.copies_besides(source, seen)).collect();
        let effects: Vec<&Effect> = done.chain(open).map(|entry| &entry.effect).collect();
        let written = effects.iter().flat_map(|effect| match effect {
            Effect::Write { to, .. } | Effect::Maybe { to, .. } => to.as_slice(),
            Effect::Read(_) | Effect::ReadTags(_) | Effect::Refused(_) | Effect::Retag(_) | Effect::MaybeRetag(_) => {
                &[]
            }
        });
        let written: Vec<Version> = written.copied().chain(copied).flatten().collect();
        let retagged = effects.iter().filter_map(|effect| match effect {
            Effect::Retag(tags) | Effect::MaybeRetag(tags) => Some(*tags),
            Effect::Read(_)
            | Effect::ReadTags(_)
            | Effect::Refused(_)
            | Effect::Write { .. }
            | Effect::Maybe { .. } => None,
        });
        let retagged = retagged.flat_map(|tags| written.iter().map(move |version| Version { tags, ..*version }));
        let copy = |version: Version| {
            Some(Version { content: self.copies.get(&version.content).copied().unwrap_or(version.content), ..version })
        };
        let mut values: Vec<Value> = written.iter().copied().chain(retagged).map(copy).collect();
        values.sort_unstable();
        values.dedup();
        values
    }
}
