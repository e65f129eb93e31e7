use super::*;

fn facts() -> Facts {
    let status = Status {
        dirty_objects: 3,
        dirty_bytes: 5 << 20,
        tombstones: 1,
        oldest_dirty_age_ms: 1000,
        conflicts: 0,
        undeliverable: 0,
        refused_buckets: Vec::new(),
        missing_objects: 0,
        missing_parts: 0,
        copies_wanted: 0,
        copies_unavailable: 0,
        unavailable: Vec::new(),
        under_replicated: 0,
        pinned_bytes: 50,
        pinned_bytes_max: 100,
        kept_bytes: 0,
        evictable_bytes: 0,
        free_bytes: 0,
        unavailable_bytes: 0,
        overhead_bytes: 0,
        rejected_pinned_full: 0,
        rejected_disk_full: 0,
        capacity_bytes: 1000,
        failed_directories: Vec::new(),
    };
    let directories = vec![DirectoryHealth {
        label: "/data".into(),
        failed: None,
        shortage: None,
        file_system_free_bytes: 3 << 20,
        unused_bytes: 2 << 30,
        file_system_bytes: 100 << 30,
        others_bytes: 60 << 30,
        capacity_bytes: 50 << 30,
    }];
    let state = UnderStoreStatus {
        url: "s3://bucket".into(),
        buckets: Vec::new(),
        circuit: CircuitState::Closed,
        probe_in_ms: None,
        failures_in_a_row: 0,
        concurrency_limit: 64,
        concurrency_max: 64,
        running: 0,
        silent_ms: None,
        calls: 0,
        errors: 0,
        throttled: 0,
        last_error: None,
        last_error_ms: None,
        problem: None,
        problem_id: None,
        checking: false,
        requests_per_second_max: 0,
        upload_bandwidth_max: 0,
    };
    Facts {
        status,
        directories,
        corrupt_records: 0,
        damaged: None,
        pinned_bytes_max: 100,
        under_stores: vec![("s3://bucket".into(), state)],
        troubles: vec![("s3://bucket".into(), None)],
        rejected_pinned_full: 0,
        rejected_disk_full: 0,
        users_file: None,
        users: None,
        cluster_users: None,
        certificate: None,
        replaced_rules: None,
        is_cut_off: false,
        old_engines: Vec::new(),
        differences: BTreeMap::new(),
    }
}

/// The notices that hold: id, subject and title.
fn holding(facts: &Facts) -> Vec<(&'static str, String, String)> {
    let all = conditions(facts).into_iter();
    all.filter_map(|condition| Some((condition.id, condition.subject, condition.title?))).collect()
}

#[test]
fn a_healthy_worker_has_no_notice_and_every_condition_is_cleared() {
    assert_eq!(holding(&facts()), []);
    let cleared: Vec<_> =
        conditions(&facts()).into_iter().map(|condition| condition.notice(7).unwrap_err().0).collect();
    assert_eq!(
        cleared,
        [
            "backlog-old",
            "corruption",
            "conflict",
            "undeliverable",
            "uploads-refused",
            "objects-missing",
            "parts-missing",
            "bytes-unavailable",
            "writes-rejected",
            "users-file-refused",
            "users-file-empty",
            "cluster-users-refused",
            "users-file-outdated",
            "certificate-expires",
            "policies-replaced",
            "disks-full",
            "cluster-cut-off",
            "cluster-engine-old",
            "cluster-settings-differ",
            "cluster-clocks-differ",
            "pinned-nearly-full",
            "directory-failed",
            "disk-full",
            "under-store-unreachable",
            "credentials-refused",
            "bucket-missing",
            "permission-missing",
            "under-store-full",
            "under-store-read-only",
            "under-store-failing"
        ]
    );
}

fn others(facts: &mut Facts, worker: &str, settings: &[&str], clock_ms: Option<i64>) {
    let settings = settings.iter().map(|name| (*name).to_owned()).collect();
    facts.differences.insert(worker.to_owned(), Difference { settings, clock_ms });
}

