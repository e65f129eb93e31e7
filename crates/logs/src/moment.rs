//! Times, as the logs write them.

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

const APACHE: &[BorrowedFormatItem<'_>] =
    format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");
const RFC_3339: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

fn moment(unix_ms: u64) -> OffsetDateTime {
    let nanoseconds = i128::from(unix_ms) * 1_000_000;
    // Only the time of a clock that is thousands of years off can't be represented.
    OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// `06/Feb/2019:00:00:38 +0000`
pub(crate) fn apache(unix_ms: u64) -> String {
    moment(unix_ms).format(&APACHE).expect("every part of the format is in every date")
}

/// `2019-02-06T00:00:38.123Z`
pub(crate) fn rfc_3339(unix_ms: u64) -> String {
    moment(unix_ms).format(&RFC_3339).expect("every part of the format is in every date")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_utc() {
        assert_eq!(apache(1_549_411_238_123), "06/Feb/2019:00:00:38 +0000");
        assert_eq!(rfc_3339(1_549_411_238_123), "2019-02-06T00:00:38.123Z");
        assert_eq!(rfc_3339(0), "1970-01-01T00:00:00.000Z");
    }
}
