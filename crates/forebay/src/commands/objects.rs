//! `forebay stat` and `forebay ls`.

use std::fmt::Write;

use clap::Args;
use forebay_admin::api::Bucket;
use forebay_cache::{CacheState, CacheTier, CachedObject, CachedPage, CachedRange, ObjectDetail};
use forebay_env::Env;

use super::output::print;
use super::status::pairs;
use super::units::{age, count, escaped, moment, share, size};
use super::{Table, Target};
use crate::client::{Call, CallError, Client, object_path, prefix_path};
use crate::failure::Failure;

/// Objects in one request: the most that the API gives at once.
const PAGE_OBJECTS: usize = 1000;

/// Stretches on disk that `stat` shows; the JSON has more.
const RANGES_SHOWN_MAX: usize = 10;

#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    /// s3://bucket/prefix or /bucket/prefix; all buckets without it
    #[arg(value_name = "PATH")]
    path: Option<String>,
    /// All objects below the path, instead of one level
    #[arg(long, short)]
    recursive: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn stat(path: &str, target: &Target) -> Result<(), Failure> {
    let answer = target.client()?.call(Call::get("objects/detail").query("path", object_path(path)?))?;
    if target.is_json() {
        return print(&answer.text);
    }
    print(&detail(&answer.read()?, Env::real().clock.unix_ms()))
}

pub(super) fn list(options: &ListOptions) -> Result<(), Failure> {
    let path = prefix_path(options.path.as_deref().unwrap_or("/"))?;
    let client = options.target.client()?;
    if path == "/" {
        return list_buckets(&client, &options.target);
    }
    // The name of a bucket alone means what is in it.
    let path = if path[1..].contains('/') { path } else { path + "/" };
    let pages = Pages::new(&client, path, !options.recursive);
    if options.target.is_json() { list_as_json(pages) } else { list_as_text(pages) }
}

fn list_buckets(client: &Client, target: &Target) -> Result<(), Failure> {
    let answer = client.call(Call::get("buckets"))?;
    if target.is_json() {
        return print(&answer.text);
    }
    let mut table = Table::new(&["CREATED", "BUCKET"]);
    for Bucket { name, created_ms } in answer.read::<Vec<Bucket>>()? {
        table.row([created_ms.map_or("-".to_owned(), moment), escaped(&name)]);
    }
    print(&table.text())
}

/// The pages of a listing, one request for each.
pub(super) struct Pages<'a> {
    client: &'a Client,
    path: String,
    by_level: bool,
    after: Option<String>,
    is_done: bool,
}

impl<'a> Pages<'a> {
    /// What lies under a path; `by_level` gathers deeper keys under their common prefix.
    pub(super) fn new(client: &'a Client, path: String, by_level: bool) -> Self {
        Self { client, path, by_level, after: None, is_done: false }
    }
}

impl Iterator for Pages<'_> {
    type Item = Result<CachedPage, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let mut call = Call::get("objects").query("path", &self.path).query("limit", PAGE_OBJECTS);
        if self.by_level {
            call = call.query("delimiter", "/");
        }
        if let Some(after) = &self.after {
            call = call.query("after", after);
        }
        let page: Result<CachedPage, _> = self.client.read(call);
        self.after = page.as_ref().ok().and_then(|page| page.next.clone());
        self.is_done = self.after.is_none();
        Some(page)
    }
}

/// Page by page, so that a bucket of any size needs the memory of one.
fn list_as_text(pages: Pages<'_>) -> Result<(), Failure> {
    for page in pages {
        print(&page_text(&page?))?;
    }
    Ok(())
}

/// A page as a table, in order of the names.
pub(super) fn page_text(page: &CachedPage) -> String {
    let mut lines: Vec<_> = page.objects.iter().map(|object| (object.key.as_str(), object_cells(object))).collect();
    lines.extend(page.prefixes.iter().map(|prefix| (prefix.as_str(), prefix_cells(prefix))));
    lines.sort_by_key(|(name, _)| *name);
    let mut table = Table::new(&["STATE", "TIER", ">CACHED", ">SIZE", "MODIFIED", "KEY"]);
    lines.into_iter().for_each(|(_, cells)| table.row(cells));
    table.text()
}

fn object_cells(object: &CachedObject) -> [String; 6] {
    [
        state(object.state).to_owned(),
        tier(object.tier).to_owned(),
        share_cached(object.tier, object.cached_bytes, object.size),
        size(object.size),
        moment(object.last_modified_ms),
        escaped(&object.key),
    ]
}

