//! Runs the workloads of the command line: prepares, measures in rounds, and cleans up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use forebay_env::Env;

use crate::cli::{OutputOptions, RequestOptions, RunOptions, ServerOptions};
use crate::failure::Failure;
use crate::homes::Homes;
use crate::http::Endpoint;
use crate::load::{self, Load, Measured, Server, Source};
use crate::pace::{Limits, Pace};
use crate::payload::Payload;
use crate::process::{self, Usage};
use crate::report::{self, Report, Round, Run};
use crate::s3::Operation;
use crate::signature::Credentials;
use crate::workload::{BATCH_MAX, Clear, Kind, Mix, Objects, Once, Prepare, Workload};

/// Fewest connections that prepare objects.
const PREPARING_MIN: usize = 8;
/// More connections than the file descriptors that a process usually may have.
const CONNECTIONS_MAX: usize = 10_000;

/// Runs a workload, and shows the results.
pub(crate) fn run(name: &str, kind: Kind, options: &RunOptions) -> Result<(), Failure> {
    check(kind, options)?;
    let server = server(&options.server)?;
    let request = &options.server.request;
    let mut report = report(name, &server.env, request);
    report.settings.extend(settings(options));
    usage(request.server_pid)?;
    let objects = Objects {
        bucket: options.bucket.as_str().into(),
        prefix: options.prefix.clone(),
        count: options.objects,
        sizes: options.size,
    };
    let bench = Bench { server, options, objects };
    bench.create_bucket()?;
    let measured = bench.measure(name, kind);
    if !options.noclear {
        bench.clear()?;
    }
    report.runs = measured?;
    finish(&report, &request.output)
}

fn check(kind: Kind, options: &RunOptions) -> Result<(), Failure> {
    let refuse = |problem: String| Err(Failure::Refused(problem));
    if options.objects == 0 {
        return refuse("--objects 0: there must be at least one object".to_owned());
    }
    if let Some(wrong) = options.concurrent.iter().find(|number| !(1..=CONNECTIONS_MAX).contains(*number)) {
        return refuse(format!("--concurrent {wrong}: give 1 to {CONNECTIONS_MAX} connections"));
    }
    if options.prefix.is_empty() && !options.noclear {
        return refuse(
            "--prefix \"\": all of the bucket would be deleted at the end; give a prefix, or --noclear".to_owned(),
        );
    }
    if options.rounds == 0 {
        return refuse("--rounds 0: there must be at least one round".to_owned());
    }
    if let Some(rate) = options.rate.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
        return refuse(format!("--rate {rate}: give operations per second, more than 0"));
    }
    match kind {
        Kind::List { keys_max } if !(1..=BATCH_MAX).contains(&keys_max) => {
            refuse(format!("--max-keys {keys_max}: give 1 to {BATCH_MAX}"))
        }
        Kind::Delete { batch } if !(1..=BATCH_MAX).contains(&batch) => {
            refuse(format!("--batch {batch}: give 1 to {BATCH_MAX}"))
        }
        Kind::Get { range_bytes: Some(0) } => refuse("--range 0: a range has at least one byte".to_owned()),
        Kind::Delete { .. } if options.prepared => {
            refuse("--prepared: objects that are deleted are written again for each round".to_owned())
        }
        Kind::Multipart { part_bytes: 0 } => refuse("--part.size 0: a part has at least one byte".to_owned()),
        Kind::Mixed(mix) => check_mix(mix),
        _ => Ok(()),
    }
}

fn check_mix(mix: Mix) -> Result<(), Failure> {
    let Mix { get, stat, put, delete } = mix;
    let shares =
        [("--get-distrib", get), ("--stat-distrib", stat), ("--put-distrib", put), ("--delete-distrib", delete)];
    if let Some((name, share)) = shares.iter().find(|(_, share)| !(share.is_finite() && *share >= 0.0)) {
        return Err(Failure::Refused(format!("{name} {share}: a share is 0 or more")));
    }
    if get + stat + put + delete <= 0.0 {
        return Err(Failure::Refused("--get-distrib 0: one of the shares must be more than 0".to_owned()));
    }
    if delete > put {
        let problem = format!(
            "--delete-distrib {delete}: cannot be more than --put-distrib {put}, since what was put is deleted"
        );
        return Err(Failure::Refused(problem));
    }
    Ok(())
}

