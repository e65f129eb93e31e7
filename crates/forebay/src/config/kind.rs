//! The types that settings have: how each is written, and what is wrong with a value that is not of it.

use std::net::SocketAddr;
use std::time::Duration;

use forebay_store::DirectoryId;
use forebay_types::{ByteSize, Period};
use toml::Value;

use super::{filter, names};

/// The type of a setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Text,
    /// Text that is never shown.
    Secret,
    /// An access key of Forebay's own, or nothing.
    AccessKey,
    Path,
    Paths,
    /// Ids of data directories, with commas; or nothing.
    DirectoryIds,
    /// `IP:PORT`.
    Address,
    /// Letters, digits, `-`, `_` and `.`; or nothing.
    Name,
    /// A host name, or nothing.
    Domain,
    /// The number of an account, or nothing.
    AccountId,
    Region,
    /// A level of logs, or levels by module.
    LogFilter,
    Size {
        min: u64,
        max: u64,
    },
    /// A size, or `auto`.
    SizeOrAuto {
        min: u64,
        max: u64,
    },
    /// A size, or a percentage of the disk.
    Capacity,
    Period {
        min_ms: u64,
    },
    Number {
        min: i64,
        max: i64,
    },
    /// A fraction.
    Ratio {
        min: f64,
        max: f64,
    },
    Flag,
    Choice(&'static [&'static str]),
}

impl Kind {
    /// What the reference calls it.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Text => "text".into(),
            Self::Secret => "secret text".into(),
            Self::AccessKey => "access key".into(),
            Self::Path => "path".into(),
            Self::Paths => "list of paths".into(),
            Self::DirectoryIds => "ids with commas".into(),
            Self::Address => "IP:PORT".into(),
            Self::Name => "name".into(),
            Self::Domain => "host name".into(),
            Self::AccountId => "12 digits".into(),
            Self::Region => "name of a region".into(),
            Self::LogFilter => "level or filter".into(),
            Self::Size { min, max } => format!("size{}", bounds(min, max)),
            Self::SizeOrAuto { min, max } => format!("size{}, or `auto`", bounds(min, max)),
            Self::Capacity => "size or percentage of the disk".into(),
            Self::Period { min_ms: 0 } => "period".into(),
            Self::Period { min_ms } => format!("period, at least {}", period(min_ms)),
            Self::Number { min, max } => format!("number, {min} to {max}"),
            Self::Ratio { min, max } => format!("number, {min} to {max}"),
            Self::Flag => "`true` or `false`".into(),
            Self::Choice(names) => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
        }
    }

    /// A value as an environment variable or a flag gives it.
    pub(crate) fn read_text(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Number { .. } => text.parse().map(Value::Integer).map_err(|_| self.expected()),
            Self::Ratio { .. } => text.parse().map(Value::Float).map_err(|_| self.expected()),
            Self::Flag => text.parse().map(Value::Boolean).map_err(|_| self.expected()),
            Self::Paths => Ok(Value::Array(text.split(',').map(|path| Value::String(path.trim().into())).collect())),
            Self::Text
            | Self::Secret
            | Self::AccessKey
            | Self::Path
            | Self::DirectoryIds
            | Self::Address
            | Self::Name
            | Self::Domain
            | Self::AccountId
            | Self::Region
            | Self::LogFilter
            | Self::Size { .. }
            | Self::SizeOrAuto { .. }
            | Self::Capacity
            | Self::Period { .. }
            | Self::Choice(_) => Ok(Value::String(text.into())),
        }
    }

    /// Checks a value, and gives it the form that the sections read.
    pub(crate) fn check(self, value: Value) -> Result<Value, String> {
        match (self, &value) {
            (Self::Text | Self::Secret | Self::Path, Value::String(_)) => Ok(value),
            (Self::Paths, Value::Array(paths)) => {
                let all_text = paths.iter().all(|path| path.as_str().is_some_and(|text| !text.is_empty()));
                if all_text && !paths.is_empty() { Ok(value) } else { Err(self.expected()) }
            }
            (Self::DirectoryIds, Value::String(text)) => parse_directory_ids(text).map(|_| value),
            (Self::Address, Value::String(text)) => {
                text.parse::<SocketAddr>().map_err(|_| self.expected())?;
                Ok(value)
            }
            (Self::AccessKey, Value::String(text)) => names::check_access_key(text).map(|()| value),
            (Self::Name, Value::String(text)) => names::check_name(text).map(|()| value),
            (Self::Domain, Value::String(text)) => names::check_domain(text).map(|()| value),
            (Self::AccountId, Value::String(text)) => names::check_account_id(text).map(|()| value),
            (Self::Region, Value::String(text)) => names::check_region(text).map(|()| value),
            (Self::LogFilter, Value::String(text)) => filter::check(text).map(|()| value),
            (Self::Size { min, max }, _) => check_size(value, min, max),
            (Self::SizeOrAuto { .. }, Value::String(text)) if text == "auto" => Ok(value),
            (Self::SizeOrAuto { min, max }, _) => check_size(value, min, max),
            (Self::Capacity, Value::String(text)) => text.parse::<Capacity>().map(|_| value),
            (Self::Period { min_ms }, Value::String(text)) => check_period(text, min_ms).map(|()| value),
            (Self::Number { min, max }, Value::Integer(n)) if (min..=max).contains(n) => Ok(value),
            (Self::Ratio { min, max }, Value::Float(n)) if (min..=max).contains(n) => Ok(value),
            (Self::Ratio { .. }, Value::Integer(n)) => self.check(Value::Float(*n as f64)),
            (Self::Flag, Value::Boolean(_)) => Ok(value),
            (Self::Choice(names), Value::String(text)) if names.contains(&text.as_str()) => Ok(value),
            (
                Self::Text
                | Self::Secret
                | Self::AccessKey
                | Self::Path
                | Self::Paths
                | Self::DirectoryIds
                | Self::Address
                | Self::Name
                | Self::Domain
                | Self::AccountId
                | Self::Region
                | Self::LogFilter
                | Self::Capacity
                | Self::Period { .. }
                | Self::Number { .. }
                | Self::Ratio { .. }
                | Self::Flag
                | Self::Choice(_),
                _,
            ) => Err(self.expected()),
        }
    }

    fn expected(self) -> String {
        match self {
            Self::Text
            | Self::Secret
            | Self::AccessKey
            | Self::Path
            | Self::DirectoryIds
            | Self::Name
            | Self::Domain
            | Self::AccountId
            | Self::Region
            | Self::LogFilter => "must be text in quotes".into(),
            Self::Paths => "must be a list of paths such as [\"/nvme0\", \"/nvme1\"]".into(),
            Self::Address => "must be an IP address and a port such as \"127.0.0.1:9700\"".into(),
            Self::Size { .. } | Self::SizeOrAuto { .. } => "must be a size such as \"64 MiB\"".into(),
            Self::Capacity => "must be a size such as \"200 GiB\", or a percentage of the disk such as \"80%\"".into(),
            Self::Period { .. } => "must be a period such as \"30 s\"".into(),
            Self::Number { min, max } => format!("must be a whole number from {min} to {max}"),
            Self::Ratio { min, max } => format!("must be a number from {min} to {max}"),
            Self::Flag => "must be true or false".into(),
            Self::Choice(names) => format!("must be one of {}", names.join(", ")),
        }
    }
}