fn prefix_cells(prefix: &str) -> [String; 6] {
    let none = String::new;
    ["prefix".to_owned(), none(), none(), none(), none(), escaped(prefix)]
}

pub(super) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("the API's types have text keys only")
}

/// One document as the API would say it, could it say all at once: written as the pages come.
fn list_as_json(pages: Pages<'_>) -> Result<(), Failure> {
    let mut prefixes = Vec::new();
    let mut text = r#"{"objects":["#.to_owned();
    let mut separator = "";
    for page in pages {
        let page = page?;
        for object in &page.objects {
            let _ = write!(text, "{separator}{}", json(object));
            separator = ",";
        }
        prefixes.extend(page.prefixes);
        super::output::print_part(&text)?;
        text.clear();
    }
    let _ = write!(text, r#"],"prefixes":{}}}"#, json(&prefixes));
    print(&text)
}

fn detail(object: &ObjectDetail, now_ms: u64) -> String {
    let mut lines = vec![
        ("path", escaped(&object.path)),
        ("size", format!("{} ({} bytes)", size(object.size), count(object.size))),
        ("etag", escaped(&object.etag)),
        ("content type", object.content_type.as_deref().map_or("-".to_owned(), escaped)),
        ("modified", moment(object.last_modified_ms)),
        ("state", state(object.state).to_owned()),
        ("read first from", tier(object.tier).to_owned()),
        ("cached", share_cached(object.tier, object.cached_bytes, object.size)),
        ("on disk", ranges(&object.cached_ranges)),
        ("copies", object.replicas.to_string()),
    ];
    let optional = [
        ("generation", object.generation.map(|generation| generation.to_string())),
        ("under store's etag", object.remote_etag.as_deref().map(escaped)),
        ("dirty for", object.dirty_since_ms.map(|since| age(now_ms.saturating_sub(since)))),
        ("next try in", object.next_try_in_ms.map(age)),
    ];
    lines.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    let named = |(key, value): (&String, &String)| format!("{} = {}", escaped(key), escaped(value));
    lines.extend(object.user_metadata.iter().map(|pair| ("metadata", named(pair))));
    lines.extend(object.tags.iter().map(|pair| ("tag", named(pair))));
    let mut text = pairs(&lines);
    if !object.persist_events.is_empty() {
        let _ = write!(text, "\n{}", events(object));
    }
    text
}

fn events(object: &ObjectDetail) -> String {
    let mut table = Table::new(&["TIME", "OUTCOME", ">GENERATION", ">SIZE", ">TOOK", "ERROR"]);
    for event in &object.persist_events {
        table.row([
            moment(event.time_ms),
            escaped(&event.outcome),
            event.generation.to_string(),
            size(event.bytes),
            format!("{} ms", event.duration_ms),
            event.error.as_deref().map(escaped).unwrap_or_default(),
        ]);
    }
    table.text()
}

fn ranges(ranges: &[CachedRange]) -> String {
    let shown = ranges.iter().take(RANGES_SHOWN_MAX).map(|range| format!("{}-{}", range.start, range.end));
    let more = ranges.len().saturating_sub(RANGES_SHOWN_MAX);
    let more = (more > 0).then(|| format!("and {more} more"));
    let text: Vec<_> = shown.chain(more).collect();
    if text.is_empty() { "nothing".to_owned() } else { format!("bytes {}", text.join(", ")) }
}

/// How much of an object is here. One without bytes is here as a whole or not at all.
fn share_cached(tier: CacheTier, cached: u64, size: u64) -> String {
    match tier {
        CacheTier::Memory | CacheTier::Disk => "100.0 %".to_owned(),
        CacheTier::UnderStore if size == 0 => "0.0 %".to_owned(),
        CacheTier::UnderStore => share(cached as f64, size as f64),
    }
}

pub(super) fn state(state: CacheState) -> &'static str {
    match state {
        CacheState::Clean => "clean",
        CacheState::Dirty => "dirty",
        CacheState::Transient => "transient",
        CacheState::Conflict => "conflict",
    }
}

pub(super) fn tier(tier: CacheTier) -> &'static str {
    match tier {
        CacheTier::Memory => "memory",
        CacheTier::Disk => "disk",
        CacheTier::UnderStore => "under store",
    }
}
