use std::path::PathBuf;

use forebay_s3::Redirect;
use forebay_types::{ByteSize, PolicyRule};

use super::*;
use crate::preflight;

fn load(text: &str) -> Result<Config, Problem> {
    load_with(text, &[], &Overrides::default())
}

fn load_with(text: &str, variables: &[(&str, &str)], overrides: &Overrides) -> Result<Config, Problem> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Config::load(Some(("forebay.toml", text)), &variables, overrides)
}

fn flag(flag: &'static str, section: &'static str, key: &'static str, text: &str) -> Overrides {
    Overrides { settings: vec![(flag, section, key, text.to_owned())], ..Overrides::default() }
}

/// The one line that refuses `text`, which must hold all of `parts`.
fn check_refused(text: &str, parts: &[&str]) {
    let problem = load(text).expect_err(text).to_string();
    assert!(!problem.contains('\n'), "{problem}");
    for part in parts {
        assert!(problem.contains(part), "{problem:?} lacks {part:?}");
    }
}

#[test]
fn defaults_are_complete_and_are_those_of_the_cache() {
    let config = load("").unwrap();
    assert_eq!(config.cache, forebay_cache::Settings::default());
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:9700");
    assert_eq!(config.server.admin_listen.to_string(), "127.0.0.1:9701");
    assert_eq!(config.store.data_dirs, [PathBuf::from("./forebay-data")]);
    assert!(
        matches!(&config.root.as_ref().unwrap().url, UnderStoreUrl::Directory(path) if path.ends_with("forebay-under-store"))
    );
    for setting in table::SETTINGS {
        let value = setting.kind.read_text(setting.default).unwrap();
        setting.kind.check(value).unwrap_or_else(|wrong| panic!("{}: {wrong}", setting.name()));
    }
}

#[test]
fn every_setting_of_the_cache_is_in_the_table() {
    let settings = toml::Table::try_from(forebay_cache::Settings::default()).unwrap();
    let in_table: Vec<_> = table::in_section("cache").map(|setting| setting.key.to_owned()).collect();
    let mut in_table_sorted = in_table.clone();
    in_table_sorted.sort();
    let mut keys: Vec<_> = settings.keys().cloned().collect();
    keys.sort();
    assert_eq!(in_table_sorted, keys);
}

#[test]
fn every_setting_of_a_policy_is_in_the_reference() {
    let given = PolicyRule {
        path: "/".into(),
        write_mode: Some(WriteMode::default()),
        write_back_max_size: Some(ByteSize(1)),
        write_replicas: Some(1),
        when_replicas_missing: Some(forebay_types::ReplicasMissing::default()),
        eviction: Some(forebay_types::EvictionOrder::default()),
        cache_quota: Some(ByteSize(1)),
        memory_quota: Some(ByteSize(1)),
        metadata_ttl: Some(forebay_types::Period::from_secs(1)),
        list_ttl: Some(forebay_types::Period::from_secs(1)),
        cache_reads: Some(true),
        spread_reads: Some(true),
        read_cache_max_size: Some(ByteSize(1)),
        pinned_full: Some(forebay_types::PinnedFull::default()),
        durability: Some(forebay_types::Durability::default()),
    };
    let mut keys: Vec<_> = toml::Table::try_from(given).unwrap().keys().cloned().collect();
    keys.sort();
    let mut described: Vec<_> = policy::POLICY_KEYS.iter().map(|key| key.name).collect();
    described.sort();
    assert_eq!(described, keys);
}

#[test]
fn flags_win_over_variables_and_those_over_the_file() {
    let file = "[server]\nregion = \"from-file\"\n";
    let variable = [("FOREBAY_SERVER_REGION", "from-variable")];
    let overrides = flag("--region", "server", "region", "from-flag");
    assert_eq!(load(file).unwrap().server.region, "from-file");
    assert_eq!(load_with(file, &variable, &Overrides::default()).unwrap().server.region, "from-variable");
    assert_eq!(load_with(file, &variable, &overrides).unwrap().server.region, "from-flag");
}

