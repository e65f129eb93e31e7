//! The rules as text that people edit: JSON with comments and trailing commas.

use std::fmt::Write;

use forebay_types::{PolicyRule, PolicySet};
use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use jsonc_parser::tokens::{Token, TokenAndRange};
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};

use crate::client::CallError;
use crate::commands::escaped;
use crate::config::POLICY_KEYS;

/// Begins the line that says what is wrong; it is the first, and stands only there.
pub(super) const ERROR_MARK: &str = "// NOT APPLIED: ";

/// Why a text gives no rules.
#[derive(Debug)]
pub(super) enum Wrong {
    /// It has nothing but comments: who empties the file wants out.
    Nothing,
    /// Counted from 1, in the text without [`ERROR_MARK`].
    At { line: usize, column: usize, what: String },
    /// The server says so, and not where.
    Somewhere(String),
    /// The server can't be asked.
    Unchecked(CallError),
}

impl Wrong {
    /// In one line, with positions in the file as it is then: with this line as the first.
    pub(super) fn in_draft(&self) -> String {
        match self {
            Self::At { line, column, what } => format!("line {}, column {column}: {}", line + 1, escaped(what)),
            Self::Somewhere(what) => escaped(what),
            Self::Nothing => "the file is empty".to_owned(),
            Self::Unchecked(error) => error.to_string(),
        }
    }
}

pub(super) fn pretty(rules: &[PolicyRule]) -> String {
    serde_json::to_string_pretty(rules).expect("rules have text keys only") + "\n"
}

/// What the editor shows first.
pub(super) fn document(endpoint: &str, rules: &[PolicyRule]) -> String {
    let mut text = format!(
        "// Path policies of {endpoint}. Saved changes are shown and applied when the editor ends; an empty file cancels.\n\
         // Comments and commas behind the last item are allowed, and are not kept.\n\
         //\n\
         // A rule holds for the objects whose /bucket/key begins with its path; a setting that it leaves out comes from the\n\
         // next shorter path that gives it.\n//\n"
    );
    let width = POLICY_KEYS.iter().map(|key| key.name.len()).max().unwrap_or_default();
    for key in POLICY_KEYS {
        let _ = writeln!(text, "//   {:width$}  {}: {}", key.name, key.about, key.values.replace('`', ""));
    }
    text + &pretty(rules)
}

pub(super) fn with_error(text: &str, wrong: &Wrong) -> String {
    format!("{ERROR_MARK}{}\n{text}", wrong.in_draft())
}

pub(super) fn without_error(text: &str) -> &str {
    if text.starts_with(ERROR_MARK) { text.split_once('\n').map_or("", |(_, rest)| rest) } else { text }
}

pub(super) fn parse(text: &str) -> Result<Vec<PolicyRule>, Wrong> {
    let collect = CollectOptions { comments: CommentCollectionStrategy::AsTokens, tokens: true };
    let parsed = parse_to_ast(text, &collect, &strict()).map_err(|error| Wrong::At {
        line: error.line_display(),
        column: error.column_display(),
        what: error.kind().to_string(),
    })?;
    let value = parsed.value.ok_or(Wrong::Nothing)?;
    let plain = plain_json(text, &parsed.tokens.unwrap_or_default());
    let rules: Vec<PolicyRule> = serde_json::from_str(&plain).map_err(|error| in_json(&error))?;
    PolicySet::new(rules.clone()).map_err(|invalid| {
        let (line, column) = position(text, start_of_rule(&value, &invalid.path));
        Wrong::At { line, column, what: invalid.to_string() }
    })?;
    Ok(rules)
}

/// JSON as everybody knows it, but for comments and trailing commas.
fn strict() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// The text with blanks for comments and trailing commas, so that all else stays on its line and column.
fn plain_json(text: &str, tokens: &[TokenAndRange<'_>]) -> String {
    let is_comment = |token: &Token<'_>| matches!(token, Token::CommentLine(_) | Token::CommentBlock(_));
    let mut plain = text.as_bytes().to_vec();
    let mut blank = |token: &TokenAndRange<'_>| {
        let bytes = &mut plain[token.range().start..token.range().end];
        bytes.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    };
    tokens.iter().filter(|token| is_comment(&token.token)).for_each(&mut blank);
    let words: Vec<_> = tokens.iter().filter(|token| !is_comment(&token.token)).collect();
    for pair in words.windows(2) {
        if pair[0].token == Token::Comma && matches!(pair[1].token, Token::CloseBrace | Token::CloseBracket) {
            blank(pair[0]);
        }
    }
    String::from_utf8(plain).expect("whole tokens were replaced by blanks")
}

