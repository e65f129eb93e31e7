//! The mark that Forebay leaves on the objects that it writes.
//!
//! On S3 it is one piece of user metadata, which clients of Forebay do not see:
//!
//! `1;g=<generation>;k=<hash of the key>;s=<size>;t=<last modified, ms>;e=<ETag>;m=0;c=<F|C>:<ALGORITHM>=<base64>,…;x=<ALGORITHM>=<base64>,…;p=<count>x<size>,…`
//!
//! A release skips the fields that it does not know. The algorithms of 2026 are under `x`: an older release would not
//! believe a stamp that has one of them under `c`.
//!
//! Other tools copy metadata to other bytes: a program that reads an object, changes it and writes it back often sends
//! the metadata that it has read. So a stamp counts only when nothing in the under store's answer contradicts it: size,
//! checksums, and the ETag where that is the MD5 of the content. `m=0` says that it is not in the bucket of the object:
//! the answers to uploads show that, and a process that has not uploaded anything yet does not know it.
//!
//! Other tools also copy objects to other keys, with their metadata. So a stamp counts only under its own key. Stamps
//! of older releases have no `k`, and count under any key.

use forebay_types::limits::USER_METADATA_BYTES_MAX;
use forebay_types::{Algorithm, Checksum, ChecksumKind, Checksums, ETag, Generation, ObjectInfo, PartInfo};
use twox_hash::XxHash3_64;

/// The name of the metadata, without `x-amz-meta-`.
pub(crate) const STAMP_NAME: &str = "forebay-stamp";

/// The header in which S3 shows it.
pub const STAMP_HEADER: &str = "x-amz-meta-forebay-stamp";

/// Read back from an object that Forebay wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    pub generation: Generation,
}

/// The object that a stamp is on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) key: &'a str,
    /// The under store's ETag of an object that came in one piece is the MD5 of its content.
    pub(crate) has_md5: bool,
}

/// What binds metadata to a key: its XXH3, in 16 hex digits. The key is that in the bucket of Forebay, so that the
/// bucket can be moved to another place in an under store, with all its objects.
pub(crate) fn key_hash(key: &str) -> String {
    format!("{:016x}", XxHash3_64::oneshot(key.as_bytes()))
}

/// The stamp's text, next to metadata of `used` bytes. What does not fit is left out: first the part list, then the
/// whole stamp.
pub(crate) fn write(generation: Generation, info: &ObjectInfo, subject: Subject<'_>, used: usize) -> Option<String> {
    let room = USER_METADATA_BYTES_MAX.checked_sub(used + STAMP_NAME.len())?;
    let kind = match info.checksums.kind {
        ChecksumKind::FullObject => "F",
        ChecksumKind::Composite => "C",
    };
    let checksum = |checksum: &Checksum| format!("{}={}", checksum.algorithm.name(), checksum.base64());
    let checksums = |newer: bool| {
        let values = info.checksums.values.iter().filter(|checksum| checksum.algorithm.is_of_2026() == newer);
        values.map(checksum).collect::<Vec<_>>().join(",")
    };
    let newer = Some(checksums(true)).filter(|newer| !newer.is_empty()).map(|newer| format!(";x={newer}"));
    let opaque = if subject.has_md5 { "" } else { ";m=0" };
    let stamp = format!(
        "1;g={generation};k={};s={};t={};e={}{opaque};c={kind}:{}{}",
        key_hash(subject.key),
        info.size,
        info.last_modified_ms,
        info.etag,
        checksums(false),
        newer.unwrap_or_default()
    );
    let parts = if info.parts.is_empty() { String::new() } else { format!(";p={}", write_parts(&info.parts)) };
    if stamp.len() + parts.len() <= room {
        return Some(stamp + &parts);
    }
    (stamp.len() <= room).then_some(stamp)
}

/// Runs of equal sizes. Part numbers are kept only where they count from 1.
fn write_parts(parts: &[PartInfo]) -> String {
    let mut runs: Vec<(u32, u64)> = Vec::new();
    for part in parts {
        match runs.last_mut() {
            Some((count, size)) if *size == part.size => *count += 1,
            Some(_) | None => runs.push((1, part.size)),
        }
    }
    runs.iter().map(|(count, size)| format!("{count}x{size}")).collect::<Vec<_>>().join(",")
}