#[test]
fn variables_give_every_kind_of_value() {
    let variables = [
        ("FOREBAY_STORE_DATA_DIRS", "/a, /b"),
        ("FOREBAY_STORE_SIZE", "10 GiB"),
        ("FOREBAY_CACHE_PINNED_RATIO", "0.5"),
        ("FOREBAY_CACHE_PERSIST_CONCURRENCY", "3"),
        ("FOREBAY_CACHE_SETTLE_TIME", "5 s"),
        ("FOREBAY_ROOT_ACCESS_KEY", "root"),
        ("FOREBAY_ROOT_SECRET_KEY", "hunter2hunter2"),
        ("FOREBAY_SERVER_DOMAIN", ""),
    ];
    let config = load_with("", &variables, &Overrides::default()).unwrap();
    assert_eq!(config.store.data_dirs, [PathBuf::from("/a"), PathBuf::from("/b")]);
    assert_eq!(config.store.size, Capacity::Bytes(10 << 30));
    assert_eq!(config.cache.pinned_ratio, 0.5);
    assert_eq!(config.cache.persist_concurrency, 3);
    assert_eq!(config.cache.settle_time, forebay_types::Period::from_secs(5));
    assert_eq!(config.server.root_access_key.as_deref(), Some("root"));
    assert_eq!(config.server.domain, None);
}

#[test]
fn unknown_names_are_refused_with_line_and_suggestion() {
    check_refused("\n[store]\nsegment_sise = \"1 MiB\"\n", &["forebay.toml:3", "segment_sise", "\"segment_size\""]);
    check_refused("[sever]\nlisten = \"x\"\n", &["forebay.toml:1", "sever", "\"server\""]);
    check_refused("[[policy]]\npath = \"/\"\nwriteMod = \"WRITE_BACK\"\n", &["writeMod", "\"writeMode\""]);
    check_refused("[mounts]\nlogs = { uri = \"file:///x\" }\n", &["forebay.toml:2", "uri", "\"url\""]);
}

#[test]
fn impossible_values_are_refused_with_line_setting_and_value() {
    check_refused(
        "[server]\nlisten = \"localhost\"\n",
        &["forebay.toml:2", "server.listen", "localhost", "IP address"],
    );
    check_refused("[cache]\n\npage_size = \"1 MB/s\"\n", &["forebay.toml:3", "cache.page_size", "1 MB/s"]);
    check_refused("[cache]\npage_size = \"1 KiB\"\n", &["cache.page_size", "at least 64 KiB"]);
    check_refused("[cache]\nsettle_time = 30\n", &["cache.settle_time", "30", "period"]);
    check_refused("[cache]\npinned_ratio = 1.5\n", &["cache.pinned_ratio", "1.5"]);
    check_refused("[cache]\npersist_concurrency = 0\n", &["cache.persist_concurrency", "from 1 to"]);
    check_refused("[store]\nsize = \"120%\"\n", &["store.size", "120%"]);
    check_refused("[store]\ndata_dirs = []\n", &["store.data_dirs"]);
    check_refused("[store]\ndata_dirs = [\"/a\", \"/a\"]\n", &["store.data_dirs", "twice"]);
    check_refused("[log]\nformat = \"xml\"\n", &["log.format", "xml", "text, json"]);
    check_refused("[cache]\npersist_backoff_min = \"2 h\"\n", &["forebay.toml:2", "persist_backoff_max"]);
    check_refused("[server]\ntls_cert = \"a.pem\"\n", &["forebay.toml:2", "server.tls_cert", "server.tls_key"]);
    check_refused("[server]\nadmin_listen = \"127.0.0.1:9700\"\n", &["forebay.toml:2", "server.admin_listen"]);
    check_refused("[mounts]\nAB = \"file:///x\"\n", &["forebay.toml:2", "mounts.AB"]);
    check_refused("[mounts]\nlogs = \"ftp://x\"\n", &["forebay.toml:2", "mounts.logs", "file://, s3:// or hdfs://"]);
    check_refused(
        "[under_store]\nurl = \"bucket\"\n",
        &["forebay.toml:2", "under_store.url", "file://, s3:// or hdfs://"],
    );
    check_refused("[server\n", &["forebay.toml:1"]);
}

