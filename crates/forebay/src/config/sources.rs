//! Defaults, file, environment and flags, laid over one another.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::de::{DeString, DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::kind::Kind;
use super::problem::{Origin, Problem, Problems};
use super::table::{self, SECTIONS, SETTINGS, Setting};

const DATA_DIRS: (&str, &str) = ("store", "data_dirs");

/// The directories that systemd makes for a service: `StateDirectory=` in systemd.exec(5).
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";

/// A value and where it came from.
#[derive(Debug, Clone)]
pub(crate) struct Sourced {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// What all sources together give, each setting checked against its kind.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// By section and key.
    pub(crate) settings: BTreeMap<(&'static str, &'static str), Sourced>,
    /// What the file says of each mount, by bucket.
    pub(crate) mounts: BTreeMap<String, Sourced>,
    /// The `[[policy]]` tables of the file.
    pub(crate) policies: Vec<Sourced>,
    /// What looks like a setting in the environment and is none: told, not refused, since other programs set variables
    /// too.
    pub(crate) warnings: Vec<String>,
}

impl Sources {
    pub(crate) fn defaults() -> Self {
        let mut sources = Self::default();
        for setting in SETTINGS {
            let value = setting.kind.read_text(setting.default).expect("the defaults of the table are tested");
            sources.settings.insert((setting.section, setting.key), Sourced { value, origin: Origin::Default });
        }
        sources
    }

    pub(crate) fn get(&self, section: &'static str, key: &'static str) -> &Sourced {
        self.settings.get(&(section, key)).expect("every setting of the table has a default")
    }

    /// Sets one setting after checking it.
    fn set(&mut self, setting: &'static Setting, value: Value, origin: Origin) -> Result<(), Problem> {
        let shown = if setting.kind == Kind::Secret { "…".to_owned() } else { value.to_string() };
        let wrong = |wrong: String| Problem::value(&origin, &setting.name(), &shown, &wrong);
        let value = setting.kind.check(value).map_err(wrong)?;
        let name = (setting.section, setting.key);
        // Data that somebody looks for on one disk would be on another.
        if let Some(Sourced { value: before, origin: Origin::File { name: file, line } }) = self.settings.get(&name)
            && name == DATA_DIRS
            && *before != value
        {
            let wrong = format!("{file}:{line} names others, which are not used");
            self.warnings.push(origin.problem(&setting.name(), &wrong).to_string());
        }
        self.settings.insert(name, Sourced { value, origin });
        Ok(())
    }

    /// Sets a setting from text, as flags and variables give it.
    pub(crate) fn set_text(&mut self, setting: &'static Setting, text: &str, origin: Origin) -> Result<(), Problem> {
        let shown = if setting.kind == Kind::Secret { "…".to_owned() } else { format!("{text:?}") };
        let wrong = |wrong: String| Problem::value(&origin, &setting.name(), &shown, &wrong);
        let value = setting.kind.read_text(text).map_err(wrong)?;
        self.set(setting, value, origin)
    }

    /// Lays the variables `FOREBAY_SECTION_KEY` over what is there. An empty variable counts as not set.
    pub(crate) fn environment(&mut self, variables: &BTreeMap<String, String>) -> Result<(), Problem> {
        let mut problems = Problems::default();
        problems.take(self.state_directory(variables));
        for setting in SETTINGS {
            let variable = setting.variable();
            if let Some(text) = variables.get(&variable).filter(|text| !text.is_empty()) {
                problems.take(self.set_text(setting, text, Origin::Environment { variable }));
            }
        }
        let known: Vec<_> = SETTINGS.iter().map(Setting::variable).collect();
        let sections = SECTIONS.iter().map(|(name, _)| *name).chain(["root"]);
        let prefixes: Vec<_> = sections.map(|name| format!("FOREBAY_{name}_").to_ascii_uppercase()).collect();
        for variable in variables.keys() {
            if prefixes.iter().any(|prefix| variable.starts_with(prefix)) && !known.contains(variable) {
                let origin = Origin::Environment { variable: "environment: ".into() };
                let known = known.iter().map(String::as_str);
                self.warnings.push(Problem::unknown(&origin, variable, known).to_string());
            }
        }
        problems.result()
    }

