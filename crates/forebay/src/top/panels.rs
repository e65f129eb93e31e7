//! What each panel says, line by line.

use forebay_admin::api::{
    CircuitState, ClusterStatus, ClusterWorker, DiskSample, EngineMember, OperationSample, Sample, Severity,
    UnderStoreStatus, WorkerState,
};
use forebay_cache::{Job, JobState};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use super::feed::Snapshot;
use super::state::Panel;
use crate::commands::{
    age, count, escaped, fitted, job_kind, job_state, rate, seconds, severity, share, size, unavailable_of,
    worker_state,
};

const BAD: Style = Style::new().fg(Color::Red);
const WARN: Style = Style::new().fg(Color::Yellow);
const GOOD: Style = Style::new().fg(Color::Green);
const DIM: Style = Style::new().fg(Color::DarkGray);

/// Heights of a bar in a sparkline.
const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Widest column of a name.
const NAME_COLUMNS_MAX: usize = 60;

pub(super) fn title(panel: Panel) -> &'static str {
    match panel {
        Panel::Requests => "Requests",
        Panel::Reads => "Hit ratio",
        Panel::Backlog => "Backlog",
        Panel::Disks => "Disks",
        Panel::Cluster => "Cluster",
        Panel::UnderStores => "Under stores",
        Panel::Jobs => "Jobs",
        Panel::Notices => "Notices",
    }
}

pub(super) fn lines(panel: Panel, snapshot: &Snapshot, width: usize) -> Vec<Line<'static>> {
    let sample = snapshot.overview.sample.as_ref();
    match panel {
        Panel::Requests => sampled(sample, |sample| requests(sample, width)),
        Panel::Reads => sampled(sample, |sample| reads(sample, width)),
        Panel::Backlog => backlog(snapshot, width),
        Panel::Disks => disks(snapshot, width),
        Panel::Cluster => some(snapshot.cluster.iter().flat_map(|all| cluster(all, snapshot, width)).collect()),
        Panel::UnderStores => some(snapshot.under_stores.iter().map(|store| under_store(store, width)).collect()),
        Panel::Jobs => some(snapshot.jobs.iter().map(|job| line_of_job(job, width)).collect()),
        Panel::Notices => notices(snapshot),
    }
}

fn sampled(sample: Option<&Sample>, lines: impl Fn(&Sample) -> Vec<Line<'static>>) -> Vec<Line<'static>> {
    sample.map_or_else(|| vec![Line::styled("no sample yet", DIM)], lines)
}

fn some(lines: Vec<Line<'static>>) -> Vec<Line<'static>> {
    if lines.is_empty() { vec![Line::styled("none", DIM)] } else { lines }
}

/// A name in a column of what the rest of the line leaves.
fn name(text: &str, width: usize, rest: usize) -> String {
    let columns = width.saturating_sub(rest + 1).min(NAME_COLUMNS_MAX);
    let short = fitted(&escaped(text), columns);
    let padding = columns.saturating_sub(Line::from(short.as_str()).width());
    short + &" ".repeat(padding + 1)
}

fn number(value: f64) -> String {
    if value >= 100.0 || value == 0.0 { count(value.round() as u64) } else { format!("{value:.1}") }
}

fn milliseconds(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), number)
}

fn requests(sample: &Sample, width: usize) -> Vec<Line<'static>> {
    let mut operations: Vec<_> = sample.operations.iter().collect();
    operations.sort_by(|a, b| b.rate.total_cmp(&a.rate).then_with(|| a.operation.cmp(&b.operation)));
    let traffic =
        format!("in {}, out {}, {} connections", rate(sample.bytes_in), rate(sample.bytes_out), sample.connections);
    let head = format!("{:>7} {:>6} {:>6} {:>5}", "per s", "p50ms", "p99ms", "err/s");
    let head = Line::styled(name("", width, head.len()) + &head, DIM);
    let rows = operations.into_iter().map(|operation| request(operation, width));
    [Line::from(traffic), head].into_iter().chain(rows).collect()
}

