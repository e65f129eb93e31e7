//! One event, one line: messages hold what clients, and under stores, have said, and none of it may look like a line of
//! its own or command a terminal. (CVE-2025-58160 was that in `tracing-subscriber`, which has since escaped the
//! commands only.)

use std::borrow::Cow;
use std::io::{self, Write};

/// Standard error. The layer writes each event whole, with the line feed behind it.
pub(super) struct OneLine;

impl Write for OneLine {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(one_line(&String::from_utf8_lossy(event)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn one_line(event: &str) -> Cow<'_, str> {
    let line = event.strip_suffix('\n').unwrap_or(event);
    if !line.contains(is_unsafe) {
        return Cow::Borrowed(event);
    }
    let mut safe = String::with_capacity(event.len() + 16);
    for character in line.chars() {
        match character {
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            // As JSON writes it too; all of them have four digits.
            other if is_unsafe(other) => safe.push_str(&format!("\\u{:04x}", u32::from(other))),
            other => safe.push(other),
        }
    }
    Cow::Owned(safe + "\n")
}

/// Control characters, and what some viewers take for the end of a line.
fn is_unsafe(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_it_holds() {
        assert_eq!(one_line("plain \u{e9}\n"), "plain \u{e9}\n");
        assert_eq!(one_line("two\nlines\n"), "two\\nlines\n");
        assert_eq!(
            one_line("\u{1b}[2J\r\t\0\u{7f}\u{85}\u{2028}\n"),
            r"\u001b[2J\r\t\u0000\u007f\u0085\u2028".to_owned() + "\n"
        );
        assert_eq!(one_line("no end\r"), "no end\\r\n");
    }
}
