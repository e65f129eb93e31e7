//! A job of a cluster, as the engine keeps it. Each worker does a share of it: what is at home there.
//!
//! Nobody leads. A worker does its share in passes. One pass covers the slots that are at home there, and that no pass
//! has covered. At its end, the worker notes in the job which of them it still has. So a slot that moves, or whose home
//! dies, is covered by its next home, and the job is done when all slots are.

use std::collections::{BTreeMap, BTreeSet};

use forebay_catalog::SlotSet;
use serde::{Deserialize, Serialize};

use super::{Job, JobKind, JobProgress, JobRequest, JobState};

/// What one worker has done for a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Share {
    /// Passes that have ended. 0 again when they do not count any more.
    pub(super) passes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) started_ms: Option<u64>,
    /// Of all passes together.
    pub(super) progress: JobProgress,
    pub(super) findings: u64,
}

/// A share that a worker has begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareReport {
    pub(super) id: String,
    pub(super) state: JobState,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    pub(super) share: Share,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterJob {
    pub(super) request: JobRequest,
    pub(super) created_by: String,
    pub(super) created_ms: u64,
    /// Never `Queued`.
    pub(super) state: JobState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended_ms: Option<u64>,
    /// Why it failed, or will when all have done their shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// The slots that passes have covered.
    pub(super) covered: SlotSet,
    /// By worker, as of the end of its last pass.
    pub(super) shares: BTreeMap<String, Share>,
}

impl JobKind {
    /// Whether the job is about keys, each of which its home does. The others are about what is on the disks of each
    /// worker.
    pub(super) fn is_about_keys(self) -> bool {
        match self {
            Self::Load | Self::Persist | Self::Verify => true,
            Self::Free | Self::Scrub => false,
        }
    }
}

impl ClusterJob {
    pub(super) fn new(request: JobRequest, created_by: String, created_ms: u64, covered: SlotSet) -> Self {
        let (state, shares) = (JobState::Running, BTreeMap::new());
        Self { request, created_by, created_ms, state, ended_ms: None, error: None, covered, shares }
    }

    /// The slots that a worker's next pass is about, out of those that are at home there. `None`: it has nothing to do.
    pub(super) fn left_for(&self, worker: &str, at_home: &SlotSet) -> Option<SlotSet> {
        if self.state.has_ended() {
            return None;
        }
        if !self.request.kind.is_about_keys() {
            return (!self.has_passed(worker)).then(|| at_home.clone());
        }
        let mut left = at_home.clone();
        left.take_off(&self.covered);
        (!left.is_empty()).then_some(left)
    }

    fn has_passed(&self, worker: &str) -> bool {
        self.shares.get(worker).is_some_and(|share| share.passes > 0)
    }

    /// A worker has gained slots, so what was done for them before may not count. Returns whether that changes the job.
    pub(super) fn uncover(&mut self, worker: &str, gained: &SlotSet) -> bool {
        if self.state.has_ended() {
            return false;
        }
        match self.request.kind {
            // What an earlier home has loaded is not at hand here, and gone if that home has died.
            JobKind::Load => {
                self.covered.take_off(gained);
                true
            }
            // It may have taken copies over from a former home that has not freed them yet.
            JobKind::Free => self.shares.get_mut(worker).is_some_and(|share| std::mem::take(&mut share.passes) > 0),
            JobKind::Persist | JobKind::Verify | JobKind::Scrub => false,
        }
    }

    /// Whether nobody has anything more to do. `living`: all workers that live, where they are known.
    pub(super) fn is_complete(&self, living: Option<&BTreeSet<String>>) -> bool {
        match self.request.kind.is_about_keys() {
            true => self.covered.others().is_empty(),
            false => living.is_some_and(|living| living.iter().all(|worker| self.has_passed(worker))),
        }
    }

    pub(super) fn end_if_complete(&mut self, living: Option<&BTreeSet<String>>, now_ms: u64) {
        if self.is_complete(living) {
            let error = self.error.take();
            self.end(if error.is_some() { JobState::Failed } else { JobState::Done }, now_ms, error);
        }
    }

    pub(super) fn end(&mut self, state: JobState, ended_ms: u64, error: Option<String>) {
        (self.state, self.ended_ms, self.error) = (state, Some(ended_ms), error);
    }