fn request(operation: &OperationSample, width: usize) -> Line<'static> {
    let (p50, p99) = (milliseconds(operation.p50_ms), milliseconds(operation.p99_ms));
    let errors = operation.errors + operation.throttled;
    let numbers = format!("{:>7} {p50:>6} {p99:>6} ", number(operation.rate));
    let errors_shown = format!("{:>5}", number(errors));
    let name = name(&operation.operation, width, numbers.len() + errors_shown.len());
    let style = if errors > 0.0 { BAD } else { Style::new() };
    Line::from(vec![Span::raw(name + &numbers), Span::styled(errors_shown, style)])
}

fn reads(sample: &Sample, width: usize) -> Vec<Line<'static>> {
    let of = |wanted: &dyn Fn(&str, &str) -> bool| -> f64 {
        // The sum of nothing would be -0.
        let wanted = sample.reads.iter().filter(|read| wanted(&read.tier, &read.path));
        wanted.fold(0.0, |sum, read| sum + read.rate)
    };
    let all = of(&|_, _| true);
    if all <= 0.0 {
        return vec![Line::styled("no reads", DIM)];
    }
    let tiers = [("memory", "memory"), ("disk", "disk"), ("worker", "other worker"), ("under_store", "under store")];
    let of_tier = |(tier, shown): (&str, &str)| {
        let rate = of(&|of, _| of == tier);
        // Other workers give bytes only after slots have moved.
        (tier != "worker" || rate > 0.0).then(|| format!("{shown} {}", share(rate, all)))
    };
    let tiers: Vec<_> = tiers.into_iter().filter_map(of_tier).collect();
    let mut paths: Vec<_> = sample.reads.iter().map(|read| read.path.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    let rows = paths.into_iter().map(|path| {
        let total = of(&|_, of| of == path);
        let hits = of(&|tier, of| of == path && tier != "under_store");
        let numbers = format!("{:>8} {:>7}", share(hits, total), number(total));
        Line::from(name(path, width, numbers.len()) + &numbers)
    });
    let head = format!("{:>8} {:>7}", "hits", "per s");
    let head = Line::styled(name("", width, head.len()) + &head, DIM);
    [Line::from(tiers.join(", ")), head].into_iter().chain(rows).collect()
}

fn backlog(snapshot: &Snapshot, width: usize) -> Vec<Line<'static>> {
    let status = &snapshot.overview.status;
    let waits = status.dirty_objects + status.tombstones > 0;
    let oldest = if waits { age(status.oldest_dirty_age_ms) } else { "-".to_owned() };
    let drain = match snapshot.overview.drain_seconds {
        Some(left) => format!("empty in {}", seconds(left.ceil() as u64)),
        None if waits => "does not shrink".to_owned(),
        None => "empty".to_owned(),
    };
    let style = |is_bad: bool| if is_bad { BAD } else { Style::new() };
    let failures = snapshot.overview.sample.as_ref().map_or(0.0, |sample| sample.persist_failures);
    let persisted = snapshot.overview.sample.as_ref().map_or(0.0, |sample| sample.persisted_bytes);
    let dirty: Vec<_> = snapshot.history.iter().map(|sample| sample.dirty_bytes as f64).collect();
    vec![
        Line::from(format!(
            "{} objects, {}; {} deletes",
            count(status.dirty_objects),
            size(status.dirty_bytes),
            count(status.tombstones)
        )),
        Line::from(format!("oldest {oldest}, {drain}")),
        Line::from(vec![
            Span::raw(format!("persisted {}, ", rate(persisted))),
            Span::styled(format!("failures {}/s", number(failures)), style(failures > 0.0)),
            Span::styled(format!(", conflicts {}", count(status.conflicts)), style(status.conflicts > 0)),
        ]),
        Line::from(sparkline(&dirty, width)),
    ]
}

/// The last values, one column each; the highest is the full height.
fn sparkline(values: &[f64], width: usize) -> String {
    let values = &values[values.len().saturating_sub(width)..];
    let highest = values.iter().copied().fold(0.0, f64::max);
    let spark = |value: &f64| {
        let step = if highest > 0.0 { value / highest * (SPARKS.len() - 1) as f64 } else { 0.0 };
        SPARKS[(step.ceil() as usize).min(SPARKS.len() - 1)]
    };
    values.iter().map(spark).collect()
}

