//! `forebay check-cached`.

use std::collections::BTreeMap;

use forebay_cache::{CacheTier, CachedObject};
use serde::Serialize;

use super::objects::{Pages, state, tier};
use super::output::print;
use super::units::{count, escaped, share, size};
use super::{Table, Target};
use crate::client::prefix_path;
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

pub(super) fn check_cached(path: &str, target: &Target) -> Result<(), Failure> {
    let path = prefix_path(path)?;
    if path == "/" {
        return Err(Failure::Refused("\"/\": name a bucket: s3://bucket or s3://bucket/prefix".to_owned()));
    }
    let path = if path[1..].contains('/') { path } else { path + "/" };
    let client = target.client()?;
    let mut report = Report { path: path.clone(), ..Report::default() };
    for page in Pages::new(&client, path, false) {
        page?.objects.iter().for_each(|object| report.add(object));
    }
    if target.is_json() {
        return print(&serde_json::to_string(&report).expect("the report has text keys only"));
    }
    print(&report.text())
}
