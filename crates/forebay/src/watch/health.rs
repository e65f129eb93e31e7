//! Which notices the state of a worker calls for.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_admin::api::{CircuitState, UnderStoreStatus};
use forebay_admin::{Notice, Severity};
use forebay_auth::FileCounts;
use forebay_cache::{RefusedBucket, ReplacedRules, Status};
use forebay_store::{DamagedPlace, DirectoryHealth, Shortage};

use crate::certificate::{CertificateExpiry, CertificateState};
use crate::cluster::{Difference, UsersProblem, aside};
use crate::commands::{moment, size};
use crate::doctor::findings::{Kind, OF_UNDER_STORES};
use crate::under_stores::Trouble;

/// Uploads usually follow writes within seconds. What is older than this waits for an under store that does not answer
/// or for a human; the alert rules of `deploy/prometheus` say the same.
const BACKLOG_AGE_MAX_MS: u64 = 30 * 60 * 1000;

/// So long without another refusal, and the notice of refusals goes: clients that wait between their tries come again
/// within it.
const QUIET: Duration = Duration::from_secs(60);

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
    /// The last of them.
    pub(super) damaged: Option<DamagedPlace>,
    pub(super) pinned_bytes_max: u64,
    /// By their labels.
    pub(super) under_stores: Vec<(String, UnderStoreStatus)>,
    pub(super) troubles: Vec<(String, Option<Trouble>)>,
    /// Writes that were refused lately, because pinned data fills its share and because the cache has filled its disks.
    pub(super) rejected_pinned_full: u64,
    pub(super) rejected_disk_full: u64,
    /// Why the users file is refused.
    pub(super) users_file: Option<String>,
    /// What the users file holds, if there is one.
    pub(super) users: Option<FileCounts>,
    /// Why they are not those of the cluster, or not those of the file.
    pub(super) cluster_users: Option<UsersProblem>,
    /// The certificate that clients see, if there is one.
    pub(super) certificate: Option<CertificateExpiry>,
    pub(super) replaced_rules: Option<ReplacedRules>,
    /// The engine of the cluster does not answer.
    pub(super) is_cut_off: bool,
    /// Members of the engine that may return stale reads.
    pub(super) old_engines: Vec<String>,
    /// Of other workers of the cluster.
    pub(super) differences: BTreeMap<String, Difference>,
}

/// What is counted since the start, and of it what belongs to trouble that lasts: it is over when nothing has been
/// counted for [`QUIET`].
#[derive(Debug, Default)]
pub(super) struct Lately {
    total: u64,
    before: u64,
    counted_at: Duration,
}

impl Lately {
    pub(super) fn observe(&mut self, now: Duration, total: u64) -> u64 {
        if total > self.total {
            (self.total, self.counted_at) = (total, now);
        } else if now.saturating_sub(self.counted_at) >= QUIET {
            self.before = total;
        }
        total - self.before
    }
}

/// Writes that were refused lately because the cache itself has filled its disks.
#[derive(Debug, Default)]
pub(super) struct FullDisks {
    refusals: Lately,
    was_short: bool,
}

impl FullDisks {
    /// `is_short`: a file system has no room for what `store.size` counts on, which has a notice of its own. Writes
    /// that were refused then, also just before it was over, are none of these.
    pub(super) fn observe(&mut self, now: Duration, total: u64, is_short: bool) -> u64 {
        if is_short || self.was_short {
            (self.refusals.total, self.refusals.before) = (total, total);
        }
        self.was_short = is_short;
        self.refusals.observe(now, total)
    }
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
        corruption(facts),
        conflicts(status),
        undeliverable(status),
        uploads_refused(status),
        missing(status),
        missing_parts(status),
        bytes_unavailable(status),
        writes_rejected(facts),
        users_file(facts),
        no_users(facts.users),
        cluster_users(facts.cluster_users.as_ref()),
        other_users_file(facts.cluster_users.as_ref()),
        certificate(facts.certificate),
        policies_replaced(facts.replaced_rules),
        disks_full(facts),
        cut_off(facts.is_cut_off),
        old_engines(&facts.old_engines),
        other_settings(&facts.differences),
        other_clocks(&facts.differences),
    ];
    all.extend(pinned(facts));
    all.extend(facts.directories.iter().map(directory));
    all.extend(facts.directories.iter().map(directory_full));
    for ((label, state), (_, trouble)) in facts.under_stores.iter().zip(&facts.troubles) {
        all.extend(OF_UNDER_STORES.map(|id| match id {
            "under-store-unreachable" => unreachable_store(label, state, trouble.as_ref()),
            id => in_trouble(id, label, trouble.as_ref()),
        }));
    }
    all
}

