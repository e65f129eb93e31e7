//! Writes mutants into a source file, all at once, each behind a switch that is thrown when the program runs. One build then serves for
//! all of them, where `cargo mutants` alone builds each anew ("mutant schemata": Untch, Offutt, Harrold, ISSTA 1993).
//!
//! Reads `{"source": TEXT, "mutants": [...]}` from standard input, of mutants as `cargo mutants --list --json` tells of them, each with a
//! number of its own as `id`. Writes `{"source": TEXT, "left": [ID...]}`: the text with the switches, and the mutants that it has no way to
//! switch.

mod sites;

use std::io;

use serde::{Deserialize, Serialize};

use crate::sites::Sites;

#[derive(Deserialize)]
struct Task {
    source: String,
    mutants: Vec<Mutant>,
}

/// One of cargo-mutants' list.
#[derive(Deserialize)]
struct Mutant {
    id: u32,
    genre: String,
    replacement: String,
    span: Span,
}

#[derive(Deserialize)]
struct Span {
    start: Position,
    end: Position,
}

/// Both begin with 1; columns count characters.
#[derive(Deserialize)]
struct Position {
    line: usize,
    column: usize,
}

#[derive(Serialize)]
struct Written {
    source: String,
    left: Vec<u32>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let task: Task = serde_json::from_reader(io::stdin().lock())?;
    let mut sites = Sites::of(&task.source)?;
    let left = task.mutants.iter().filter(|mutant| !sites.add(mutant)).map(|mutant| mutant.id).collect();
    serde_json::to_writer(io::stdout().lock(), &Written { source: sites.render(), left })?;
    Ok(())
}
