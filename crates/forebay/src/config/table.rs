//! Every setting there is. The loader, the reference and the suggestions all read this one table.

use forebay_types::limits::{PART_BYTES_MIN, PUT_BYTES_MAX};

use super::kind::Kind;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;
/// The most that one record of the store can hold.
const RECORD_MAX: u64 = 64 * MIB;
/// Zero would be a timeout that always ends, a loop that never rests, or a promise that is not kept.
const NOT_ZERO: Kind = Kind::Period { min_ms: 1 };

/// The number of the oldest log file; a rotation renames as many.
const LOG_FILES: Kind = Kind::Number { min: 1, max: 1000 };

/// One setting of a section.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) section: &'static str,
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
    /// As an environment variable would give it; empty text stands for "not set".
    pub(crate) default: &'static str,
    pub(crate) about: &'static str,
}

impl Setting {
    pub(crate) fn is_secret(&self) -> bool {
        self.kind == Kind::Secret
    }

    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }

    /// The environment variable that sets it.
    pub(crate) fn variable(&self) -> String {
        match (self.section, self.key) {
            // The names that scripts rely on.
            ("server", "root_access_key") => "FOREBAY_ROOT_ACCESS_KEY".into(),
            ("server", "root_secret_key") => "FOREBAY_ROOT_SECRET_KEY".into(),
            (section, key) => format!("FOREBAY_{section}_{key}").to_ascii_uppercase(),
        }
    }
}

/// The sections that hold settings, and what each is for.
pub(crate) const SECTIONS: [(&str, &str); 11] = [
    ("server", "Listeners, users and TLS."),
    ("store", "The local disks."),
    ("cache", "Pages, the memory tier, persistence and leftovers."),
    ("under_store", "Where objects are stored permanently."),
    ("under_store_limits", "How hard each under store may be used. Reads for clients obey the circuit breaker only."),
    ("under_store_s3", "Requests to S3 under stores."),
    ("cluster", "Several workers that are one cache. Without `engine`, this worker is alone."),
    ("log", "What goes to standard error."),
    ("access_log", "One line for each S3 request, in the format of Amazon S3's server access logs."),
    ("audit_log", "Who changed what, and who was refused: one JSON object for each line."),
    ("trace", "Spans of requests, for an OpenTelemetry collector."),
];

const fn setting(
    section: &'static str,
    key: &'static str,
    kind: Kind,
    default: &'static str,
    about: &'static str,
) -> Setting {
    Setting { section, key, kind, default, about }
}

const fn at_least(min: u64) -> Kind {
    between(min, u64::MAX)
}

const fn between(min: u64, max: u64) -> Kind {
    Kind::Size { min, max }
}

