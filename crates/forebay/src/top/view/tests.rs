use forebay_admin::api::{
    CircuitState, ClusterStatus, ClusterWorker, DiskSample, EngineMember, Notice, OperationSample, Overview,
    ReadSample, Sample, Severity, UnderStoreStatus, WorkerState,
};
use forebay_cache::{Job, JobKind, JobProgress, JobRequest, JobState, Status, UnavailableBytes};
use ratatui::crossterm::event::{KeyCode, KeyEvent};

use super::super::feed::Snapshot;
use super::*;

fn operation(name: &str, rate: f64, errors: f64) -> OperationSample {
    let latency = (rate > 0.0).then_some(2.5);
    OperationSample {
        operation: name.into(),
        rate,
        errors,
        p50_ms: latency,
        p99_ms: latency,
        ..OperationSample::default()
    }
}

fn read(path: &str, tier: &str, rate: f64) -> ReadSample {
    ReadSample { path: path.into(), bucket: "b".into(), tier: tier.into(), rate, bytes: 0.0 }
}

fn sample() -> Sample {
    Sample {
        time_ms: 1_000_000,
        interval_ms: 5000,
        operations: vec![operation("GetObject", 12.0, 0.0), operation("PutObject", 1500.0, 0.25)],
        bytes_in: f64::from(3 << 20),
        reads: vec![read("/", "memory", 1.0), read("/", "under_store", 3.0), read("/b/hot/", "disk", 4.0)],
        disks: vec![
            DiskSample { directory: "/nvme/0".into(), busy: Some(0.97), sync_ms: Some(1.5), ..DiskSample::default() },
            DiskSample { directory: "/nvme/1".into(), failed: true, ..DiskSample::default() },
        ],
        persisted_bytes: f64::from(1 << 20),
        cpu: 1.25,
        connections: 7,
        ..Sample::default()
    }
}

fn job(path: &str) -> Job {
    Job {
        id: "1".into(),
        request: JobRequest {
            kind: JobKind::Load,
            path: path.into(),
            rate_limit: None,
            concurrency: None,
            dry_run: false,
        },
        state: JobState::Running,
        created_by: "root".into(),
        created_ms: 0,
        started_ms: None,
        ended_ms: None,
        progress: JobProgress { objects_seen: 50, objects_total: Some(200), ..JobProgress::default() },
        findings: 0,
        error: None,
    }
}

fn under_store() -> UnderStoreStatus {
    UnderStoreStatus {
        url: "s3://lake?endpoint=https://s3.example.com".into(),
        buckets: Vec::new(),
        circuit: CircuitState::Open,
        probe_in_ms: Some(4000),
        failures_in_a_row: 9,
        concurrency_limit: 8,
        concurrency_max: 64,
        running: 3,
        silent_ms: None,
        calls: 100,
        errors: 12,
        throttled: 1,
        last_error: None,
        last_error_ms: None,
        problem: None,
        problem_id: None,
        checking: false,
        requests_per_second_max: 0,
        upload_bandwidth_max: 0,
    }
}

pub(in super::super) fn snapshot() -> Snapshot {
    let status = Status {
        dirty_objects: 1234,
        dirty_bytes: 5 << 30,
        tombstones: 2,
        oldest_dirty_age_ms: 180_000,
        conflicts: 1,
        undeliverable: 0,
        refused_buckets: Vec::new(),
        missing_objects: 0,
        missing_parts: 0,
        copies_wanted: 0,
        copies_unavailable: 0,
        unavailable: Vec::new(),
        under_replicated: 0,
        pinned_bytes: 5 << 30,
        pinned_bytes_max: 6 << 30,
        kept_bytes: 0,
        unavailable_bytes: 0,
        overhead_bytes: 0,
        rejected_pinned_full: 0,
        rejected_disk_full: 0,
        evictable_bytes: 3 << 30,
        free_bytes: 2 << 30,
        capacity_bytes: 10 << 30,
        failed_directories: Vec::new(),
    };
    let notice = Notice {
        id: "disk-saturated".into(),
        severity: Severity::Critical,
        subject: "/nvme/0".into(),
        title: "the disk is at its limit\x1b[2J".into(),
        cure: "add a disk".into(),
        since_ms: 940_000,
    };
    Snapshot {
        overview: Overview {
            version: "0.1.0".into(),
            started_ms: 0,
            now_ms: 1_000_000,
            status,
            notices: vec![notice],
            checking: false,
            sample: Some(sample()),
            drain_seconds: Some(90.0),
        },
        history: vec![Sample { dirty_bytes: 1, ..sample() }, Sample { dirty_bytes: 7, ..sample() }],
        under_stores: vec![under_store()],
        jobs: vec![job("/b/数据")],
        cluster: None,
    }
}