/// Updates `info`, which the under store has reported, with what Forebay acknowledged. `None` when the stamp does not
/// fit.
pub(crate) fn read(text: &str, info: &mut ObjectInfo, subject: Subject<'_>) -> Option<Stamp> {
    let mut fields = text.split(';');
    if fields.next()? != "1" {
        return None;
    }
    let (mut generation, mut found) = (None, info.clone());
    let (mut size, mut has_md5) = (None, subject.has_md5);
    for field in fields {
        let (name, value) = field.split_once('=')?;
        match name {
            "g" => generation = Some(Generation(value.parse().ok()?)),
            "k" if value != key_hash(subject.key) => return None,
            "m" => has_md5 &= value != "0",
            "s" => size = Some(value.parse::<u64>().ok()?),
            "t" => found.last_modified_ms = value.parse().ok()?,
            "e" => found.etag = ETag::new(value),
            "c" => found.checksums = read_checksums(value)?,
            "x" => found.checksums.values.extend(read_values(value)?),
            "p" => found.parts = read_parts(value)?,
            _ => {}
        }
    }
    let md5s = info.etag.md5().zip(found.etag.md5()).filter(|_| has_md5);
    let is_of_other_bytes = md5s.is_some_and(|(theirs, ours)| theirs != ours);
    if size? != info.size || is_of_other_bytes || contradict(&info.checksums, &found.checksums) {
        return None;
    }
    let stamp = Stamp { generation: generation? };
    *info = found;
    Some(stamp)
}

/// Whether two checksums of a whole object, by one algorithm, differ.
fn contradict(one: &Checksums, other: &Checksums) -> bool {
    let are_comparable = one.kind == ChecksumKind::FullObject && other.kind == ChecksumKind::FullObject;
    are_comparable
        && one
            .values
            .iter()
            .any(|one| other.values.iter().any(|other| one.algorithm == other.algorithm && one.value != other.value))
}

fn read_checksums(text: &str) -> Option<Checksums> {
    let (kind, values) = text.split_once(':')?;
    let kind = match kind {
        "F" => ChecksumKind::FullObject,
        "C" => ChecksumKind::Composite,
        _ => return None,
    };
    Some(Checksums { kind, values: read_values(values)? })
}

fn read_values(text: &str) -> Option<Vec<Checksum>> {
    let value = |text: &str| {
        let (name, base64) = text.split_once('=')?;
        Checksum::parse(Algorithm::from_name(name)?, base64)
    };
    text.split(',').filter(|text| !text.is_empty()).map(value).collect()
}