#[test]
fn each_trouble_has_its_notice_with_the_figures() {
    let check = |change: fn(&mut Facts), id, subject: &str, title: &str| {
        let mut facts = facts();
        change(&mut facts);
        assert_eq!(holding(&facts), [(id, subject.to_owned(), title.to_owned())]);
    };
    check(
        |facts| facts.status.oldest_dirty_age_ms = 31 * 60_000,
        "backlog-old",
        "",
        "the oldest write waits for the under store since 31 min; 4 objects, 5 MiB behind it",
    );
    check(
        |facts| {
            facts.corrupt_records = 2;
            let (directory, file) = ("/data".into(), "00000003.bulk".into());
            facts.damaged = Some(DamagedPlace { directory, file, offset: 4096 });
        },
        "corruption",
        "",
        "2 records have been found damaged since the start, the last one in /data/00000003.bulk at byte 4096",
    );
    check(
        |facts| facts.status.conflicts = 1,
        "conflict",
        "",
        "1 objects were changed in the under store by somebody else while they waited here",
    );
    check(
        |facts| facts.status.refused_buckets = vec![RefusedBucket { bucket: "a".into(), error: "AccessDenied".into() }],
        "uploads-refused",
        "",
        "the under store refuses what waits for bucket a: AccessDenied",
    );
    check(
        |facts| facts.status.undeliverable = 2,
        "undeliverable",
        "",
        "the under store refuses 2 of the objects and deletes that wait here",
    );
    check(
        |facts| facts.status.missing_objects = 3,
        "objects-missing",
        "",
        "the bytes of 3 acknowledged objects are missing",
    );
    check(
        |facts| {
            others(facts, "w2", &["policy", "server.users_file"], None);
            others(facts, "w3", &["server.region"], None);
        },
        "cluster-settings-differ",
        "",
        "other workers have other settings than this one: policy, server.users_file (w2); server.region (w3)",
    );
    check(
        |facts| others(facts, "w2", &[], Some(-95_500)),
        "cluster-clocks-differ",
        "",
        "the clocks of other workers differ: 95 s behind this one (w2)",
    );
    check(
        |facts| facts.is_cut_off = true,
        "cluster-cut-off",
        "",
        "the engine of the cluster does not answer: all keys get 503",
    );
    check(
        |facts| facts.old_engines = vec!["http://one:2379 (3.5.21)".into(), "http://two:2379 (3.6.8)".into()],
        "cluster-engine-old",
        "",
        "etcd may return outdated reads: http://one:2379 (3.5.21), http://two:2379 (3.6.8)",
    );
    check(
        |facts| {
            let problem = "worker w3 does not run".into();
            facts.status.copies_unavailable = 4;
            facts.status.unavailable =
                vec![forebay_cache::UnavailableBytes { path: "/b/k".into(), since_ms: 1, problem }];
        },
        "bytes-unavailable",
        "",
        "no worker of the cluster gives the bytes of 4 objects and parts, which get 503 (worker w3 does not run)",
    );
    check(|facts| facts.status.missing_parts = 2, "parts-missing", "", "2 parts of open multipart uploads are lost");
    check(
        |facts| facts.replaced_rules = Some(ReplacedRules { rules: 2, version: 7 }),
        "policies-replaced",
        "",
        "the path policies of the configuration have changed, and have replaced 2 rules that were changed at run time, as version 7 has them",
    );
    check(
        |facts| facts.status.pinned_bytes = 95,
        "pinned-nearly-full",
        "",
        "pinned data takes 95 % of the space that it may take",
    );
    check(
        |facts| facts.directories[0].failed = Some("fsync: EIO".into()),
        "directory-failed",
        "/data",
        "the directory takes no more writes: fsync: EIO",
    );
    check(
        |facts| {
            let state = &mut facts.under_stores[0].1;
            (state.circuit, state.failures_in_a_row) = (CircuitState::Probing, 12);
            state.last_error = Some("connection refused".into());
        },
        "under-store-unreachable",
        "s3://bucket",
        "12 requests in a row have failed: connection refused",
    );
}

#[test]
fn refusals_and_full_disks_are_told_with_what_is_full() {
    let check = |change: fn(&mut Facts), id, subject: &str, part: &str| {
        let mut facts = facts();
        change(&mut facts);
        let holding = holding(&facts);
        let [(held, of, title)] = &holding[..] else { panic!("{holding:?}") };
        assert_eq!((*held, of.as_str()), (id, subject));
        assert!(title.contains(part), "{title}");
    };
    check(|facts| facts.rejected_pinned_full = 7, "writes-rejected", "", "7 writes");
    check(|facts| facts.rejected_disk_full = 7, "disks-full", "", "7 writes");
    let full = |facts: &mut Facts| {
        facts.rejected_disk_full = 7;
        facts.directories[0].shortage = Some(Shortage::Others);
    };
    let small = |facts: &mut Facts| {
        facts.directories[0] = DirectoryHealth {
            shortage: Some(Shortage::SmallDisk),
            capacity_bytes: 102 << 30,
            ..facts.directories[0].clone()
        };
    };
    check(
        full,
        "disk-full",
        "/data",
        "ENOSPC): its file system has 3.0 MiB left, and store.size counts on 2.0 GiB more: others have taken 60.0 GiB of its 100.0 GiB;",
    );
    check(
        small,
        "disk-full",
        "/data",
        "larger than the disk, 102.0 GiB for this directory on a file system of 100.0 GiB, and",
    );
    check(|facts| facts.users_file = Some("line 3".into()), "users-file-refused", "", "line 3");
    let unusable: fn(&mut Facts) = |facts| facts.cluster_users = Some(UsersProblem::Unusable("why".into()));
    check(unusable, "cluster-users-refused", "", "the previous users stay in force here: why");
    let refused: fn(&mut Facts) = |facts| facts.cluster_users = Some(UsersProblem::FileRefused("why".into()));
    check(refused, "cluster-users-refused", "", "can't become those of the cluster: why");
    let outdated: fn(&mut Facts) = |facts| facts.cluster_users = Some(UsersProblem::OtherFile("w2".into()));
    check(outdated, "users-file-outdated", "", "the newest change, on worker w2");
    const NONE: FileCounts = FileCounts { users: 0, anonymous_grants: 0 };
    check(|facts| facts.users = Some(NONE), "users-file-empty", "", "all but the root user");
    for counts in [FileCounts { users: 1, ..NONE }, FileCounts { anonymous_grants: 1, ..NONE }] {
        assert!(holding(&Facts { users: Some(counts), ..facts() }).is_empty());
    }
}