fn cut_off(is_cut_off: bool) -> Condition {
    Condition {
        id: "cluster-cut-off",
        severity: Severity::Critical,
        subject: String::new(),
        title: is_cut_off.then(|| "the engine of the cluster does not answer: all keys get 503".to_owned()),
        cure: "See that etcd runs and that this machine reaches it (cluster.engine; `forebay cluster status` shows each member). The worker resumes by itself, and nothing is lost",
    }
}

fn old_engines(members: &[String]) -> Condition {
    Condition {
        id: "cluster-engine-old",
        severity: Severity::Warning,
        subject: String::new(),
        title: (!members.is_empty()).then(|| format!("etcd may return outdated reads: {}", members.join(", "))),
        cure: "Upgrade etcd to 3.6.9 or newer, one member after the other. After a restart, an older member may answer with a state from before: a worker could serve outdated records of slots that it takes over",
    }
}

/// Of each worker that `show` says something of.
fn of_each(differences: &BTreeMap<String, Difference>, show: fn(&Difference) -> Option<String>) -> Option<String> {
    let shown: Vec<_> = differences
        .iter()
        .filter_map(|(worker, difference)| Some(format!("{} ({worker})", show(difference)?)))
        .collect();
    (!shown.is_empty()).then(|| shown.join("; "))
}

fn other_settings(differences: &BTreeMap<String, Difference>) -> Condition {
    let shown = of_each(differences, |found| (!found.settings.is_empty()).then(|| found.settings.join(", ")));
    Condition {
        id: "cluster-settings-differ",
        severity: Severity::Warning,
        subject: String::new(),
        title: shown.map(|shown| format!("other workers have other settings than this one: {shown}")),
        cure: "Give all workers the same values: GET /api/v1/configuration of each shows them, but for secrets; they need a restart of the worker. Where users differ (server.users_file), a worker could not take over those of the cluster: see its notices",
    }
}

fn other_clocks(differences: &BTreeMap<String, Difference>) -> Condition {
    let shown = of_each(differences, |found| Some(format!("{} this one", aside(found.clock_ms?))));
    Condition {
        id: "cluster-clocks-differ",
        severity: Severity::Warning,
        subject: String::new(),
        title: shown.map(|shown| format!("the clocks of other workers differ: {shown}")),
        cure: "Keep the clocks of all machines with an NTP client (chrony, systemd-timesyncd). With another time, objects seem older or newer than they are, and a worker that starts again is refused",
    }
}

fn writes_rejected(facts: &Facts) -> Condition {
    let count = facts.rejected_pinned_full;
    let [taken, most] = [facts.status.pinned_bytes, facts.pinned_bytes_max].map(size);
    Condition {
        id: "writes-rejected",
        severity: Severity::Critical,
        subject: String::new(),
        title: (count > 0).then(|| {
            format!("{count} writes have been refused (503 SlowDown) because pinned data filled its share: it takes {taken} of {most} now")
        }),
        cure: "See why uploads are slow (notices of the under store, `forebay undeliverable list`), delete transient objects, raise store.size or cache.pinned_ratio, or set pinnedFull = \"write-through\" for the path",
    }
}

fn users_file(facts: &Facts) -> Condition {
    Condition {
        id: "users-file-refused",
        severity: Severity::Warning,
        subject: String::new(),
        title: facts
            .users_file
            .as_ref()
            .map(|why| format!("the users file can't be used, and the previous users stay in force: {why}")),
        cure: "Correct the file; `forebay users check FILE` validates it. It is reloaded automatically",
    }
}

/// Tools that write a file in place empty it first, and a failed template leaves it so.
fn no_users(users: Option<FileCounts>) -> Condition {
    let is_empty = users == Some(FileCounts { users: 0, anonymous_grants: 0 });
    Condition {
        id: "users-file-empty",
        severity: Severity::Warning,
        subject: String::new(),
        title: is_empty.then(|| "the users file has no users: requests of all but the root user get 403".to_owned()),
        cure: "If it should have users, write them again; the file is reloaded automatically. Without other users, leave server.users_file out",
    }
}

fn cluster_users(problem: Option<&UsersProblem>) -> Condition {
    let title = match problem {
        Some(UsersProblem::Unusable(why)) => {
            Some(format!("the users of the cluster can't be used, and the previous users stay in force here: {why}"))
        }
        Some(UsersProblem::FileRefused(why)) => {
            Some(format!("the users of the users file can't become those of the cluster: {why}"))
        }
        Some(UsersProblem::OtherFile(_)) | None => None,
    };
    Condition {
        id: "cluster-users-refused",
        severity: Severity::Warning,
        subject: String::new(),
        title,
        cure: match problem {
            Some(UsersProblem::FileRefused(_)) => "Make the users file smaller: fewer users, grants and comments",
            _ => {
                "Change the users in the users file of one worker while it runs: they replace those of the cluster. Run the same release on all workers"
            }
        },
    }
}

