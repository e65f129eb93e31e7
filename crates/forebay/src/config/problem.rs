//! What is wrong with a configuration: a line for each mistake, which names the place, the setting and the value.

use std::fmt;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File { name: String, line: usize },
    Environment { variable: String },
    Flag { name: &'static str },
}

/// One line for the operator, or one for each of several mistakes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Problem(pub(crate) String);

impl Problem {
    /// A value that can't be. `shown` is what was given, which must not be a secret.
    pub(crate) fn value(origin: &Origin, setting: &str, shown: &str, wrong: &str) -> Self {
        let shown = in_one_line(shown);
        match origin {
            Origin::Default | Origin::File { .. } => Self(format!("{origin}{setting} = {shown}: {wrong}")),
            Origin::Environment { .. } | Origin::Flag { .. } => Self(format!("{origin} {shown}: {wrong}")),
        }
    }

    /// A name that no setting has; `known` are those it could have been meant to be.
    pub(crate) fn unknown<'a>(origin: &Origin, name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        let hint = closest(name, known).map(|other| format!("; did you mean {other:?}?")).unwrap_or_default();
        Self(format!("{origin}there is no setting {name:?}{hint}"))
    }
}

/// Mistakes that do not depend on each other, collected so that one run tells all of them.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    /// Keeps what is wrong, and passes on what is not. Mistakes that read alike are kept once.
    pub(crate) fn take<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(problem) => {
                if !self.0.contains(&problem) {
                    self.0.push(problem);
                }
                None
            }
        }
    }

    /// # Errors
    /// All that were taken, each on its own line.
    pub(crate) fn result(self) -> Result<(), Problem> {
        let lines: Vec<_> = self.0.into_iter().map(|Problem(line)| line).collect();
        if lines.is_empty() { Ok(()) } else { Err(Problem(lines.join("\n"))) }
    }
}

/// A value as TOML, which may write text with a line's end in it over several lines.
pub(crate) fn in_one_line(shown: &str) -> String {
    shown.lines().collect::<Vec<_>>().join("\\n")
}

/// The known name nearest to `name`, if it is near enough for a slip of the hand.
pub(crate) fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Below 0.7 the suggestions of this measure stop looking like the same word.
    const SIMILAR: f64 = 0.7;
    let scored = known.map(|other| (strsim::jaro_winkler(name, other), other));
    scored.filter(|(score, _)| *score > SIMILAR).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, other)| other)
}

impl Origin {
    /// What is wrong with a setting whose value `wrong` shows, or may not show.
    pub(crate) fn problem(&self, setting: &str, wrong: &str) -> Problem {
        let separator = if matches!(self, Self::Environment { .. } | Self::Flag { .. }) { ": " } else { "" };
        Problem(format!("{self}{separator}{setting}: {wrong}"))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => Ok(()),
            Self::File { name, line } => write!(f, "{name}:{line}: "),
            Self::Environment { variable } => f.write_str(variable),
            Self::Flag { name } => f.write_str(name),
        }
    }
}
