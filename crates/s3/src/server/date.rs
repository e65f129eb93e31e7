//! The `Date` of answers. hyper's own is renewed forward only: after the clock was set back it would stay in the
//! future.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use http::HeaderValue;

thread_local! {
    /// The second of the last answer of this thread, and how it is written.
    static LAST: RefCell<(u64, HeaderValue)> = RefCell::new((0, written(0)));
}

/// The value of the header at this time.
pub(crate) fn date(unix_ms: u64) -> HeaderValue {
    let second = unix_ms / 1000;
    LAST.with_borrow_mut(|last| {
        if last.0 != second {
            *last = (second, written(second));
        }
        last.1.clone()
    })
}

fn written(second: u64) -> HeaderValue {
    let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
    HeaderValue::try_from(text).expect("a date is ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_clock_both_ways() {
        let day = 24 * 3600 * 1000;
        let expected = [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (day + 999, "Fri, 02 Jan 1970 00:00:00 GMT"),
            (day + 1000, "Fri, 02 Jan 1970 00:00:01 GMT"),
            (day - 1, "Thu, 01 Jan 1970 23:59:59 GMT"),
        ];
        for (unix_ms, text) in expected {
            assert_eq!(date(unix_ms), text);
        }
    }
}