fn other_users_file(problem: Option<&UsersProblem>) -> Condition {
    let title = match problem {
        Some(UsersProblem::OtherFile(by)) => Some(format!(
            "the users file of this worker is not in force: the users of the cluster are those of the newest change, on worker {by}"
        )),
        Some(UsersProblem::Unusable(_) | UsersProblem::FileRefused(_)) | None => None,
    };
    Condition {
        id: "users-file-outdated",
        severity: Severity::Info,
        subject: String::new(),
        title,
        cure: "Copy the users file of that worker here. A later change of the file here would otherwise bring the other users in it back, on all workers",
    }
}

fn certificate(expiry: Option<CertificateExpiry>) -> Condition {
    let title = expiry.and_then(|expiry| match expiry.state() {
        CertificateState::Valid => None,
        CertificateState::NotYet => {
            Some(format!("the TLS certificate is valid only from {}", moment(expiry.not_before_ms)))
        }
        CertificateState::Expiring => Some(format!("the TLS certificate expires at {}", moment(expiry.not_after_ms))),
        CertificateState::Expired => {
            Some(format!("the TLS certificate expired at {}: clients refuse it", moment(expiry.not_after_ms)))
        }
    });
    let is_near = expiry.is_some_and(|expiry| expiry.state() == CertificateState::Expiring);
    Condition {
        id: "certificate-expires",
        severity: if is_near { Severity::Warning } else { Severity::Critical },
        subject: String::new(),
        title,
        cure: "Put a new certificate and its key into the files of server.tls_cert and server.tls_key; they are reloaded automatically",
    }
}

fn policies_replaced(replaced: Option<ReplacedRules>) -> Condition {
    Condition {
        id: "policies-replaced",
        severity: Severity::Warning,
        subject: String::new(),
        title: replaced.map(|ReplacedRules { rules, version }| {
            format!("the path policies of the configuration have changed, and have replaced {rules} rules that were changed at run time, as version {version} has them")
        }),
        cure: "`forebay policy history` shows what has changed; `forebay policy rollback` with that version brings them back. The notice ends with the next change of the rules",
    }
}

/// Others have filled the file system, or it is smaller than the settings say.
fn directory_full(directory: &DirectoryHealth) -> Condition {
    let [left, wanted] = [directory.file_system_free_bytes, directory.unused_bytes].map(size);
    let [total, others] = [directory.file_system_bytes, directory.others_bytes].map(size);
    let why = directory.shortage.map(|shortage| match shortage {
        Shortage::Others => format!("others have taken {others} of its {total}"),
        Shortage::SmallDisk => {
            let capacity = size(directory.capacity_bytes);
            format!("store.size is larger than the disk, {capacity} for this directory on a file system of {total}, and what is here may not leave")
        }
    });
    Condition {
        id: "disk-full",
        severity: Severity::Critical,
        subject: directory.label.clone(),
        title: why.map(|why| {
            format!("no space left on device (ENOSPC): its file system has {left} left, and store.size counts on {wanted} more: {why}; writes that need room are refused")
        }),
        cure: match directory.shortage {
            Some(Shortage::SmallDisk) => "Make store.size smaller than the file system of the directory, or the file system larger. See why uploads are slow if most of the space is pinned",
            Some(Shortage::Others) | None => "Make room on the file system of the directory: `du -xh` shows what uses it. The server uses freed space at once. As a lasting fix, give the cache a file system of its own, or make store.size smaller",
        },
    }
}

/// The cache itself has filled its disks.
fn disks_full(facts: &Facts) -> Condition {
    let is_told = facts.directories.iter().any(|directory| directory.shortage.is_some());
    let count = facts.rejected_disk_full;
    Condition {
        id: "disks-full",
        severity: Severity::Critical,
        subject: String::new(),
        title: (count > 0 && !is_told)
            .then(|| format!("{count} writes have been refused (503 SlowDown): the disks of the cache are full, and what may leave them does not leave in time")),
        cure: "Add a disk or raise store.size; see why uploads are slow if most of the space is pinned",
    }
}

