//! Linearizability of one register, after Wing and Gong, "Testing and verifying concurrent objects" (1993), with the
//! memo of Lowe, "Testing for linearizability" (2017).
//!
//! A history is linearizable when its operations can be put in an order that keeps what ended before something else
//! began, and in which every answer is right. The search takes operations one by one; that the same ones were taken and
//! left the same value before is remembered, so that no dead end is searched twice.
//!
//! What got no answer need not have happened. So it is only taken where the next operation depends on it, and of
//! several that do the same, the first that began is taken first. Every other order that is right gives one of these:
//! leave out what the next operation overwrites, and exchange the others.

use std::collections::HashSet;

use crate::history::{Entry, Value};

/// More states than this are not searched: the history then counts as unknown, which the run reports.
const STATES_MAX: usize = 2_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Linearizable,
    Broken,
    /// Too many operations without an answer.
    TooHard,
}

/// Which operations were taken, one bit each.
type Taken = Box<[u64]>;

fn has(taken: &Taken, index: usize) -> bool {
    taken[index / 64] >> (index % 64) & 1 == 1
}

fn with(taken: &Taken, index: usize) -> Taken {
    let mut taken = taken.clone();
    taken[index / 64] |= 1 << (index % 64);
    taken
}

/// Of a search: what was taken, what the key holds then, and whether the last one taken got no answer.
type State = (Taken, Value, bool);

/// Checks the operations on one key, which held nothing in the beginning.
pub(crate) fn check(entries: &[Entry]) -> Verdict {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by_key(|entry| entry.begun);
    let earlier = earlier_twins(&sorted);
    let none: Taken = vec![0; sorted.len().div_ceil(64)].into();
    let mut seen: HashSet<State> = HashSet::new();
    let mut stack = vec![(none, None, false)];
    while let Some((taken, value, is_unseen)) = stack.pop() {
        let left = || sorted.iter().enumerate().filter(|(index, _)| !has(&taken, *index));
        let Some(first_end) = left().filter_map(|(_, entry)| entry.ended).min() else {
            // What had no answer need not have happened.
            return Verdict::Linearizable;
        };
        let mut possible = left().take_while(|(_, entry)| entry.begun < first_end);
        // What changes nothing and is right now is taken now: whatever order there is, there is one with it here.
        let is_right = |entry: &Entry| entry.effect.is_read() && !entry.effect.after(value).is_empty();
        if let Some((index, _)) = possible.find(|(_, entry)| is_right(entry)) {
            let state = (with(&taken, index), value, false);
            if seen.insert(state.clone()) {
                stack.push(state);
            }
            continue;
        }
        for (index, entry) in left().take_while(|(_, entry)| entry.begun < first_end) {
            let is_next_twin = earlier[index].is_none_or(|twin| has(&taken, twin));
            if !is_next_twin || (is_unseen && entry.effect.overwrites()) {
                continue;
            }
            for next in entry.effect.after(value) {
                let state = (with(&taken, index), next, entry.ended.is_none());
                if seen.insert(state.clone()) {
                    stack.push(state);
                }
            }
        }
        if seen.len() > STATES_MAX {
            return Verdict::TooHard;
        }
    }
    Verdict::Broken
}

