//! `forebay check-cached`.

use std::collections::BTreeMap;

use clap::Args;
use forebay_admin::api::Bucket;
use forebay_cache::{CacheTier, CachedObject};
use serde::Serialize;

use super::objects::{self, Pages, json, state, tier};
use super::output::{print, print_part};
use super::units::{count, escaped, share, size};
use super::{Table, Target};
use crate::client::{Call, prefix_path};
use crate::failure::Failure;

/// Objects and bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
struct Sum {
    objects: u64,
    bytes: u64,
}

/// How much of what lies under a path is here.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    path: String,
    total: Sum,
    /// Objects that are here as a whole.
    cached_objects: u64,
    /// Bytes on the local disks or in memory, those of objects that are not whole included.
    cached_bytes: u64,
    /// By the words of the API.
    by_tier: BTreeMap<String, Sum>,
    by_state: BTreeMap<String, Sum>,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }
}

impl Report {
    fn add(&mut self, object: &CachedObject) {
        self.total.add(object.size);
        self.by_tier.entry(tier(object.tier).replace(' ', "_")).or_default().add(object.size);
        self.by_state.entry(state(object.state).to_owned()).or_default().add(object.size);
        match object.tier {
            CacheTier::Memory | CacheTier::Disk => {
                self.cached_objects += 1;
                self.cached_bytes += object.size;
            }
            CacheTier::UnderStore => self.cached_bytes += object.cached_bytes.min(object.size),
        }
    }

    fn text(&self) -> String {
        let mut table = Table::new(&["", ">OBJECTS", ">BYTES", ">SHARE OF BYTES"]);
        let whole = self.total.bytes as f64;
        let mut row = |name: &str, objects: u64, bytes: u64| {
            table.row([name.to_owned(), count(objects), size(bytes), share(bytes as f64, whole)]);
        };
        row("cached", self.cached_objects, self.cached_bytes);
        for (name, sum) in self.by_tier.iter().chain(&self.by_state) {
            row(&name.replace('_', " "), sum.objects, sum.bytes);
        }
        row("all", self.total.objects, self.total.bytes);
        format!("{}\n{}", escaped(&self.path), table.text())
    }
}

#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// s3://bucket/prefix, /bucket/prefix, or / for the sums of everything
    #[arg(value_name = "PATH")]
    path: String,
    /// Only the sums, without a line for each object
    #[arg(long)]
    summary: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn check_cached(options: &CheckOptions) -> Result<(), Failure> {
    let path = prefix_path(&options.path)?;
    let client = options.target.client()?;
    let (path, below) = match path.as_str() {
        "/" => {
            let buckets: Vec<Bucket> = client.read(Call::get("buckets"))?;
            (path, buckets.into_iter().map(|bucket| format!("/{}/", bucket.name)).collect())
        }
        _ => {
            let path = if path[1..].contains('/') { path } else { path + "/" };
            (path.clone(), vec![path])
        }
    };
    // Keys of several buckets would not be told apart.
    let is_summary = options.summary || below.len() != 1;
    let mut report = Report { path: path.clone(), ..Report::default() };
    let is_json = options.target.is_json();
    // Behind the braces of the report, which is complete only at the end.
    let mut separator = "{\"objects\":[";
    for page in below.into_iter().flat_map(|path| Pages::new(&client, path, false)) {
        let page = page?;
        page.objects.iter().for_each(|object| report.add(object));
        match (is_summary, is_json) {
            (true, _) => {}
            (false, false) => print(&objects::page_text(&page))?,
            (false, true) => {
                for object in &page.objects {
                    print_part(&format!("{separator}{}", json(object)))?;
                    separator = ",";
                }
            }
        }
    }
    let sums = json(&report);
    match (is_json, is_summary) {
        (true, true) => print(&sums),
        (true, false) => {
            let begin = if separator == "," { "" } else { separator };
            print(&format!("{begin}],{}", sums.trim_start_matches('{')))
        }
        (false, true) => print(&report.text()),
        (false, false) => print(&format!("\n{}", report.text())),
    }
}