    /// The job as users see it, with what workers report of the shares that they have begun.
    pub(super) fn show(&self, id: &str, reports: &BTreeMap<String, ShareReport>) -> Job {
        let is_open = !self.state.has_ended();
        let mut shares: BTreeMap<&str, &Share> =
            self.shares.iter().map(|(worker, share)| (worker.as_str(), share)).collect();
        for (worker, report) in reports.iter().filter(|_| is_open) {
            let noted = shares.entry(worker).or_insert(&report.share);
            // A pass that has ended meanwhile is noted with all that it did.
            if noted.passes <= report.share.passes {
                *noted = &report.share;
            }
        }
        let waits = |(worker, report): (&String, &ShareReport)| {
            report.error.as_ref().map(|error| format!("worker {worker}: {error}"))
        };
        let has_begun = !self.shares.is_empty() || reports.values().any(|report| report.state == JobState::Running);
        Job {
            id: id.to_owned(),
            request: self.request.clone(),
            state: if is_open && !has_begun { JobState::Queued } else { self.state },
            created_by: self.created_by.clone(),
            created_ms: self.created_ms,
            started_ms: shares.values().filter_map(|share| share.started_ms).min(),
            ended_ms: self.ended_ms,
            progress: sum(shares.values().map(|share| &share.progress)),
            findings: shares.values().map(|share| share.findings).sum(),
            error: reports.iter().filter(|_| is_open).find_map(waits).or_else(|| self.error.clone()),
        }
    }
}

