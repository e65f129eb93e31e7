//! Paths as people write them: `s3://bucket/key` and `/bucket/key` are the same.

use std::fmt::Write as _;

use crate::failure::Failure;

/// The path `/`, `/bucket` or `/bucket/prefix` of an argument.
pub(crate) fn prefix_path(given: &str) -> Result<String, Failure> {
    match (given.strip_prefix("s3://"), given.starts_with('/')) {
        (Some(rest), _) if rest.starts_with('/') => Err(wrong(given, "names no bucket")),
        (Some(rest), _) => Ok(format!("/{rest}")),
        (None, true) => Ok(given.to_owned()),
        (None, false) if looks_like_path(given) => {
            Err(wrong(given, &format!("write s3://bucket/key or /bucket/key; did you mean s3://{given}?")))
        }
        (None, false) => Err(wrong(given, "write s3://bucket/key or /bucket/key")),
    }
}

/// Whether it begins with what may be the name of a bucket.
fn looks_like_path(given: &str) -> bool {
    given.split('/').next().is_some_and(|bucket| forebay_types::BucketName::new(bucket).is_ok())
}

/// The path `/bucket/key` of an argument.
pub(crate) fn object_path(given: &str) -> Result<String, Failure> {
    let path = prefix_path(given)?;
    let key = path[1..].split_once('/').map_or("", |(_, key)| key);
    if key.is_empty() { Err(wrong(given, "names no object: write s3://bucket/key or /bucket/key")) } else { Ok(path) }
}

fn wrong(given: &str, why: &str) -> Failure {
    Failure::Refused(format!("{given:?}: {why}"))
}

/// A value of a query: everything but what needs no encoding anywhere in a URL is encoded.
pub(super) fn encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_write_a_path_are_the_same() {
        for (given, path) in [
            ("s3://", "/"),
            ("/", "/"),
            ("s3://bucket", "/bucket"),
            ("s3://bucket/", "/bucket/"),
            ("/bucket/a b/", "/bucket/a b/"),
            ("s3://bucket//odd", "/bucket//odd"),
        ] {
            assert_eq!(prefix_path(given).expect("a path"), path);
        }
        assert_eq!(object_path("s3://bucket/a/b").expect("an object"), "/bucket/a/b");
    }

    #[test]
    fn what_is_no_path_is_refused_with_its_text() {
        for given in ["", "bucket/key", "s3:/bucket", "S3://bucket", "s3:///key"] {
            let Err(Failure::Refused(line)) = prefix_path(given) else { panic!("{given} is taken") };
            assert!(line.contains(&format!("{given:?}")), "{line}");
        }
        let Err(Failure::Refused(line)) = prefix_path("lake/raw/") else { panic!("taken") };
        assert_eq!(line, "\"lake/raw/\": write s3://bucket/key or /bucket/key; did you mean s3://lake/raw/?");
        for given in ["/", "/bucket", "s3://bucket/", "bucket/key"] {
            let Err(Failure::Refused(line)) = object_path(given) else { panic!("{given} is taken") };
            assert!(line.contains(given), "{line}");
        }
    }

    #[test]
    fn values_of_a_query_are_encoded_byte_by_byte() {
        assert_eq!(encoded("/b/a b&c=d+é%"), "/b/a%20b%26c%3Dd%2B%C3%A9%25");
    }
}
