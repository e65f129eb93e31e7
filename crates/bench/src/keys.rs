//! Which object an operation uses.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_env::random::SeededRandom;

use crate::sizes::unit;

/// The exponent of YCSB, close to what web traffic shows.
const ZIPF_EXPONENT: f64 = 0.99;

/// A distribution over objects, by their numbers from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Keys {
    Uniform,
    /// In sequence, all connections together, and then from the start again.
    Sequential,
    /// Object `i` is chosen in proportion to `1 / (i + 1)^exponent`.
    Zipf(f64),
}

impl FromStr for Keys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("uniform", "") => Ok(Self::Uniform),
            ("sequential", "") => Ok(Self::Sequential),
            ("zipf", "") => Ok(Self::Zipf(ZIPF_EXPONENT)),
            ("zipf", exponent) => match exponent.parse() {
                Ok(exponent) if exponent > 0.0 && exponent <= 10.0 => Ok(Self::Zipf(exponent)),
                _ => Err(format!("{exponent:?} is not an exponent: write a number above 0, at most 10")),
            },
            _ => Err(format!("{text:?} is not uniform, sequential, zipf or zipf:EXPONENT")),
        }
    }
}

/// Chooses objects from `0..count`.
#[derive(Debug)]
pub(crate) struct Chooser {
    count: u64,
    keys: Keys,
    zipf: Option<Zipf>,
    next: AtomicU64,
}

impl Chooser {
    /// `count` is at least 1.
    pub(crate) fn new(keys: Keys, count: u64) -> Self {
        assert!(count > 0, "there must be something to choose from");
        let zipf = match keys {
            Keys::Zipf(exponent) => Some(Zipf::new(count, exponent)),
            Keys::Uniform | Keys::Sequential => None,
        };
        Self { count, keys, zipf, next: AtomicU64::new(0) }
    }

    pub(crate) fn is_uniform(&self) -> bool {
        self.keys == Keys::Uniform
    }

    pub(crate) fn choose(&self, random: &SeededRandom) -> u64 {
        match (&self.zipf, self.keys) {
            (Some(zipf), _) => zipf.sample(random) - 1,
            (None, Keys::Sequential) => self.next.fetch_add(1, Ordering::Relaxed) % self.count,
            (None, _) => (unit(random) * self.count as f64) as u64,
        }
    }
}

/// Zipf's distribution over `1..=count` without tables, by rejection-inversion (Hörmann and Derflinger:
/// "Rejection-inversion to generate variates from monotone discrete distributions", 1996).
#[derive(Debug)]
struct Zipf {
    count: f64,
    exponent: f64,
    area_first: f64,
    area_all: f64,
    shortcut: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Self {
        let mut zipf = Self { count: count as f64, exponent, area_first: 0.0, area_all: 0.0, shortcut: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_all = zipf.area(count as f64 + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    /// The weight of `x`, also between whole numbers.
    fn height(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of `height`, written so that it is also exact near an exponent of 1.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        let scaled = (1.0 - self.exponent) * log;
        if scaled.abs() > 1e-8 { scaled.exp_m1() / scaled * log } else { log * (1.0 + scaled / 2.0) }
    }

    /// The inverse of `area`.
    fn inverse(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        let factor = if scaled.abs() > 1e-8 { scaled.ln_1p() / scaled } else { 1.0 - scaled / 2.0 };
        (factor * area).exp()
    }

    fn sample(&self, random: &SeededRandom) -> u64 {
        loop {
            let area = self.area_all + unit(random) * (self.area_first - self.area_all);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.shortcut || area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(keys: Keys, count: u64, draws: u64) -> Vec<f64> {
        let (chooser, random) = (Chooser::new(keys, count), SeededRandom::new(1));
        let mut counts = vec![0.0; count as usize];
        (0..draws).for_each(|_| counts[chooser.choose(&random) as usize] += 1.0);
        counts
    }

    #[test]
    fn distributions_are_read_by_name() {
        assert_eq!("uniform".parse(), Ok(Keys::Uniform));
        assert_eq!("zipf".parse(), Ok(Keys::Zipf(0.99)));
        assert_eq!("zipf:1.2".parse(), Ok(Keys::Zipf(1.2)));
        for wrong in ["", "random", "zipf:0", "zipf:x", "uniform:2"] {
            assert!(wrong.parse::<Keys>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sequential_takes_each_once_and_begins_again() {
        assert_eq!(counts(Keys::Sequential, 7, 21), vec![3.0; 7]);
    }

    #[test]
    fn uniform_takes_all_alike() {
        let counts = counts(Keys::Uniform, 50, 100_000);
        assert!(counts.iter().all(|count| (count / 2000.0 - 1.0).abs() < 0.1), "{counts:?}");
    }

    #[test]
    fn zipf_follows_its_law_on_both_sides_of_an_exponent_of_one() {
        for exponent in [0.5, 0.99, 1.0, 1.3] {
            let (objects, draws) = (1000, 400_000);
            let counts = counts(Keys::Zipf(exponent), objects, draws);
            let weight = |rank: usize| (rank as f64).powf(-exponent);
            let total: f64 = (1..=objects as usize).map(weight).sum();
            for rank in [1, 2, 3, 10, 50] {
                let expected = draws as f64 * weight(rank) / total;
                // Five standard deviations of a count.
                let error = (counts[rank - 1] - expected).abs();
                assert!(
                    error < 5.0 * expected.sqrt(),
                    "exponent {exponent} rank {rank}: {} for {expected}",
                    counts[rank - 1]
                );
            }
        }
    }

    #[test]
    fn one_seed_gives_one_sequence() {
        assert_eq!(counts(Keys::Zipf(0.99), 10, 1000), counts(Keys::Zipf(0.99), 10, 1000));
    }
}