#[test]
fn all_mistakes_of_a_file_are_told_at_once_in_its_order() {
    let text = "[store]\nsize = \"120%\"\nsegment_sise = \"1 MiB\"\n[sever]\nlisten = \"x\"\n\
                [cache]\nsettle_time = 30\npage_size = \"1 KiB\"\n\
                [mounts]\nAB = \"file:///x\"\nlogs = \"ftp://x\"\n\
                [[policy]]\npath = \"/\"\nwriteMod = \"WRITE_BACK\"\neviction = \"MRU\"\n";
    let variables = [("FOREBAY_SERVER_LISTEN", "localhost")];
    let problem = load_with(text, &variables, &flag("--region", "server", "region", "")).unwrap_err().to_string();
    let told = [
        "forebay.toml:2: store.size",
        "forebay.toml:3: there is no setting \"segment_sise\"",
        "forebay.toml:4: there is no setting \"sever\"",
        "forebay.toml:7: cache.settle_time",
        "forebay.toml:8: cache.page_size",
        "FOREBAY_SERVER_LISTEN \"localhost\"",
        "--region \"\"",
        "forebay.toml:10: mounts.AB",
        "forebay.toml:11: mounts.logs",
        "forebay.toml:12: policy.eviction",
        "forebay.toml:12: there is no setting \"writeMod\"",
    ];
    let lines: Vec<_> = problem.lines().collect();
    assert_eq!(lines.len(), told.len(), "{problem}");
    assert!(lines.iter().zip(told).all(|(line, told)| line.starts_with(told)), "{problem}");
}

#[test]
fn all_contradictions_are_told_at_once() {
    let text = "[server]\nadmin_listen = \"127.0.0.1:9700\"\ntls_cert = \"a.pem\"\n\
                [cache]\npersist_backoff_min = \"2 h\"\n\
                [store]\ndata_dirs = [\"/a\", \"/a\", \"/a\"]\nsize = \"1 KiB\"\n";
    let problem = load(text).unwrap_err().to_string();
    let told = [
        "forebay.toml:3: server.tls_cert",
        "forebay.toml:2: server.admin_listen",
        "forebay.toml:5: cache.persist_backoff_min",
        "forebay.toml:7: store.data_dirs",
        "forebay.toml:8: store.size",
    ];
    let lines: Vec<_> = problem.lines().collect();
    assert_eq!(lines.len(), told.len(), "{problem}");
    assert!(lines.iter().zip(told).all(|(line, told)| line.starts_with(told)), "{problem}");
}

#[test]
fn root_keys_that_are_guessed_are_refused() {
    let with = |secret: &str| format!("[server]\nroot_access_key = \"root\"\nroot_secret_key = \"{secret}\"\n");
    check_refused(&with("r"), &["forebay.toml:3: server.root_secret_key: must have 8 characters or more", "openssl"]);
    let problem = load(&with("hunter2")).unwrap_err().to_string();
    assert!(problem.contains("8 characters") && !problem.contains("hunter2"), "{problem}");
    load(&with("hunter22")).unwrap();
}

#[test]
fn a_period_is_zero_only_where_that_means_something() {
    let periods = table::SETTINGS.iter().filter(|setting| matches!(setting.kind, kind::Kind::Period { .. }));
    for setting in periods {
        let text = format!("[{}]\n{} = \"0 s\"\n", setting.section, setting.key);
        match setting.key {
            "drain_timeout" => drop(load(&text).unwrap()),
            "lease" => check_refused(&text, &["forebay.toml:2", "cluster.lease", "at least 3 s"]),
            _ => check_refused(&text, &["forebay.toml:2", &setting.name(), "0 s", "at least 1 ms"]),
        }
    }
    load("[[policy]]\npath = \"/\"\nmetadataTtl = \"0 s\"\n").unwrap();
}

