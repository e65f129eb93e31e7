//! The log on standard error, and the logs of requests in files.

mod one_line;
mod requests;
mod traces;

use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

pub(crate) use requests::{check_file, open, started, stopped};
pub(crate) use traces::Traces;

use crate::config::{Config, LogFormat, Problem, Problems};
use crate::failure::Failure;

/// Libraries whose lines are left out unless the filter names them. `s3s` calls every refused request an error, while
/// here ERROR means that a human must act; what is worth knowing of a request `forebay_s3` says itself. `ureq` shows
/// the headers that it sends, and those for a collector are secrets. Spans are for traces alone.
const SILENT: [&str; 3] = ["s3s", "ureq", forebay_env::SPANS];

/// Whether a directive of the filter is about a target, or about a part of it.
fn names(filter: &str, target: &str) -> bool {
    let name = |directive: &str| directive.split(['=', '[']).next().unwrap_or_default().trim().to_owned();
    let is_part = |name: &str| name.strip_prefix(target).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    filter.split(',').any(|directive| is_part(&name(directive)))
}

/// Starts logging and, when they are wanted, traces. Once in the life of the process.
pub(crate) fn start(config: &Config) -> Result<Option<Traces>, Failure> {
    let log = &config.log;
    let traces = Traces::start(config)?;
    let mut level = log.level.clone();
    for target in SILENT {
        if !names(&log.level, target) {
            level.push_str(&format!(",{target}=off"));
        }
    }
    let filter = EnvFilter::try_new(&level);
    let filter = filter.map_err(|e| Failure::Refused(format!("log.level = {:?}: {e}", log.level)))?;
    match &traces {
        // Filters for each layer cost a little more than one for all.
        None => tracing_subscriber::registry().with(filter).with(lines(log.format)).init(),
        Some(traces) => {
            tracing_subscriber::registry().with(lines(log.format).with_filter(filter)).with(traces.layer()).init()
        }
    }
    Ok(traces)
}

fn lines<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(|| one_line::OneLine).with_ansi(false);
    match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    }
}

/// What a log file or the collector's address would refuse at the start.
pub(crate) fn check(config: &Config) -> Result<(), Problem> {
    let mut problems = Problems::default();
    for (section, file) in [("access_log", &config.access_log.file), ("audit_log", &config.audit_log.file)] {
        if let Some(file) = file {
            problems.take(check_file(file).map_err(|wrong| config.problem(section, "file", &wrong)));
        }
    }
    problems.result()
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_module_of_ours_does_not_name_a_library() {
        assert!(names("info,s3s=debug", "s3s") && names("s3s::ops[span]=trace", "s3s") && names(" s3s", "s3s"));
        assert!(!names("debug,forebay_s3::s3s_fixes=trace,s3s_types=info", "s3s") && !names("", "s3s"));
    }
}
