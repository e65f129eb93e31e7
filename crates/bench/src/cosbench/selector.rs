//! Numbers in names and sizes: `c(1)`, `u(1,100)`, `r(1,100)`, `s(1,100)`, `h(1|10|80,11|20|20)`.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_env::Random;
use forebay_env::random::SeededRandom;

/// The end of a range that names none, as in COSBench.
const UPPER_MAX: u64 = i32::MAX as u64;
const UNITS: [(&str, u64); 4] = [("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1000), ("B", 1)];

/// The first number and the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) lower: u64,
    pub(crate) upper: u64,
}

impl Range {
    fn parse(lower: &str, upper: &str) -> Option<Self> {
        let number = |text: &str| text.trim().parse::<u64>().ok().filter(|number| (1..=UPPER_MAX).contains(number));
        let upper = if upper.trim().is_empty() { UPPER_MAX } else { number(upper)? };
        Some(Self { lower: number(lower)?, upper }).filter(|range| range.lower <= range.upper)
    }

    pub(crate) fn len(self) -> u64 {
        self.upper - self.lower + 1
    }

    /// The part with number `index` of `of` parts, counted from 0. When they do not divide evenly, the first parts have
    /// one more.
    pub(crate) fn part(self, index: u64, of: u64) -> Option<Self> {
        let (base, extra) = (self.len() / of, self.len() % of);
        let lower = self.lower + base * index + index.min(extra);
        let length = base + u64::from(index < extra);
        (length > 0).then(|| Self { lower, upper: lower + length - 1 })
    }

    fn draw(self, random: &SeededRandom) -> u64 {
        self.lower + random.below(self.len())
    }
}

/// Chooses numbers.
#[derive(Debug)]
pub(crate) enum Selector {
    Constant(u64),
    Uniform(Range),
    /// In sequence, for each worker separately when the range is divided.
    Range(Range),
    /// In sequence, all workers together.
    Sequential(Range, AtomicU64),
    /// Ranges with their weights.
    Histogram(Vec<(Range, u64)>),
}

impl Selector {
    /// # Errors
    /// One line that names the text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not c(n), u(a,b), r(a,b), s(a,b) or h(a|b|weight,…) of whole numbers from 1");
        let text = text.trim();
        // The oldest way to write a range.
        if let Some((lower, upper)) = text.split_once('-') {
            return Range::parse(lower, upper).map(Self::Range).ok_or_else(wrong);
        }
        let (kind, inside) = text.strip_suffix(')').and_then(|text| text.split_once('(')).ok_or_else(wrong)?;
        let (lower, upper) = inside.split_once(',').unwrap_or((inside, ""));
        let range = || Range::parse(lower, upper).ok_or_else(wrong);
        match kind {
            "c" => inside.trim().parse().map(Self::Constant).map_err(|_| wrong()),
            "u" => range().map(Self::Uniform),
            "r" => range().map(Self::Range),
            "s" => range().map(|range| Self::Sequential(range, AtomicU64::new(0))),
            "h" => inside.split(',').map(bucket).collect::<Option<Vec<_>>>().map(Self::Histogram).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }

    /// `index` of `of` is a worker's part when the range is divided, otherwise 0 of 1. `position` counts what the
    /// worker has taken.
    pub(crate) fn next(&self, random: &SeededRandom, index: u64, of: u64, position: u64) -> u64 {
        // Before it was divided, it was checked to be enough for all workers.
        let part = |range: &Range| range.part(index, of).unwrap_or(*range);
        match self {
            Self::Constant(number) => *number,
            Self::Uniform(range) => part(range).draw(random),
            Self::Range(range) => part(range).lower + position % part(range).len(),
            Self::Sequential(range, next) => range.lower + next.fetch_add(1, Ordering::Relaxed) % range.len(),
            Self::Histogram(buckets) => {
                let total: u64 = buckets.iter().map(|(_, weight)| weight).sum();
                let mut at = random.below(total);
                let bucket = buckets.iter().find(|(_, weight)| {
                    let is_here = at < *weight;
                    at = at.saturating_sub(*weight);
                    is_here
                });
                bucket.expect("a number below the sum of the weights lies in one of them").0.draw(random)
            }
        }
    }

    /// How many workers can share it, each with its own numbers. `None` when it is not divided at all.
    pub(crate) fn shares(&self) -> Option<u64> {
        match self {
            Self::Uniform(range) | Self::Range(range) => Some(range.len()),
            Self::Constant(_) | Self::Sequential(..) | Self::Histogram(_) => None,
        }
    }
}

/// `lower|upper|weight`; `lower||weight` has no end.
fn bucket(text: &str) -> Option<(Range, u64)> {
    let mut parts = text.trim().split('|');
    let (lower, upper, weight) = (parts.next()?, parts.next()?, parts.next()?);
    let weight = weight.trim().parse().ok().filter(|weight| (1..=UPPER_MAX).contains(weight))?;
    parts.next().is_none().then(|| Range::parse(lower, upper))?.map(|range| (range, weight))
}

/// Sizes, in bytes: a selector and a unit, as in `c(64)KB`.
#[derive(Debug)]
pub(crate) struct SizeSelector {
    selector: Selector,
    unit: u64,
}

impl SizeSelector {
    /// # Errors
    /// One line that names the text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let unit = UNITS.iter().find_map(|(name, bytes)| Some((text.trim().strip_suffix(name)?, *bytes)));
        let (selector, unit) =
            unit.ok_or_else(|| format!("sizes {text:?} has no unit: write B, KB, MB or GB after it"))?;
        Ok(Self { selector: Selector::parse(selector).map_err(|problem| format!("sizes {problem}"))?, unit })
    }

    pub(crate) fn next(&self, random: &SeededRandom, position: u64) -> u64 {
        self.selector.next(random, 0, 1, position) * self.unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str, index: u64, of: u64, count: u64) -> Vec<u64> {
        let (selector, random) = (Selector::parse(text).unwrap(), SeededRandom::new(1));
        (0..count).map(|position| selector.next(&random, index, of, position)).collect()
    }

    #[test]
    fn each_selector_takes_what_it_says() {
        assert_eq!(taken("c(7)", 0, 1, 3), [7, 7, 7]);
        assert_eq!(taken("r(1,3)", 0, 1, 5), [1, 2, 3, 1, 2]);
        assert_eq!(taken("1-3", 0, 1, 4), [1, 2, 3, 1]);
        assert_eq!(taken("s(4,6)", 0, 1, 4), [4, 5, 6, 4]);
        let uniform = taken("u(1,4)", 0, 1, 4000);
        for number in 1..=4 {
            let count = uniform.iter().filter(|taken| **taken == number).count();
            assert!((900..1100).contains(&count), "{number}: {count}");
        }
        let histogram = taken("h(1|10|80,11|20|20)", 0, 1, 10_000);
        let low = histogram.iter().filter(|taken| **taken <= 10).count();
        assert!((7800..8200).contains(&low) && histogram.iter().all(|taken| (1..=20).contains(taken)), "{low}");
    }

    #[test]
    fn workers_share_a_range_without_gap_or_overlap() {
        for (length, workers) in [(10, 3), (7, 7), (100, 8), (3, 5)] {
            let all = Range { lower: 5, upper: 4 + length };
            let parts = (0..workers).filter_map(|index| all.part(index, workers));
            let numbers: Vec<_> = parts.flat_map(|part| part.lower..=part.upper).collect();
            assert_eq!(numbers, (5..5 + length).collect::<Vec<_>>(), "{length} {workers}");
        }
        assert_eq!(taken("r(1,10)", 1, 3, 4), [5, 6, 7, 5]);
        assert!(taken("u(1,10)", 2, 3, 100).iter().all(|taken| (8..=10).contains(taken)));
    }

    #[test]
    fn sizes_have_units_in_powers_of_ten() {
        let size = |text| SizeSelector::parse(text).unwrap().next(&SeededRandom::new(1), 0);
        assert_eq!(
            (size("c(64)KB"), size("c(0)B"), size("c(2)MB"), size("r(3,4)GB")),
            (64_000, 0, 2_000_000, 3_000_000_000)
        );
        for wrong in ["c(64)", "c(64)kB", "64KB", "x(1)B", ""] {
            let error = SizeSelector::parse(wrong).unwrap_err();
            assert!(error.contains("sizes"), "{error}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused_by_name() {
        for wrong in ["", "u(3,1)", "u(0,1)", "r(a,b)", "z(1,2)", "h(1|2)", "h(1|2|0)", "h()", "c()", "u(1,2"] {
            let error = Selector::parse(wrong).unwrap_err();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
        assert!(Selector::parse("u(5)").is_ok() && Selector::parse("h(5||10)").is_ok());
    }
}