/// # Errors
/// For the first that is no id.
pub(crate) fn parse_directory_ids(text: &str) -> Result<Vec<DirectoryId>, String> {
    text.split(',').map(str::trim).filter(|id| !id.is_empty()).map(str::parse).collect()
}

/// A size without an upper bound has `u64::MAX`.
fn bounds(min: u64, max: u64) -> String {
    match (min, max) {
        (0, u64::MAX) => String::new(),
        (_, u64::MAX) => format!(", at least {}", ByteSize(min)),
        _ => format!(", {} to {}", ByteSize(min), ByteSize(max)),
    }
}

fn check_size(value: Value, min: u64, max: u64) -> Result<Value, String> {
    let expected = Kind::Size { min, max }.expected();
    let size = match &value {
        Value::String(text) => text.parse::<ByteSize>().map_err(|e| e.to_string())?,
        Value::Integer(bytes) => ByteSize(u64::try_from(*bytes).map_err(|_| expected)?),
        Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => {
            return Err(expected);
        }
    };
    if size.0 < min {
        return Err(format!("must be at least {}", ByteSize(min)));
    }
    if size.0 > max {
        return Err(format!("must be at most {}", ByteSize(max)));
    }
    Ok(Value::String(size.to_string()))
}

fn period(ms: u64) -> Period {
    Period(Duration::from_millis(ms))
}

fn check_period(text: &str, min_ms: u64) -> Result<(), String> {
    let given = text.parse::<Period>().map_err(|e| e.to_string())?;
    if given < period(min_ms) { Err(format!("must be at least {}", period(min_ms))) } else { Ok(()) }
}

/// How much of a disk the store may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capacity {
    Bytes(u64),
    Percent(u64),
}

impl std::str::FromStr for Capacity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(percent) = text.trim().strip_suffix('%') else {
            return text.parse::<ByteSize>().map(|size| Self::Bytes(size.0)).map_err(|_| Kind::Capacity.expected());
        };
        match percent.trim().parse() {
            Ok(percent) if (1..=100).contains(&percent) => Ok(Self::Percent(percent)),
            Ok(_) | Err(_) => Err("must be a percentage from 1% to 100%".into()),
        }
    }
}
