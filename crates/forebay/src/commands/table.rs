//! Tables of text.

use std::io;

use unicode_width::UnicodeWidthStr;

use super::output::{bold, is_colourful};

/// Columns that the eye can follow: padded by what the terminal shows, not by bytes.
pub(crate) struct Table {
    heads: Vec<&'static str>,
    /// Columns of numbers stand at their right edge.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

/// A longer cell moves the rest of its row only: keys may have a thousand characters.
const COLUMN_MAX: usize = 60;

/// Between two columns.
const GAP: &str = "  ";

impl Table {
    /// A table of these columns; a head that begins with `>` is of a column of numbers.
    pub(crate) fn new(heads: &[&'static str]) -> Self {
        let name = |head: &&'static str| head.strip_prefix('>').unwrap_or(head);
        Self {
            heads: heads.iter().map(name).collect(),
            right: heads.iter().map(|head| head.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Cells that come from outside must be escaped by now.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<_> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.heads.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// The table for standard output; without heads when there is no row.
    pub(crate) fn text(&self) -> String {
        self.render(is_colourful(&io::stdout()))
    }

    fn render(&self, colourful: bool) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let heads: Vec<_> = self.heads.iter().map(|head| (*head).to_owned()).collect();
        let head = bold(&self.line(&heads), colourful);
        let rows = self.rows.iter().map(|row| self.line(row));
        std::iter::once(head).chain(rows).map(|line| line + "\n").collect()
    }

    fn line(&self, cells: &[String]) -> String {
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            let padding = " ".repeat(self.width(column).saturating_sub(cell.width()));
            if self.right[column] { padding + cell } else { cell.clone() + &padding }
        });
        padded.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].width()).filter(|width| *width <= COLUMN_MAX);
        cells.chain([self.heads[column].width()]).max().unwrap_or_default()
    }
}

/// As much of a text as fits into some columns, with `…` for what does not.
pub(crate) fn fitted(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut short = String::new();
    for character in text.chars() {
        if short.width() + character.to_string().width() + 1 > columns {
            break;
        }
        short.push(character);
    }
    if columns > 0 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", ">SIZE", "KEY"]);
        table.row(["数据".into(), "5 B".into(), "x".into()]);
        table.row(["é".into(), "1.5 GiB".into(), String::new()]);
        table
    }

    #[test]
    fn columns_are_as_wide_as_a_terminal_shows_them() {
        assert_eq!(table().render(false), "NAME     SIZE  KEY\n数据      5 B  x\né     1.5 GiB\n");
    }

    #[test]
    fn a_cell_that_is_far_too_long_widens_no_other_row() {
        let mut table = table();
        let long = "k".repeat(COLUMN_MAX + 1);
        table.row([long.clone(), "1 B".into(), "y".into()]);
        let widened = format!("NAME     SIZE  KEY\n数据      5 B  x\né     1.5 GiB\n{long}      1 B  y\n");
        assert_eq!(table.render(false), widened);
    }

    #[test]
    fn colour_is_in_the_head_only_and_only_when_wanted() {
        let coloured = table().render(true);
        assert!(coloured.starts_with("\x1b[1mNAME") && coloured.matches('\x1b').count() == 2, "{coloured:?}");
        assert_eq!(Table::new(&["A"]).render(true), "");
    }

    #[test]
    fn a_long_text_is_cut_at_what_fits() {
        for (text, columns, short) in [
            ("short", 5, "short"),
            ("longer", 5, "long…"),
            ("数据数据", 5, "数据…"),
            ("数据数据", 4, "数…"),
            ("x", 0, ""),
        ] {
            assert_eq!(fitted(text, columns), short);
            assert!(fitted(text, columns).width() <= columns);
        }
    }
}