#[test]
fn a_cluster_has_an_engine_an_address_and_root_keys() {
    let keys = "[server]\nroot_access_key = \"root\"\nroot_secret_key = \"hunter2hunter2\"\n[cluster]\n";
    for engine in ["etcd://a:1", "etcd://a:1,b:2, c:3", "etcds://[::1]:2379"] {
        load(&format!("{keys}engine = \"{engine}\"\n")).unwrap();
    }
    for engine in
        ["etcd://", "etcd://a", "etcd://a:1,", "http://a:1", "etcd://a:0", "etcd://me:secret@a:1", "etcd://a:1/x"]
    {
        check_refused(
            &format!("{keys}engine = \"{engine}\"\n"),
            &["forebay.toml:5", "cluster.engine", "etcd://HOST:PORT"],
        );
    }
    let with = |more: &str| format!("{keys}engine = \"etcd://a:1\"\n{more}\n");
    load(&with("listen = \"0.0.0.0:1\"\nadvertise = \"a:1\"")).unwrap();
    check_refused(&with("listen = \"0.0.0.0:1\""), &["forebay.toml:6", "cluster.listen", "set cluster.advertise"]);
    check_refused(&with("advertise = \"a\""), &["forebay.toml:6", "cluster.advertise", "HOST:PORT"]);
    check_refused(&with("name = \"\""), &["forebay.toml:6", "cluster.name", "must name the cluster"]);
    check_refused(&with("worker_id = \"a b\""), &["forebay.toml:6", "cluster.worker_id", "letters"]);
    // `forebay salvage` needs no keys.
    let Problem(wrong) = preflight::check(&load("[cluster]\nengine = \"etcd://a:1\"\n").unwrap()).unwrap_err();
    assert!(wrong.contains("forebay.toml:2: cluster.engine: needs root keys"), "{wrong}");
    check_refused(&with("redirect = \"sometimes\""), &["forebay.toml:6", "cluster.redirect", "known-clients"]);
    assert_eq!(load(&with("redirect = \"known-clients\"")).unwrap().cluster.redirect, Redirect::KnownClients);
    check_refused(&with("drain_on_stop = \"maybe\""), &["forebay.toml:6", "cluster.drain_on_stop", "true"]);
    let config = load(&with("drain_on_stop = true\ndrain_deadline = \"100 s\"")).unwrap();
    assert!(config.cluster.drain_on_stop && config.cluster.drain_deadline.0.as_secs() == 100);
    // What is not used is not looked at.
    load("[cluster]\nlisten = \"0.0.0.0:1\"\n").unwrap();
}

#[test]
fn sizes_that_nothing_fits_into_are_refused() {
    check_refused("[store]\nsize = \"1 KiB\"\n", &["forebay.toml:2", "store.size", "8 segments of 2 MiB"]);
    let both = "[store]\nsize = \"64 MiB\"\nsegment_size = \"16 MiB\"\n";
    check_refused(both, &["forebay.toml:2", "store.size", "64 MiB", "8 segments of 16 MiB"]);
    load("[store]\nsize = \"16 MiB\"\n").unwrap();
    check_refused("[store]\nsegment_size = \"2 GiB\"\n", &["store.segment_size", "at most 1 GiB"]);
    check_refused("[cache]\npage_size = \"65 MiB\"\n", &["cache.page_size", "at most 64 MiB"]);
    check_refused("[store]\nextent_size_max = \"65 MiB\"\n", &["store.extent_size_max", "at most 64 MiB"]);
    check_refused("[store]\ninline_object_max = \"65 MiB\"\n", &["store.inline_object_max", "at most 64 MiB"]);
    let inline = "[store]\nsegment_size = \"4 MiB\"\ninline_object_max = \"2 MiB\"\n";
    check_refused(inline, &["forebay.toml:3", "store.inline_object_max", "a quarter of store.segment_size"]);
    let extent = "[store]\nsegment_size = \"4 MiB\"\nextent_size_max = \"3 MiB\"\n";
    check_refused(extent, &["forebay.toml:3", "store.extent_size_max", "half of store.segment_size"]);
    load("[store]\nsegment_size = \"2 MiB\"\n").unwrap();
}

#[test]
fn parts_that_s3_would_not_take_are_refused() {
    for key in ["part_size", "multipart_threshold"] {
        let setting = |size: &str| format!("[under_store_s3]\n{key} = {size:?}\n");
        check_refused(&setting("4 MiB"), &[key, "at least 5 MiB"]);
        check_refused(&setting("6 GiB"), &[key, "at most 5 GiB"]);
        load(&setting("5 GiB")).unwrap();
    }
    check_refused("[cache]\npart_size_min = \"6 GiB\"\n", &["cache.part_size_min", "at most 5 GiB"]);
}

#[test]
fn a_flag_mounts_a_bucket_once_and_wins_over_the_file() {
    let mounts = |mounts: &[&str]| Overrides {
        mounts: mounts.iter().map(ToString::to_string).collect(),
        ..Overrides::default()
    };
    let file = "[mounts]\nlogs = \"file:///file\"\n";
    let config = load_with(file, &[], &mounts(&["logs=file:///flag", "data=file:///data"])).unwrap();
    let mount = &config.mounts[&BucketName::new("logs").unwrap()];
    assert_eq!(mount.url, UnderStoreUrl::Directory("/flag".into()));
    let problem = load_with(file, &[], &mounts(&["logs=file:///a", "logs=file:///b"])).unwrap_err().to_string();
    assert_eq!(problem, "--mount \"logs=file:///b\": a flag before it mounts \"logs\"");
}

