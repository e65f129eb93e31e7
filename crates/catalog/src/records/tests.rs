use forebay_types::{
    Algorithm, BucketName, ByteSize, Checksum, Checksums, ETag, Generation, ObjectPath, PolicyChange, PolicyRule,
    SystemHeaders, WriteMode,
};
use proptest::prelude::*;

use super::*;

fn object() -> ObjectRecord {
    ObjectRecord {
        state: State::Dirty,
        generation: Generation(77),
        dirty_since: Generation(70),
        dirty_since_ms: 1_700_000_000_000,
        size: 5,
        etag: ETag::new("5d41402abc4b2a76b9719d911017c592"),
        last_modified_ms: 1_700_000_000_123,
        storage_class: None,
        base: Base::Present(ETag::new("x-3")),
        holders: Holders::default(),
    }
}

fn upload() -> UploadRecord {
    let completed = CompletedUpload { etag: ETag::new("e-2"), size: 9, checksums: Checksums::none(), completed_ms: 3 };
    UploadRecord {
        created_ms: 1,
        owner: "owner".into(),
        headers: SystemHeaders { content_type: Some("text/plain".into()), ..SystemHeaders::default() },
        user: [("name".to_owned(), "value".to_owned())].into(),
        tags: [("tag".to_owned(), "value".to_owned())].into(),
        checksum_algorithm: Some(forebay_types::Algorithm::Crc32C),
        checksum_kind: Some(forebay_types::ChecksumKind::Composite),
        completed: Some(completed),
        sent: None,
    }
}

fn part() -> PartRecord {
    let etag = ETag::new("p");
    let (checksums, holders) = (Checksums::none(), Holders::default());
    PartRecord { generation: Generation(3), size: 4, etag, checksums, last_modified_ms: 5, holders }
}

fn policy() -> PolicyRecord {
    let rule = PolicyRule { write_mode: Some(WriteMode::WriteBack), ..PolicyRule::for_path("/data/") };
    PolicyRecord { rules: vec![rule], configured: Vec::new(), revision: 7 }
}

fn policy_version() -> PolicyVersionRecord {
    let change = PolicyChange {
        path: "/data/".to_owned(),
        setting: "writeMode".to_owned(),
        before: None,
        after: Some("\"WRITE_BACK\"".to_owned()),
    };
    PolicyVersionRecord {
        revision: 7,
        time_ms: 1_700_000_000_000,
        by: "admin".to_owned(),
        reason: "edit".to_owned(),
        rules: policy().rules,
        changes: vec![change],
    }
}

