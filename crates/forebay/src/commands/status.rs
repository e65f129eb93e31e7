//! `forebay status`.

use std::fmt::Write;

use forebay_admin::api::{Notice, Overview, Severity};
use forebay_cache::Status;

use super::output::print;
use super::units::{age, count, counted, escaped, seconds, share, size};
use super::{Table, Target};
use crate::client::Call;
use crate::failure::Failure;

pub(super) fn status(target: &Target) -> Result<(), Failure> {
    let answer = target.client()?.call(Call::get("overview"))?;
    if target.is_json() {
        return print(&answer.text);
    }
    print(&text(&answer.read()?))
}

fn text(overview: &Overview) -> String {
    let Overview { version, started_ms, now_ms, status, notices, checking, drain_seconds, .. } = overview;
    let mut lines = vec![
        ("version", escaped(version)),
        ("up for", age(now_ms.saturating_sub(*started_ms))),
        ("dirty", format!("{}, {}", counted(status.dirty_objects, "object"), size(status.dirty_bytes))),
        ("deletes that wait", count(status.tombstones)),
    ];
    if status.dirty_objects + status.tombstones > 0 {
        lines.push(("oldest write that waits", age(status.oldest_dirty_age_ms)));
        let drain = drain_seconds.map_or("not at the present rates".to_owned(), |left| seconds(left.ceil() as u64));
        lines.push(("backlog empty in", drain));
    }
    lines.extend([
        ("conflicts", count(status.conflicts)),
        ("undeliverable", count(status.undeliverable)),
        ("capacity", size(status.capacity_bytes)),
        ("  pinned", pinned(status)),
        ("  evictable", format!("{}: clean copies, which leave when room is needed", size(status.evictable_bytes))),
        ("  free", size(status.free_bytes)),
        (
            "  overhead",
            format!(
                "{}: headers, and what was overwritten, deleted or evicted and waits for reclaim",
                size(status.overhead_bytes)
            ),
        ),
    ]);
    if status.unavailable_bytes > 0 {
        let taken = format!("{}: taken on the disks by others than the cache", size(status.unavailable_bytes));
        lines.push(("  not there", taken));
    }
    let rejected = [
        ("pinned data fills its share", status.rejected_pinned_full),
        ("the disks are full", status.rejected_disk_full),
    ];
    let rejected = rejected.into_iter().filter(|(_, count)| *count > 0);
    lines
        .extend(rejected.map(|(why, writes)| ("rejected writes", format!("{} since the start: {why}", count(writes)))));
    if status.missing_objects > 0 {
        lines.push(("missing", counted(status.missing_objects, "object")));
    }
    if status.missing_parts > 0 {
        lines.push(("missing parts", format!("{} of open multipart uploads", count(status.missing_parts))));
    }
    lines.extend(status.failed_directories.iter().map(|directory| ("failed directory", escaped(directory))));
    let mut text = pairs(&lines);
    if *checking {
        text.push_str("\nThe first checks after the start are not complete: notices may be missing.\n");
    }
    if !notices.is_empty() {
        let _ = write!(text, "\n{}", notice_table(notices, *now_ms));
    }
    text
}

/// Of what it may take, which is what writes are refused by.
fn pinned(status: &Status) -> String {
    let [taken, most] = [status.pinned_bytes, status.pinned_bytes_max];
    let share = share(taken as f64, most as f64);
    format!(
        "{} ({share} of the {} that it may take): dirty and transient objects, conflicts, parts of open uploads",
        size(taken),
        size(most)
    )
}

pub(super) fn notice_table(notices: &[Notice], now_ms: u64) -> String {
    let mut table = Table::new(&["SEVERITY", "SINCE", "SUBJECT", "NOTICE", "WHAT TO DO"]);
    for notice in notices {
        let since = age(now_ms.saturating_sub(notice.since_ms));
        let severity = severity(notice.severity).to_owned();
        // What has no subject is about the whole worker.
        let subject = if notice.subject.is_empty() { "-".to_owned() } else { escaped(&notice.subject) };
        table.row([severity, since, subject, escaped(&notice.title), escaped(&notice.cure)]);
    }
    table.text()
}

pub(crate) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

/// Names and values, one pair on a line, the values below each other.
pub(super) fn pairs(lines: &[(&str, String)]) -> String {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    lines.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}
