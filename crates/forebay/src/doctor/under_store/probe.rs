//! The requests of an examination.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_env::Env;
use forebay_types::{ByteRange, ETag, Generation, ObjectInfo, ObjectKey};
use forebay_ufs::{ByteStream, Condition, Error, ErrorKind, ListRequest, S3Target, UnderStore, Upload, UploadSource};
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::doctor::report::{Report, Unit};
use crate::doctor::{clock, disk, findings};

/// Tells what has left an object behind, should one be left.
const KEY: &str = "forebay-doctor";
const PUT: &str = "s3:PutObject";
const SMALL_BYTES: u64 = 16 << 10;
/// Requests of which the median counts.
const SMALL_TIMES: usize = 5;
/// The first upload for bandwidth; it goes in parts.
const LARGE_BYTES: u64 = 16 << 20;
/// The second, when the first took less than a moment.
const LARGER_BYTES: u64 = 128 << 20;
const A_MOMENT: Duration = Duration::from_millis(500);
/// Longest wait for a request that continues after a signal.
const CLEANUP_MAX: Duration = Duration::from_secs(10);

pub(super) struct Probe<'a> {
    pub(super) name: &'a str,
    pub(super) env: &'a Env,
    pub(super) stop: &'a CancellationToken,
    pub(super) report: &'a mut Report,
    /// Keys that objects may be under by now.
    made: Vec<ObjectKey>,
}

/// Content that repeats every megabyte.
struct Pattern;

impl UploadSource for Pattern {
    fn stream(&self, range: ByteRange) -> ByteStream {
        const PIECE: u64 = 1 << 20;
        let data = Bytes::from(vec![0x5a; PIECE as usize]);
        let pieces = (0..range.len().div_ceil(PIECE)).map(move |index| {
            let rest = (range.len() - index * PIECE).min(PIECE);
            Ok(data.slice(..rest as usize))
        });
        futures::stream::iter(pieces).boxed()
    }
}

fn upload(size: u64, condition: Condition) -> Upload {
    let info = Arc::new(ObjectInfo::new(size, ETag::new(KEY), 0));
    Upload { generation: Generation(1), info, source: Arc::new(Pattern), condition }
}

/// Why the rest is of no use.
struct GiveUp;

impl<'a> Probe<'a> {
    pub(super) fn new(name: &'a str, env: &'a Env, stop: &'a CancellationToken, report: &'a mut Report) -> Self {
        Self { name, env, stop, report, made: Vec::new() }
    }

    /// A key, or a bucket's name, that no one else has.
    pub(super) fn key(&self) -> String {
        format!("{KEY}-{}", &self.env.random.hex_id()[..16])
    }

    /// `directory`: where a directory keeps its files.
    pub(super) async fn run(&mut self, store: &dyn UnderStore, directory: Option<&Path>, writes: bool) {
        let prefix = self.key();
        let key = |name: &str| ObjectKey::new(&format!("{prefix}/{name}")).expect("short and printable");
        let (small, large) = (key("small"), key("large"));
        let stop = self.stop.clone();
        // Ends early, by a finding or a signal; what it has made is removed in any case.
        let _ = tokio::select! {
            ended = self.all(store, directory, [&small, &large], &prefix, writes) => ended,
            () = stop.cancelled() => Err(GiveUp),
        };
        for key in std::mem::take(&mut self.made) {
            self.remove(store, &key).await;
        }
    }

    async fn all(
        &mut self,
        store: &dyn UnderStore,
        directory: Option<&Path>,
        [small, large]: [&ObjectKey; 2],
        prefix: &str,
        writes: bool,
    ) -> Result<(), GiveUp> {
        self.requests(store, small, prefix, writes).await?;
        if writes { self.bandwidth(store, directory, large).await } else { Ok(()) }
    }

    async fn requests(
        &mut self,
        store: &dyn UnderStore,
        small: &ObjectKey,
        prefix: &str,
        writes: bool,
    ) -> Result<(), GiveUp> {
        let request = ListRequest { prefix: format!("{prefix}/"), limit: 1, ..ListRequest::default() };
        self.timed("under-store-list", "s3:ListBucket", 1, async || store.list(&request).await.map(drop)).await?;
        if let Some(target) = store.s3() {
            self.compare_clocks(&target, small).await;
        }
        if !writes {
            self.report.find("under-store-not-written", self.name, "READ_ONLY".into());
            return Ok(());
        }
        self.made.push(small.clone());
        let put = async || store.put(small, upload(SMALL_BYTES, Condition::Always)).await.map(drop);
        self.timed("under-store-put", PUT, SMALL_TIMES, put).await?;
        let get = async || read_all(store, small).await;
        self.timed("under-store-get", "s3:GetObject", SMALL_TIMES, get).await?;
        self.conditions(store, small).await;
        Ok(())
    }

    /// Notes the median of some requests.
    async fn timed(
        &mut self,
        name: &'static str,
        permission: &'static str,
        times: usize,
        request: impl AsyncFn() -> Result<(), Error>,
    ) -> Result<Duration, GiveUp> {
        let mut took = Vec::with_capacity(times);
        for _ in 0..times {
            let began = self.env.clock.monotonic();
            if let Err(error) = request().await {
                self.refused(permission, &error);
                return Err(GiveUp);
            }
            took.push(self.env.clock.monotonic() - began);
        }
        took.sort();
        let median = took[took.len() / 2];
        self.report.measured(name, self.name, median.as_secs_f64(), Unit::Seconds);
        Ok(median)
    }

    pub(super) fn failed(&mut self, permission: &str, error: &Error) {
        // Whatever else there is, the connection came about.
        let id = match findings::of_under_store(error.kind).id {
            "under-store-unreachable" => "under-store-failing",
            id => id,
        };
        self.report.find(id, self.name, format!("{permission}: {error}"));
    }

