//! Catalog records of a range, whichever workers they are at home at.

use bytes::Bytes;
use forebay_catalog::records::{self, ObjectRecord, Scope};
use forebay_catalog::{SlotSet, Versioned};
use forebay_types::ChecksumNames;
use futures::future::join_all;

use crate::anywhere::{MOVE_LOOK, MOVE_MAX};
use crate::home::lost::not_all_at_home;
use crate::others::OtherWorkers;
use crate::others::home_records::{HomeRecord, HomeRecords, RECORDS_MAX, RecordRange};
use crate::worker::Worker;
use crate::{Error, ErrorKind, Result};

/// Records of all homes.
#[derive(Default)]
pub(crate) struct RecordsOfAll {
    pub(crate) records: Vec<FoundRecord>,
    /// There are no others up to here. `None`: up to the end of the range.
    pub(crate) end: Option<Bytes>,
}

pub(crate) struct FoundRecord {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    /// Those that the home has named. `None`: this worker is the home.
    pub(crate) checksums: Option<Option<ChecksumNames>>,
}

impl Worker {
    /// See [`crate::Cache::home_records`].
    pub(crate) async fn home_records(&self, range: &RecordRange) -> Result<HomeRecords> {
        let losses = self.losses();
        let Some(slots) = self.catalog.slots() else {
            return Err(Error::new(ErrorKind::Unavailable, "this worker is in no cluster"));
        };
        let limit = (range.limit as usize).min(RECORDS_MAX);
        let found = self.catalog.scan(&range.from, &range.to, limit).await?;
        let end = found.last().filter(|_| found.len() >= limit).map(|(key, _)| key.to_vec());
        let is_here = |key: &[u8]| matches!(records::scope(key), Scope::Path(hash) if slots.has_hash(hash));
        let found = found.into_iter().filter(|(key, _)| is_here(key));
        let records = found.map(|(key, Versioned { value, .. })| {
            let checksums = match records::parse_object_key(&key) {
                Some(path) => self.checksums_of(&path, &ObjectRecord::decode(&value)?),
                None => None,
            };
            Ok(HomeRecord { key: key.to_vec(), value: value.to_vec(), checksums })
        });
        let records = records.collect::<Result<Vec<_>>>()?;
        // Records are lacking of slots that were given up meanwhile.
        let mut given_up = slots.clone();
        self.catalog.slots().iter().for_each(|still| given_up.take_off(still));
        if self.losses() != losses || !given_up.is_empty() {
            return Err(not_all_at_home());
        }
        Ok(HomeRecords { slots, records, end })
    }

    /// Records of a range, `limit` of them at most.
    ///
    /// # Errors
    /// `Unavailable` when some key of the cluster is at home nowhere, or its home does not answer.
    pub(crate) async fn records_of_all(&self, from: &Bytes, to: &Bytes, limit: usize) -> Result<RecordsOfAll> {
        let Some(others) = &self.others else {
            let losses = self.all_at_home()?;
            let found = self.catalog.scan(from, to, limit).await?;
            // Records may be lacking of slots that were lost meanwhile.
            if self.all_at_home()? != losses {
                return Err(not_all_at_home());
            }
            let end = found.last().filter(|_| found.len() >= limit).map(|(key, _)| key.clone());
            let own = |(key, found): (Bytes, Versioned)| FoundRecord { key, value: found.value, checksums: None };
            return Ok(RecordsOfAll { records: found.into_iter().map(own).collect(), end });
        };
        let until = self.env.clock.monotonic() + MOVE_MAX;
        loop {
            match self.ask_all(others.as_ref(), from, to, limit).await {
                Err(error) if error.kind == ErrorKind::Unavailable && self.env.clock.monotonic() < until => {}
                result => return result,
            }
            self.env.clock.sleep(MOVE_LOOK).await;
        }
    }

    async fn ask_all(&self, others: &dyn OtherWorkers, from: &Bytes, to: &Bytes, limit: usize) -> Result<RecordsOfAll> {
        let range = RecordRange { from: from.to_vec(), to: to.to_vec(), limit: limit as u32 };
        let workers = others.workers();
        let own = self.home_records(&range);
        let asked = join_all(workers.iter().map(|worker| others.records(worker, &range)));
        let (own, answers) = futures::join!(own, asked);
        let mut problem = None;
        let mut answered = vec![own?];
        for (worker, answer) in workers.iter().zip(answers) {
            match answer {
                Ok(answer) => answered.push(answer),
                Err(error) => problem = Some(format!("worker {worker}: {error}")),
            }
        }
        merge(answered, limit).map_err(|error| match problem {
            // It may have the slots that are lacking.
            Some(problem) => Error::new(error.kind, problem),
            None => error,
        })
    }
}

