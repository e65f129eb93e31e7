//! Logs, on standard error.

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};
use crate::failure::Failure;

/// Libraries whose lines are left out unless the filter names them. `s3s` calls every refused request an error, while here
/// ERROR means that a human must act; what is worth knowing of a request `forebay_s3` says itself.
const SILENT: &str = "s3s";

/// Starts logging. Once in the life of the process.
pub(crate) fn start(log: &Log) -> Result<(), Failure> {
    let level = &log.level;
    let filter = if level.contains(SILENT) { level.clone() } else { format!("{level},{SILENT}=off") };
    let filter = EnvFilter::try_new(filter).map_err(|e| Failure::Refused(format!("log.level = {level:?}: {e}")))?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match log.format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
    Ok(())
}