    /// A finding. Where nothing may be written, the upload that was refused has left nothing to remove.
    fn refused(&mut self, permission: &str, error: &Error) {
        self.failed(permission, error);
        if is_refused(error) && permission.starts_with(PUT) {
            self.made.pop();
        }
    }

    async fn bandwidth(
        &mut self,
        store: &dyn UnderStore,
        directory: Option<&Path>,
        key: &ObjectKey,
    ) -> Result<(), GiveUp> {
        self.made.push(key.clone());
        let permission = "s3:PutObject (in parts)";
        let mut size = LARGE_BYTES;
        loop {
            let began = self.env.clock.monotonic();
            if let Err(error) = store.put(key, upload(size, Condition::Always)).await {
                self.refused(permission, &error);
                return Err(GiveUp);
            }
            let took = self.env.clock.monotonic() - began;
            if took < A_MOMENT && size < LARGER_BYTES {
                size = LARGER_BYTES;
                continue;
            }
            self.speed("under-store-upload", size, took);
            break;
        }
        if let Some(directory) = directory {
            // What was just written would come from memory.
            if let Some(speed) = disk::read_bandwidth(directory, self.env, self.stop).await {
                self.report.measured("under-store-download", self.name, speed, Unit::BytesPerSecond);
            }
            return Ok(());
        }
        let began = self.env.clock.monotonic();
        if let Err(error) = read_all(store, key).await {
            self.failed("s3:GetObject", &error);
            return Err(GiveUp);
        }
        self.speed("under-store-download", size, self.env.clock.monotonic() - began);
        Ok(())
    }

    fn speed(&mut self, name: &'static str, bytes: u64, took: Duration) {
        let speed = bytes as f64 / took.as_secs_f64().max(1e-9);
        self.report.measured(name, self.name, speed, Unit::BytesPerSecond);
    }

    /// Overwrites that must not happen. S3 is asked without the help of Forebay, which looks first where conditions are
    /// unknown.
    async fn conditions(&mut self, store: &dyn UnderStore, key: &ObjectKey) {
        let wrong = ETag::new("00000000000000000000000000000000");
        let mut ignored = Vec::new();
        for (name, condition) in
            [("If-None-Match: *", Condition::Absent), ("If-Match", Condition::Matches(wrong.clone()))]
        {
            let refused = match store.s3() {
                Some(target) => refuses(&target, key, &condition).await,
                None => match store.put(key, upload(SMALL_BYTES, condition)).await {
                    Err(error) if error.kind == ErrorKind::Precondition => Ok(()),
                    Ok(_) => Err("the write was done".to_owned()),
                    Err(error) => Err(error.to_string()),
                },
            };
            if let Err(why) = refused {
                ignored.push(format!("{name}: {why}"));
            }
        }
        if !ignored.is_empty() {
            self.report.find("conditions-missing", self.name, ignored.join("; "));
        }
    }

    /// By the `Date` of an answer that has to come, be it a refusal.
    async fn compare_clocks(&mut self, target: &S3Target, key: &ObjectKey) {
        let before = self.env.clock.unix_ms();
        let asked = target.client.head_object().bucket(&target.bucket).key(format!("{}{key}", target.prefix));
        let Err(error) = asked.send().await else { return };
        let here = (before + self.env.clock.unix_ms()) as f64 / 2000.0;
        let Some(date) = error.raw_response().and_then(|response| response.headers().get("date")) else { return };
        let Ok(date) = httpdate::parse_http_date(date) else { return };
        let there = date.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        // `Date` is cut to seconds.
        clock::examine_skew(self.name, here - there - 0.5, self.report);
    }

    async fn remove(&mut self, store: &dyn UnderStore, key: &ObjectKey) {
        let removed = tokio::select! {
            removed = store.delete(key, Condition::Always) => removed,
            () = self.env.clock.sleep(CLEANUP_MAX) => Err(Error::new(ErrorKind::Unavailable, "no answer in time")),
        };
        match removed {
            Ok(()) => {}
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => {
                // Of an upload that failed there may be nothing.
                if let Err(absent) = store.head(key).await
                    && absent.kind == ErrorKind::NotFound
                {
                    return;
                }
                if is_refused(&error) {
                    self.failed("s3:DeleteObject", &error);
                }
                self.report.find("probe-left", self.name, format!("{}/{key}: {error}", store.label()));
            }
        }
    }
}

async fn read_all(store: &dyn UnderStore, key: &ObjectKey) -> Result<(), Error> {
    let mut body = store.get(key, None, None).await?.stream;
    while let Some(data) = body.next().await {
        data?;
    }
    Ok(())
}

/// # Errors
/// What happened instead of a refusal.
async fn refuses(target: &S3Target, key: &ObjectKey, condition: &Condition) -> Result<(), String> {
    let request = target.client.put_object().bucket(&target.bucket).key(format!("{}{key}", target.prefix));
    let request = match condition {
        Condition::Always => request,
        Condition::Absent => request.if_none_match("*"),
        Condition::Matches(etag) => request.if_match(etag.quoted()),
    };
    let body = aws_sdk_s3::primitives::ByteStream::from_static(b"forebay-doctor");
    match request.body(body).send().await {
        Ok(_) => Err("the write was done".into()),
        Err(error) => match error.raw_response().map(|response| response.status().as_u16()) {
            Some(412) => Ok(()),
            Some(status) => Err(format!("HTTP {status} instead of 412")),
            None => Err("no answer".into()),
        },
    }
}

fn is_refused(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Denied | ErrorKind::Credentials)
}