fn in_json(error: &serde_json::Error) -> Wrong {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    Wrong::At { line: error.line(), column: error.column(), what: what.to_owned() }
}

/// Where the last rule of a path begins: of two with the same path, the second is one too many.
fn start_of_rule(value: &Value<'_>, path: &str) -> usize {
    let elements = value.as_array().map(|array| array.elements.as_slice()).unwrap_or_default();
    let has_path = |element: &&Value<'_>| {
        element.as_object().and_then(|object| object.get_string("path")).is_some_and(|found| found.value == path)
    };
    elements.iter().rev().find(has_path).map_or(0, |element| element.range().start)
}

/// Line and column of a byte, from 1; columns count characters.
fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = &text[..byte];
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use forebay_types::WriteMode;

    use super::*;

    fn wrong_at(text: &str) -> (usize, usize, String) {
        match parse(text) {
            Err(Wrong::At { line, column, what }) => (line, column, what),
            other => panic!("{text:?} gives {other:?}"),
        }
    }

    #[test]
    fn what_the_editor_shows_reads_back() {
        let rule = PolicyRule { write_mode: Some(WriteMode::WriteBack), ..PolicyRule::for_path("/b/\u{e9}\n") };
        let document = document("http://x", std::slice::from_ref(&rule));
        assert_eq!(parse(&document).expect("valid"), [rule]);
        for key in POLICY_KEYS {
            assert!(document.contains(key.name), "{document}");
        }
    }

    #[test]
    fn comments_and_trailing_commas_are_allowed() {
        let text =
            "// é\n[ /* one\n two */ {\"path\": \"/a//b\", /* , */ \"cacheReads\": true, // last\n },\n // end\n]\n";
        let rules = parse(text).expect("valid");
        assert_eq!((rules[0].path.as_str(), rules[0].cache_reads), ("/a//b", Some(true)));
    }

    #[test]
    fn mistakes_are_found_by_line_and_column() {
        for (text, line, column, part) in [
            ("[\n  {\"path\": \"/a\"\n", 2, 0, "Unterminated"),
            ("[\n  {\"path\" \"/a\"}\n]", 2, 0, "colon"),
            ("[{path: \"/a\"}]", 1, 3, ""),
            ("// c\n[\n  {\"path\": \"/a\", \"writeMod\": 1}]", 3, 27, "writeMod"),
            ("[{\"path\": \"/a\",\n\"writeMode\": \"WRITEBACK\"}]", 2, 0, "WRITEBACK"),
            ("[{\"path\": \"/a\",\n\"cacheQuota\": \"much\"}]", 2, 0, "much"),
            ("[\n {\"path\": \"é\"},\n {\"path\": \"a\"}]", 2, 2, "begin with"),
            ("[{\"path\": \"/a\"},\n /* é */ {\"path\": \"/a\"}]", 2, 10, "twice"),
            ("{}", 1, 0, "sequence"),
        ] {
            let (found_line, found_column, what) = wrong_at(text);
            assert_eq!(found_line, line, "{text:?}: {what}");
            assert!(column == 0 || found_column == column, "{text:?}: {what} at column {found_column}");
            assert!(what.contains(part), "{text:?}: {what}");
        }
    }

    #[test]
    fn a_file_without_rules_is_a_wish_to_leave() {
        for text in ["", "\n \n", "// only a comment\n"] {
            assert!(matches!(parse(text), Err(Wrong::Nothing)), "{text:?}");
        }
        assert!(parse("[]").expect("no rules are valid").is_empty());
    }

    #[test]
    fn the_error_is_the_first_line_and_counts_itself() {
        let text = "[\n{]\n";
        let wrong = parse(text).expect_err("invalid");
        let shown = with_error(text, &wrong);
        assert!(shown.starts_with("// NOT APPLIED: line 3, column "), "{shown}");
        assert_eq!(without_error(&shown), text);
        assert_eq!(without_error(text), text);
    }
}
