//! What will be the limit.

use super::report::{Report, Unit};

/// Disks that reach this share are as fast: measurements of a few seconds on a machine that does other things are no
/// more exact.
const SLOWER: f64 = 0.7;

/// Compares what was measured.
pub(super) fn judge(report: &mut Report) {
    let sum = |name| report.values(name).iter().sum::<f64>();
    let processors = report.values("processors").first().copied().unwrap_or(1.0);
    let hashing = ("hashing", sum("md5") * processors);
    let (write, read) = (("the disks", sum("disk-write")), ("the disks", sum("disk-read")));
    // Of several under stores the fastest: a cache that is slower than that one slows its readers down.
    let best = |name| report.values(name).into_iter().fold(0.0, f64::max);
    let (upload, download) =
        (("the under store", best("under-store-upload")), ("the under store", best("under-store-download")));
    let lines = [
        sentence("Writes that are acknowledged here (WRITE_BACK)", &[write, hashing], "then uploads", upload),
        sentence("Reads from the cache", &[read], "misses", download),
    ];
    report.bottlenecks.extend(lines.into_iter().flatten());
    for (what, disk, under_store) in [("writing", write.1, upload.1), ("reading", read.1, download.1)] {
        if disk > 0.0 && disk < under_store * SLOWER {
            let [disk, under_store] = [disk, under_store].map(|speed| Unit::BytesPerSecond.show(speed));
            report.find("disk-slower-than-under-store", "", format!("{what}: disks {disk}, under store {under_store}"));
        }
    }
}

/// `None` when nothing of it was measured.
fn sentence(what: &str, limits: &[(&str, f64)], then: &str, behind: (&str, f64)) -> Option<String> {
    let known = limits.iter().filter(|(_, speed)| *speed > 0.0);
    let (limit, speed) = known.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let mut line = format!("{what}: up to {}, limited by {limit}", Unit::BytesPerSecond.show(*speed));
    if behind.1 > 0.0 {
        line.push_str(&format!("; {then} {}", Unit::BytesPerSecond.show(behind.1)));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(values: &[(&'static str, f64)]) -> Report {
        let mut report = Report::default();
        for (name, value) in values {
            report.measured(name, "", *value, Unit::BytesPerSecond);
        }
        judge(&mut report);
        report
    }

    #[test]
    fn the_slowest_part_is_named_with_its_figure() {
        let report = judged(&[
            ("processors", 2.0),
            ("md5", 500e6),
            ("disk-write", 300e6),
            ("disk-write", 300e6),
            ("disk-read", 900e6),
            ("under-store-upload", 100e6),
        ]);
        assert_eq!(
            report.bottlenecks,
            [
                "Writes that are acknowledged here (WRITE_BACK): up to 600 MB/s, limited by the disks; then uploads 100 MB/s",
                "Reads from the cache: up to 900 MB/s, limited by the disks"
            ]
        );
        assert_eq!(report.findings, []);
    }

    #[test]
    fn a_cache_slower_than_what_it_fronts_is_told_with_both_figures() {
        let report = judged(&[
            ("processors", 1.0),
            ("md5", 500e6),
            ("disk-write", 100e6),
            ("disk-read", 95e6),
            ("under-store-upload", 1000e6),
            ("under-store-download", 100e6),
        ]);
        let found: Vec<_> = report.findings.iter().map(|finding| (finding.id, finding.measured.as_str())).collect();
        assert_eq!(found, [("disk-slower-than-under-store", "writing: disks 100 MB/s, under store 1000 MB/s")]);
    }
}
