//! Which notices the state of a worker calls for.

use forebay_admin::api::{CircuitState, UnderStoreStatus};
use forebay_admin::{Notice, Severity};
use forebay_cache::Status;
use forebay_store::DirectoryHealth;

/// Uploads usually follow writes within seconds. What is older than this waits for an under store that does not answer or for a
/// human; the alert rules of `deploy/prometheus` say the same.
const BACKLOG_AGE_MAX_MS: u64 = 30 * 60 * 1000;

/// Above this share of what pinned data may take, the next burst may be refused.
const PINNED_FULL: f64 = 0.9;
/// Below this it has room again; the distance keeps the notice from coming and going.
const PINNED_CLEAR: f64 = 0.8;

/// What is known of a worker at one moment.
pub(super) struct Facts {
    pub(super) status: Status,
    pub(super) directories: Vec<DirectoryHealth>,
    /// Since the start.
    pub(super) corrupt_records: u64,
    pub(super) pinned_bytes_max: u64,
    /// By their labels.
    pub(super) under_stores: Vec<(String, UnderStoreStatus)>,
}

/// Something that is so (with a title) or not so (without).
#[derive(Debug, PartialEq)]
pub(super) struct Condition {
    pub(super) id: &'static str,
    pub(super) severity: Severity,
    pub(super) subject: String,
    pub(super) title: Option<String>,
    pub(super) cure: &'static str,
}

impl Condition {
    /// # Errors
    /// Id and subject of the notice that no longer holds.
    pub(super) fn notice(self, now_ms: u64) -> Result<Notice, (&'static str, String)> {
        let Self { id, severity, subject, title, cure } = self;
        match title {
            None => Err((id, subject)),
            Some(title) => {
                Ok(Notice { id: id.to_owned(), severity, subject, title, cure: cure.to_owned(), since_ms: now_ms })
            }
        }
    }
}

/// Every condition, whether it holds or not.
pub(super) fn conditions(facts: &Facts) -> Vec<Condition> {
    let status = &facts.status;
    let mut all = vec![
        backlog(status),
        corruption(facts.corrupt_records),
        conflicts(status),
        undeliverable(status),
        missing(status),
    ];
    all.extend(pinned(facts));
    all.extend(facts.directories.iter().map(directory));
    all.extend(facts.under_stores.iter().map(|(label, state)| under_store(label, state)));
    all
}

fn backlog(status: &Status) -> Condition {
    let is_old = status.oldest_dirty_age_ms > BACKLOG_AGE_MAX_MS;
    let minutes = status.oldest_dirty_age_ms / 60_000;
    let (objects, mib) = (status.dirty_objects + status.tombstones, status.dirty_bytes >> 20);
    Condition {
        id: "backlog-old",
        severity: Severity::Warning,
        subject: String::new(),
        title: is_old.then(|| {
            format!(
                "the oldest write waits for the under store since {minutes} min; {objects} objects, {mib} MiB behind it"
            )
        }),
        cure: "Look at the under store's state and at forebay_persist_failures_total: the log lines `could not persist` name the reason",
    }
}

fn corruption(records: u64) -> Condition {
    Condition {
        id: "corruption",
        severity: Severity::Critical,
        subject: String::new(),
        title: (records > 0).then(|| format!("{records} records have been found damaged since the start")),
        cure: "Replace the disk that the log names; clean objects are fetched again by themselves, `forebay scrub` finds the rest",
    }
}

fn conflicts(status: &Status) -> Condition {
    let count = status.conflicts;
    Condition {
        id: "conflict",
        severity: Severity::Warning,
        subject: String::new(),
        title: (count > 0).then(|| {
            format!("{count} objects were changed in the under store by somebody else while they waited here")
        }),
        cure: "Write each object that the log names again through Forebay, or delete it; let nobody else write these keys",
    }
}

fn undeliverable(status: &Status) -> Condition {
    let count = status.undeliverable;
    Condition {
        id: "undeliverable",
        severity: Severity::Warning,
        subject: String::new(),
        title: (count > 0)
            .then(|| format!("the under store refuses {count} of the objects and deletes that wait here")),
        cure: "`forebay undeliverable list` tells which and why: keep, rename or discard each, or have the under store take them",
    }
}

fn missing(status: &Status) -> Condition {
    let count = status.missing_objects;
    Condition {
        id: "objects-missing",
        severity: Severity::Critical,
        subject: String::new(),
        title: (count > 0).then(|| format!("the bytes of {count} acknowledged objects are missing")),
        cure: "The log of the start names them. Write or delete each of them again, without conditions: reads of them fail until then",
    }
}

/// Nothing between the two limits: then the notice stays as it is.
fn pinned(facts: &Facts) -> Option<Condition> {
    let share = facts.status.pinned_bytes as f64 / facts.pinned_bytes_max.max(1) as f64;
    if (PINNED_CLEAR..=PINNED_FULL).contains(&share) {
        return None;
    }
    Some(Condition {
        id: "pinned-nearly-full",
        severity: Severity::Critical,
        subject: String::new(),
        title: (share > PINNED_FULL)
            .then(|| format!("pinned data takes {:.0} % of the space that it may take", share * 100.0)),
        cure: "See why uploads are slow, add disk, raise cache.pinned_ratio, or let the policy write through: writes are refused when it is full",
    })
}