fn worker(id: &str, state: WorkerState, status: Option<Status>) -> ClusterWorker {
    let problem = (state == WorkerState::Draining).then(|| "worker w2 does not answer".to_owned());
    ClusterWorker {
        id: id.into(),
        state,
        slots: 341,
        peer_address: None,
        s3_address: None,
        admin_address: None,
        version: None,
        status,
        problem,
    }
}

fn member(endpoint: &str, problem: Option<&str>) -> EngineMember {
    EngineMember {
        endpoint: endpoint.into(),
        version: Some("3.7.3".into()),
        database_bytes: Some(5 << 20),
        quota_bytes: Some(2 << 30),
        problem: problem.map(str::to_owned),
    }
}

pub(in super::super) fn in_cluster() -> Snapshot {
    let mut snapshot = snapshot();
    let unavailable =
        UnavailableBytes { path: "/b/only\x1b[2J".into(), since_ms: 940_000, problem: "worker w3 does not run".into() };
    let mut status = snapshot.overview.status.clone();
    (status.copies_wanted, status.copies_unavailable, status.unavailable) = (20, 17, vec![unavailable]);
    snapshot.cluster = Some(ClusterStatus {
        name: "lake".into(),
        worker: "w1".into(),
        slots: 1024,
        age_ms: 0,
        slots_without_home: 342,
        workers: vec![
            worker("w1", WorkerState::Live, Some(status)),
            worker("w2", WorkerState::Draining, None),
            worker("w3", WorkerState::Lost, None),
        ],
        engine: vec![member("http://etcd1:2379", None), member("http://etcd2:2379", Some("no answer"))],
    });
    snapshot
}

fn app() -> App {
    let mut app = App::new("http://127.0.0.1:9701");
    app.arrived(Ok(snapshot()));
    app
}

/// The frame of this size holds all of `parts`, and no more columns than there are.
fn check(app: &mut App, frame: (u16, u16), parts: &[&str]) -> String {
    let text = text(app, frame);
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), usize::from(frame.1));
    assert!(lines.iter().all(|line| Line::from(*line).width() <= usize::from(frame.0)), "{text}");
    text
}

#[test]
fn a_large_screen_shows_everything() {
    let text = check(
        &mut app(),
        (120, 48),
        &[
            "forebay top http://127.0.0.1:9701  0.1.0 up 16 m  cpu 1.2  1 notice",
            "in 3.0 MiB/s, out 0 B/s, 7 connections",
            "PutObject                        1,500    2.5    2.5   0.2",
            "memory 12.5 %, disk 50.0 %, under store 37.5 %",
            "/b/hot/",
            "25.0 %     4.0",
            "1,234 objects, 5.0 GiB; 2 deletes",
            "oldest 3 m, empty in 1 m",
            "persisted 1.0 MiB/s, failures 0/s, conflicts 1",
            "▂█",
            "pinned 5.0 GiB, evictable 3.0 GiB, free 2.0 GiB",
            "97.0 %     1.5",
            "FAILED",
            "open, probe in 4 s 3/8 of 64, 12 errors, 1 throttled",
            "load /b/数据",
            "running    25.0 %        50        0 B",
            r"critical the disk is at its limit\u{1b}[2J (1 m)",
            "add a disk",
        ],
    );
    let row = |operation: &str| text.lines().position(|line| line.contains(operation));
    assert!(row("PutObject") < row("GetObject"), "the busiest is first\n{text}");
}

#[test]
fn the_usual_screen_shows_the_beginning_of_every_panel() {
    let parts = [
        "Requests",
        "PutObject",
        "Hit ratio",
        "Backlog",
        "1,234 objects",
        "Disks",
        "Under stores",
        "Jobs",
        "Notices",
        "q end",
    ];
    check(&mut app(), (80, 24), &parts);
}

