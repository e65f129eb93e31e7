//! What clients asked for and what they were told, key by key.

use std::collections::BTreeMap;

use crate::content::ContentId;

/// What a key holds.
pub(crate) type Value = Option<ContentId>;

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
            Self::Is(content) => value == Some(content),
        }
    }
}

/// What an operation does to a key, or says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The key held this.
    Read(Value),
    /// The condition of a write did not hold.
    Refused(Guard),
    Write {
        to: Value,
        guard: Guard,
    },
    /// A write without an answer, of one of these values: it was done or not, or may yet be done.
    Maybe {
        to: Vec<Value>,
        guard: Guard,
    },
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
}

/// A write without an answer yet.
struct Open {
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

    /// Notes that a write begins. Returns its number.
    pub(crate) fn begin(&mut self, key: &str, name: String, to: Value, guard: Guard) -> u64 {
        let begun = self.tick();
        let entry = Entry { name, effect: Effect::Maybe { to: vec![to], guard }, begun, ended: None };
        self.open.insert(begun, Open { key: key.to_owned(), entry, source: None });
        begun
    }

    /// Notes that a copy begins. Returns its number.
    pub(crate) fn begin_copy(&mut self, from: &str, to: &str, name: String) -> u64 {
        let begun = self.tick();
        let entry = Entry { name, effect: Effect::Maybe { to: Vec::new(), guard: Guard::None }, begun, ended: None };
        self.open.insert(begun, Open { key: to.to_owned(), entry, source: Some(from.to_owned()) });
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

    /// Notes that nobody knows what became of a write.
    pub(crate) fn end_without_answer(&mut self, number: u64) {
        let Some(Open { key, mut entry, source }) = self.open.remove(&number) else { return };
        if let (Some(source), Effect::Maybe { to, .. }) = (source, &mut entry.effect) {
            let copy = |value: Value| value.map(|content| self.copies.get(&content).copied().unwrap_or(content));
            *to = self.values_of(&source).into_iter().map(copy).collect();
        }
        self.keys.entry(key).or_default().push(entry);
    }

    /// Notes what was read since `begun`.
    pub(crate) fn read(&mut self, key: &str, name: String, begun: u64, value: Value) {
        let ended = Some(self.tick());
        self.keys.entry(key.to_owned()).or_default().push(Entry { name, effect: Effect::Read(value), begun, ended });
    }

    /// The process has died: what had no answer gets none.
    pub(crate) fn crash(&mut self) {
        let open: Vec<u64> = self.open.keys().copied().collect();
        open.into_iter().for_each(|number| self.end_without_answer(number));
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (&String, &Vec<Entry>)> {
        self.keys.iter()
    }

    /// All contents that a key may have held.
    fn values_of(&self, key: &str) -> Vec<Value> {
        let done = self.keys.get(key).into_iter().flatten();
        let open = self.open.values().filter(|open| open.key == key).map(|open| &open.entry);
        let of = |entry: &Entry| match &entry.effect {
            Effect::Write { to, .. } => vec![*to],
            Effect::Maybe { to, .. } => to.clone(),
            Effect::Read(_) | Effect::Refused(_) => Vec::new(),
        };
        let mut values: Vec<Value> = done.chain(open).flat_map(of).filter(Option::is_some).collect();
        values.sort_unstable();
        values.dedup();
        values
    }
}