/// The bytes of version 1, which every later version must still read.
#[test]
fn records_read_as_version_1_wrote_them() {
    let golden = |name: &str| {
        let path = format!("{}/golden/{name}.v1.hex", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        text.trim().to_owned()
    };
    let encoded = [object().encode(), upload().encode(), part().encode(), policy().encode(), policy_version().encode()];
    let names = ["object", "upload", "part", "policy-counted", "policy-version"];
    assert_eq!(encoded.map(hex::encode), names.map(golden));
    let bytes = |name| hex::decode(golden(name)).unwrap();
    assert_eq!(ObjectRecord::decode(&bytes("object")).unwrap(), object());
    assert_eq!(UploadRecord::decode(&bytes("upload")).unwrap(), upload());
    assert_eq!(PartRecord::decode(&bytes("part")).unwrap(), part());
    assert_eq!(PolicyRecord::decode(&bytes("policy-counted")).unwrap(), policy());
    assert_eq!(PolicyVersionRecord::decode(&bytes("policy-version")).unwrap(), policy_version());
    let uncounted = PolicyRecord { revision: 0, ..policy() };
    assert_eq!(PolicyRecord::decode(&bytes("policy")).unwrap(), uncounted, "as it was before versions were counted");
}

/// A rule that does not do what it says would be worse than no start.
#[test]
fn rules_keep_their_limits_by_size_and_unknown_settings_are_refused() {
    let [rule] = policy().rules.try_into().unwrap();
    assert_eq!((rule.write_back_max_size, rule.read_cache_max_size), (None, None), "as before there were limits");
    let (write_back_max_size, read_cache_max_size) = (Some(ByteSize(8 << 20)), Some(ByteSize(1_000)));
    let limited = PolicyRule { write_back_max_size, read_cache_max_size, ..rule };
    let record = PolicyRecord { rules: vec![limited], ..policy() };
    assert_eq!(PolicyRecord::decode(&record.encode()).unwrap(), record);
    let text = String::from_utf8(record.encode().to_vec()).unwrap();
    let unknown = text.replace("readCacheMaxSize", "ofTheFuture");
    let refused = PolicyRecord::decode(unknown.as_bytes()).unwrap_err().to_string();
    assert!(refused.contains("ofTheFuture"), "{refused}");
}

/// Uploads and parts with checksums that version 1 does not have.
#[test]
fn records_read_as_version_2_wrote_them() {
    let golden = |name: &str| {
        let path = format!("{}/golden/{name}.v2.hex", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        text.trim().to_owned()
    };
    let checksum = |algorithm: Algorithm| Checksum { algorithm, value: vec![7; algorithm.bytes()] };
    let values = vec![checksum(Algorithm::Md5), checksum(Algorithm::Xxhash3)];
    let part = PartRecord { checksums: Checksums { values, ..Checksums::none() }, ..part() };
    let upload = UploadRecord { checksum_algorithm: Some(Algorithm::Xxhash128), completed: None, ..upload() };
    let encoded = [upload.encode(), part.encode()];
    assert_eq!(encoded.clone().map(hex::encode), ["upload", "part"].map(golden));
    assert_eq!((encoded[0][0], encoded[1][0]), (2, 2));
    assert_eq!(UploadRecord::decode(&encoded[0]).unwrap(), upload);
    assert_eq!(PartRecord::decode(&encoded[1]).unwrap(), part);
    let checksums = Checksums { values: vec![checksum(Algorithm::Sha512)], ..Checksums::none() };
    let completed = CompletedUpload { etag: ETag::new("e-2"), size: 9, checksums, completed_ms: 3 };
    let completed = UploadRecord { checksum_algorithm: None, completed: Some(completed), ..upload };
    assert_eq!(completed.encode()[0], 2);
    assert_eq!(UploadRecord::decode(&completed.encode()).unwrap(), completed);
}

/// Uploads with a completion that was sent.
#[test]
fn uploads_read_as_version_3_wrote_them() {
    let upload = UploadRecord { completed: None, sent: Some(Generation(77)), ..upload() };
    let golden = include_str!("../../golden/upload.v3.hex");
    assert_eq!(hex::encode(upload.encode()), golden.trim());
    assert_eq!(UploadRecord::decode(&upload.encode()).unwrap(), upload);
    check_refusals(upload.encode(), 3, UploadRecord::decode);
}

/// Objects and parts of a cluster.
#[test]
fn records_read_as_version_3_wrote_them() {
    let holders = Holders::of(["worker-1".to_owned(), "worker-2".to_owned()]);
    let (object, part) = (ObjectRecord { holders: holders.clone(), ..object() }, PartRecord { holders, ..part() });
    let golden = [include_str!("../../golden/object.v3.hex"), include_str!("../../golden/part.v3.hex")];
    assert_eq!([object.encode(), part.encode()].map(hex::encode), golden.map(str::trim));
    assert_eq!(ObjectRecord::decode(&object.encode()).unwrap(), object);
    assert_eq!(PartRecord::decode(&part.encode()).unwrap(), part);
    check_refusals(object.encode(), 3, ObjectRecord::decode);
    check_refusals(part.encode(), 3, PartRecord::decode);
    let path = ObjectPath::parse("bucket", "key").unwrap();
    let wanted = wanted_bytes(&object_key(&path), &object.encode()).unwrap().unwrap();
    assert_eq!(
        (wanted.generation, wanted.size, wanted.holders),
        (object.generation, object.size, object.holders.clone())
    );
    let deleted = ObjectRecord { state: State::Tombstone, ..object };
    assert_eq!(wanted_bytes(&object_key(&path), &deleted.encode()).unwrap(), None);
}

fn check_refusals<T: std::fmt::Debug>(encoded: Bytes, newest: u8, decode: fn(&[u8]) -> Result<T>) {
    let with_version = |version| [&[version], &encoded[1..]].concat();
    let longer = [&encoded[..], &[0]].concat();
    let shorter = &encoded[..encoded.len() - 1];
    for refused in [&with_version(newest + 1)[..], &with_version(0), &[], &longer, shorter] {
        assert_eq!(decode(refused).unwrap_err().kind, ErrorKind::Corrupt, "{refused:?}");
    }
    let text = decode(&with_version(newest + 1)).unwrap_err().to_string();
    let told = format!("has version {}, newer than this release's {newest}", newest + 1);
    assert!(text.contains(&told), "{text}");
}

#[test]
fn a_newer_version_and_damage_are_refused() {
    check_refusals(object().encode(), 3, ObjectRecord::decode);
    check_refusals(upload().encode(), 3, UploadRecord::decode);
    check_refusals(part().encode(), 3, PartRecord::decode);
    check_refusals(policy().encode(), 1, PolicyRecord::decode);
    check_refusals(policy_version().encode(), 1, PolicyVersionRecord::decode);
}

#[test]
fn a_newer_version_is_seen_without_a_look_at_the_rest() {
    let path = ObjectPath::parse("bucket", "key").unwrap();
    let keys = [object_key(&path), upload_key(&path, "id"), part_key("id", 1), policy_key(), policy_version_key(1)];
    let kinds = [("object", 3), ("upload", 3), ("part", 3), ("policy", 1), ("policy version", 1)];
    for (key, (what, newest)) in keys.iter().zip(kinds) {
        let problem = format!("the {what} record has version {}, newer than this release's {newest}", newest + 1);
        assert_eq!(check_version(key, &[newest + 1]), Err(problem));
        assert_eq!(check_version(key, &[newest]), Ok(()));
        assert_eq!(check_version(key, &[VERSION]), Ok(()));
    }
    let base = Bytes::from_static(GENERATION_BASE_KEY);
    for key in [job_key("id"), job_finding_key("id", 1), request_key(&path), base] {
        assert_eq!(check_version(&key, &[VERSION + 1]), Ok(()), "{key:?}");
    }
}

#[test]
fn ranges_hold_what_they_name_and_nothing_else() {
    let bucket = BucketName::new("bucket").unwrap();
    let path = |key: &str| ObjectPath::parse("bucket", key).unwrap();
    let (from, to) = object_prefix_range(&bucket, "a/");
    for (key, inside) in [("a/", true), ("a/\u{10ffff}", true), ("a", false), ("a0", false), ("b", false)] {
        let key = object_key(&path(key));
        assert_eq!(from <= key && key < to, inside, "{key:?}");
    }
    let uploads = ["a", "a/b", "ab"].map(|key| upload_key(&path(key), "id1"));
    assert!(uploads_after(&bucket, "a", None) > uploads[0] && uploads_after(&bucket, "a", None) <= uploads[1]);
    assert!(uploads_after(&bucket, "a", Some("id0")) <= uploads[0]);
    assert!(part_key("id", 9_999) < part_key("id", 10_000));
    assert!(policy_version_key(99) < policy_version_key(100));
    let (from, to) = job_findings_range("id");
    let findings = [9, 10, 9_999].map(|number| job_finding_key("id", number));
    assert!(findings.is_sorted() && findings.iter().all(|key| from <= *key && *key < to));
    assert_eq!(parse_job_finding_key(&findings[1]), Some(10));
    let (from, to) = all_jobs_range();
    assert!(from <= job_key("id") && job_key("id") < to && !findings.iter().any(|key| from <= *key && *key < to));
}

proptest! {
    #[test]
    fn keys_are_read_back(key in "[^\0]{1,300}", id in "[0-9a-f]{32}", number in 1_u32..=10_000) {
        prop_assume!(key.len() <= 1024);
        let path = ObjectPath::parse("some-bucket", &key).unwrap();
        prop_assert_eq!(parse_object_key(&object_key(&path)), Some(path.clone()));
        prop_assert_eq!(parse_request_key(&request_key(&path)), Some(path.clone()));
        prop_assert_eq!(parse_upload_key(&upload_key(&path, &id)), Some((path, id.clone())));
        let part = part_key(&id, number);
        prop_assert_eq!(parse_part_upload(&part), Some(id.as_str()));
        prop_assert_eq!(parse_part_key(&part_key(&id, number)), Some(number));
    }

    #[test]
    fn numbers_of_any_size_round_trip(generation: u64, since: u64, size: u64, ms: u64) {
        let record = ObjectRecord {
            generation: Generation(generation), dirty_since: Generation(since), size, last_modified_ms: ms, ..object()
        };
        prop_assert_eq!(ObjectRecord::decode(&record.encode()).unwrap(), record);
    }
}
