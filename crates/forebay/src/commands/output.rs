//! Standard output, and what it may hold.

use std::io::{self, IsTerminal, Write};

use clap::{Args, ValueEnum};

use crate::failure::Failure;

/// How results are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables for people
    Text,
    /// One JSON document, as the admin API says it
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct OutputOptions {
    /// How the result is shown
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// Writes to standard output what ends with a line end, or gets one.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_part(text)?;
    if text.is_empty() || text.ends_with('\n') { Ok(()) } else { print_part("\n") }
}

/// Writes a part of the text to standard output. Another call continues it.
pub(crate) fn print_part(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::NobodyReads,
        _ => Failure::of("standard output", &error),
    })
}

/// Whether what goes there may be coloured: a terminal shows it, and the user does not mind (<https://no-color.org>).
pub(crate) fn is_colourful(out: &impl IsTerminal) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    !unwanted && !dumb && out.is_terminal()
}

/// Text in bold, if `colourful`.
pub(crate) fn bold(text: &str, colourful: bool) -> String {
    if colourful { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}