/// The server of the command line.
fn server(options: &ServerOptions) -> Result<Server, Failure> {
    let credentials = Credentials {
        access_key: options.access_key.clone(),
        secret_key: options.secret_key.clone(),
        region: options.request.region.clone(),
    };
    let mut server = server_at(&options.host, credentials, &options.request)?;
    if let Some(admin) = &options.cluster {
        let homes = Homes::ask(admin, &server.credentials, &server.env.clock)?;
        (server.endpoints, server.homes) = (homes.endpoints.clone(), Some(Arc::new(homes)));
    }
    Ok(server)
}

/// A server with these hosts.
///
/// # Errors
/// When an option is wrong.
pub(crate) fn server_at(
    hosts: &[String],
    credentials: Credentials,
    request: &RequestOptions,
) -> Result<Server, Failure> {
    let cores = available_parallelism().map_or(1, usize::from);
    if !(1..=cores).contains(&request.threads) {
        return Err(Failure::Refused(format!(
            "--threads {}: this machine has {cores} cores, give 1 to {cores}",
            request.threads
        )));
    }
    if request.timeout.0.is_zero() {
        return Err(Failure::Refused("--timeout 0 s: must be longer than nothing".to_owned()));
    }
    let endpoints = hosts.iter().map(|host| Endpoint::parse(host));
    let endpoints: Result<Vec<_>, _> = endpoints.collect();
    Ok(Server {
        endpoints: endpoints.map_err(|problem| Failure::Refused(format!("--host {problem}")))?,
        homes: None,
        credentials,
        signatures: request.signatures,
        sign_payload: !request.unsigned_payload,
        verify: request.verify,
        timeout: request.timeout.0,
        payload: Arc::new(Payload::new(request.seed)),
        env: Env::real(),
    })
}

/// What the server has used so far, if its process is known.
///
/// # Errors
/// When it can't be inspected.
pub(crate) fn usage(pid: Option<u32>) -> Result<Option<Usage>, Failure> {
    let usage = |pid| process::usage(pid).map_err(|problem| Failure::Refused(format!("--server-pid {pid}: {problem}")));
    pid.map(usage).transpose()
}

/// A report without runs.
pub(crate) fn report(workload: &str, env: &Env, request: &RequestOptions) -> Report {
    let settings = [
        ("signatures", format!("{:?}", request.signatures).to_lowercase()),
        ("payload", if request.unsigned_payload { "unsigned" } else { "signed" }.to_owned()),
        ("verify", request.verify.to_string()),
        ("seed", request.seed.to_string()),
        ("threads", request.threads.to_string()),
    ];
    Report {
        version: env!("CARGO_PKG_VERSION"),
        workload: workload.to_owned(),
        started_unix_ms: env.clock.unix_ms(),
        settings: settings.map(|(name, value)| (name.to_owned(), value)).into(),
        runs: Vec::new(),
    }
}

fn settings(options: &RunOptions) -> BTreeMap<String, String> {
    let settings = [
        ("host", options.server.cluster.clone().unwrap_or_else(|| options.server.host.join(","))),
        ("bucket", options.bucket.clone()),
        ("objects", options.objects.to_string()),
        ("size", format!("{:?}", options.size)),
        ("keys", format!("{:?}", options.keys)),
        ("duration", format!("{:?}", options.duration)),
        ("rounds", options.rounds.to_string()),
    ];
    settings.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Shows and writes a report.
///
/// # Errors
/// When a file can't be written, or an operation has failed.
pub(crate) fn finish(report: &Report, output: &OutputOptions) -> Result<(), Failure> {
    print!("{}", report::table(report));
    let json = || serde_json::to_string_pretty(report).expect("reports have only names as keys");
    let files: [(_, &dyn Fn() -> String); 3] =
        [(&output.json, &json), (&output.csv, &|| report::csv(report)), (&output.html, &|| report::html(report))];
    for (file, text) in files {
        if let Some(file) = file {
            std::fs::write(file, text()).map_err(|error| Failure::of(file.display(), &error))?;
        }
    }
    match report.failed() {
        0 => Ok(()),
        failed => Err(Failure::Failed(format!("{failed} operations failed"))),
    }
}

/// A workload of the command line in its bucket.
struct Bench<'a> {
    server: Server,
    options: &'a RunOptions,
    objects: Objects,
}