/// Totals are known when they are of all shares.
fn sum<'a>(shares: impl Iterator<Item = &'a JobProgress>) -> JobProgress {
    let add = |total: Option<u64>, more: Option<u64>| Some(total? + more?);
    let sum = shares.cloned().reduce(|sum, more| JobProgress {
        objects_seen: sum.objects_seen + more.objects_seen,
        objects_done: sum.objects_done + more.objects_done,
        bytes_done: sum.bytes_done + more.bytes_done,
        objects_skipped: sum.objects_skipped + more.objects_skipped,
        objects_failed: sum.objects_failed + more.objects_failed,
        objects_total: add(sum.objects_total, more.objects_total),
        bytes_total: add(sum.bytes_total, more.bytes_total),
        after: None,
    });
    JobProgress { after: None, ..sum.unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use forebay_catalog::{Slot, SlotCount, records};

    use super::*;

    fn slots(numbers: &[u16]) -> SlotSet {
        let mut slots = SlotSet::none(SlotCount::new(4).unwrap());
        numbers.iter().for_each(|number| slots.insert(Slot(*number)));
        slots
    }

    fn job(kind: JobKind) -> ClusterJob {
        let request =
            JobRequest { kind, path: "/data".to_owned(), rate_limit: None, concurrency: None, dry_run: false };
        ClusterJob::new(request, "anna".to_owned(), 5, slots(&[]))
    }

    fn share(passes: u64, objects: u64) -> Share {
        let progress = JobProgress { objects_seen: objects, bytes_done: 10 * objects, ..JobProgress::default() };
        Share { passes, started_ms: Some(100 - objects), progress, findings: objects }
    }

    fn living(workers: &[&str]) -> BTreeSet<String> {
        workers.iter().map(|worker| (*worker).to_owned()).collect()
    }

    #[test]
    fn keys_are_done_when_each_slot_was_covered_by_some_home() {
        for kind in [JobKind::Load, JobKind::Persist, JobKind::Verify] {
            let mut job = job(kind);
            assert_eq!(job.left_for("w1", &slots(&[0, 1])), Some(slots(&[0, 1])));
            job.covered.add(&slots(&[0, 1]));
            job.shares.insert("w1".to_owned(), share(1, 1));
            assert_eq!(job.left_for("w1", &slots(&[0, 1])), None);
            // It gains one.
            assert_eq!(job.left_for("w1", &slots(&[0, 1, 2])), Some(slots(&[2])));
            assert!(!job.is_complete(Some(&living(&["w1"]))));
            job.covered.add(&slots(&[2, 3]));
            assert!(job.is_complete(Some(&living(&["w1", "w2"]))) && job.is_complete(None));
        }
    }

    #[test]
    fn disks_are_done_when_each_living_worker_has_passed_over_its_own() {
        for kind in [JobKind::Free, JobKind::Scrub] {
            let mut job = job(kind);
            job.covered.add(&slots(&[0, 1, 2, 3]));
            assert_eq!(job.left_for("w1", &slots(&[])), Some(slots(&[])));
            job.shares.insert("w1".to_owned(), share(1, 1));
            assert_eq!(job.left_for("w1", &slots(&[0, 1])), None);
            assert!(!job.is_complete(Some(&living(&["w1", "w2"]))));
            assert!(!job.is_complete(None), "there may be others");
            assert!(job.is_complete(Some(&living(&["w1"]))));
        }
    }

    #[test]
    fn slots_that_are_gained_are_loaded_and_freed_again() {
        for kind in [JobKind::Load, JobKind::Free, JobKind::Persist, JobKind::Verify, JobKind::Scrub] {
            let mut job = job(kind);
            job.covered.add(&slots(&[0, 1, 2]));
            job.shares.insert("w1".to_owned(), share(1, 1));
            job.shares.insert("w2".to_owned(), share(1, 2));
            let begins_again = matches!(kind, JobKind::Load | JobKind::Free);
            assert_eq!(job.uncover("w1", &slots(&[2])), begins_again, "{kind:?}");
            assert_eq!(job.left_for("w1", &slots(&[2])).is_some(), begins_again, "{kind:?}");
            assert_eq!(job.left_for("w2", &slots(&[1])), None, "{kind:?}");
            job.end(JobState::Done, 9, None);
            assert!(!job.uncover("w2", &slots(&[1])), "{kind:?}");
        }
    }

    #[test]
    fn what_has_ended_leaves_nothing_to_do() {
        let mut job = job(JobKind::Scrub);
        job.end(JobState::Cancelled, 9, None);
        assert_eq!(job.left_for("w1", &slots(&[0])), None);
    }

    #[test]
    fn an_error_of_a_share_fails_the_job_when_all_have_done_theirs() {
        let mut job = job(JobKind::Persist);
        job.error = Some("worker w1: no".to_owned());
        job.covered.add(&slots(&[0, 1, 2]));
        job.end_if_complete(None, 7);
        assert_eq!(job.state, JobState::Running);
        job.covered.add(&slots(&[3]));
        job.end_if_complete(None, 9);
        assert_eq!((job.state, job.ended_ms, job.error.as_deref()), (JobState::Failed, Some(9), Some("worker w1: no")));
    }

    #[test]
    fn a_job_shows_the_sum_of_the_shares() {
        let mut job = job(JobKind::Load);
        let none = BTreeMap::new();
        assert_eq!(job.show("1", &none).state, JobState::Queued);
        job.shares.insert("w1".to_owned(), share(1, 3));
        let report = |state, passes, objects, error: Option<&str>| ShareReport {
            id: "1".to_owned(),
            state,
            error: error.map(str::to_owned),
            share: share(passes, objects),
        };
        let waits = report(JobState::Running, 0, 4, Some("waits: the under store"));
        // The report of a pass that has ended since is older than what is noted.
        let old = report(JobState::Running, 0, 2, None);
        let reports = BTreeMap::from([("w1".to_owned(), old), ("w2".to_owned(), waits)]);
        let shown = job.show("1", &reports);
        assert_eq!((shown.state, shown.findings, shown.started_ms), (JobState::Running, 7, Some(96)));
        assert_eq!((shown.progress.objects_seen, shown.progress.bytes_done), (7, 70));
        assert_eq!(shown.error.as_deref(), Some("worker w2: waits: the under store"));
        // The next pass counts on.
        let next = BTreeMap::from([("w1".to_owned(), report(JobState::Queued, 1, 5, None))]);
        assert_eq!(job.show("1", &next).progress.objects_seen, 5);
        job.end(JobState::Failed, 9, Some("worker w1: no".to_owned()));
        let shown = job.show("1", &reports);
        assert_eq!((shown.state, shown.ended_ms, shown.progress.objects_seen), (JobState::Failed, Some(9), 3));
        assert_eq!(shown.error.as_deref(), Some("worker w1: no"));
    }

    #[test]
    fn totals_are_known_when_they_are_of_all() {
        let of = |total| JobProgress { objects_total: total, after: Some("/x".to_owned()), ..JobProgress::default() };
        assert_eq!(sum([&of(Some(2)), &of(Some(3))].into_iter()).objects_total, Some(5));
        assert_eq!(sum([&of(Some(2)), &of(None)].into_iter()).objects_total, None);
        assert_eq!(sum([&of(Some(2))].into_iter()).after, None);
    }

    /// What the first release wrote. Every later release must still read it.
    const CLUSTER_JOB: &str = concat!(
        r#"{"request":{"kind":"load","path":"/data","dryRun":false},"createdBy":"anna","createdMs":5,"state":"running","#,
        r#""covered":[4,[5]],"shares":{"w1":{"passes":1,"startedMs":97,"progress":{"objectsSeen":3,"objectsDone":0,"#,
        r#""bytesDone":30,"objectsSkipped":0,"objectsFailed":0},"findings":3}}}"#
    );

    #[test]
    fn a_job_of_a_cluster_reads_as_the_first_release_wrote_it() {
        let mut job = job(JobKind::Load);
        job.covered = slots(&[0, 2]);
        job.shares.insert("w1".to_owned(), share(1, 3));
        assert_eq!(String::from_utf8_lossy(&records::encode_json(&job)[1..]), CLUSTER_JOB);
        let golden = [&[1], CLUSTER_JOB.as_bytes()].concat();
        assert_eq!(records::decode_json::<ClusterJob>("job", &golden).unwrap(), job);
    }
}
