//! The text that Prometheus reads, read back.

use std::collections::{BTreeSet, HashMap};

/// The metrics that samples are made of; all others are passed over.
const WANTED: [&str; 25] = [
    "forebay_connections",
    "forebay_dirty_bytes",
    "forebay_dirty_objects",
    "forebay_disk_busy_ratio",
    "forebay_group_commit_bytes_sum",
    "forebay_group_commit_sync_seconds_count",
    "forebay_group_commit_sync_seconds_sum",
    "forebay_memory_tier_bytes",
    "forebay_oldest_dirty_age_seconds",
    "forebay_persist_failures_total",
    "forebay_persisted_bytes_total",
    "forebay_persisted_objects_total",
    "forebay_read_bytes_total",
    "forebay_reads_total",
    "forebay_request_bytes_total",
    "forebay_request_duration_seconds_bucket",
    "forebay_requests_total",
    "forebay_store_capacity_bytes",
    "forebay_store_directory_failed",
    "forebay_store_evictable_bytes",
    "forebay_store_free_bytes",
    "forebay_store_pinned_bytes",
    "forebay_under_store_calls_total",
    "forebay_under_store_errors_total",
    "process_cpu_seconds_total",
];
const WANTED_TOO: [&str; 1] = ["process_resident_memory_bytes"];

/// The wanted metrics at one time.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    metrics: HashMap<&'static str, Vec<Series>>,
}

/// One line.
#[derive(Debug, PartialEq)]
pub(super) struct Series {
    labels: Vec<(String, String)>,
    pub(super) value: f64,
}

impl Series {
    /// Empty for a label that it doesn't have.
    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(label, _)| label == name).map_or("", |(_, value)| value)
    }

    fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels.iter().all(|(name, value)| self.label(name) == *value)
    }
}

impl Exposition {
    /// Lines that can't be read count as absent: a console with a gap is better than none.
    pub(super) fn parse(text: &str) -> Self {
        let mut metrics: HashMap<_, Vec<_>> = HashMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let end = line.find(['{', ' ']).unwrap_or(line.len());
            let (name, rest) = line.split_at(end);
            let wanted = WANTED.iter().chain(&WANTED_TOO).find(|wanted| **wanted == name);
            if let Some((name, series)) = wanted.zip(series(rest)) {
                metrics.entry(*name).or_default().push(series);
            }
        }
        Self { metrics }
    }

    pub(super) fn series(&self, name: &str) -> &[Series] {
        self.metrics.get(name).map_or(&[], Vec::as_slice)
    }

    /// Over all series that have these labels; 0 when there is none.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        // The sum of nothing would be -0.
        self.series(name).iter().filter(|series| series.has(labels)).fold(0.0, |sum, series| sum + series.value)
    }

    pub(super) fn has(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        self.series(name).iter().any(|series| series.has(labels))
    }

    /// The value of the series with exactly these labels; 0 when there is none.
    pub(super) fn value(&self, name: &str, like: &Series) -> f64 {
        self.series(name).iter().find(|series| series.labels == like.labels).map_or(0.0, |series| series.value)
    }

    /// All values that a label of a metric has.
    pub(super) fn values(&self, name: &str, label: &str) -> BTreeSet<&str> {
        self.series(name).iter().map(|series| series.label(label)).filter(|value| !value.is_empty()).collect()
    }
}

/// What follows the name: labels, if any, and the value. Exemplars and times, which we do not write, would follow it.
fn series(rest: &str) -> Option<Series> {
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value = rest.trim_start().split(' ').next()?.parse().ok()?;
    Some(Series { labels, value })
}

/// Labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.strip_prefix(',').unwrap_or(rest);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let (value, behind) = unquote(quoted)?;
        labels.push((name.to_owned(), value));
        rest = behind;
    }
}

/// A value up to its closing quote, and what follows that.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_may_hold_what_paths_of_rules_hold() {
        let odd = r#"forebay_reads_total{path="/a b{}=,\"\\\n",tier="disk"} 3"#;
        let metrics = Exposition::parse(&format!("# HELP x\nforebay_connections 7\n{odd}\nforebay_other 1\n# EOF\n"));
        assert_eq!(metrics.series("forebay_reads_total")[0].label("path"), "/a b{}=,\"\\\n");
        assert_eq!(metrics.sum("forebay_reads_total", &[("tier", "disk")]), 3.0);
        assert_eq!(metrics.sum("forebay_connections", &[]), 7.0);
        assert_eq!(metrics.metrics.len(), 2);
    }

    #[test]
    fn lines_that_cannot_be_read_are_passed_over() {
        for line in ["forebay_connections", "forebay_connections{", "forebay_connections{a=\"", "forebay_connections x"]
        {
            assert_eq!(Exposition::parse(line).series("forebay_connections"), [], "{line}");
        }
    }
}
