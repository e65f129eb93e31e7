//! Numbers as people read them, and text from outside as a terminal may show it.

/// Units of sizes, the largest first, each with the power of two that it stands for.
const SIZES: [(&str, u32); 5] = [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

/// Units of ages in seconds, the largest first.
const AGES: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// A size with one digit behind the point: `1.5 GiB`. Exact values are in the JSON.
pub(crate) fn size(bytes: u64) -> String {
    let unit = SIZES.iter().find(|(_, power)| bytes >= 1 << power);
    match unit {
        Some((name, power)) => format!("{:.1} {name}", bytes as f64 / (1_u64 << power) as f64),
        None => format!("{bytes} B"),
    }
}

/// Bytes per second.
pub(crate) fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", size(bytes_per_second.max(0.0) as u64))
}

/// A length of time in its largest whole unit: `3 m`.
pub(crate) fn age(ms: u64) -> String {
    seconds(ms / 1000)
}

/// As [`age`], of seconds.
pub(crate) fn seconds(seconds: u64) -> String {
    let (name, unit) = AGES.iter().find(|(_, unit)| seconds >= *unit).unwrap_or(&("s", 1));
    format!("{} {name}", seconds / unit)
}

/// A number with a comma between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// A number of things: `1 object`, `2,000 objects`.
pub(crate) fn counted(number: u64, one: &str) -> String {
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A part of a whole in percent; `-` of nothing.
pub(crate) fn share(part: f64, whole: f64) -> String {
    // What is not all must not look like it.
    if whole <= 0.0 { "-".to_owned() } else { format!("{:.1} %", (part / whole * 1000.0).floor() / 10.0) }
}

/// A moment in UTC: `2026-11-21 15:24:38`.
pub(crate) fn moment(unix_ms: u64) -> String {
    let format = time::macros::format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    let moment = time::OffsetDateTime::from_unix_timestamp((unix_ms / 1000) as i64).ok();
    moment.and_then(|moment| moment.format(format).ok()).unwrap_or_else(|| format!("{unix_ms} ms"))
}

/// Text from outside in one line that can't move the cursor, change colours or turn the direction of writing: keys hold
/// any character, and a client that writes an object must not control an operator's terminal.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_invisible_mark(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Line and paragraph separators, and the marks that set the direction of what follows.
fn is_invisible_mark(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{61c}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_in_the_largest_unit() {
        for (bytes, shown) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 29, "1.5 GiB"), (u64::MAX, "16384.0 PiB")]
        {
            assert_eq!(size(bytes), shown);
        }
        for (ms, shown) in
            [(0, "0 s"), (999, "0 s"), (59_999, "59 s"), (180_000, "3 m"), (7_200_000, "2 h"), (400_000_000, "4 d")]
        {
            assert_eq!(age(ms), shown);
        }
    }

    #[test]
    fn numbers_are_grouped_and_shares_never_look_fuller_than_they_are() {
        assert_eq!((count(0), count(999), count(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
        assert_eq!(share(999_999.0, 1_000_000.0), "99.9 %");
        assert_eq!((share(1.0, 1.0), share(0.0, 0.0)), ("100.0 %".into(), "-".into()));
    }

    #[test]
    fn moments_are_in_utc() {
        assert_eq!(moment(1_795_274_678_999), "2026-11-21 15:24:38");
    }

    #[test]
    fn nothing_from_outside_reaches_the_terminal_as_a_command() {
        assert_eq!(escaped("a\x1b[2Jb\n\r\t\u{9b}31m\u{7f}"), r"a\u{1b}[2Jb\n\r\t\u{9b}31m\u{7f}");
        assert_eq!(escaped("safe\u{202e}txt.exe\u{2028}"), r"safe\u{202e}txt.exe\u{2028}");
        assert_eq!(escaped("plain é 数据 👍 \\n"), "plain é 数据 👍 \\n");
    }
}
