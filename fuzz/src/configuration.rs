//! The configuration file.

use std::collections::BTreeMap;

use forebay_types::PolicySet;

use crate::config::{Config, Overrides, Problem};

const SECRET: &str = "correct horse battery staple";

/// A configuration, or lines that say what is wrong and where, and show no secret.
pub(crate) fn file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let secret_keys: Vec<_> = text.lines().filter(|line| line.contains(SECRET)).collect();
    // Only where it is the value of a secret, alone on its line.
    let is_secret = |line: &str| {
        let names = ["secret_key", "root_secret_key", "session_token"];
        names.iter().any(|name| line == format!("{name} = \"{SECRET}\""))
    };
    let holds_secret = !secret_keys.is_empty() && secret_keys.into_iter().all(is_secret) && !text.contains("\"\"\"");
    let loaded = Config::load(Some(("test.toml", text)), &BTreeMap::new(), &Overrides::default());
    let shown = match &loaded {
        Ok(config) => {
            assert!(PolicySet::new(config.policies.clone()).is_ok());
            format!("{config:?}")
        }
        Err(Problem(problem)) => {
            let is_whole = |line: &str| line.starts_with("test.toml:") || line.contains(" = ");
            assert!(problem.lines().all(is_whole), "{problem:?} has a line without place and setting");
            problem.clone()
        }
    };
    assert!(!holds_secret || !shown.contains(SECRET), "{shown} shows a secret");
}
