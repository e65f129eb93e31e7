//! Conditional headers, in the order of RFC 9110 and S3.

use forebay_types::{ETag, ObjectInfo};

use crate::{Conditions, Error, ErrorKind, IfRange, Result, TagCondition};

impl TagCondition {
    /// `remote` is the under store's ETag of the same bytes, which its listings show. Both ETags name this version.
    fn holds(&self, info: &ObjectInfo, remote: Option<&ETag>) -> bool {
        match self {
            Self::Any => true,
            Self::OneOf(tags) => tags.contains(&info.etag) || remote.is_some_and(|remote| tags.contains(remote)),
        }
    }
}

impl Conditions {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks a read of an existing object, whose ETag in the under store is `remote`. `If-Match` overrules
    /// `If-Unmodified-Since`, and `If-None-Match` overrules `If-Modified-Since` (RFC 9110, section 13.2.2).
    ///
    /// # Errors
    /// `PreconditionFailed` or `NotModified`, with the object.
    pub fn check_read(&self, info: &ObjectInfo, remote: Option<&ETag>) -> Result<()> {
        let modified_s = info.last_modified_ms / 1000;
        let failed = match (&self.if_match, self.if_unmodified_since_ms) {
            (Some(tags), _) => !tags.holds(info, remote),
            (None, Some(since_ms)) => modified_s > since_ms / 1000,
            (None, None) => false,
        };
        if failed {
            return Err(Error::about(ErrorKind::PreconditionFailed, "a condition of the request does not hold", info));
        }
        let unchanged = match (&self.if_none_match, self.if_modified_since_ms) {
            (Some(tags), _) => tags.holds(info, remote),
            (None, Some(since_ms)) => modified_s <= since_ms / 1000,
            (None, None) => false,
        };
        if unchanged { Err(Error::about(ErrorKind::NotModified, "the object is unchanged", info)) } else { Ok(()) }
    }

    /// Whether the client wants a range of this version (RFC 9110, section 13.1.5).
    pub fn allow_range(&self, info: &ObjectInfo, remote: Option<&ETag>) -> bool {
        match &self.if_range {
            None => true,
            Some(IfRange::Tag(etag)) => *etag == info.etag || remote == Some(etag),
            Some(IfRange::UnchangedSince(ms)) => info.last_modified_ms / 1000 == ms / 1000,
        }
    }

    /// Checks a write against the object that it would replace.
    ///
    /// # Errors
    /// `PreconditionFailed`; `NotFound` when `If-Match` names an object that is absent, as S3 answers.
    pub fn check_write(&self, current: Option<&ObjectInfo>, remote: Option<&ETag>) -> Result<()> {
        match (&self.if_match, current) {
            (Some(_), None) => return Err(Error::new(ErrorKind::NotFound, "If-Match on a key that has no object")),
            (Some(tags), Some(info)) if !tags.holds(info, remote) => {
                return Err(Error::about(ErrorKind::PreconditionFailed, "If-Match does not hold", info));
            }
            (Some(_), Some(_)) | (None, _) => {}
        }
        match (&self.if_none_match, current) {
            (Some(tags), Some(info)) if tags.holds(info, remote) => {
                Err(Error::about(ErrorKind::PreconditionFailed, "If-None-Match does not hold", info))
            }
            (Some(_), Some(_)) | (None, _) | (Some(_), None) => Ok(()),
        }
    }

    /// Whether the check of a write needs the version that it would replace.
    pub fn needs_current(&self) -> bool {
        self.if_match.is_some() || self.if_none_match.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> ObjectInfo {
        ObjectInfo::new(3, ETag::new("abc"), 10_500)
    }

    fn one(tag: &str) -> Option<TagCondition> {
        Some(TagCondition::OneOf(vec![ETag::new(tag)]))
    }

    fn read(conditions: &Conditions) -> Option<ErrorKind> {
        conditions.check_read(&object(), None).err().map(|error| error.kind)
    }

    #[test]
    fn the_tag_of_the_under_store_names_the_same_version() {
        let read = |conditions: Conditions| {
            conditions.check_read(&object(), Some(&ETag::new("abc-1"))).err().map(|error| error.kind)
        };
        for tag in ["abc", "abc-1"] {
            assert_eq!(read(Conditions { if_match: one(tag), ..Conditions::default() }), None);
            let unless = Conditions { if_none_match: one(tag), ..Conditions::default() };
            assert_eq!(read(unless), Some(ErrorKind::NotModified));
            let swap = Conditions { if_match: one(tag), ..Conditions::default() };
            assert!(swap.check_write(Some(&object()), Some(&ETag::new("abc-1"))).is_ok());
            let range = Conditions { if_range: Some(IfRange::Tag(ETag::new(tag))), ..Conditions::default() };
            assert!(range.allow_range(&object(), Some(&ETag::new("abc-1"))));
        }
        let other = Conditions { if_match: one("abc-2"), ..Conditions::default() };
        assert_eq!(read(other), Some(ErrorKind::PreconditionFailed));
    }

    #[test]
    fn reads_follow_the_order_of_rfc_9110() {
        let none = Conditions::default();
        let failed = Some(ErrorKind::PreconditionFailed);
        let unchanged = Some(ErrorKind::NotModified);
        assert_eq!(read(&none), None);
        assert_eq!(
            read(&Conditions { if_match: one("abc"), if_unmodified_since_ms: Some(1_000), ..none.clone() }),
            None
        );
        assert_eq!(read(&Conditions { if_match: one("x"), ..none.clone() }), failed);
        assert_eq!(read(&Conditions { if_unmodified_since_ms: Some(9_000), ..none.clone() }), failed);
        assert_eq!(read(&Conditions { if_unmodified_since_ms: Some(10_000), ..none.clone() }), None);
        assert_eq!(read(&Conditions { if_none_match: one("abc"), ..none.clone() }), unchanged);
        assert_eq!(
            read(&Conditions { if_none_match: one("x"), if_modified_since_ms: Some(20_000), ..none.clone() }),
            None
        );
        assert_eq!(read(&Conditions { if_modified_since_ms: Some(10_000), ..none.clone() }), unchanged);
        assert_eq!(read(&Conditions { if_modified_since_ms: Some(9_000), ..none }), None);
    }

    #[test]
    fn writes_compare_with_what_they_replace() {
        let absent = Conditions { if_none_match: Some(TagCondition::Any), ..Conditions::default() };
        assert!(absent.check_write(None, None).is_ok());
        assert_eq!(absent.check_write(Some(&object()), None).unwrap_err().kind, ErrorKind::PreconditionFailed);
        let swap = Conditions { if_match: one("abc"), ..Conditions::default() };
        assert!(swap.check_write(Some(&object()), None).is_ok());
        assert_eq!(swap.check_write(None, None).unwrap_err().kind, ErrorKind::NotFound);
        let stale = Conditions { if_match: one("old"), ..Conditions::default() };
        assert_eq!(stale.check_write(Some(&object()), None).unwrap_err().kind, ErrorKind::PreconditionFailed);
    }

    #[test]
    fn a_range_is_of_the_version_that_the_client_has() {
        let allowed = |if_range| Conditions { if_range, ..Conditions::default() }.allow_range(&object(), None);
        assert!(allowed(None));
        assert!(allowed(Some(IfRange::Tag(ETag::new("abc")))) && !allowed(Some(IfRange::Tag(ETag::new("other")))));
        assert!(allowed(Some(IfRange::UnchangedSince(10_000))) && !allowed(Some(IfRange::UnchangedSince(11_000))));
    }
}
