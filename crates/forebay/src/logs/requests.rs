//! The access log and the audit log: opening them, and what the server itself has to say there.

use std::path::Path;
use std::sync::Arc;

use forebay_env::Env;
use forebay_logs::{AccessLog, AuditEntry, AuditLog, FileSettings, LogMetrics, LogWriter, Logs};

use crate::config::{Config, Include, Problem};
use crate::failure::Failure;

/// Opens the files.
///
/// # Errors
/// With the name of the setting, when a file cannot be written. Later failures do not stop anything.
pub(crate) fn open(config: &Config, env: &Env, metrics: &LogMetrics) -> Result<Logs, Problem> {
    let mut logs = Logs::default();
    let access = &config.access_log;
    if let Some(path) = access.file.clone() {
        let settings = FileSettings { path, bytes_max: access.max_size.0, files_max: access.max_files };
        logs.access = AccessLog::new(writer("access", "access_log", settings, config, env, metrics)?);
    }
    let audit = &config.audit_log;
    if let Some(path) = audit.file.clone() {
        let settings = FileSettings { path, bytes_max: audit.max_size.0, files_max: audit.max_files };
        let writer = writer("audit", "audit_log", settings, config, env, metrics)?;
        logs.audit = AuditLog::new(writer, Arc::clone(&env.clock), audit.include == Include::All);
    }
    Ok(logs)
}

fn writer(
    name: &'static str,
    section: &'static str,
    settings: FileSettings,
    config: &Config,
    env: &Env,
    metrics: &LogMetrics,
) -> Result<LogWriter, Problem> {
    let path = settings.path.clone();
    LogWriter::start(name, settings, env, metrics)
        .map_err(|error| config.problem(section, "file", &format!("{}: {error}", path.display())))
}

/// Looks at the directory of a log file, and changes nothing.
pub(crate) fn check_file(file: &Path) -> Result<(), String> {
    if file.is_dir() {
        return Err(format!("{} is a directory", file.display()));
    }
    let directory = match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) | None => Path::new("."),
    };
    match std::fs::metadata(directory) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(format!("{} is no directory", directory.display())),
        Err(error) => Err(format!("the directory {}: {error}", directory.display())),
    }
}

/// The first entry of a run: with which version and which settings.
pub(crate) fn started(audit: &AuditLog, config: &Config) {
    let mut entry = AuditEntry { operation: "server.start", ..AuditEntry::default() };
    entry.details.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
    entry.details.insert("pid".to_owned(), std::process::id().into());
    let given = config.effective.iter().filter(|entry| entry.source != "default");
    let given = given.map(|entry| (entry.name.clone(), entry.value.as_str().into()));
    entry.details.insert("configuration".to_owned(), given.collect::<serde_json::Map<_, _>>().into());
    audit.write(&entry);
}

/// The last entry of a run that is not cut off.
pub(crate) fn stopped(audit: &AuditLog, failure: Option<&Failure>) {
    let reason = failure.and_then(|failure| match failure {
        Failure::Refused(reason) | Failure::Failed(reason) | Failure::Interrupted(reason) => Some(reason.as_str()),
        Failure::NobodyReads => None,
    });
    let mut entry = AuditEntry { operation: "server.stop", error: reason, ..AuditEntry::default() };
    entry.details.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
    audit.write(&entry);
}
