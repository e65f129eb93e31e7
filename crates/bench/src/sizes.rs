//! Sizes of objects.

use std::str::FromStr;

use forebay_env::Random;
use forebay_env::random::SeededRandom;
use forebay_types::ByteSize;

/// The largest object of a single PUT in S3.
const SIZE_MAX: u64 = 5 << 30;

/// A distribution of sizes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Sizes {
    Fixed(u64),
    /// All sizes from the first to the second are equally likely.
    Uniform(u64, u64),
    /// The logarithm of the size is normally distributed. A size above `max` becomes `max`.
    LogNormal {
        median: u64,
        sigma: f64,
        max: u64,
    },
}

impl Sizes {
    /// The size for a number. It is the same for each call, so a reader knows what a writer wrote.
    pub(crate) fn of(&self, number: u64) -> u64 {
        match *self {
            Self::Fixed(size) => size,
            Self::Uniform(min, max) => min + (unit(&SeededRandom::new(number)) * (max - min + 1) as f64) as u64,
            Self::LogNormal { median, sigma, max } => {
                let size = median as f64 * (sigma * normal(&SeededRandom::new(number))).exp();
                (size.round() as u64).min(max)
            }
        }
    }
}

/// Uniform in 0..1, with the 53 bits that a float holds.
pub(crate) fn unit(random: &SeededRandom) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Normal with mean 0 and variance 1 (Box and Muller: "A note on the generation of random normal deviates", 1958).
fn normal(random: &SeededRandom) -> f64 {
    let radius = (-2.0 * (1.0 - unit(random)).ln()).sqrt();
    radius * (std::f64::consts::TAU * unit(random)).cos()
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = text.trim().parse::<u64>().or_else(|_| text.parse::<ByteSize>().map(|size| size.0));
    match bytes {
        Ok(bytes) if bytes <= SIZE_MAX => Ok(bytes),
        Ok(_) => Err(format!("{text:?} is more than the 5 GiB of one PUT")),
        Err(error) => Err(error.to_string()),
    }
}

impl FromStr for Sizes {
    type Err = String;

    /// `10KiB`, `uniform:1KiB,1MiB` or `lognormal:MEDIAN,SIGMA[,MAX]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or(("fixed", text));
        let parts: Vec<_> = rest.split(',').collect();
        match (kind, parts.as_slice()) {
            ("fixed", [fixed]) => Ok(Self::Fixed(size(fixed)?)),
            ("uniform", [min, max]) => match (size(min)?, size(max)?) {
                (min, max) if min <= max => Ok(Self::Uniform(min, max)),
                _ => Err(format!("{text:?}: the first size is larger than the second")),
            },
            ("lognormal", [median, sigma, max @ ..]) if max.len() < 2 => {
                let wrong = || format!("{sigma:?} is not a standard deviation: write a number from 0 to 10");
                let sigma: f64 = sigma.trim().parse().map_err(|_| wrong())?;
                if !(0.0..=10.0).contains(&sigma) {
                    return Err(wrong());
                }
                let max = max.first().map_or(Ok(SIZE_MAX), |max| size(max))?;
                Ok(Self::LogNormal { median: size(median)?, sigma, max })
            }
            _ => Err(format!("{text:?} is not a size, uniform:MIN,MAX or lognormal:MEDIAN,SIGMA[,MAX]")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!("10KiB".parse(), Ok(Sizes::Fixed(10_240)));
        assert_eq!("512".parse(), Ok(Sizes::Fixed(512)));
        assert_eq!("uniform:1KiB,2KiB".parse(), Ok(Sizes::Uniform(1024, 2048)));
        let lognormal = Sizes::LogNormal { median: 65_536, sigma: 1.5, max: 1 << 20 };
        assert_eq!("lognormal:64KiB,1.5,1MiB".parse(), Ok(lognormal));
        for wrong in ["", "ten", "uniform:1KiB", "uniform:2KiB,1KiB", "lognormal:1KiB,-1", "6GiB", "zipf:3"] {
            let error = wrong.parse::<Sizes>().expect_err(wrong);
            assert!(!error.is_empty() && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_number_has_one_size_and_uniform_sizes_fill_their_range() {
        let sizes = Sizes::Uniform(10, 19);
        let mut seen = [0; 10];
        for number in 0..10_000 {
            assert_eq!(sizes.of(number), sizes.of(number));
            seen[(sizes.of(number) - 10) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (850..1150).contains(count)), "{seen:?}");
    }

    #[test]
    fn log_normal_sizes_have_their_median_and_their_spread() {
        let sizes = Sizes::LogNormal { median: 65_536, sigma: 1.0, max: SIZE_MAX };
        let mut drawn: Vec<u64> = (0..20_000).map(|number| sizes.of(number)).collect();
        drawn.sort_unstable();
        let quantile = |share: f64| drawn[(share * drawn.len() as f64) as usize] as f64;
        assert!((quantile(0.5) / 65_536.0 - 1.0).abs() < 0.03, "{}", quantile(0.5));
        // One standard deviation is a factor of e.
        assert!((quantile(0.8413) / quantile(0.5) / std::f64::consts::E - 1.0).abs() < 0.05);
        let capped = Sizes::LogNormal { median: 65_536, sigma: 1.0, max: 70_000 };
        assert_eq!((0..1000).map(|number| capped.of(number)).max(), Some(70_000));
    }
}
