//! The clock: its difference from the under store's, and whether an NTP client keeps it.

use std::path::Path;

use super::report::{Report, Unit};

/// S3 refuses requests whose time is further off (`RequestTimeTooSkewed`).
const SKEW_MAX_SECONDS: f64 = 15.0 * 60.0;
/// `Date` has seconds, and an answer takes its time: what is below is no difference.
const SKEW_SEEN_SECONDS: f64 = 5.0;

/// What systemd-timesyncd has and makes at its first success (systemd-timesyncd.service(8)). Of other NTP clients
/// nothing is said: the kernel's own word for it is only to be had by a system call that the libraries at hand do not
/// offer.
const TIMESYNC: &str = "run/systemd/timesync";
const SYNCHRONISED: &str = "synchronized";

/// `root` is `/` but for tests.
pub(super) fn examine_synchronisation(root: &Path, report: &mut Report) {
    let state = root.join(TIMESYNC);
    if state.is_dir() && !state.join(SYNCHRONISED).exists() {
        report.find("clock-unsynchronised", "", "systemd-timesyncd has not reached a time server yet".into());
    }
}

/// `seconds` is positive where the machine's clock is ahead.
pub(super) fn examine_skew(under_store: &str, seconds: f64, report: &mut Report) {
    let size = seconds.abs();
    if size <= SKEW_SEEN_SECONDS {
        return;
    }
    let side = if seconds > 0.0 { "ahead" } else { "behind" };
    let id = if size >= SKEW_MAX_SECONDS { "clock-wrong" } else { "clock-off" };
    report.find(id, under_store, format!("{} {side}", Unit::Seconds.show(size)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_told_from_five_seconds_and_critical_from_fifteen_minutes() {
        let found = |seconds| {
            let mut report = Report::default();
            examine_skew("s3://b", seconds, &mut report);
            report.findings.pop().map(|finding| (finding.id, finding.measured))
        };
        assert_eq!(found(4.0), None);
        assert_eq!(found(-60.0), Some(("clock-off", "60.0 s behind".into())));
        assert_eq!(found(900.0), Some(("clock-wrong", "900.0 s ahead".into())));
    }

    #[test]
    fn only_a_client_that_runs_without_success_is_a_finding() {
        let root = tempfile::tempdir().unwrap();
        let count = || {
            let mut report = Report::default();
            examine_synchronisation(root.path(), &mut report);
            report.findings.len()
        };
        assert_eq!(count(), 0);
        std::fs::create_dir_all(root.path().join(TIMESYNC)).unwrap();
        assert_eq!(count(), 1);
        std::fs::write(root.path().join(TIMESYNC).join(SYNCHRONISED), "").unwrap();
        assert_eq!(count(), 0);
    }
}