fn directory(directory: &DirectoryHealth) -> Condition {
    Condition {
        id: "directory-failed",
        severity: Severity::Critical,
        subject: directory.label.clone(),
        title: directory.failed.as_ref().map(|reason| format!("the directory takes no more writes: {reason}")),
        cure: "Replace the disk and restart; what was dirty on it and readable is still uploaded",
    }
}

fn under_store(label: &str, state: &UnderStoreStatus) -> Condition {
    let error = state.last_error.as_deref().unwrap_or("no error is known");
    let title = format!("no answer after {} tries in a row: {error}", state.failures_in_a_row);
    Condition {
        id: "under-store-unreachable",
        severity: Severity::Critical,
        subject: label.to_owned(),
        title: (state.circuit != CircuitState::Closed).then_some(title),
        cure: "Check the network and the under store; `forebay doctor` says what fails. Writes go on until pinned space is full",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        let status = Status {
            dirty_objects: 3,
            dirty_bytes: 5 << 20,
            tombstones: 1,
            oldest_dirty_age_ms: 1000,
            conflicts: 0,
            undeliverable: 0,
            missing_objects: 0,
            pinned_bytes: 50,
            evictable_bytes: 0,
            free_bytes: 0,
            capacity_bytes: 1000,
            failed_directories: Vec::new(),
        };
        let directories = vec![DirectoryHealth { label: "/data".into(), failed: None }];
        let state = UnderStoreStatus {
            url: "s3://bucket".into(),
            buckets: Vec::new(),
            circuit: CircuitState::Closed,
            probe_in_ms: None,
            failures_in_a_row: 0,
            concurrency_limit: 64,
            concurrency_max: 64,
            running: 0,
            calls: 0,
            errors: 0,
            throttled: 0,
            last_error: None,
            last_error_ms: None,
            requests_per_second_max: 0,
            upload_bandwidth_max: 0,
        };
        Facts {
            status,
            directories,
            corrupt_records: 0,
            pinned_bytes_max: 100,
            under_stores: vec![("s3://bucket".into(), state)],
        }
    }

    /// The notices that hold: id, subject and title.
    fn holding(facts: &Facts) -> Vec<(&'static str, String, String)> {
        let all = conditions(facts).into_iter();
        all.filter_map(|condition| Some((condition.id, condition.subject, condition.title?))).collect()
    }

    #[test]
    fn a_healthy_worker_has_no_notice_and_every_condition_is_cleared() {
        assert_eq!(holding(&facts()), []);
        let cleared: Vec<_> =
            conditions(&facts()).into_iter().map(|condition| condition.notice(7).unwrap_err().0).collect();
        assert_eq!(
            cleared,
            [
                "backlog-old",
                "corruption",
                "conflict",
                "undeliverable",
                "objects-missing",
                "pinned-nearly-full",
                "directory-failed",
                "under-store-unreachable"
            ]
        );
    }

    #[test]
    fn each_trouble_has_its_notice_with_the_figures() {
        let check = |change: fn(&mut Facts), id, subject: &str, title: &str| {
            let mut facts = facts();
            change(&mut facts);
            assert_eq!(holding(&facts), [(id, subject.to_owned(), title.to_owned())]);
        };
        check(
            |facts| facts.status.oldest_dirty_age_ms = 31 * 60_000,
            "backlog-old",
            "",
            "the oldest write waits for the under store since 31 min; 4 objects, 5 MiB behind it",
        );
        check(|facts| facts.corrupt_records = 2, "corruption", "", "2 records have been found damaged since the start");
        check(
            |facts| facts.status.conflicts = 1,
            "conflict",
            "",
            "1 objects were changed in the under store by somebody else while they waited here",
        );
        check(
            |facts| facts.status.undeliverable = 2,
            "undeliverable",
            "",
            "the under store refuses 2 of the objects and deletes that wait here",
        );
        check(
            |facts| facts.status.missing_objects = 3,
            "objects-missing",
            "",
            "the bytes of 3 acknowledged objects are missing",
        );
        check(
            |facts| facts.status.pinned_bytes = 95,
            "pinned-nearly-full",
            "",
            "pinned data takes 95 % of the space that it may take",
        );
        check(
            |facts| facts.directories[0].failed = Some("fsync: EIO".into()),
            "directory-failed",
            "/data",
            "the directory takes no more writes: fsync: EIO",
        );
        check(
            |facts| {
                let state = &mut facts.under_stores[0].1;
                (state.circuit, state.failures_in_a_row) = (CircuitState::Probing, 12);
                state.last_error = Some("connection refused".into());
            },
            "under-store-unreachable",
            "s3://bucket",
            "no answer after 12 tries in a row: connection refused",
        );
    }

    #[test]
    fn between_its_limits_the_notice_of_pinned_space_stays_as_it_is() {
        let mut facts = facts();
        facts.status.pinned_bytes = 85;
        assert!(conditions(&facts).iter().all(|condition| condition.id != "pinned-nearly-full"));
    }
}