/// One list of what the workers have answered.
///
/// # Errors
/// `Unavailable` unless each slot is in one answer and no other: it has no home, or has changed it meanwhile.
fn merge(answers: Vec<HomeRecords>, limit: usize) -> Result<RecordsOfAll> {
    check_covered(answers.iter().map(|answer| &answer.slots))?;
    let end = answers.iter().filter_map(|answer| answer.end.clone()).min();
    let mut records: Vec<HomeRecord> = answers.into_iter().flat_map(|answer| answer.records).collect();
    records.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    let inside = end.as_ref().map_or(records.len(), |end| records.partition_point(|record| record.key <= *end));
    records.truncate(inside);
    let end = match records.get(limit) {
        Some(_) => limit.checked_sub(1).map(|last| records[last].key.clone()),
        None => end,
    };
    records.truncate(limit);
    let found = |record: HomeRecord| FoundRecord {
        key: record.key.into(),
        value: record.value.into(),
        checksums: Some(record.checksums),
    };
    Ok(RecordsOfAll { records: records.into_iter().map(found).collect(), end: end.map(Bytes::from) })
}

/// # Errors
/// `Unavailable` unless each slot is in one of the sets and no other.
pub(crate) fn check_covered<'a>(sets: impl IntoIterator<Item = &'a SlotSet>) -> Result<()> {
    let mut all: Option<SlotSet> = None;
    for slots in sets {
        let all = all.get_or_insert_with(|| SlotSet::none(slots.count()));
        if slots.count() != all.count() || slots.iter().any(|slot| all.contains(slot)) {
            return Err(not_all_at_home());
        }
        all.add(slots);
    }
    match all {
        Some(all) if all.others().is_empty() => Ok(()),
        Some(_) | None => Err(not_all_at_home()),
    }
}

#[cfg(test)]
mod tests {
    use forebay_catalog::{Slot, SlotCount};

    use super::*;

    fn answer(slots: &[u16], keys: &[&str], end: Option<&str>) -> HomeRecords {
        let mut set = SlotSet::none(SlotCount::new(4).unwrap());
        slots.iter().for_each(|slot| set.insert(Slot(*slot)));
        let record = |key: &&str| HomeRecord { key: key.as_bytes().to_vec(), value: Vec::new(), checksums: None };
        HomeRecords { slots: set, records: keys.iter().map(record).collect(), end: end.map(|end| end.into()) }
    }

    fn check(answers: Vec<HomeRecords>, limit: usize, keys: &[&str], end: Option<&str>) {
        let found = merge(answers, limit).expect("each slot has one home");
        let shown: Vec<_> = found.records.iter().map(|record| std::str::from_utf8(&record.key).unwrap()).collect();
        assert_eq!((&shown[..], found.end.as_deref()), (keys, end.map(str::as_bytes)));
    }

    #[test]
    fn records_of_all_homes_are_in_order_up_to_where_all_have_looked() {
        let two = |one: &[&str], end, other: &[&str], other_end| {
            vec![answer(&[0, 3], one, end), answer(&[1, 2], other, other_end)]
        };
        check(two(&["a", "d"], None, &["b", "c"], None), 10, &["a", "b", "c", "d"], None);
        check(two(&["a", "d"], Some("d"), &["b", "e"], None), 10, &["a", "b", "d"], Some("d"));
        check(two(&["a", "d"], Some("d"), &["b", "c"], Some("c")), 2, &["a", "b"], Some("b"));
        // What it has looked at may be others' keys.
        check(two(&[], Some("b"), &["c"], None), 10, &[], Some("b"));
        check(two(&["a", "b"], None, &[], None), 2, &["a", "b"], None);
        check(two(&[], None, &[], None), 10, &[], None);
    }

    #[test]
    fn a_slot_without_one_home_is_an_error() {
        let cases = [
            vec![],
            vec![answer(&[0, 1, 2], &["a"], None)],
            vec![answer(&[0, 1, 2], &["a"], None), answer(&[2, 3], &["b"], None)],
        ];
        for answers in cases {
            assert_eq!(merge(answers, 10).err().expect("an error").kind, ErrorKind::Unavailable);
        }
    }
}
