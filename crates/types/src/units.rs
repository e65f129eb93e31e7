//! Sizes and periods as people write them in configuration: `256 MiB`, `30 s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What is wrong with a size or a period, in words that name the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidUnit(String);

/// A number of bytes. Written as `512 B`, `64 KiB`, `256 MiB`, `1.5 GiB`, `2 TiB`, or with `KB`, `MB`, `GB`, `TB` in
/// powers of 1,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub struct ByteSize(pub u64);

/// A length of time. Written as `250 ms`, `30 s`, `10 min`, `1 h`, `7 d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub struct Period(pub Duration);

const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

const PERIOD_UNITS_MS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

/// 2^53: from here on a float no longer tells neighbours apart, and no setting needs more. Numbers without a unit end
/// here too, since they are shown, and stored, with one.
const NUMBER_END: u64 = 1 << 53;

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Number(u64),
}

fn parse_with_units(text: &str, units: &[(&str, u64)], what: &str) -> Result<u64, InvalidUnit> {
    let names = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let hint = || meant(text, units).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
    let wrong = || InvalidUnit(format!("{text:?} is not {what}: write a number and one of {}{}", names(), hint()));
    let text_trimmed = text.trim();
    let split = text_trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(wrong)?;
    let (number, unit) = text_trimmed.split_at(split);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.trim();
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?;
    let value = number * *factor as f64;
    if value < NUMBER_END as f64 { Ok(value.round() as u64) } else { Err(wrong()) }
}

/// What a number with the first letter of a unit may mean: `10G` is 10 GiB to some and 10 GB to others.
fn meant(text: &str, units: &[(&str, u64)]) -> Option<String> {
    let text = text.trim();
    let (number, letter) = text.split_at(text.len().checked_sub(1).filter(|at| text.is_char_boundary(*at))?);
    let number = number.trim_end();
    number.parse::<f64>().ok()?;
    let is_longer = |name: &&str| name.len() > 1 && name[..1].eq_ignore_ascii_case(letter);
    let meant: Vec<_> = units.iter().map(|(name, _)| *name).filter(is_longer).collect();
    (!meant.is_empty()).then(|| meant.iter().map(|name| format!("{number} {name}")).collect::<Vec<_>>().join(" or "))
}

fn show_with_units(value: u64, units: &[(&str, u64)]) -> String {
    let exact = units.iter().find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor));
    let (name, factor) = exact.or(units.last()).expect("the tables of units are not empty");
    format!("{} {name}", value / factor)
}

impl FromStr for ByteSize {
    type Err = InvalidUnit;
    fn from_str(text: &str) -> Result<Self, InvalidUnit> {
        parse_with_units(text, &SIZE_UNITS, "a size").map(Self)
    }
}

impl FromStr for Period {
    type Err = InvalidUnit;
    fn from_str(text: &str) -> Result<Self, InvalidUnit> {
        parse_with_units(text, &PERIOD_UNITS_MS, "a period").map(|ms| Self(Duration::from_millis(ms)))
    }
}

impl TryFrom<Written> for ByteSize {
    type Error = InvalidUnit;
    fn try_from(written: Written) -> Result<Self, InvalidUnit> {
        match written {
            Written::Text(text) => text.parse(),
            Written::Number(bytes) if bytes < NUMBER_END => Ok(Self(bytes)),
            Written::Number(bytes) => Err(InvalidUnit(format!("{bytes} is too large for a size"))),
        }
    }
}

impl TryFrom<Written> for Period {
    type Error = InvalidUnit;
    fn try_from(written: Written) -> Result<Self, InvalidUnit> {
        match written {
            Written::Text(text) => text.parse(),
            Written::Number(n) => Err(InvalidUnit(format!("{n} has no unit: write a period such as \"{n} s\""))),
        }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_with_units(self.0, &SIZE_UNITS))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_with_units(self.0.as_millis() as u64, &PERIOD_UNITS_MS))
    }
}

impl From<ByteSize> for String {
    fn from(size: ByteSize) -> Self {
        size.to_string()
    }
}

impl From<Period> for String {
    fn from(period: Period) -> Self {
        period.to_string()
    }
}

impl Period {
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_periods_are_read_as_people_write_them() {
        for (text, bytes) in
            [("512 B", 512), ("64KiB", 65_536), ("1.5 GiB", 1_610_612_736), ("2 mb", 2_000_000), ("0 B", 0)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for (text, ms) in [("250 ms", 250), ("30s", 30_000), ("10 min", 600_000), ("1 h", 3_600_000), ("0 s", 0)] {
            assert_eq!(text.parse(), Ok(Period(Duration::from_millis(ms))), "{text}");
        }
    }

    #[test]
    fn what_has_no_unit_or_a_wrong_one_is_refused_by_name() {
        for text in ["", "12", "MiB", "12 Mb/s", "-1 B", "1e9 B", "99999999999 TiB"] {
            let error = text.parse::<ByteSize>().expect_err(text);
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn a_number_that_could_not_be_shown_and_read_back_is_refused() {
        let largest = NUMBER_END - 1;
        let size: ByteSize = serde_json::from_str(&largest.to_string()).expect("the largest");
        assert_eq!(size.to_string().parse(), Ok(size));
        for number in [NUMBER_END, u64::MAX] {
            let error = serde_json::from_str::<ByteSize>(&number.to_string()).expect_err("too large");
            assert!(error.to_string().contains(&number.to_string()), "{error}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for bytes in [0, 1, 1023, 1024, 1536, 10 << 20, 3 << 30, 1_000_000] {
            assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
        for ms in [0, 1, 1000, 90_000, 3_600_000, 86_400_000] {
            let period = Period(Duration::from_millis(ms));
            assert_eq!(period.to_string().parse(), Ok(period));
        }
    }
}