fn disks(snapshot: &Snapshot, width: usize) -> Vec<Line<'static>> {
    let status = &snapshot.overview.status;
    let words = format!(
        "pinned {}, evictable {}, free {}",
        size(status.pinned_bytes),
        size(status.evictable_bytes),
        size(status.free_bytes)
    );
    let head = format!("{:>7} {:>7} {:>11}", "busy", "sync ms", "written");
    let head = Line::styled(name("", width, head.len()) + &head, DIM);
    let samples = snapshot.overview.sample.iter().flat_map(|sample| &sample.disks);
    let rows = samples.map(|sample| disk(sample, width));
    [space_bar(status, width), Line::from(words), head].into_iter().chain(rows).collect()
}

fn disk(disk: &DiskSample, width: usize) -> Line<'static> {
    let busy = disk.busy.map_or("-".to_owned(), |busy| share(busy, 1.0));
    let numbers = format!("{busy:>7} {:>7} {:>11}", milliseconds(disk.sync_ms), rate(disk.written_bytes));
    let numbers = if disk.failed { format!("{:>27}", "FAILED") } else { numbers };
    let style = if disk.failed { BAD } else { Style::new() };
    Line::styled(name(&disk.directory, width, numbers.len()) + &numbers, style)
}

/// `█` is pinned, `▒` may be evicted, `·` is free.
fn space_bar(status: &forebay_cache::Status, width: usize) -> Line<'static> {
    let columns = |bytes: u64| match status.capacity_bytes {
        0 => 0,
        all => ((bytes as f64 / all as f64) * width as f64).ceil() as usize,
    };
    let pinned = columns(status.pinned_bytes).min(width);
    let evictable = columns(status.evictable_bytes).min(width - pinned);
    Line::from(vec![
        Span::styled("█".repeat(pinned), WARN),
        Span::styled("▒".repeat(evictable), GOOD),
        Span::styled("·".repeat(width - pinned - evictable), DIM),
    ])
}

/// First of all what is wrong: a small screen shows no more.
fn cluster(cluster: &ClusterStatus, snapshot: &Snapshot, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![of_all(cluster)];
    let head =
        format!("{:>8} {:>6} {:>9} {:>9} {:>9} {:>11}", "state", "slots", "dirty", "free", "elsewhere", "unavailable");
    lines.push(Line::styled(name("", width, head.len()) + &head, DIM));
    lines.extend(cluster.workers.iter().flat_map(|worker| line_of_worker(worker, width)));
    lines.extend(cluster.engine.iter().map(line_of_member));
    lines.extend(unavailable_of(cluster).map(|(_, found)| {
        let since = age(snapshot.overview.now_ms.saturating_sub(found.since_ms));
        Line::styled(format!("{}: {} ({since})", escaped(&found.path), escaped(&found.problem)), BAD)
    }));
    lines
}

/// The cluster in one line.
fn of_all(cluster: &ClusterStatus) -> Line<'static> {
    let live = cluster.workers.iter().filter(|worker| worker.state == WorkerState::Live).count();
    let answering = cluster.engine.iter().filter(|member| member.problem.is_none()).count();
    let statuses = cluster.workers.iter().filter_map(|worker| worker.status.as_ref());
    let unavailable: u64 = statuses.map(|status| status.copies_unavailable).sum();
    let part = |text: String, is_bad: bool| Span::styled(text, if is_bad { BAD } else { Style::new() });
    Line::from(vec![
        part(format!("{live} of {} workers live, ", cluster.workers.len()), live < cluster.workers.len()),
        part(
            format!(
                "{} of {} slots without a home, ",
                count(cluster.slots_without_home.into()),
                count(cluster.slots.into())
            ),
            cluster.slots_without_home > 0,
        ),
        part(format!("{} unavailable, ", count(unavailable)), unavailable > 0),
        part(format!("engine {answering}/{}", cluster.engine.len()), answering < cluster.engine.len()),
    ])
}