#[test]
fn what_contradicts_itself_is_refused() {
    let listeners = "[server]\nlisten = \"0.0.0.0:9\"\nadmin_listen = \"127.0.0.1:9\"\n";
    check_refused(listeners, &["forebay.toml:3", "server.admin_listen", "server.listen"]);
    load("[server]\nlisten = \"127.0.0.2:9\"\nadmin_listen = \"127.0.0.1:9\"\n").unwrap();
    check_refused("[store]\ndata_dirs = [\"a\", \"./a/\"]\n", &["store.data_dirs", "twice"]);
    let root = "[store]\ndata_dirs = [\"/srv/a\"]\n[under_store]\nurl = \"file:///srv\"\n";
    check_refused(root, &["forebay.toml:2", "store.data_dirs", "/srv/a", "inside an under store"]);
    let mount = "[store]\ndata_dirs = [\"/srv/a\"]\n[mounts]\nlogs = \"file:///srv/a\"\n";
    check_refused(mount, &["forebay.toml:2", "store.data_dirs", "inside an under store"]);
    for inside in ["[under_store]\nurl = \"file:///srv/a/under\"\n", "[mounts]\nlogs = \"file:///srv/a/b/c\"\n"] {
        let file = format!("[store]\ndata_dirs = [\"/srv/b\", \"/srv/a/\"]\n{inside}");
        check_refused(&file, &["forebay.toml:2", "store.data_dirs", "/srv/a", "with an under store inside"]);
    }
    load("[store]\ndata_dirs = [\"/srv/a\"]\n[mounts]\nlogs = \"file:///srv/aa\"\n").unwrap();
}

#[test]
fn logs_and_traces_that_cannot_be_are_refused() {
    let both = "[access_log]\nfile = \"/var/log/x\"\n[audit_log]\nfile = \"/var/log/x\"\n";
    check_refused(both, &["forebay.toml:4", "audit_log.file", "access_log.file"]);
    check_refused("[access_log]\nmax_files = 0\n", &["forebay.toml:2", "access_log.max_files", "from 1 to 1000"]);
    check_refused("[audit_log]\ninclude = \"reads\"\n", &["audit_log.include", "writes, all"]);
    check_refused("[trace]\nsample_ratio = 2\n", &["trace.sample_ratio"]);
    for endpoint in ["127.0.0.1:4318", "grpc://x", "http://", "http://a b"] {
        let text = format!("[trace]\notlp_endpoint = {endpoint:?}\n");
        check_refused(&text, &["forebay.toml:2", "trace.otlp_endpoint", endpoint, "http://127.0.0.1:4318"]);
    }
    load("[trace]\notlp_endpoint = \"https://collector:4318/path\"\nheaders = \"a=b\"\n").unwrap();
    load("[access_log]\nmax_size = \"0 B\"\n").unwrap();
}

#[test]
fn what_was_given_is_told_without_secrets() {
    let config = load("[store]\nsize = \"64 MiB\"\n[trace]\nheaders = \"authorization=hunter2\"\n").unwrap();
    let given = config.effective.iter().filter(|entry| entry.source != "default");
    let given: Vec<_> = given.map(|entry| (entry.name.as_str(), entry.value.as_str())).collect();
    assert_eq!(given, [("store.size", "64 MiB"), ("trace.headers", "…")]);
}

#[test]
fn keys_and_endpoints_that_cannot_be_are_refused() {
    check_refused("[server]\nroot_access_key = \"a/b\"\n", &["forebay.toml:2", "server.root_access_key", "3 to 128"]);
    let token = "[under_store]\nsession_token = \"hunter2\"\n";
    check_refused(token, &["forebay.toml:2", "under_store.session_token", "under_store.access_key"]);
    let token = "[mounts]\nlogs = { url = \"file:///x\", session_token = \"hunter2\" }\n";
    check_refused(token, &["forebay.toml:2", "mounts.logs", "session_token"]);
    for endpoint in ["http://", "https:///x", "http://:9000", "http://s3 example"] {
        let url = format!("[under_store]\nurl = \"s3://b?endpoint={endpoint}\"\n");
        check_refused(&url, &["forebay.toml:2", "under_store.url", "names no host"]);
    }
    load("[under_store]\nurl = \"s3://b?endpoint=http://[::1]:9000/x\"\n").unwrap();
    let problem = load(token).unwrap_err().to_string()
        + &load("[under_store]\nsession_token = \"hunter2\"\n").unwrap_err().to_string();
    assert!(!problem.contains("hunter2"), "{problem}");
}