fn read_parts(text: &str) -> Option<Vec<PartInfo>> {
    let mut parts = Vec::new();
    for run in text.split(',') {
        let (count, size) = run.split_once('x')?;
        let (count, size): (u32, u64) = (count.parse().ok()?, size.parse().ok()?);
        if parts.len() as u64 + u64::from(count) > 10_000 {
            return None;
        }
        for _ in 0..count {
            parts.push(PartInfo { number: parts.len() as u32 + 1, size, checksums: Checksums::none() });
        }
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> ObjectInfo {
        let part = |number, size| PartInfo { number, size, checksums: Checksums::none() };
        let checksum = Checksum { algorithm: Algorithm::Crc32C, value: vec![1, 2, 3, 4] };
        ObjectInfo {
            checksums: Checksums { kind: ChecksumKind::Composite, values: vec![checksum] },
            parts: vec![part(1, 10), part(2, 10), part(3, 4)],
            ..ObjectInfo::new(24, ETag::new("abc-3"), 1_700_000_000_123)
        }
    }

    fn subject(has_md5: bool) -> Subject<'static> {
        Subject { key: "a/b", has_md5 }
    }

    #[test]
    fn a_stamp_brings_back_what_was_acknowledged() {
        let text = write(Generation(77), &info(), subject(true), 0).unwrap();
        let mut told = ObjectInfo::new(24, ETag::new("other"), 5);
        assert_eq!(read(&text, &mut told, subject(true)), Some(Stamp { generation: Generation(77) }));
        assert_eq!(told, info());
    }

    #[test]
    fn an_algorithm_of_2026_is_where_older_releases_pass_over_it() {
        let value = |algorithm: Algorithm| Checksum { algorithm, value: vec![7; algorithm.bytes()] };
        let both = [Algorithm::Sha256, Algorithm::Xxhash3, Algorithm::Sha512].map(value);
        let newer =
            ObjectInfo { checksums: Checksums { kind: ChecksumKind::Composite, values: both.into() }, ..info() };
        let text = write(Generation(77), &newer, subject(true), 0).unwrap();
        let older = text.split(';').find(|field| field.starts_with("c=")).unwrap();
        assert_eq!(older, format!("c=C:SHA256={}", value(Algorithm::Sha256).base64()));
        let mut told = ObjectInfo::new(24, ETag::new("other"), 5);
        assert!(read(&text, &mut told, subject(true)).is_some());
        assert_eq!(told, newer);
    }

    #[test]
    fn a_stamp_that_does_not_fit_is_not_believed() {
        let text = write(Generation(77), &info(), subject(true), 0).unwrap();
        for (text, size) in [(text.as_str(), 25), ("2;g=1;s=24", 24), ("1;g=x;s=24", 24), ("1;s=24;e=a", 24), ("", 24)]
        {
            let mut told = ObjectInfo::new(size, ETag::new("other"), 5);
            assert_eq!(read(text, &mut told, subject(true)), None, "{text}");
            assert_eq!(told, ObjectInfo::new(size, ETag::new("other"), 5));
        }
    }

    #[test]
    fn a_stamp_that_was_copied_to_other_bytes_of_the_same_size_is_not_believed() {
        let [ours, other] = ["1", "2"].map(|digit| ETag::new(&digit.repeat(32)));
        let checksums = |kind, byte| {
            let values = vec![Checksum { algorithm: Algorithm::Crc32, value: vec![byte; 4] }];
            Checksums { kind, values }
        };
        let whole = |byte| checksums(ChecksumKind::FullObject, byte);
        let info = ObjectInfo { checksums: whole(1), ..ObjectInfo::new(9, ours.clone(), 5) };
        let text = write(Generation(1), &info, subject(true), 0);
        let believed = |etag: &ETag, checksums: Checksums, has_md5| {
            let mut told = ObjectInfo { checksums, ..ObjectInfo::new(9, etag.clone(), 7) };
            let before = told.clone();
            let stamp = read(text.as_deref().unwrap(), &mut told, subject(has_md5));
            assert_eq!(stamp.is_some(), told != before);
            stamp.is_some()
        };
        let none = Checksums::none;
        assert!(believed(&ours, none(), true) && believed(&ours, whole(1), true));
        assert!(!believed(&other, none(), true) && !believed(&other, whole(1), true));
        assert!(!believed(&ours, whole(2), true) && !believed(&other, whole(2), false));
        // Encrypted with a key of KMS, and uploaded in parts.
        assert!(believed(&other, whole(1), false) && believed(&ETag::new("2222-3"), none(), true));
        assert!(believed(&ours, checksums(ChecksumKind::Composite, 2), true));
    }

    /// As `aws s3 cp` and `aws s3 mv` copy it within the under store.
    #[test]
    fn a_stamp_that_was_copied_to_another_key_is_not_believed() {
        let text = write(Generation(77), &info(), subject(true), 0).unwrap();
        let believed = |text: &str, key| {
            let mut told = ObjectInfo::new(24, ETag::new("other"), 5);
            let stamp = read(text, &mut told, Subject { key, has_md5: true });
            assert_eq!(stamp.is_some(), told == info(), "what is not believed has no effect");
            stamp.is_some()
        };
        assert!(believed(&text, "a/b"));
        assert!(!believed(&text, "a/c") && !believed(&text, "b"));
        // Of an older release.
        let key = format!(";k={}", key_hash("a/b"));
        assert!(text.contains(&key));
        assert!(believed(&text.replace(&key, ""), "a/c"));
    }

    /// `xxhsum -H3`.
    #[test]
    fn the_hash_of_a_key_stays_as_it_is() {
        assert_eq!(key_hash(""), "2d06800538d394c2");
    }

    #[test]
    fn a_stamp_says_where_etags_are_no_md5s() {
        let [ours, theirs] = ["1", "2"].map(|digit| ETag::new(&digit.repeat(32)));
        for has_md5 in [true, false] {
            let text = write(Generation(1), &ObjectInfo::new(9, ours.clone(), 5), subject(has_md5), 0).unwrap();
            let mut told = ObjectInfo::new(9, theirs.clone(), 7);
            assert_eq!(read(&text, &mut told, subject(true)).is_some(), !has_md5, "{text}");
        }
    }

    #[test]
    fn a_long_part_list_is_left_out() {
        let part = |number| PartInfo { number, size: u64::from(number), checksums: Checksums::none() };
        let long = ObjectInfo { parts: (1..=1000).map(part).collect(), ..info() };
        let text = write(Generation(1), &long, subject(true), 0).unwrap();
        assert!(!text.contains(";p="));
        assert_eq!(write(Generation(1), &long, subject(true), 2048), None);
    }
}