#[test]
fn a_worker_of_a_cluster_shows_all_of_it() {
    let mut app = app();
    let text = text(&mut app, (120, 56));
    assert!(!text.contains("Cluster"), "a worker that is alone\n{text}");
    app.arrived(Ok(in_cluster()));
    let text = check(
        &mut app,
        (120, 70),
        &[
            "1 of 3 workers live, 342 of 1,024 slots without a home, 17 unavailable, engine 1/2",
            "live    341   5.0 GiB   2.0 GiB        20          17",
            "draining    341         -         -         -           -",
            "worker w2 does not answer",
            "lost    341",
            "engine http://etcd1:2379",
            "5.0 MiB of 2.0 GiB",
            "no answer",
            r"/b/only\u{1b}[2J: worker w3 does not run (1 m)",
            "Notices",
        ],
    );
    assert_eq!(text.matches("Under stores").count(), 1);
    app.panel = Panel::Cluster;
    let parts = ["Requests", "PutObject", "Backlog", "Disks", "1 of 3 workers live", "Under stores", "Jobs", "Notices"];
    check(&mut app, (80, 24), &parts);
    check(&mut app, (50, 12), &["Cluster", "1 of 3 workers live"]);
    app.scroll = 1000;
    check(&mut app, (80, 12), &["worker w3 does not run"]);
}

#[test]
fn a_small_screen_shows_the_selected_panel() {
    let mut app = app();
    let text = check(&mut app, (40, 12), &["Requests", "PutObject"]);
    assert!(!text.contains("Backlog"), "{text}");
    app.pressed(KeyEvent::from(KeyCode::Tab));
    check(&mut app, (40, 12), &["Hit ratio", "/b/hot/"]);
}

#[test]
fn no_size_of_a_screen_is_too_small() {
    let mut app = app();
    app.arrived(Ok(in_cluster()));
    app.shows_help = true;
    for width in [0, 1, 2, 3, 7, 20, 79, 80, 300] {
        for height in [0, 1, 2, 3, 5, 23, 24, 100] {
            for panel in Panel::ALL {
                app.panel = panel;
                text(&mut app, (width, height));
            }
        }
    }
}

#[test]
fn scrolling_ends_at_the_last_line() {
    let mut app = app();
    let paths: Vec<_> = (0..40).map(|number| job(&format!("/b/{number:02}/"))).collect();
    app.snapshot.as_mut().expect("it has arrived").jobs = paths;
    app.panel = Panel::Jobs;
    let top = check(&mut app, (60, 12), &["/b/00/", "40 lines"]);
    assert!(!top.contains("/b/39/"), "{top}");
    app.scroll = 1000;
    check(&mut app, (60, 12), &["/b/39/"]);
    app.pressed(KeyEvent::from(KeyCode::Up));
    let text = check(&mut app, (60, 12), &["/b/38/"]);
    assert!(!text.contains("/b/39/"), "{text}");
}

#[test]
fn a_lost_server_is_told_over_the_last_picture() {
    let mut app = app();
    app.arrived(Err("connection refused".into()));
    app.is_paused = true;
    check(&mut app, (80, 24), &["PAUSED  RECONNECTING: connection refused", "PutObject"]);
    let mut nothing_yet = App::new("http://x");
    nothing_yet.arrived(Err("starting".into()));
    check(&mut nothing_yet, (80, 24), &["RECONNECTING: starting"]);
}

#[test]
fn help_lies_over_the_panels() {
    let mut app = app();
    app.shows_help = true;
    check(&mut app, (80, 24), &["Help", "next panel", "evictable"]);
}

#[test]
fn an_idle_worker_has_a_picture_too() {
    let mut app = app();
    let snapshot = app.snapshot.as_mut().expect("it has arrived");
    snapshot.overview.sample = Some(Sample::default());
    snapshot.overview.notices.clear();
    snapshot.overview.status.capacity_bytes = 0;
    snapshot.history.clear();
    snapshot.jobs.clear();
    check(&mut app, (80, 24), &["no reads", "none"]);
    app.snapshot.as_mut().expect("it has arrived").overview.sample = None;
    check(&mut app, (80, 24), &["no sample yet"]);
}

#[test]
fn colours_are_there_only_when_wanted() {
    let coloured = |is_colourful: bool| {
        let mut app = app();
        app.is_colourful = is_colourful;
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a screen in memory");
        terminal.draw(|frame| draw(frame, &mut app)).expect("a screen in memory");
        let cells = &terminal.backend().buffer().content;
        cells.iter().any(|cell| cell.fg != ratatui::style::Color::Reset)
    };
    assert!(coloured(true) && !coloured(false));
}
