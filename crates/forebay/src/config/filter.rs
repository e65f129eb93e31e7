//! What `log.level` says. `EnvFilter` takes any word for the name of a module, so a slip of the hand would silence the
//! logs.

use super::problem::closest;

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// A level, or `module=level`, or a list of these with commas.
pub(super) fn check(text: &str) -> Result<(), String> {
    text.split(',').try_for_each(|directive| match directive.split_once('=') {
        Some((module, level)) => check_module(module).and_then(|()| check_level(level)),
        None => check_level(directive),
    })
}

fn check_level(text: &str) -> Result<(), String> {
    if LEVELS.iter().any(|level| level.eq_ignore_ascii_case(text)) {
        return Ok(());
    }
    let hint = closest(text, LEVELS.into_iter()).map(|level| format!("; did you mean {level:?}?")).unwrap_or_default();
    Err(format!(
        "{text:?} is no level: must be one of {}, or a filter such as \"info,forebay_s3=debug\"{hint}",
        LEVELS.join(", ")
    ))
}

fn check_module(path: &str) -> Result<(), String> {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if path.split("::").all(is_name) { Ok(()) } else { Err(format!("{path:?} names no module such as forebay_s3")) }
}
