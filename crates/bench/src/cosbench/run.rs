//! Runs the stages of a workload.

use std::sync::Arc;
use std::thread::ScopedJoinHandle;

use super::document::{self, Stage, Storage, What, Work, Workload};
use crate::cli::{CosbenchOptions, RequestOptions};
use crate::failure::Failure;
use crate::load::{self, Load, Measured, Server, Source};
use crate::pace::{Limits, Pace};
use crate::process::Usage;
use crate::report::{Round, Run};
use crate::run::{finish, report, server_at, usage};
use crate::signature::Credentials;

/// A work that can be started.
struct Ready {
    name: String,
    server: Server,
    load: Load,
    source: Arc<dyn Source>,
    /// Per million samples.
    failures_max: u64,
}

/// Runs a workload file, and shows the results.
pub(crate) fn run(options: &CosbenchOptions) -> Result<(), Failure> {
    let file = options.file.display();
    let text = std::fs::read_to_string(&options.file).map_err(|error| Failure::Refused(format!("{file}: {error}")))?;
    let Workload { name, stages } =
        document::parse(&text).map_err(|problem| Failure::Refused(format!("{file}: {problem}")))?;
    usage(options.request.server_pid)?;
    // All servers are checked before the first request.
    let stages: Result<Vec<_>, _> = stages.into_iter().map(|stage| ready(stage, options)).collect();
    let env = forebay_env::Env::real();
    let mut report = report(&format!("cosbench {name}"), &env, &options.request);
    report.settings.insert("file".to_owned(), file.to_string());
    for stage in stages? {
        let (runs, problem) = run_stage(&stage, &options.request)?;
        report.runs.extend(runs);
        if let Some(problem) = problem {
            // What was measured is shown anyway.
            return finish(&report, &options.request.output).and(Err(Failure::Failed(problem)));
        }
        load::wait(&env.clock, stage.delay)?;
    }
    finish(&report, &options.request.output)
}

struct ReadyStage {
    works: Vec<Ready>,
    delay: std::time::Duration,
}

fn ready(stage: Stage, options: &CosbenchOptions) -> Result<ReadyStage, Failure> {
    let works = stage.works.into_iter().filter(|work| !matches!(work.what, What::Delay));
    let works = works.map(|work| ready_work(&stage.name, work, options));
    Ok(ReadyStage { works: works.collect::<Result<_, _>>()?, delay: stage.delay })
}

fn ready_work(stage: &str, work: Work, options: &CosbenchOptions) -> Result<Ready, Failure> {
    let request = &options.request;
    let mut server = server(&work.storage, options)?;
    let source: Arc<dyn Source> = match work.what {
        What::Steps(steps) => {
            server.verify |= steps.verifies();
            Arc::new(steps)
        }
        What::Sweep(sweep) => Arc::new(sweep),
        What::Delay => return Err(Failure::Failed("a delay has no work".to_owned())),
    };
    let load = Load {
        threads: request.threads.min(work.workers),
        connections: work.workers,
        pace: Pace::Closed,
        limits: Limits { duration: work.runtime, operations: work.operations, bytes: work.bytes },
        ramp_up: work.ramp_up,
        ramp_down: work.ramp_down,
        seed: request.seed,
    };
    let name = if stage == work.name { work.name } else { format!("{stage}/{}", work.name) };
    Ok(Ready { name, server, load, source, failures_max: work.failures_max })
}

fn server(storage: &Storage, options: &CosbenchOptions) -> Result<Server, Failure> {
    let given = |option: &Option<String>, element: &Option<String>| option.clone().or_else(|| element.clone());
    let hosts = if options.host.is_empty() { storage.endpoint.iter().cloned().collect() } else { options.host.clone() };
    if hosts.is_empty() {
        return Err(Failure::Refused("--host is missing, and <storage> has no endpoint".to_owned()));
    }
    let credentials = Credentials {
        access_key: given(&options.access_key, &storage.access_key).unwrap_or_default(),
        secret_key: given(&options.secret_key, &storage.secret_key).unwrap_or_default(),
        region: storage.region.clone().unwrap_or_else(|| options.request.region.clone()),
    };
    let mut server = server_at(&hosts, credentials, &options.request)?;
    server.timeout = storage.timeout.unwrap_or(server.timeout);
    Ok(server)
}

/// Runs all works of a stage at once. Also returns which of them has failed too often.
fn run_stage(stage: &ReadyStage, request: &RequestOptions) -> Result<(Vec<Run>, Option<String>), Failure> {
    let before = usage(request.server_pid)?;
    let measured: Vec<Result<Measured, Failure>> = std::thread::scope(|scope| {
        let start = |work: &'_ Ready| load::run(&work.server, &work.load, &work.source);
        let running: Vec<ScopedJoinHandle<_>> =
            stage.works.iter().map(|work| scope.spawn(move || start(work))).collect();
        let join =
            |running: ScopedJoinHandle<_>| running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        running.into_iter().map(join).collect()
    });
    // The works of a stage run in one process against one server, so usage is that of all works together.
    let used: Option<(Usage, Usage)> = before.zip(usage(request.server_pid)?);
    let mut runs = Vec::new();
    let mut problem = None;
    for (work, measured) in stage.works.iter().zip(measured) {
        let measured = measured?;
        problem = problem.or_else(|| too_many_failures(work, &measured));
        let round = Round::new(&measured, used);
        runs.push(Run::new(work.name.clone(), work.load.connections, None, vec![round]));
    }
    Ok((runs, problem))
}

fn too_many_failures(work: &Ready, measured: &Measured) -> Option<String> {
    let (failed, succeeded) = (measured.recorded.failures(), measured.recorded.operations());
    let rate = u128::from(failed) * 1_000_000;
    let too_many = rate > u128::from(work.failures_max) * u128::from(failed + succeeded);
    too_many.then(|| {
        format!("{}: {failed} of {} operations failed, more than its afr allows", work.name, failed + succeeded)
    })
}
