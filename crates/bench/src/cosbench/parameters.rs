//! `config` attributes: `name=value`, separated by `;`.

use std::collections::BTreeMap;

/// The parameters of an element, including those of the elements around it. Each must be taken before
/// [`Parameters::finish`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Parameters {
    values: BTreeMap<String, String>,
}

impl Parameters {
    /// The parameters in `text`, which take precedence over those that are there.
    ///
    /// # Errors
    /// One line that names what is no `name=value`.
    pub(crate) fn and(&self, text: &str) -> Result<Self, String> {
        let mut values = self.values.clone();
        for entry in text.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (name, value) = entry.split_once('=').ok_or_else(|| format!("config {entry:?} is not name=value"))?;
            values.insert(name.trim().to_owned(), value.trim().to_owned());
        }
        Ok(Self { values })
    }

    /// Takes a parameter out.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        self.values.remove(name)
    }

    /// Takes a parameter that must be there.
    pub(crate) fn need(&mut self, name: &str) -> Result<String, String> {
        self.take(name).ok_or_else(|| format!("config: {name} is missing"))
    }

    /// Takes `true` or `false`.
    pub(crate) fn flag(&mut self, name: &str, default: bool) -> Result<bool, String> {
        match self.take(name).as_deref() {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => Err(format!("config: {name}={other} is neither true nor false")),
        }
    }

    /// Takes a parameter that may have one value only.
    pub(crate) fn only(&mut self, name: &str, value: &str) -> Result<(), String> {
        match self.take(name) {
            Some(other) if other != value => {
                Err(format!("config: {name}={other} is not supported, only {name}={value}"))
            }
            _ => Ok(()),
        }
    }

    /// Takes out what other elements need and this one does not: elements pass all of their parameters down.
    pub(crate) fn leave(&mut self, names: &[&str]) {
        names.iter().for_each(|name| drop(self.values.remove(*name)));
    }

    /// # Errors
    /// One line that names what nothing has asked for.
    pub(crate) fn finish(&self) -> Result<(), String> {
        match self.values.first_key_value() {
            Some((name, value)) => Err(format!("config: {name}={value} is not known")),
            None => Ok(()),
        }
    }
}
