//! The scope of an operator's request: everything, a bucket, or the keys of a bucket that begin with a prefix.

use bytes::Bytes;
use forebay_catalog::records;
use forebay_types::{BucketName, ObjectPath};

use crate::{Error, ErrorKind, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scope {
    /// `None` means all buckets.
    pub(crate) bucket: Option<BucketName>,
    pub(crate) prefix: String,
}

impl Scope {
    /// # Errors
    /// `InvalidArgument` for anything but `/`, `/bucket` and `/bucket/key/prefix`.
    pub(crate) fn parse(path: &str) -> Result<Self> {
        let invalid =
            || Error::new(ErrorKind::InvalidArgument, format!("{path:?} is not a path prefix such as /bucket/dir/"));
        let rest = path.strip_prefix('/').ok_or_else(invalid)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let bucket = match bucket {
            "" if prefix.is_empty() => None,
            name => Some(BucketName::new(name).map_err(|_| invalid())?),
        };
        // No key has one, and keys of the catalog end with it.
        if prefix.contains('\0') {
            return Err(invalid());
        }
        Ok(Self { bucket, prefix: prefix.to_owned() })
    }

    pub(crate) fn contains(&self, path: &ObjectPath) -> bool {
        self.bucket.as_ref().is_none_or(|bucket| path.bucket == *bucket) && path.key.as_str().starts_with(&self.prefix)
    }

    /// Whether it contains keys that a listing of `prefix` may show.
    pub(crate) fn meets(&self, bucket: &BucketName, prefix: &str) -> bool {
        let has_bucket = self.bucket.as_ref().is_none_or(|own| own == bucket);
        has_bucket && (prefix.starts_with(&self.prefix) || self.prefix.starts_with(prefix))
    }

    /// Keys of objects in the catalog and in the store.
    pub(crate) fn range(&self) -> (Bytes, Bytes) {
        match &self.bucket {
            Some(bucket) => records::object_prefix_range(bucket, &self.prefix),
            None => records::all_objects_range(),
        }
    }

    /// Multipart uploads in the catalog.
    pub(crate) fn uploads_range(&self) -> (Bytes, Bytes) {
        match &self.bucket {
            Some(bucket) => records::uploads_range(bucket, &self.prefix),
            None => records::all_uploads_range(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_holds_what_its_path_says() {
        let path = |bucket: &str, key: &str| ObjectPath::parse(bucket, key).unwrap();
        for (text, inside, outside) in [
            ("/", Some(path("any", "x")), None),
            ("/data", Some(path("data", "x")), Some(path("data2", "x"))),
            ("/data/", Some(path("data", "/x")), Some(path("other", "x"))),
            ("/data/in/x", Some(path("data", "in/xyz")), Some(path("data", "in/y"))),
        ] {
            let scope = Scope::parse(text).unwrap();
            let (from, to) = scope.range();
            for (path, expected) in [(inside, true), (outside, false)] {
                let Some(path) = path else { continue };
                assert_eq!(scope.contains(&path), expected, "{text} {path}");
                let key = records::object_key(&path);
                assert_eq!(from <= key && key < to, expected, "{text} {path}");
            }
        }
        for wrong in ["", "data", "//x", "/A_/x", "/data/\0"] {
            assert_eq!(Scope::parse(wrong).unwrap_err().kind, ErrorKind::InvalidArgument, "{wrong:?}");
        }
    }
}