impl Bench<'_> {
    fn create_bucket(&self) -> Result<(), Failure> {
        let bucket = self.objects.bucket.to_string();
        let create = Once::new(Operation::CreateBucket { bucket });
        self.aside("creating the bucket", 1, Arc::new(create)).map(drop)
    }

    fn clear(&self) -> Result<(), Failure> {
        self.aside("deleting the objects", 1, Arc::new(Clear::new(self.objects.clone()))).map(drop)
    }

    fn prepare(&self) -> Result<(), Failure> {
        let most = self.options.concurrent.iter().copied().max().unwrap_or_default();
        let prepare = Prepare::new(self.objects.clone());
        self.aside("writing the objects", most.max(PREPARING_MIN), Arc::new(prepare)).map(drop)
    }

    /// Does work that is not measured.
    fn aside(&self, doing: &str, connections: usize, source: Arc<dyn Source>) -> Result<Measured, Failure> {
        let measured = load::run(&self.server, &self.load(connections, Pace::Closed, Limits::default(), 0), &source)?;
        let errors = measured.recorded.kinds.values().flat_map(|counted| &counted.errors);
        match errors.map(|(code, count)| format!("{count} x {code}")).collect::<Vec<_>>() {
            errors if errors.is_empty() => Ok(measured),
            errors => Err(Failure::Failed(format!("{doing}: {}", errors.join(", ")))),
        }
    }

    fn load(&self, connections: usize, pace: Pace, limits: Limits, round: usize) -> Load {
        let request = &self.options.server.request;
        // Each round makes other choices, and the same ones when it is repeated.
        let seed = request.seed.wrapping_add((round as u64) << 32);
        let (ramp_up, ramp_down) = (Duration::ZERO, Duration::ZERO);
        Load { threads: request.threads.min(connections), connections, pace, limits, ramp_up, ramp_down, seed }
    }

    /// Runs all concurrencies in each round, so that what changes meanwhile affects all of them.
    fn measure(&self, name: &str, kind: Kind) -> Result<Vec<Run>, Failure> {
        let workload = Arc::new(Workload::new(kind, self.objects.clone(), self.options.keys));
        let is_deleting = matches!(kind, Kind::Delete { .. });
        if workload.wants_objects() && !is_deleting && !self.options.prepared {
            self.prepare()?;
        }
        let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); self.options.concurrent.len()];
        for round in 0..self.options.rounds {
            for (connections, rounds) in self.options.concurrent.iter().zip(&mut rounds) {
                if is_deleting {
                    self.prepare()?;
                    workload.rewind();
                }
                rounds.push(self.round(*connections, round, &(Arc::clone(&workload) as Arc<dyn Source>))?);
            }
        }
        let runs = self.options.concurrent.iter().zip(rounds);
        Ok(runs
            .map(|(connections, rounds)| Run::new(name.to_owned(), *connections, self.options.rate, rounds))
            .collect())
    }

    fn round(&self, connections: usize, round: usize, source: &Arc<dyn Source>) -> Result<Round, Failure> {
        let pace = self.options.rate.map_or(Pace::Closed, Pace::Open);
        let limits = Limits { duration: Some(self.options.duration), ..Limits::default() };
        let pid = self.options.server.request.server_pid;
        let before = usage(pid)?;
        let measured = load::run(&self.server, &self.load(connections, pace, limits, round), source)?;
        Ok(Round::new(&measured, before.zip(usage(pid)?)))
    }
}
