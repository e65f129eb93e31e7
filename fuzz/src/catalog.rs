//! Records of the catalog and their keys.

use forebay_catalog::records::{self, ObjectRecord, PartRecord, PolicyRecord, PolicyVersionRecord, UploadRecord};
use forebay_types::ObjectPath;

/// What decodes, encodes to what decodes to the same; nothing may be behind it.
pub(crate) fn records(data: &[u8]) {
    if let Ok(record) = ObjectRecord::decode(data) {
        assert_eq!(ObjectRecord::decode(&record.encode()).expect("just encoded"), record);
    }
    if let Ok(record) = UploadRecord::decode(data) {
        assert_eq!(UploadRecord::decode(&record.encode()).expect("just encoded"), record);
    }
    if let Ok(record) = PartRecord::decode(data) {
        assert_eq!(PartRecord::decode(&record.encode()).expect("just encoded"), record);
    }
    if let Ok(record) = PolicyRecord::decode(data) {
        assert_eq!(PolicyRecord::decode(&record.encode()).expect("just encoded"), record);
    }
    if let Ok(record) = PolicyVersionRecord::decode(data) {
        assert_eq!(PolicyVersionRecord::decode(&record.encode()).expect("just encoded"), record);
    }
    let longer = [data, &[0]].concat();
    let decoded = [
        ObjectRecord::decode(data).is_ok() && ObjectRecord::decode(&longer).is_ok(),
        UploadRecord::decode(data).is_ok() && UploadRecord::decode(&longer).is_ok(),
        PartRecord::decode(data).is_ok() && PartRecord::decode(&longer).is_ok(),
        PolicyRecord::decode(data).is_ok() && PolicyRecord::decode(&longer).is_ok(),
        PolicyVersionRecord::decode(data).is_ok() && PolicyVersionRecord::decode(&longer).is_ok(),
    ];
    assert_eq!(decoded, [false; 5], "bytes behind a record are ignored");
}

/// Keys stand for one object each, and lie in the ranges of what they belong to.
pub(crate) fn keys(data: &[u8]) {
    if let Some(path) = records::parse_object_key(data) {
        assert_eq!(records::object_key(&path), data);
    }
    if let Some(path) = records::parse_request_key(data) {
        assert_eq!(records::request_key(&path), data);
    }
    if let Some(bucket) = records::parse_bucket_key(data) {
        assert_eq!(records::bucket_key(&bucket), data);
    }
    let _ = (records::parse_upload_key(data), records::parse_part_key(data), records::parse_part_upload(data));
    let Some((key, prefix)) = std::str::from_utf8(data).ok().and_then(|text| text.split_once('\n')) else { return };
    let Ok(path) = ObjectPath::parse("bucket", key) else { return };
    let object = records::object_key(&path);
    assert_eq!(records::parse_object_key(&object), Some(path.clone()));
    assert_eq!(records::parse_request_key(&records::request_key(&path)), Some(path.clone()));
    let (from, to) = records::object_prefix_range(&path.bucket, prefix);
    assert_eq!(from <= object && object < to, key.starts_with(prefix));
    let upload = records::upload_key(&path, "0123");
    assert_eq!(records::parse_upload_key(&upload), Some((path.clone(), "0123".to_owned())));
    assert!(upload < records::uploads_after(&path.bucket, key, None));
    assert!(upload < records::uploads_after(&path.bucket, key, Some("0123")));
}