    /// Where systemd gives the server a directory (`StateDirectory=`), the store is in it, unless the file says more.
    fn state_directory(&mut self, variables: &BTreeMap<String, String>) -> Result<(), Problem> {
        let (section, key) = DATA_DIRS;
        let given = variables.get(STATE_DIRECTORY).and_then(|list| list.split(':').next());
        let Some(text) = given.filter(|text| !text.is_empty()) else { return Ok(()) };
        if self.get(section, key).origin != Origin::Default {
            return Ok(());
        }
        let setting = table::find(section, key).expect("a setting of the table");
        self.set_text(setting, text, Origin::Environment { variable: STATE_DIRECTORY.into() })
    }

    /// Lays a file over what is there. `name` is what problems call it.
    ///
    /// # Errors
    /// All mistakes in the order of the file, but only the first that makes it no TOML.
    pub(crate) fn file(&mut self, name: &str, text: &str) -> Result<(), Problem> {
        let file = File { name, text };
        let spans = DeTable::parse(text).map_err(|e| file.syntax(&e))?;
        let values: Table = toml::from_str(text).map_err(|e| file.syntax(&e))?;
        let sections = || SECTIONS.iter().map(|(name, _)| *name).chain(["mounts", "policy"]);
        let mut problems = Problems::default();
        for (key, value) in in_order(spans.get_ref()) {
            let content = &values[key.get_ref().as_ref()];
            problems.take(match key.get_ref().as_ref() {
                "mounts" => self.file_mounts(&file, value, content),
                "policy" => self.file_policies(&file, value, content),
                section if sections().any(|known| known == section) => {
                    self.file_section(&file, section, value, content)
                }
                other => Err(Problem::unknown(&file.origin(key.span()), other, sections())),
            });
        }
        problems.result()
    }

    fn file_section(
        &mut self,
        file: &File<'_>,
        section: &str,
        spans: &Spanned<DeValue<'_>>,
        content: &Value,
    ) -> Result<(), Problem> {
        let (spans, content) = file.table(section, spans, content)?;
        let mut problems = Problems::default();
        for (key, span) in in_order(spans) {
            let name = key.get_ref().as_ref();
            let known = table::in_section(section).map(|setting| setting.key);
            problems.take(match table::find(section, name) {
                Some(setting) => self.set(setting, content[name].clone(), file.origin(span.span())),
                None => Err(Problem::unknown(&file.origin(key.span()), name, known)),
            });
        }
        problems.result()
    }

    fn file_mounts(&mut self, file: &File<'_>, spans: &Spanned<DeValue<'_>>, content: &Value) -> Result<(), Problem> {
        let (spans, content) = file.table("mounts", spans, content)?;
        for (key, _) in spans {
            let bucket = key.get_ref().as_ref();
            let sourced = Sourced { value: content[bucket].clone(), origin: file.origin(key.span()) };
            self.mounts.insert(bucket.to_owned(), sourced);
        }
        Ok(())
    }

    fn file_policies(&mut self, file: &File<'_>, spans: &Spanned<DeValue<'_>>, content: &Value) -> Result<(), Problem> {
        let (Some(spans), Some(content)) = (spans.get_ref().as_array(), content.as_array()) else {
            return Err(Problem(format!("{}[[policy]] must be a list of tables", file.origin(spans.span()))));
        };
        for (span, value) in spans.iter().zip(content) {
            self.policies.push(Sourced { value: value.clone(), origin: file.origin(span.span()) });
        }
        Ok(())
    }
}

/// What a table holds, as it stands in the file.
fn in_order<'s, 'i>(table: &'s DeTable<'i>) -> Vec<(&'s Spanned<DeString<'i>>, &'s Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// A configuration file under examination.
struct File<'a> {
    name: &'a str,
    text: &'a str,
}

impl File<'_> {
    fn origin(&self, span: Range<usize>) -> Origin {
        let line = self.text[..span.start.min(self.text.len())].matches('\n').count() + 1;
        Origin::File { name: self.name.to_owned(), line }
    }

    fn syntax(&self, error: &toml::de::Error) -> Problem {
        let origin = self.origin(error.span().unwrap_or_default());
        Problem(format!("{origin}{}", error.message().lines().collect::<Vec<_>>().join("; ")))
    }

    fn table<'v, 's, 'i>(
        &self,
        section: &str,
        spans: &'s Spanned<DeValue<'i>>,
        content: &'v Value,
    ) -> Result<(&'s DeTable<'i>, &'v Table), Problem> {
        match (spans.get_ref().as_table(), content.as_table()) {
            (Some(spans), Some(content)) => Ok((spans, content)),
            (Some(_), None) | (None, Some(_)) | (None, None) => {
                Err(Problem(format!("{}[{section}] must be a table", self.origin(spans.span()))))
            }
        }
    }
}