fn in_trouble(id: &'static str, label: &str, trouble: Option<&Trouble>) -> Condition {
    let Kind { severity, what, cure, .. } = Kind::named(id);
    let trouble = trouble.filter(|trouble| trouble.kind.id == id);
    let title = trouble.map(|trouble| format!("{what}: {}", trouble.error));
    Condition { id, severity, subject: label.to_owned(), title, cure }
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

fn corruption(facts: &Facts) -> Condition {
    let records = facts.corrupt_records;
    let last = facts.damaged.as_ref().map_or_else(String::new, |DamagedPlace { directory, file, offset }| {
        format!(", the last one in {directory}/{file} at byte {offset}")
    });
    Condition {
        id: "corruption",
        severity: Severity::Critical,
        subject: String::new(),
        title: (records > 0).then(|| format!("{records} records have been found damaged since the start{last}")),
        cure: "Replace the disk of that directory; the log names each place (`stored bytes are damaged`). Clean objects are fetched again by themselves, `forebay scrub` finds the rest",
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

/// A probe does not find that: it writes nothing, and lists buckets.
fn uploads_refused(status: &Status) -> Condition {
    let first = status.refused_buckets.first();
    let title = first.map(|RefusedBucket { bucket, error }| {
        let more = status.refused_buckets.len() - 1;
        let others = if more > 0 { format!(", and what waits for other buckets ({more})") } else { String::new() };
        format!("the under store refuses what waits for bucket {bucket}{others}: {error}")
    });
    Condition {
        id: "uploads-refused",
        severity: Severity::Critical,
        subject: String::new(),
        title,
        cure: "If the error says that the bucket does not exist, make it in the under store again. If it says that access is denied, grant the keys of the under store the permission: `forebay doctor` tries each. If it says that the keys or their signature are wrong, correct them. Nothing is lost meanwhile. Forebay tries again every 30 seconds, and `forebay persist /` at once",
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
        cure: "The log names each (`the bytes of an acknowledged object are missing`): at the start, and in a cluster also when a worker becomes their home. Write or delete each of them again, without conditions: reads of them fail until then",
    }
}

/// The path stays out of the title: it may be long.
fn bytes_unavailable(status: &Status) -> Condition {
    let count = status.copies_unavailable;
    let why = status.unavailable.first().map(|first| format!(" ({})", first.problem)).unwrap_or_default();
    Condition {
        id: "bytes-unavailable",
        severity: Severity::Critical,
        subject: String::new(),
        title: (count > 0).then(|| {
            format!("no worker of the cluster gives the bytes of {count} objects and parts, which get 503{why}")
        }),
        cure: "`forebay cluster status` names some of them, with the worker that is missing: start it with its data directories. If it will never come back, `forebay cluster remove` gives it up (while etcd answers); then write or delete these objects",
    }
}

fn missing_parts(status: &Status) -> Condition {
    let count = status.missing_parts;
    Condition {
        id: "parts-missing",
        severity: Severity::Critical,
        subject: String::new(),
        title: (count > 0).then(|| format!("{count} parts of open multipart uploads are lost")),
        cure: "The log of the start names the uploads. Their clients must upload these parts again, or abort and start a new upload: a completion gets 400 InvalidPart until then",
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
        cure: "See why uploads are slow, add disk, raise cache.pinned_ratio, or let the policy write through. Writes are refused when it is full; if one bucket holds all of it, from 94 % on",
    })
}

fn directory(directory: &DirectoryHealth) -> Condition {
    Condition {
        id: "directory-failed",
        severity: Severity::Critical,
        subject: directory.label.clone(),
        title: directory.failed.as_ref().map(|reason| format!("the directory takes no more writes: {reason}")),
        cure: "If the directory was removed, or its file system unmounted: put it back, or mount it again, and restart. Otherwise replace the disk and restart. What was dirty on it and can be read is still uploaded",
    }
}

fn unreachable_store(label: &str, state: &UnderStoreStatus, trouble: Option<&Trouble>) -> Condition {
    let id = "under-store-unreachable";
    let is_open = state.circuit != CircuitState::Closed;
    // The probe has no more to say than the requests when those are not sent.
    let probed = trouble.filter(|trouble| trouble.kind.id == id && !is_open);
    let error = state.last_error.as_deref().unwrap_or("no error is known");
    let open = || format!("{} requests in a row have failed: {error}", state.failures_in_a_row);
    let title = is_open.then(open).or_else(|| probed.map(|trouble| format!("a probe has failed: {}", trouble.error)));
    Condition {
        id,
        severity: Severity::Critical,
        subject: label.to_owned(),
        title,
        cure: "Check the under store (also whether it is full) and the network; `forebay doctor` says what fails. Writes under WRITE_BACK and TRANSIENT are accepted until pinned space is full, others get 503",
    }
}

#[cfg(test)]
mod tests;