fn line_of_worker(worker: &ClusterWorker, width: usize) -> Vec<Line<'static>> {
    let of_status = |show: fn(&forebay_cache::Status) -> String| worker.status.as_ref().map_or("-".to_owned(), show);
    let numbers = format!(
        "{:>8} {:>6} {:>9} {:>9} {:>9} {:>11}",
        worker_state(worker.state),
        count(worker.slots.into()),
        of_status(|status| size(status.dirty_bytes)),
        of_status(|status| size(status.free_bytes)),
        of_status(|status| count(status.copies_wanted)),
        of_status(|status| count(status.copies_unavailable)),
    );
    let style = match worker.state {
        WorkerState::Live => Style::new(),
        WorkerState::Draining | WorkerState::Drained => WARN,
        WorkerState::Left | WorkerState::Lost => BAD,
    };
    let line = Line::styled(name(&worker.id, width, numbers.len()) + &numbers, style);
    let problem = worker.problem.as_ref().map(|problem| Line::styled(format!("  {}", escaped(problem)), BAD));
    [line].into_iter().chain(problem).collect()
}

fn line_of_member(member: &EngineMember) -> Line<'static> {
    let bytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), size);
    let (text, style) = match &member.problem {
        Some(problem) => (escaped(problem), BAD),
        None => (format!("{} of {}", bytes(member.database_bytes), bytes(member.quota_bytes)), Style::new()),
    };
    Line::styled(format!("engine {}: {text}", escaped(&member.endpoint)), style)
}

fn under_store(store: &UnderStoreStatus, width: usize) -> Line<'static> {
    let (circuit, style) = match (store.circuit, store.probe_in_ms) {
        (CircuitState::Closed, _) => ("closed".to_owned(), GOOD),
        (CircuitState::Open, Some(left)) => (format!("open, probe in {}", age(left)), BAD),
        (CircuitState::Open, None) => ("open".to_owned(), BAD),
        (CircuitState::Probing, _) => ("probing".to_owned(), WARN),
    };
    let numbers = format!(
        " {}/{} of {}, {} errors, {} throttled",
        store.running,
        store.concurrency_limit,
        store.concurrency_max,
        count(store.errors),
        count(store.throttled)
    );
    let name = name(&store.url, width, circuit.len() + numbers.len());
    Line::from(vec![Span::raw(name), Span::styled(circuit, style), Span::raw(numbers)])
}

fn line_of_job(job: &Job, width: usize) -> Line<'static> {
    let progress = &job.progress;
    let share_done = match (progress.bytes_total, progress.objects_total) {
        (Some(total), _) => share(progress.bytes_done as f64, total as f64),
        (None, Some(total)) => share(progress.objects_seen as f64, total as f64),
        (None, None) => String::new(),
    };
    let style = match job.state {
        JobState::Failed => BAD,
        JobState::Running => GOOD,
        JobState::Queued => WARN,
        JobState::Done | JobState::Cancelled => DIM,
    };
    let state = format!("{:<9}", job_state(job.state));
    let numbers = format!(" {:>7} {:>9} {:>10}", share_done, count(progress.objects_seen), size(progress.bytes_done));
    let what = format!("{} {}", job_kind(job.request.kind), job.request.path);
    let name = name(&what, width, state.len() + numbers.len());
    Line::from(vec![Span::raw(name), Span::styled(state, style), Span::raw(numbers)])
}

fn notices(snapshot: &Snapshot) -> Vec<Line<'static>> {
    let line = |notice: &forebay_admin::api::Notice| {
        let style = match notice.severity {
            Severity::Critical => BAD,
            Severity::Warning => WARN,
            Severity::Info => Style::new(),
        };
        let since = age(snapshot.overview.now_ms.saturating_sub(notice.since_ms));
        let title = format!(" {} ({since})", escaped(&notice.title));
        [
            Line::from(vec![Span::styled(severity(notice.severity), style), Span::raw(title)]),
            Line::styled(format!("  {}", escaped(&notice.cure)), DIM),
        ]
    };
    some(snapshot.overview.notices.iter().flat_map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_shows_the_newest_and_never_hides_what_is_not_nothing() {
        assert_eq!(sparkline(&[], 5), "");
        assert_eq!(sparkline(&[0.0, 0.0], 5), "▁▁");
        assert_eq!(sparkline(&[9.0, 0.0, 0.1, 7.0], 3), "▁▂█");
    }

    #[test]
    fn names_fill_what_numbers_leave_and_no_more() {
        assert_eq!(name("PutObject", 20, 10), "PutObject ");
        assert_eq!(name("/a/very/long/path", 20, 10), "/a/very/… ");
        assert_eq!(name("x", 3, 10), " ");
        assert_eq!(Line::from(name("数据\x1b[2J", 30, 10)).width(), 20);
    }
}
