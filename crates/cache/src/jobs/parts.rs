//! Parts of multipart uploads, which have their own keys in the store.

use std::collections::VecDeque;

use bytes::Bytes;
use forebay_catalog::records::{self, PartRecord};
use forebay_types::ObjectPath;

use super::run::Run;
use crate::Result;

/// A part with a record in the catalog.
pub(super) struct Part {
    pub(super) path: ObjectPath,
    pub(super) upload_id: String,
    pub(super) number: u32,
    pub(super) record: PartRecord,
}

impl Part {
    pub(super) fn name(&self) -> String {
        part_name(&self.upload_id, self.number)
    }
}

pub(super) fn part_name(upload_id: &str, number: u32) -> String {
    format!("part {number} of the upload {upload_id}")
}

/// The uploads of a scope. Each is read when its turn comes.
pub(super) struct Uploads {
    range: (Bytes, Bytes),
    waiting: VecDeque<(ObjectPath, String)>,
}

impl Uploads {
    pub(super) fn new(run: &Run) -> Self {
        Self { range: run.scope.uploads_range(), waiting: VecDeque::new() }
    }

    /// The parts of the next upload.
    pub(super) async fn next(&mut self, run: &Run) -> Result<Option<Vec<Part>>> {
        while self.waiting.is_empty() {
            let Some(found) = run.worker.next_records(&mut self.range).await? else { return Ok(None) };
            self.waiting.extend(found.iter().filter_map(|(key, _)| records::parse_upload_key(key)));
        }
        let Some((path, upload_id)) = self.waiting.pop_front() else { return Ok(None) };
        let (from, to) = records::parts_range(&upload_id);
        let mut parts = Vec::new();
        for (key, found) in run.worker.catalog.scan(&from, &to, usize::MAX).await? {
            let Some(number) = records::parse_part_key(&key) else { continue };
            let record = PartRecord::decode(&found.value)?;
            parts.push(Part { path: path.clone(), upload_id: upload_id.clone(), number, record });
        }
        Ok(Some(parts))
    }
}
