//! `forebay status`.

use std::fmt::Write;

use forebay_admin::api::{Notice, Overview, Severity};

use super::output::print;
use super::units::{age, count, escaped, seconds, share, size};
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
    let Overview { version, started_ms, now_ms, status, notices, drain_seconds, .. } = overview;
    let of_capacity = |bytes: u64| format!("{} ({})", size(bytes), share(bytes as f64, status.capacity_bytes as f64));
    let mut lines = vec![
        ("version", escaped(version)),
        ("up for", age(now_ms.saturating_sub(*started_ms))),
        ("dirty", format!("{} objects, {}", count(status.dirty_objects), size(status.dirty_bytes))),
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
        ("pinned", of_capacity(status.pinned_bytes)),
        ("evictable", of_capacity(status.evictable_bytes)),
        ("free", of_capacity(status.free_bytes)),
    ]);
    if status.missing_objects > 0 {
        lines.push(("missing", format!("{} objects", count(status.missing_objects))));
    }
    lines.extend(status.failed_directories.iter().map(|directory| ("failed directory", escaped(directory))));
    let mut text = pairs(&lines);
    if !notices.is_empty() {
        let _ = write!(text, "\n{}", notice_table(notices, *now_ms));
    }
    text
}

fn notice_table(notices: &[Notice], now_ms: u64) -> String {
    let mut table = Table::new(&["SEVERITY", "SINCE", "SUBJECT", "NOTICE", "WHAT TO DO"]);
    for notice in notices {
        let since = age(now_ms.saturating_sub(notice.since_ms));
        let severity = severity(notice.severity).to_owned();
        table.row([severity, since, escaped(&notice.subject), escaped(&notice.title), escaped(&notice.cure)]);
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
