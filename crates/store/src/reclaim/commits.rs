//! What reclaim keeps of the commits in a log: they change values and objects that are stored elsewhere.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::choose::Oldest;
use crate::ids::SegmentKey;
use crate::inner::Inner;
use crate::record::Kind;
use crate::record::abort::AbortBody;
use crate::record::commit::{CommitBody, WriteBody};
use crate::record::scan::Scan;
use crate::segment::{SEGMENT_HEADER_BYTES, Segment};
use crate::{Error, ErrorKind, Result};

/// Most commits that are carried in one append.
const CARRIED_COMMITS: usize = 1000;

impl Inner {
    /// Writes again the parts of a log's commits that a rebuild from segments still needs.
    pub(super) async fn carry_commits(self: &Arc<Self>, victim: &Arc<Segment>) -> Result<()> {
        let oldest = self.oldest_beside(victim.key());
        let mut scan = Scan::new(victim, SEGMENT_HEADER_BYTES).await?;
        let (mut carried, mut aborted): (Vec<CommitBody>, Vec<AbortBody>) = (Vec::new(), Vec::new());
        while let Some(record) = scan.next().await? {
            let sequence = record.head.header.sequence;
            if record.is(Kind::Commit) && !self.aborted.covers(victim.key(), sequence) {
                let body = CommitBody::decode(&record.head.body)?;
                carried.extend(self.needed_of(victim, &oldest, sequence, body));
            }
            if record.is(Kind::Abort) {
                let abort = AbortBody::decode(&record.head.body)?;
                let is_there = abort.segment != victim.key() && self.segment(abort.segment).is_some();
                if is_there && !aborted.contains(&abort) {
                    aborted.push(abort);
                }
            }
            if carried.len() >= CARRIED_COMMITS {
                self.append_carried(victim.key(), std::mem::take(&mut carried)).await?;
            }
        }
        if scan.offset() < victim.length() {
            return Err(Error::new(ErrorKind::Corrupt, "the log is damaged, and its commits can't be carried forward"));
        }
        if !aborted.is_empty() {
            let aborted = aborted.iter().map(AbortBody::draft).collect();
            self.volumes[self.index_for_carried()?].log.append_carried(aborted).await?;
        }
        if carried.is_empty() { Ok(()) } else { self.append_carried(victim.key(), carried).await }
    }

    /// What still counts of a commit: values that it wrote last, and the states and the absence of objects of which an
    /// older segment may hold a record. A copy that comes after a change contains it.
    pub(crate) fn needed_of(
        self: &Arc<Self>,
        victim: &Segment,
        oldest: &Oldest,
        sequence: u64,
        body: CommitBody,
    ) -> Option<CommitBody> {
        let as_of = body.as_of.unwrap_or(sequence);
        let (mut forget, mut annotate, mut writes) = (body.forget, body.annotate, body.writes);
        // Also for a key that has an object again: that object may be evicted before the segment of the older one goes.
        if !oldest.has_records_before(as_of) {
            forget.clear();
            annotate.clear();
        }
        annotate.retain(|annotation| {
            self.object(&annotation.key).is_some_and(|object| {
                let entry = object.entry();
                entry.generation == annotation.generation
                    && entry.pinned == annotation.pinned
                    && entry.annex() == annotation.annex
            })
        });
        writes.retain(|write| self.is_needed(victim, oldest, write, as_of));
        // Objects that were prepared in another log than their commit, and were not written again since.
        let mut publish = body.publish;
        publish.retain(|(key, generation)| {
            self.object(key).is_some_and(|object| {
                let entry = object.entry();
                entry.generation == *generation && !entry.carried && entry.record.segment != victim.key()
            })
        });
        let counts = !(publish.is_empty() && forget.is_empty() && annotate.is_empty() && writes.is_empty());
        counts.then_some(CommitBody { publish, forget, annotate, writes, as_of: Some(as_of) })
    }

    fn is_needed(&self, victim: &Segment, oldest: &Oldest, write: &WriteBody, version: u64) -> bool {
        match (&write.value, self.values.get(&write.key, |row| (row.version, row.segment))) {
            (Some(_), Some(present)) => present == (version, victim.key()),
            (Some(_), None) | (None, Some(_)) => false,
            // While another segment may hold an older write, a rebuild must know of the delete.
            (None, None) => oldest.has_values_before(version),
        }
    }

    async fn append_carried(&self, from: SegmentKey, mut commits: Vec<CommitBody>) -> Result<()> {
        keep_newest_deletes(&mut commits);
        let drafts = commits.iter().map(CommitBody::draft).collect();
        let appended = self.volumes[self.index_for_carried()?].log.append_carried(drafts).await?;
        let to = appended.locations[0].segment;
        for (commit, location) in commits.iter().zip(&appended.locations) {
            let version = commit.as_of.expect("what is carried says what it is of");
            assert_eq!(location.segment, to, "one append goes to one segment");
            self.count_changes(to, commit.change_bytes());
            let values = commit.writes.iter().filter(|write| write.value.is_some());
            values.for_each(|write| self.move_value(&write.key, version, from, to));
        }
        Ok(())
    }

    /// Writes again the values whose log is gone. Only the snapshot has them, so a rebuild from segments would miss
    /// them.
    pub(crate) async fn write_values_again(&self) -> Result<()> {
        let mut gone: BTreeMap<SegmentKey, Vec<CommitBody>> = BTreeMap::new();
        self.values.for_each(|row| {
            if self.segment(row.segment).is_none() {
                let write = WriteBody { key: row.key().to_vec(), value: Some(row.value().to_vec()) };
                let commit = CommitBody { writes: vec![write], as_of: Some(row.version), ..CommitBody::default() };
                gone.entry(row.segment).or_default().push(commit);
            }
        });
        for (segment, commits) in gone {
            for commits in commits.chunks(CARRIED_COMMITS) {
                self.append_carried(segment, commits.to_vec()).await?;
            }
        }
        Ok(())
    }
}

/// Keeps the newest of several deletes of one key: it implies the others.
fn keep_newest_deletes(commits: &mut Vec<CommitBody>) {
    commits.sort_by_key(|commit| std::cmp::Reverse(commit.as_of));
    let (mut forgotten, mut deleted) = (HashSet::new(), HashSet::new());
    for commit in &mut *commits {
        commit.forget.retain(|key| forgotten.insert(key.clone()));
        commit.writes.retain(|write| write.value.is_some() || deleted.insert(write.key.clone()));
    }
    commits.retain(|commit| {
        let changes_objects = !(commit.publish.is_empty() && commit.forget.is_empty() && commit.annotate.is_empty());
        changes_objects || !commit.writes.is_empty()
    });
    commits.reverse();
}
