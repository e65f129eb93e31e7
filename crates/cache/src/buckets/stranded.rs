//! Changes that wait here for an under store that no setting names any more.

use std::collections::BTreeSet;

use forebay_catalog::Catalog;
use forebay_catalog::records::{self, ObjectRecord, State};
use forebay_types::{BucketName, ByteSize};

use crate::{Error, ErrorKind, Mounts, Result};

/// Records of the catalog that are read at once.
const SCAN_RECORDS: usize = 1000;

/// The most buckets that the error names, because it is one line for people.
const BUCKETS_NAMED_MAX: usize = 8;

/// Data of buckets that have no under store.
#[derive(Default)]
struct Stranded {
    buckets: BTreeSet<BucketName>,
    /// Acknowledged objects that exist only here.
    objects: u64,
    bytes: u64,
    /// Acknowledged deletes that the under store does not have.
    deletes: u64,
}

impl Stranded {
    fn add(&mut self, bucket: BucketName, record: &ObjectRecord) {
        self.buckets.insert(bucket);
        match record.state {
            State::Tombstone => self.deletes += 1,
            State::Dirty | State::Transient | State::Conflict => {
                self.objects += 1;
                self.bytes += record.size;
            }
        }
    }

    fn error(&self) -> Option<Error> {
        let buckets = match self.buckets.len() {
            0 => return None,
            1 => "of the bucket",
            _ => "of the buckets",
        };
        let named: Vec<_> = self.buckets.iter().take(BUCKETS_NAMED_MAX).map(BucketName::as_str).collect();
        let others = match self.buckets.len() - named.len() {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let Self { objects, bytes, deletes, .. } = self;
        let counted = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let context = format!(
            "{} ({}) and {} {buckets} {}{others} are nowhere but here, and these buckets have neither a mount nor an under store",
            counted(*objects, "object"),
            ByteSize(*bytes),
            counted(*deletes, "delete"),
            named.join(", ")
        );
        Some(Error::new(ErrorKind::NoSuchBucket, context))
    }
}

/// Looks for records that can neither be read nor persisted, because their bucket has neither a mount nor a root.
/// Changes nothing.
///
/// # Errors
/// `NoSuchBucket` when there is some.
pub(crate) async fn check(catalog: &dyn Catalog, mounts: &Mounts) -> Result<()> {
    if mounts.root.is_some() {
        return Ok(());
    }
    let mut stranded = Stranded::default();
    let (mut from, to) = records::all_objects_range();
    loop {
        let found = catalog.scan(&from, &to, SCAN_RECORDS).await?;
        let Some((last, _)) = found.last() else { break };
        from = records::successor(last);
        for (key, versioned) in &found {
            let Some(path) = records::parse_object_key(key) else { continue };
            if !mounts.mounts.contains_key(&path.bucket) {
                stranded.add(path.bucket, &ObjectRecord::decode(&versioned.value)?);
            }
        }
    }
    stranded.error().map_or(Ok(()), Err)
}