#[test]
fn accounts_are_numbers() {
    let load_account = |id: &str| load(&format!("[server]\naccount_id = {id:?}\n"));
    assert_eq!(load_account("").unwrap().server.account_id, None);
    assert_eq!(load_account("011122223333").unwrap().server.account_id.as_deref(), Some("011122223333"));
    for id in ["11122223333", "1111222233334", "1111-2222-3333", "arn:aws:iam::1"] {
        let problem = load_account(id).expect_err(id).to_string();
        assert!(problem.starts_with("forebay.toml:2: server.account_id") && problem.contains("12 digits"), "{problem}");
    }
}

#[test]
fn domains_are_host_names() {
    let load_domain = |domain: &str| load(&format!("[server]\ndomain = {domain:?}\n"));
    for domain in ["", "localhost", "s3.example.com", "S3.Example.com:9700", "a-1.b2"] {
        load_domain(domain).unwrap();
    }
    let long = ["a"; 64].concat();
    for domain in [
        "http://s3.example.com",
        "s3.example.com/",
        "*.example.com",
        ".example.com",
        "s3..com",
        "s3.example.com.",
        "s3 example",
        "-s3.com",
        "s3_a.com",
        "s3.com:x",
        "127.0.0.1",
        "b\u{fc}cher.de",
        &long,
    ] {
        let problem = load_domain(domain).expect_err(domain).to_string();
        assert!(problem.starts_with("forebay.toml:2: server.domain"), "{problem}");
        assert!(problem.contains(domain) && problem.contains("host name"), "{problem}");
    }
}

#[test]
fn regions_are_words() {
    check_refused("[server]\nregion = \"\"\n", &["forebay.toml:2", "server.region", "us-east-1"]);
    check_refused("[server]\nregion = \"eu west\"\n", &["server.region", "eu west"]);
    check_refused("[server]\nregion = \"eu/west\"\n", &["server.region", "eu/west"]);
    load("[server]\nregion = \"RegionOne\"\n").unwrap();
}

#[test]
fn log_levels_are_words_that_exist() {
    for level in ["info", "OFF", "forebay_s3=debug", "info,forebay_s3=debug,forebay_cache::persist=trace"] {
        load(&format!("[log]\nlevel = {level:?}\n")).unwrap();
    }
    check_refused("[log]\nlevel = \"inof\"\n", &["forebay.toml:2", "log.level", "\"inof\" is no level", "\"info\"?"]);
    check_refused("[log]\nlevel = \"info,forebay_s3=debg\"\n", &["log.level", "\"debg\" is no level", "\"debug\"?"]);
    check_refused("[log]\nlevel = \"forebay_s3\"\n", &["\"forebay_s3\" is no level"]);
    check_refused("[log]\nlevel = \"=debug\"\n", &["names no module"]);
    check_refused("[log]\nlevel = \"forebay-s3=debug\"\n", &["\"forebay-s3\"", "names no module"]);
    check_refused("[log]\nlevel = \"\"\n", &["log.level", "is no level"]);
    check_refused("[log]\nlevel = \"info,\"\n", &["log.level", "is no level"]);
    check_refused("[log]\nlevel = 3\n", &["log.level", "text in quotes"]);
    let problem = load_with("", &[], &flag("--log-level", "log", "level", "inof")).unwrap_err().to_string();
    assert!(problem.contains("--log-level \"inof\""), "{problem}");
}

#[test]
fn policies_are_refused_with_line_and_path() {
    check_refused(
        "[[policy]]\npath = \"/a\"\nwriteMode = \"WRITE_BAK\"\n",
        &["forebay.toml:1", "WRITE_BAK", "\"WRITE_BACK\""],
    );
    check_refused("[[policy]]\nwriteMode = \"WRITE_BACK\"\n", &["forebay.toml:1", "path"]);
    check_refused("[[policy]]\npath = \"a\"\n", &["forebay.toml:1", "\"a\"", "'/'"]);
    let twice = "[[policy]]\npath = \"/a\"\n\n[[policy]]\npath = \"/a\"\n";
    check_refused(twice, &["forebay.toml:4", "\"/a\"", "twice"]);
    check_refused("[[policy]]\npath = \"/\"\nwriteReplicas = 2\n", &["writeReplicas", "2"]);
    let through = "[[policy]]\npath = \"/a\"\nwriteMode = \"WRITE_THROUGH\"\nwriteBackMaxSize = \"8 MiB\"\n";
    check_refused(through, &["forebay.toml:1", "\"/a\"", "writeBackMaxSize", "WRITE_BACK", "WRITE_THROUGH"]);
    let much = "[[policy]]\npath = \"/\"\nreadCacheMaxSize = \"much\"\n";
    check_refused(much, &["forebay.toml:1", "policy.readCacheMaxSize", "much"]);
}

