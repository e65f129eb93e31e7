//! What has changed between two texts.

use std::fmt::Write;

use similar::TextDiff;

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const CYAN: &str = "\x1b[36m";
const RESET: &str = "\x1b[0m";

/// A unified diff, as `diff -u` writes it.
pub(super) fn unified(before: &str, after: &str, colourful: bool) -> String {
    let plain = TextDiff::from_lines(before, after).unified_diff().header("present", "edited").to_string();
    if !colourful {
        return plain;
    }
    let mut text = String::with_capacity(plain.len());
    for line in plain.lines() {
        let colour = match line.as_bytes().first() {
            Some(b'-') => RED,
            Some(b'+') => GREEN,
            Some(b'@') => CYAN,
            _ => "",
        };
        let reset = if colour.is_empty() { "" } else { RESET };
        let _ = writeln!(text, "{colour}{line}{reset}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_are_marked_and_coloured_only_when_wanted() {
        let plain = unified("a\nb\n", "a\nc\n", false);
        assert_eq!(plain, "--- present\n+++ edited\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
        let coloured = unified("a\nb\n", "a\nc\n", true);
        assert!(coloured.contains("\x1b[31m-b\x1b[0m\n\x1b[32m+c\x1b[0m\n"), "{coloured:?}");
        assert!(coloured.contains("\n a\n"), "{coloured:?}");
    }
}
