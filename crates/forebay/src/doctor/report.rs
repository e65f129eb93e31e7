//! What was measured and found.

use std::fmt::Write;

use forebay_admin::Severity;
use serde::Serialize;

use super::findings::{Finding, Kind};

/// A figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Measurement {
    pub(crate) name: &'static str,
    pub(crate) subject: String,
    pub(crate) value: f64,
    pub(crate) unit: Unit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Unit {
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "B/s")]
    BytesPerSecond,
    #[serde(rename = "B")]
    Bytes,
    #[serde(rename = "1/s")]
    PerSecond,
    #[serde(rename = "1")]
    Count,
}

impl Unit {
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Seconds if value < 0.001 => format!("{:.0} µs", value * 1e6),
            Self::Seconds if value < 1.0 => format!("{:.1} ms", value * 1e3),
            Self::Seconds => format!("{value:.1} s"),
            Self::BytesPerSecond => format!("{:.0} MB/s", value / 1e6),
            Self::Bytes if value < 10e9 => format!("{:.0} MiB", value / f64::from(1 << 20)),
            Self::Bytes => format!("{:.1} GiB", value / f64::from(1 << 30)),
            Self::PerSecond => format!("{value:.0} per second"),
            Self::Count => format!("{value:.0}"),
        }
    }
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    pub(crate) measurements: Vec<Measurement>,
    /// What will be the limit, in a sentence each.
    pub(crate) bottlenecks: Vec<String>,
}

impl Report {
    /// # Panics
    /// When the table has no such finding.
    pub(crate) fn find(&mut self, id: &str, subject: &str, measured: String) {
        let one_line = measured.split_whitespace().collect::<Vec<_>>().join(" ");
        self.findings.push(Finding::of(&Kind::named(id), subject, one_line));
    }

    pub(crate) fn measured(&mut self, name: &'static str, subject: &str, value: f64, unit: Unit) {
        self.measurements.push(Measurement { name, subject: subject.to_owned(), value, unit });
    }

    /// The values of a name, for all subjects.
    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        self.measurements.iter().filter(|measurement| measurement.name == name).map(|found| found.value).collect()
    }

    pub(crate) fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("text and numbers that are not endless become JSON")
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let width = self.measurements.iter().map(|measurement| measurement.name.len()).max().unwrap_or(0);
        for Measurement { name, subject, value, unit } in &self.measurements {
            let _ = writeln!(text, "{name:width$}  {:>16}  {subject}", unit.show(*value));
        }
        for (index, line) in self.bottlenecks.iter().enumerate() {
            let _ = writeln!(text, "{}{line}", if index == 0 { "\n" } else { "" });
        }
        let mut findings: Vec<_> = self.findings.iter().collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        for Finding { id, severity, subject, what, measured, why, cure } in findings {
            let severity = format!("{severity:?}").to_lowercase();
            let subject = if subject.is_empty() { String::new() } else { format!(" [{subject}]") };
            let _ = writeln!(
                text,
                "\n{severity}: {what}{subject} ({id})\n  measured: {measured}\n  why:      {why}\n  cure:     {cure}"
            );
        }
        if self.findings.is_empty() {
            text.push_str("\nno findings\n");
        }
        text
    }
}

/// What one part of the doctor finds in a configuration, by its text.
#[cfg(test)]
pub(super) fn found(text: &str, examine: fn(&crate::config::Config, &mut Report)) -> Vec<&'static str> {
    let (environment, overrides) = (std::collections::BTreeMap::new(), crate::config::Overrides::default());
    let config =
        crate::config::Config::load(Some(("test.toml", text)), &environment, &overrides).expect("a configuration");
    let mut report = Report::default();
    examine(&config, &mut report);
    report.findings.iter().map(|finding| finding.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_and_every_line_of_a_finding_is_there() {
        let mut report = Report::default();
        report.find("cores-few", "", "1".into());
        report.find("memory-missing", "", "needs 2 GiB,\nhas 1 GiB".into());
        report.measured("disk-write", "/data", 250e6, Unit::BytesPerSecond);
        let text = report.text();
        let (critical, warning) = (text.find("critical: ").unwrap(), text.find("warning: ").unwrap());
        assert!(critical < warning);
        assert!(text.contains("measured: needs 2 GiB, has 1 GiB"), "{text}");
        assert!(text.contains("250 MB/s"), "{text}");
        assert_eq!((report.count(Severity::Critical), report.values("disk-write")), (1, vec![250e6]));
    }
}