#[test]
fn limits_by_size_are_read() {
    let file =
        "[[policy]]\npath = \"/\"\nwriteMode = \"WRITE_BACK\"\nwriteBackMaxSize = \"8 MiB\"\nreadCacheMaxSize = 1000\n";
    let rules = load(file).unwrap().policies;
    assert_eq!(rules[0].write_back_max_size, Some(ByteSize(8 << 20)));
    assert_eq!(rules[0].read_cache_max_size, Some(ByteSize(1000)));
    let overrides = Overrides { mode: Some("NO_CACHE".into()), ..Overrides::default() };
    let problem = load_with(file, &[], &overrides).unwrap_err().to_string();
    assert!(problem.contains("writeBackMaxSize") && problem.contains("NO_CACHE"), "{problem}");
}

#[test]
fn mode_is_laid_over_the_rule_of_the_root() {
    let overrides = Overrides { mode: Some("WRITE_BACK".into()), ..Overrides::default() };
    let rules = load_with("", &[], &overrides).unwrap().policies;
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0].write_mode, Some(WriteMode::WriteBack));
    let file = "[[policy]]\npath = \"/\"\nwriteMode = \"READ_ONLY\"\ncacheReads = false\n";
    let rules = load_with(file, &[], &overrides).unwrap().policies;
    assert_eq!((rules[0].write_mode, rules[0].cache_reads), (Some(WriteMode::WriteBack), Some(false)));
    let overrides = Overrides { mode: Some("write_back".into()), ..Overrides::default() };
    let problem = load_with("", &[], &overrides).unwrap_err().to_string();
    assert!(problem.contains("--mode") && problem.contains("write_back"), "{problem}");
}

#[test]
fn secrets_are_neither_in_problems_nor_in_debug_output() {
    let text = "[server]\nroot_access_key = \"root\"\nroot_secret_key = \"hunter2hunter2\"\n\
                [under_store]\naccess_key = \"a\"\nsecret_key = \"hunter2\"\nsession_token = \"hunter2\"\n\
                [mounts]\nlogs = { url = \"file:///x\", access_key = \"a\", secret_key = \"hunter2\" }\n";
    let shown = format!("{:?}", load(text).unwrap());
    assert!(!shown.contains("hunter2"), "{shown}");
    let problem = load("[server]\nroot_secret_key = [\"hunter2\"]\n").unwrap_err().to_string();
    assert!(!problem.contains("hunter2"), "{problem}");
    let problem =
        load("[mounts]\nlogs = { url = \"file:///x\", secret_key = [\"hunter2\"] }\n").unwrap_err().to_string();
    assert!(!problem.contains("hunter2"), "{problem}");
}

#[test]
fn a_value_of_several_lines_is_told_in_one() {
    for text in
        ["[server]\ndomain = [\"\"\"\na\nb\"\"\"]\n", "[[policy]]\npath = \"/\"\nwriteMode = \"\"\"\na\nb\"\"\"\n"]
    {
        let problem = load(text).unwrap_err().to_string();
        assert!(!problem.contains('\n') && problem.contains("a\\nb"), "{problem}");
    }
}

