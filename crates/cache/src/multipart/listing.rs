//! ListParts and ListMultipartUploads.

use forebay_catalog::records::{self, PartRecord, UploadRecord};
use forebay_types::BucketName;

use super::assemble::part_info;
use crate::list::homes::FoundRecord;
use crate::others::home_records::RECORDS_MAX;
use crate::worker::Worker;
use crate::{Error, ListUploads, ListedPart, ListedUpload, PartPage, Result, UploadPage, UploadRef};

/// Records read from the catalog at once.
const SCAN_RECORDS: usize = RECORDS_MAX;

impl Worker {
    /// Parts with numbers above `after`, in order.
    pub(crate) async fn parts_of(
        &self,
        upload: &UploadRef,
        after: u32,
        limit: usize,
    ) -> Result<Vec<(u32, PartRecord)>> {
        let (_, to) = records::parts_range(&upload.upload_id);
        let mut from = records::part_key(&upload.upload_id, after + 1);
        let mut parts = Vec::new();
        while parts.len() < limit {
            let found = self.catalog.scan(&from, &to, SCAN_RECORDS.min(limit - parts.len())).await?;
            let Some((last, _)) = found.last() else { break };
            from = records::successor(last);
            for (key, versioned) in &found {
                if let Some(number) = records::parse_part_key(key) {
                    parts.push((number, PartRecord::decode(&versioned.value)?));
                }
            }
        }
        Ok(parts)
    }

    /// Like [`Worker::parts_of`], without parts whose bytes are known to be lost: clients must upload these again.
    async fn parts_here(&self, upload: &UploadRef, mut after: u32, limit: usize) -> Result<Vec<(u32, PartRecord)>> {
        let mut parts = Vec::new();
        while parts.len() < limit {
            let found = self.parts_of(upload, after, limit - parts.len()).await?;
            let Some((last, _)) = found.last() else { break };
            after = *last;
            let is_left = |(number, part): &(u32, PartRecord)| !self.is_known_lost(&upload.upload_id, *number, part);
            parts.extend(found.into_iter().filter(is_left));
        }
        Ok(parts)
    }

    /// Whether no worker has the bytes of a part. Another one may have them until all have said that they do not.
    fn is_known_lost(&self, upload_id: &str, number: u32, part: &PartRecord) -> bool {
        self.is_lost(upload_id, number, part)
            && (!self.may_be_elsewhere(&part.holders) || self.home.missing.has_part(upload_id, number))
    }

    pub(crate) async fn list_parts(&self, upload: &UploadRef, after: u32, limit: usize) -> Result<PartPage> {
        let losses = self.losses();
        let found = self.open_upload(upload).await?;
        let mut parts = self.parts_here(upload, after, limit + 1).await?;
        // Records are lacking of a slot that was given up meanwhile.
        if self.losses() != losses || !self.home.locks.has(&upload.path) {
            return Err(Error::moved(&upload.path));
        }
        // A page of no parts has none to continue from.
        let is_truncated = limit > 0 && parts.len() > limit;
        parts.truncate(limit);
        let listed = |(number, part): &(u32, PartRecord)| ListedPart {
            part: part_info(*number, part, &found),
            etag: part.etag.clone(),
            last_modified_ms: part.last_modified_ms,
        };
        Ok(PartPage {
            parts: parts.iter().map(listed).collect(),
            is_truncated,
            checksum_algorithm: found.record.checksum_algorithm,
            checksum_kind: found.record.checksum_kind,
            owner: found.record.owner,
            storage_class: found.record.headers.storage_class,
        })
    }

    pub(crate) async fn list_uploads(&self, bucket: &BucketName, request: &ListUploads) -> Result<UploadPage> {
        self.buckets.mount(bucket).await?;
        // Such a page has no entry to continue from.
        if request.limit == 0 {
            return Ok(UploadPage::default());
        }
        let (mut from, to) = records::uploads_range(bucket, &request.prefix);
        if let Some(marker) = &request.key_marker {
            from = from.max(records::uploads_after(bucket, marker, request.upload_id_marker.as_deref()));
        }
        let mut page = UploadPage::default();
        while from < to {
            let found = self.records_of_all(&from, &to, SCAN_RECORDS).await?;
            for FoundRecord { key, value, .. } in &found.records {
                let Some((path, upload_id)) = records::parse_upload_key(key) else { continue };
                let record = UploadRecord::decode(value)?;
                if record.completed.is_none() && !add(&mut page, request, path.key.as_str(), upload_id, record) {
                    return Ok(page);
                }
            }
            let Some(last) = found.end else { break };
            from = records::successor(&last);
        }
        page.next_key_marker = None;
        page.next_upload_id_marker = None;
        Ok(page)
    }
}

/// Adds an upload or its common prefix. `false` when the page is full; the page is then truncated.
fn add(page: &mut UploadPage, request: &ListUploads, key: &str, upload_id: String, record: UploadRecord) -> bool {
    let delimiter = request.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());
    let rest = key.strip_prefix(request.prefix.as_str()).unwrap_or(key);
    let group = delimiter.and_then(|d| rest.find(d).map(|at| &key[..key.len() - rest.len() + at + d.len()]));
    let skipped = |group: &str| request.key_marker.as_deref().is_some_and(|marker| group <= marker);
    if group.is_some_and(|group| page.prefixes.last().is_some_and(|last| last == group) || skipped(group)) {
        return true;
    }
    if page.uploads.len() + page.prefixes.len() >= request.limit {
        page.is_truncated = true;
        return false;
    }
    match group {
        Some(group) => {
            page.prefixes.push(group.to_owned());
            page.next_key_marker = Some(group.to_owned());
            page.next_upload_id_marker = None;
        }
        None => {
            page.next_key_marker = Some(key.to_owned());
            page.next_upload_id_marker = Some(upload_id.clone());
            page.uploads.push(ListedUpload {
                key: key.to_owned(),
                upload_id,
                created_ms: record.created_ms,
                owner: record.owner,
                storage_class: record.headers.storage_class,
                checksum_algorithm: record.checksum_algorithm,
                checksum_kind: record.checksum_kind,
            });
        }
    }
    true
}
