//! Percentiles of what fell into the buckets of a histogram.

use super::exposition::Exposition;

/// Observations of an interval, by bucket.
#[derive(Debug)]
pub(super) struct Latencies {
    /// Upper bound, and how many observations are at or below it; ascending.
    buckets: Vec<(f64, f64)>,
}

impl Latencies {
    /// The observations between two times.
    pub(super) fn between(old: &Exposition, new: &Exposition, name: &str, labels: &[(&str, &str)]) -> Self {
        let bounds = new.values(name, "le").into_iter().filter_map(|text| Some((text.parse::<f64>().ok()?, text)));
        let count = |(bound, text): (f64, &str)| {
            let labels: Vec<_> = labels.iter().copied().chain([("le", text)]).collect();
            (bound, (new.sum(name, &labels) - old.sum(name, &labels)).max(0.0))
        };
        let mut buckets: Vec<_> = bounds.map(count).collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self { buckets }
    }

    /// The value that a share of the observations does not exceed; `None` without observations.
    ///
    /// As Prometheus does it: the observations of a bucket count as spread evenly over it, so the answer is off by less
    /// than the width of the bucket that it is in. With buckets that double it is off by a factor of two at the very
    /// worst, both ways; beyond the last bound, that bound is the answer, and too small.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let total = self.buckets.last().map(|(_, count)| *count).filter(|total| *total > 0.0)?;
        let rank = share * total;
        let at = self.buckets.iter().position(|(_, count)| *count >= rank)?;
        let (low, below) = if at == 0 { (0.0, 0.0) } else { self.buckets[at - 1] };
        let (high, up_to) = self.buckets[at];
        if high.is_infinite() {
            return Some(low);
        }
        let inside = (up_to - below).max(f64::MIN_POSITIVE);
        Some(low + (high - low) * ((rank - below) / inside).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(buckets: &[(f64, f64)]) -> Latencies {
        Latencies { buckets: buckets.to_vec() }
    }

    #[test]
    fn a_percentile_lies_in_its_bucket_at_its_share() {
        let even = latencies(&[(0.001, 0.0), (0.002, 50.0), (0.004, 100.0), (f64::INFINITY, 100.0)]);
        assert_eq!(even.quantile(0.25), Some(0.0015));
        assert_eq!(even.quantile(0.5), Some(0.002));
        assert_eq!(even.quantile(0.75), Some(0.003));
        let first = latencies(&[(0.001, 10.0), (f64::INFINITY, 10.0)]);
        assert_eq!(first.quantile(0.5), Some(0.0005));
    }

    #[test]
    fn beyond_the_last_bound_that_bound_is_all_that_is_known() {
        let slow = latencies(&[(1.0, 1.0), (f64::INFINITY, 10.0)]);
        assert_eq!(slow.quantile(0.9), Some(1.0));
        assert_eq!(latencies(&[(f64::INFINITY, 3.0)]).quantile(0.5), Some(0.0));
    }

    #[test]
    fn nothing_observed_has_no_percentile() {
        assert_eq!(latencies(&[]).quantile(0.5), None);
        assert_eq!(latencies(&[(1.0, 0.0), (f64::INFINITY, 0.0)]).quantile(0.5), None);
    }
}