/// For each operation without an answer, the last one before it that does the same.
fn earlier_twins(sorted: &[&Entry]) -> Vec<Option<usize>> {
    let twin = |index: usize| {
        let is_twin = |other: &&Entry| other.ended.is_none() && other.effect == sorted[index].effect;
        sorted[index].ended.is_none().then(|| sorted[..index].iter().rposition(is_twin))?
    };
    (0..sorted.len()).map(twin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Effect, Guard, Version};

    fn entry(effect: Effect, begun: u64, ended: Option<u64>) -> Entry {
        Entry { name: String::new(), effect, begun, ended }
    }

    /// Tagged with its own number.
    fn version(content: u32) -> Vec<Value> {
        vec![Some(Version { content, tags: content })]
    }

    fn put(content: u32, begun: u64, ended: u64) -> Entry {
        entry(Effect::Write { to: version(content), guard: Guard::None }, begun, Some(ended))
    }

    fn maybe(content: u32, begun: u64) -> Entry {
        entry(Effect::Maybe { to: version(content), guard: Guard::None }, begun, None)
    }

    fn retag(tags: u32, begun: u64, ended: u64) -> Entry {
        entry(Effect::Retag(tags), begun, Some(ended))
    }

    fn read_tags(tags: Option<u32>, begun: u64, ended: u64) -> Entry {
        entry(Effect::ReadTags(tags), begun, Some(ended))
    }

    fn delete(begun: u64, ended: u64) -> Entry {
        entry(Effect::Write { to: vec![None], guard: Guard::None }, begun, Some(ended))
    }

    fn read(content: Option<u32>, begun: u64, ended: u64) -> Entry {
        entry(Effect::Read(content), begun, Some(ended))
    }

    fn swap(from: u32, to: u32, begun: u64, ended: u64) -> Entry {
        entry(Effect::Write { to: version(to), guard: Guard::Is(from) }, begun, Some(ended))
    }

    #[test]
    fn good_histories_pass() {
        let absent = |begun, ended| entry(Effect::Refused(Guard::Absent), begun, Some(ended));
        for (what, history) in [
            ("nothing", vec![]),
            ("one after the other", vec![put(1, 1, 2), read(Some(1), 3, 4), delete(5, 6), read(None, 7, 8)]),
            ("a read beside a write sees either", vec![put(1, 1, 6), read(None, 2, 3), read(Some(1), 4, 5)]),
            ("writes beside each other in any order", vec![put(1, 1, 4), put(2, 2, 3), read(Some(1), 5, 6)]),
            ("what got no answer was done", vec![put(1, 1, 2), maybe(2, 3), read(Some(2), 4, 5)]),
            ("or was not", vec![put(1, 1, 2), maybe(2, 3), read(Some(1), 4, 5)]),
            (
                "or two of them were",
                vec![put(1, 1, 2), maybe(2, 3), maybe(2, 4), read(Some(2), 5, 6), put(3, 7, 8), read(Some(2), 9, 10)],
            ),
            ("a condition saw it", vec![put(1, 1, 2), maybe(2, 3), swap(2, 3, 4, 5), read(Some(3), 6, 7)]),
            ("tags saw it", vec![maybe(2, 1), retag(3, 2, 3), read(Some(2), 4, 5), read_tags(Some(3), 6, 7)]),
            ("or is done later", vec![put(1, 1, 2), maybe(2, 3), read(Some(1), 4, 5), read(Some(2), 6, 7)]),
            ("one swap of two wins", vec![put(1, 1, 2), swap(1, 2, 3, 6), absent(4, 5), read(Some(2), 7, 8)]),
            ("the same again", vec![put(1, 1, 2), put(2, 3, 4), put(1, 5, 6), read(Some(1), 7, 8)]),
            ("other tags", vec![put(1, 1, 2), retag(2, 3, 4), read_tags(Some(2), 5, 6), read(Some(1), 7, 8)]),
            ("tags of nothing", vec![put(1, 1, 2), delete(3, 4), read_tags(None, 5, 6)]),
        ] {
            assert_eq!(check(&history), Verdict::Linearizable, "{what}");
        }
    }

    #[test]
    fn bad_histories_do_not() {
        for (what, history) in [
            ("an old value", vec![put(1, 1, 2), put(2, 3, 4), read(Some(1), 5, 6)]),
            ("lost", vec![put(1, 1, 2), read(None, 3, 4)]),
            ("back from the dead", vec![put(1, 1, 2), delete(3, 4), read(Some(1), 5, 6)]),
            ("there and gone again", vec![put(1, 1, 8), read(Some(1), 2, 3), read(None, 4, 5)]),
            ("back and forth", vec![put(1, 1, 2), maybe(2, 3), read(Some(2), 4, 5), read(Some(1), 6, 7)]),
            (
                "done more often than asked for",
                vec![maybe(2, 1), read(Some(2), 2, 3), put(3, 4, 5), read(Some(2), 6, 7)],
            ),
            ("never written", vec![put(1, 1, 2), read(Some(2), 3, 4)]),
            ("both swaps win", vec![put(1, 1, 2), swap(1, 2, 3, 6), swap(1, 3, 4, 5)]),
            ("tags of an older one", vec![put(1, 1, 2), put(2, 3, 4), read_tags(Some(1), 5, 6)]),
            ("lost tags", vec![put(1, 1, 2), retag(2, 3, 4), read_tags(Some(1), 5, 6)]),
            ("tags for nothing", vec![retag(2, 1, 2), put(1, 3, 4)]),
            ("refused for nothing", vec![entry(Effect::Refused(Guard::Absent), 1, Some(2)), put(1, 3, 4)]),
        ] {
            assert_eq!(check(&history), Verdict::Broken, "{what}");
        }
    }

    /// All of them may or may not have happened: 2^40 sets.
    #[test]
    fn many_operations_without_an_answer_are_no_trouble() {
        let mut history: Vec<Entry> = (0..40).map(|n| maybe(n, u64::from(n) + 1)).collect();
        history.extend((0..40).map(|_| entry(Effect::Maybe { to: vec![None], guard: Guard::None }, 50, None)));
        history.push(put(100, 100, 101));
        history.push(read(Some(7), 102, 103));
        history.push(read(None, 104, 105));
        assert_eq!(check(&history), Verdict::Linearizable);
        history.push(read(Some(100), 106, 107));
        assert_eq!(check(&history), Verdict::Broken);
    }

    /// Without the memo this takes 12! steps.
    #[test]
    fn many_operations_beside_each_other_are_no_trouble() {
        let mut history: Vec<Entry> = (0..12).map(|n| put(n % 3, u64::from(n) + 1, 1000)).collect();
        history.push(read(Some(7), 2000, 2001));
        assert_eq!(check(&history), Verdict::Broken);
    }
}