#[rustfmt::skip]
pub(crate) const SETTINGS: &[Setting] = &[
    setting("server", "listen", Kind::Address, "127.0.0.1:9700", "Where S3 is served."),
    setting("server", "admin_listen", Kind::Address, "127.0.0.1:9701",
        "Where health, metrics and the admin API are served. Health and metrics need no credentials: keep this address out of reach of strangers."),
    setting("server", "domain", Kind::Domain, "",
        "Domain of virtual-host style requests: with `s3.example.com`, `bucket.s3.example.com` names a bucket. Empty: path style only."),
    setting("server", "region", Kind::Region, "us-east-1", "Region that signatures and `GetBucketLocation` name."),
    setting("server", "account_id", Kind::AccountId, "",
        "Account number of the owner of all buckets: requests whose `x-amz-expected-bucket-owner` is another are refused with AccessDenied. Empty: nothing is compared."),
    setting("server", "connections_max", Kind::Number { min: 1, max: 1_000_000 }, "4096", "Most S3 connections at once, and fewer where the limit of open files leaves no more beside segments and under stores; others wait to be accepted. One access key gets 15 of 16 at most, and less when others want some: then its requests get 503 SlowDown."),
    setting("server", "connections_per_address_max", Kind::Number { min: 0, max: 1_000_000 }, "0",
        "Most S3 connections of one address at once, or of one /64 of IPv6; more are closed. `0`: half of `connections_max`. Behind a proxy, all come from its address."),
    setting("server", "users_file", Kind::Path, "", "TOML file of users, access keys and grants. It is watched."),
    setting("server", "root_access_key", Kind::AccessKey, "", "Access key of the root user, who may do everything."),
    setting("server", "root_secret_key", Kind::Secret, "", "Secret key of the root user: 8 characters or more."),
    setting("server", "tls_cert", Kind::Path, "", "PEM file of the certificate chain of the S3 listener. With `tls_key` it turns TLS on."),
    setting("server", "tls_key", Kind::Path, "", "PEM file of the certificate's private key."),
    setting("server", "admin_tls", Kind::Flag, "false", "Serve `server.admin_listen` over TLS too, with the same certificate."),
    setting("server", "core_dumps", Kind::Flag, "false",
        "Let a crash leave a core file, and debuggers of the same user attach: memory holds secret keys and what clients store."),
    setting("store", "data_dirs", Kind::Paths, "./forebay-data",
        "Directories of the store, at best one for each disk. The environment variable takes a list with commas."),
    setting("store", "forget_directories", Kind::DirectoryIds, "",
        "Ids of data directories that are gone for good, with commas: what only they held is lost, and the store starts without them. The refused start names the ids."),
    setting("store", "size", Kind::Capacity, "80%",
        "Most bytes in each directory, the index included. A percentage is one of the whole file system, cut to what is free at the start."),
    setting("store", "segment_size", Kind::SizeOrAuto { min: 2 * MIB, max: GIB }, "auto",
        "Size of a segment file: space comes back a segment at a time. `auto` is 1/16 of a directory's size, from 2 MiB to 256 MiB."),
    setting("store", "inline_object_max", between(0, RECORD_MAX), "256 KiB", "Objects up to this size are one record of the log. At most a quarter of a segment."),
    setting("store", "extent_size_max", between(64 * KIB, RECORD_MAX), "1 MiB", "Largest piece of a large object in a segment. At most half a segment."),
    setting("store", "snapshot_log_size", at_least(MIB), "512 MiB", "A snapshot of the index is written after this much log, or as much as its copies take if that is more: a restart replays no more. With several data directories also ten minutes after the last one."),
    setting("store", "free_ratio", Kind::Ratio { min: 0.01, max: 0.5 }, "0.1", "Share of the size that reclaim keeps free for the next writes."),
    setting("store", "write_buffer", at_least(MIB), "64 MiB", "Most bytes that wait in memory for the disks; writers wait beyond it."),
    setting("cache", "page_size", between(64 * KIB, RECORD_MAX), "1 MiB", "Size of a page of the read cache."),
    setting("cache", "read_ahead_pages", Kind::Number { min: 0, max: 64 }, "16", "Pages fetched ahead of a sequential reader."),
    setting("cache", "memory_size", at_least(0), "256 MiB", "Size of the memory tier, without the memory quotas of policies."),
    setting("cache", "memory_object_max", at_least(0), "1 MiB", "Largest object that the memory tier takes. It holds whole objects only."),
    setting("cache", "pinned_ratio", Kind::Ratio { min: 0.01, max: 0.95 }, "0.3", "Share of the store that data without a persisted copy may take. One bucket gets 15 of 16 of it at most, one write 7 eighths, and less when others want some."),
    setting("cache", "persist_concurrency", Kind::Number { min: 1, max: 1024 }, "256", "Uploads of one bucket at once; of 1 MiB each half as many, and of larger objects 16 beside them. All buckets together have less than twice as many."),
    setting("cache", "persist_backoff_min", NOT_ZERO, "1 s", "First pause after a failed upload; it doubles with every failure."),
    setting("cache", "persist_backoff_max", NOT_ZERO, "1 h", "Longest pause between uploads of one object."),
    setting("cache", "settle_time", NOT_ZERO, "30 s",
        "How long nothing is sent for an object after a request whose answer was lost, and for all that was dirty when the process was killed. Short lives of the process add up."),
    setting("cache", "leftover_timeout", NOT_ZERO, "1 h", "Multipart uploads and other leftovers without activity for this long are removed."),
    setting("cache", "leftover_interval", NOT_ZERO, "10 min", "How often leftovers are looked for."),
    setting("cache", "part_size_min", between(1, PUT_BYTES_MAX), "5 MiB", "Smallest part of a multipart upload other than its last. S3 wants 5 MiB."),
    setting("cache", "drain_timeout", Kind::Period { min_ms: 0 }, "30 s", "On shutdown, how long requests in flight may take, and uploads after them. `0 s`: no wait."),
    setting("under_store", "url", Kind::Text, "",
        "`file:///dir`, `s3://bucket/prefix?endpoint=…&region=…`, `s3://?endpoint=…` for all buckets of an endpoint, or `hdfs://namenode:port/dir`. Empty: with mounts, no other buckets; without, the directory `./forebay-under-store`."),
    setting("under_store", "access_key", Kind::Text, "", "Access key of the under store. Empty: the AWS environment variables and profile files."),
    setting("under_store", "secret_key", Kind::Secret, "", "Secret key of the under store."),
    setting("under_store", "session_token", Kind::Secret, "", "Session token of the under store, where its keys are temporary."),
    setting("under_store", "moved_buckets", Kind::Text, "",
        "Buckets, with commas, whose under store was replaced by another one with the same objects while changes waited for it: they are sent to the new one. Also buckets whose directory was replaced. `*`: all buckets. A start that needs this is refused, and names the buckets."),
    setting("under_store_limits", "concurrency_max", Kind::Number { min: 1, max: 10_000 }, "256",
        "Most background requests at once. The limit adapts below it: halved when the under store answers SlowDown, then up again."),
    setting("under_store_limits", "requests_per_second", Kind::Number { min: 0, max: 1_000_000 }, "0", "Most background requests a second. 0: no limit."),
    setting("under_store_limits", "upload_bandwidth", at_least(0), "0 B", "Most bytes uploaded a second. `0 B`: no limit."),
    setting("under_store_limits", "circuit_failures", Kind::Number { min: 1, max: 10_000 }, "10", "Failures in a row of reads, or of writes, after which more of them are refused without being sent."),
    setting("under_store_limits", "circuit_pause_min", NOT_ZERO, "1 s", "First pause before an under store that fails is asked again; it doubles."),
    setting("under_store_limits", "circuit_pause_max", NOT_ZERO, "15 s", "Longest such pause."),
    setting("under_store_limits", "read_tries", Kind::Number { min: 1, max: 100 }, "3", "Tries of a read that fails for a passing reason."),
    setting("under_store_s3", "multipart_threshold", between(PART_BYTES_MIN, PUT_BYTES_MAX), "64 MiB", "Objects above this size are uploaded in parts."),
    setting("under_store_s3", "part_size", between(PART_BYTES_MIN, PUT_BYTES_MAX), "16 MiB", "Size of these parts. Objects that came in parts S3 would take keep theirs."),
    setting("under_store_s3", "parts_at_once", Kind::Number { min: 1, max: 1000 }, "4", "Parts of one object that are uploaded at once."),
    setting("under_store_s3", "connect_timeout", NOT_ZERO, "5 s", "Longest wait for a connection."),
    setting("under_store_s3", "request_timeout", NOT_ZERO, "30 s", "Longest wait for an answer, beside the time of an upload."),
    setting("under_store_s3", "upload_rate_min", at_least(1), "1 MiB", "Bytes a second below which an upload is given up."),
    setting("under_store_s3", "instance_credentials", Kind::Flag, "false", "Ask the metadata service of a cloud instance or container for credentials."),
    setting("under_store_s3", "sweep_uploads", Kind::Flag, "false",
        "Abort all multipart uploads that stay incomplete for `cache.leftover_timeout`, no matter who began them: only for buckets that nobody else writes to. S3 does not show who began an upload."),
    setting("cluster", "engine", Kind::Text, "",
        "Members of the etcd that all workers share: `etcd://HOST:PORT,HOST:PORT…`, or `etcds://…` for TLS. Empty: no cluster."),
    setting("cluster", "name", Kind::Name, "forebay", "Name of the cluster: clusters with different names can share one etcd."),
    setting("cluster", "listen", Kind::Address, "127.0.0.1:9702", "Where other workers reach this one."),
    setting("cluster", "advertise", Kind::Text, "", "The address that other workers use, as `HOST:PORT`, where it is not `cluster.listen`. Empty: `cluster.listen`."),
    setting("cluster", "key_file", Kind::Path, "",
        "File with a secret that all workers have, of 32 characters or more: `openssl rand -hex 32`. Empty: etcd keeps one that the first worker makes up."),
    setting("cluster", "worker_id", Kind::Name, "", "Name of this worker, which it keeps as long as its data directories. Empty: the name of the machine."),
    setting("cluster", "lease", Kind::Period { min_ms: 3000 }, "10 s",
        "Other workers take over from a worker that is silent for this long. The first worker of a cluster decides."),
    setting("cluster", "compare_endpoints", Kind::Flag, "true",
        "Refuse to start while a worker runs whose S3 under stores have other endpoints. `false`: the machines reach the same stores by different addresses."),
    setting("cluster", "accept_older_engine", Kind::Number { min: 0, max: 1 << 53 }, "0",
        "Start although etcd was restored from an older backup: what was written since is lost. A start that needs this is refused, and names the number to give."),
    setting("cluster", "redirect", Kind::Choice(&["never", "known-clients", "always"]), "never",
        "Which clients get a redirect to the worker that is the home of their object, instead of passing the request on. `known-clients`: the AWS SDK for Java 1, which signs again. `always`: all that sign headers. They must reach all workers by the addresses that `GET /api/v1/cluster` shows."),
    setting("cluster", "drain_on_stop", Kind::Flag, "false",
        "Drain this worker at SIGTERM before it stops: its slots and bytes go to others. A second SIGTERM ends the drain and stops."),
    setting("cluster", "drain_deadline", Kind::Period { min_ms: 1 }, "90 s",
        "How long `drain_on_stop` may take. Then the worker stops, with the bytes that others do not have on its disks."),
    setting("cluster", "etcd_user", Kind::Text, "", "User of etcd's own authentication."),
    setting("cluster", "etcd_password", Kind::Secret, "", "Its password."),
    setting("cluster", "etcd_ca_file", Kind::Path, "", "PEM file of the authorities that sign etcd's certificates. Empty: those of the system."),
    setting("cluster", "etcd_certificate_file", Kind::Path, "", "PEM file of the certificate that is shown to etcd."),
    setting("cluster", "etcd_key_file", Kind::Path, "", "PEM file of the certificate's private key."),
    setting("log", "level", Kind::LogFilter, "info", "`error`, `warn`, `info`, `debug`, `trace`, `off`, or a filter such as `info,forebay_s3=debug`."),
    setting("log", "format", Kind::Choice(&["text", "json"]), "text", "How log lines are written."),
    setting("access_log", "file", Kind::Path, "", "Where it goes. Empty: no access log. SIGHUP opens it again, for logrotate."),
    setting("access_log", "max_size", at_least(0), "256 MiB", "A file that would grow beyond this is renamed to `file.1`, and a new one begun. `0 B`: never."),
    setting("access_log", "max_files", LOG_FILES, "10", "Renamed files that are kept."),
    setting("audit_log", "file", Kind::Path, "", "Where it goes. Empty: no audit log. SIGHUP opens it again, for logrotate."),
    setting("audit_log", "max_size", at_least(0), "256 MiB", "A file that would grow beyond this is renamed to `file.1`, and a new one begun. `0 B`: never."),
    setting("audit_log", "max_files", LOG_FILES, "10", "Renamed files that are kept."),
    setting("audit_log", "include", Kind::Choice(&["writes", "all"]), "writes", "`writes`: what changes something, what was denied, and logins. `all`: reads too."),
    setting("trace", "otlp_endpoint", Kind::Text, "",
        "Where spans go by OTLP over HTTP, such as `http://127.0.0.1:4318`. Empty: `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`; without those, no traces."),
    setting("trace", "sample_ratio", Kind::Ratio { min: 0.0, max: 1.0 }, "1.0", "Share of requests that are traced, where the client does not say: a `traceparent` decides for its request."),
    setting("trace", "service_name", Kind::Text, "forebay", "What the spans call this service."),
    setting("trace", "headers", Kind::Secret, "", "Headers for the collector: `name=value,name=value`, values percent-encoded."),
];

/// The settings of a section.
pub(crate) fn in_section(section: &str) -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(move |setting| setting.section == section)
}

pub(crate) fn find(section: &str, key: &str) -> Option<&'static Setting> {
    in_section(section).find(|setting| setting.key == key)
}