#[test]
fn a_certificate_that_expires_is_reported_before() {
    const HOUR: u64 = 3_600_000;
    const DAY: u64 = 24 * HOUR;
    let begin = 20_000 * DAY;
    let told = |lifetime: u64, age: u64| {
        let expiry = CertificateExpiry { not_before_ms: begin, not_after_ms: begin + lifetime, now_ms: begin + age };
        let all = conditions(&Facts { certificate: Some(expiry), ..facts() });
        let condition = all.into_iter().find(|condition| condition.id == "certificate-expires").unwrap();
        condition.title.map(|title| (condition.severity, title))
    };
    let expiring = [(365 * DAY, 350 * DAY, 352 * DAY), (90 * DAY, 82 * DAY, 83 * DAY), (DAY, 21 * HOUR, 23 * HOUR)];
    for (lifetime, calm, soon) in expiring {
        assert_eq!(told(lifetime, 0), None);
        assert_eq!(told(lifetime, calm), None);
        let (severity, title) = told(lifetime, soon).unwrap();
        assert!(severity == Severity::Warning && title.contains("expires at 2"), "{title}");
        assert_eq!(told(lifetime, lifetime).map(|(severity, _)| severity), Some(Severity::Warning), "its last second");
        let (severity, title) = told(lifetime, lifetime + 1000).unwrap();
        assert!(severity == Severity::Critical && title.contains("clients refuse it"), "{title}");
    }
    assert_eq!(told(DAY, 0), None);
    let early = CertificateExpiry { not_before_ms: begin, not_after_ms: begin + DAY, now_ms: begin - HOUR };
    let told = holding(&Facts { certificate: Some(early), ..facts() });
    assert!(told[0].2.contains("only from"), "{told:?}");
}

#[test]
fn an_under_store_that_refuses_us_is_told_by_its_reason() {
    use forebay_ufs::ErrorKind;
    for (kind, id) in [
        (ErrorKind::Credentials, "credentials-refused"),
        (ErrorKind::NoBucket, "bucket-missing"),
        (ErrorKind::Denied, "permission-missing"),
        (ErrorKind::NoSpace, "under-store-full"),
        (ErrorKind::ReadOnly, "under-store-read-only"),
        (ErrorKind::Unavailable, "under-store-unreachable"),
        (ErrorKind::Unsupported, "under-store-failing"),
    ] {
        let mut facts = facts();
        let trouble = Trouble { kind: crate::doctor::findings::of_under_store(kind), error: "says why".into() };
        facts.troubles[0].1 = Some(trouble);
        let holding = holding(&facts);
        assert!(
            matches!(&holding[..], [(held, subject, title)] if *held == id && subject == "s3://bucket" && title.ends_with("says why")),
            "{holding:?}"
        );
    }
}

#[test]
fn what_is_counted_belongs_to_the_trouble_until_a_minute_is_quiet() {
    let (mut lately, second) = (Lately::default(), Duration::from_secs);
    let seen = [(0, 0), (5, 3), (10, 3), (60, 5), (119, 5), (120, 5), (125, 6)];
    let told = seen.map(|(at, total)| lately.observe(second(at), total));
    assert_eq!(told, [0, 3, 3, 5, 5, 0, 1]);
}

#[test]
fn what_was_refused_while_others_filled_a_disk_is_not_told_as_a_full_cache_afterwards() {
    let (mut full, second) = (FullDisks::default(), Duration::from_secs);
    let seen = [(0, 0, false), (5, 4, true), (10, 15, true), (15, 18, false), (20, 18, false), (25, 20, false)];
    let told = seen.map(|(at, total, is_short)| full.observe(second(at), total, is_short));
    assert_eq!(told, [0, 0, 0, 0, 0, 2]);
}

#[test]
fn between_its_limits_the_notice_of_pinned_space_stays_as_it_is() {
    let mut facts = facts();
    facts.status.pinned_bytes = 85;
    assert!(conditions(&facts).iter().all(|condition| condition.id != "pinned-nearly-full"));
}