#[test]
fn data_directories_of_the_file_are_not_left_aside_unnoticed() {
    let file = "[store]\ndata_dirs = [\"/a\"]\n";
    let load = |text, variables: &[_], flags: &Overrides| {
        let config = load_with(text, variables, flags).unwrap();
        (config.store.data_dirs, config.warnings)
    };
    let (service, none) = ([("STATE_DIRECTORY", "/var/lib/forebay:/more")], Overrides::default());
    assert_eq!(load("", &service, &none), (vec!["/var/lib/forebay".into()], vec![]));
    assert_eq!(load(file, &service, &none), (vec!["/a".into()], vec![]));
    let flag = |path: &str| Overrides {
        settings: vec![("--data-dir", "store", "data_dirs", path.to_owned())],
        ..Overrides::default()
    };
    assert_eq!(load(file, &[], &flag("/a")), (vec!["/a".into()], vec![]));
    let (used, warnings) = load(file, &service, &flag("/b"));
    assert_eq!(used, [std::path::PathBuf::from("/b")]);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let [flag, mount] = ["--data-dir: store.data_dirs: ", ":2 names others, which are not used"];
    assert!(warnings[0].starts_with(flag) && warnings[0].ends_with(mount), "{warnings:?}");
    let variable = [("FOREBAY_STORE_DATA_DIRS", "/c"), ("STATE_DIRECTORY", "/var/lib/forebay")];
    assert_eq!(load("", &variable, &none), (vec!["/c".into()], vec![]));
}

#[test]
fn a_variable_that_is_nearly_a_setting_is_told() {
    let variables = [("FOREBAY_STORE_SIZ", "1 GiB"), ("FOREBAY_TEST_SEED", "7"), ("PATH", "/bin")];
    let config = load_with("", &variables, &Overrides::default()).unwrap();
    assert_eq!(config.warnings.len(), 1, "{:?}", config.warnings);
    assert!(config.warnings[0].contains("FOREBAY_STORE_SIZE"), "{:?}", config.warnings);
}

/// The shell of the quick start has AWS_ENDPOINT_URL for its clients, and the server's own client would take it, too.
#[test]
fn an_under_store_is_not_this_server_itself() {
    let file = "[server]\nlisten = \"127.0.0.1:9700\"\n[mounts]\nlake = \"s3://lake\"\n";
    let with = |text: &str, variables: &[(&str, &str)]| load_with(text, variables, &Overrides::default());
    let own = [("AWS_ENDPOINT_URL", "http://localhost:9700")];
    let problem = with(file, &own).unwrap_err().to_string();
    for part in ["forebay.toml:4", "mounts.lake", "AWS_ENDPOINT_URL of the environment", "this server"] {
        assert!(problem.contains(part), "{problem}");
    }
    let named = file.replace("s3://lake", "s3://lake?endpoint=http://127.0.0.1:9700");
    let problem = with(&named, &[]).unwrap_err().to_string();
    assert!(problem.contains("mounts.lake") && problem.contains("this server"), "{problem}");
    // Another variable comes before it, and others leave it out.
    let other = ("AWS_ENDPOINT_URL_S3", "http://storage:9000");
    let warnings = with(file, &[own[0], other]).unwrap().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("AWS_ENDPOINT_URL_S3"), "{warnings:?}");
    let ignored = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true");
    assert_eq!(with(file, &[own[0], ignored]).unwrap().warnings, Vec::<String>::new());
    let named = file.replace("s3://lake", "s3://lake?endpoint=http://storage:9000");
    assert_eq!(with(&named, &own).unwrap().warnings, Vec::<String>::new());
    let root = "[under_store]\nurl = \"s3://?region=x\"\n";
    let listen = ("FOREBAY_SERVER_LISTEN", "0.0.0.0:9700");
    let problem = with(root, &[own[0], listen]).unwrap_err().to_string();
    assert!(problem.contains("under_store.url"), "{problem}");
}

#[test]
fn rules_that_no_object_is_under_are_told() {
    let rule = |path: &str| format!("[[policy]]\npath = \"{path}\"\n");
    let mounts = "[mounts]\nlake = \"file:///x\"\n";
    for (paths, told) in [
        (&["/", "/lake", "/la", "/lake/raw/"][..], &[][..]),
        (
            &["/lake/*", "/pond/", "/pon"],
            &["forebay.toml:3: policy.path = \"/lake/*\"", "forebay.toml:5: ", "forebay.toml:7: "],
        ),
    ] {
        let rules: String = paths.iter().map(|path| rule(path)).collect();
        let warnings = load(&format!("{mounts}{rules}")).unwrap().warnings;
        assert_eq!(warnings.len(), told.len(), "{warnings:?}");
        assert!(warnings.iter().zip(told).all(|(warning, told)| warning.starts_with(told)), "{warnings:?}");
    }
    let everywhere = format!("[under_store]\nurl = \"file:///y\"\n{}", rule("/pond/"));
    assert_eq!(load(&everywhere).unwrap().warnings, Vec::<String>::new());
}
