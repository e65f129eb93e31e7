//! Listings of objects.

use forebay_auth::{Action, User};
use forebay_cache::{ListObjects, ListedObject, ObjectPage};
use forebay_types::limits;
use percent_encoding::utf8_percent_encode;
use s3s::dto::{
    CommonPrefix, EncodingType, ListObjectVersionsInput, ListObjectVersionsOutput, ListObjectsInput, ListObjectsOutput,
    ListObjectsV2Input, ListObjectsV2Output, Object, ObjectVersion, Owner,
};
use s3s::{S3Request, S3Response, S3Result};

use super::{ErrorMapper, Operations};
use crate::authorize::access_denied;
use crate::checksums;
use crate::context::caller;
use crate::object_url::PATH_ENCODE_SET;
use crate::s3_error::wrong_argument;
use crate::s3s_types;

/// How names are written in an answer.
#[derive(Clone, Copy)]
pub(super) enum Encoding {
    Plain,
    Url,
}

impl Encoding {
    pub(super) fn of(requested: Option<&EncodingType>) -> S3Result<Self> {
        match requested.map(EncodingType::as_str) {
            None => Ok(Self::Plain),
            Some("url") => Ok(Self::Url),
            Some(other) => Err(wrong_argument("encoding-type", other, "Invalid Encoding Method specified in Request")),
        }
    }

    pub(super) fn write(self, name: String) -> String {
        match self {
            Self::Plain => name,
            Self::Url => utf8_percent_encode(&name, PATH_ENCODE_SET).to_string(),
        }
    }

    pub(super) fn prefixes(self, prefixes: Vec<String>) -> Option<Vec<CommonPrefix>> {
        let prefixes: Vec<_> = prefixes.into_iter().map(|p| CommonPrefix { prefix: Some(self.write(p)) }).collect();
        (!prefixes.is_empty()).then_some(prefixes)
    }
}

/// What a page may hold: S3 takes larger numbers as its own limit.
pub(super) fn page_limit(requested: Option<i32>, name: &str) -> S3Result<usize> {
    match requested {
        None => Ok(limits::LIST_KEYS_MAX as usize),
        Some(number) => {
            usize::try_from(number).map(|number| number.min(limits::LIST_KEYS_MAX as usize)).map_err(|_| {
                let message = format!("Argument {name} must be an integer between 0 and 2147483647");
                wrong_argument(name, &number.to_string(), message)
            })
        }
    }
}

/// Listing needs the right to list all that begins with the prefix.
pub(super) fn require_list(user: &User, bucket: &str, prefix: &str) -> S3Result<()> {
    let may = user.may_for_all_that_begins_with(Action::List, &format!("/{bucket}/{prefix}"));
    if may { Ok(()) } else { Err(access_denied()) }
}

/// Where a page of Version 1 or of versions begins: behind the common prefix in which its marker lies, which an earlier
/// page has shown. Source: localstack/localstack, `test_list_objects_marker_common_prefixes` and
/// `test_list_object_versions_pagination_common_prefixes`.
fn behind_group(marker: Option<String>, prefix: &str, delimiter: Option<&str>) -> Option<String> {
    let mut marker = marker?;
    let end = delimiter.and_then(|delimiter| {
        let rest = marker.strip_prefix(prefix)?;
        Some(prefix.len() + rest.find(delimiter)? + delimiter.len())
    });
    marker.truncate(end.unwrap_or(marker.len()));
    Some(marker)
}

fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

impl Operations {
    async fn page(&self, bucket: &str, list: ListObjects, user: &User, mapper: &ErrorMapper) -> S3Result<ObjectPage> {
        require_list(user, bucket, &list.prefix)?;
        if list.limit == 0 {
            self.need_bucket(bucket, mapper).await?;
            return Ok(ObjectPage::default());
        }
        let name = s3s_types::bucket(bucket)?;
        self.cache.list(&name, &list).await.map_err(|error| mapper.answer(error))
    }

    pub(super) async fn list_version_1(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let user = caller(&request)?;
        let mapper = ErrorMapper::of(&request, "ListObjects");
        let revalidates = s3s_types::no_cache(&request.headers);
        let input = request.input;
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let limit = page_limit(input.max_keys, "maxKeys")?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let delimiter = given(input.delimiter.clone());
        let has_delimiter = delimiter.is_some();
        let start_after = behind_group(given(input.marker.clone()), &prefix, delimiter.as_deref());
        let list = ListObjects { prefix, delimiter, start_after, limit, revalidates };
        let page = self.page(&input.bucket, list, &user, &mapper).await?;
        let output = ListObjectsOutput {
            name: Some(input.bucket),
            prefix: Some(encoding.write(input.prefix.unwrap_or_default())),
            marker: Some(encoding.write(input.marker.unwrap_or_default())),
            max_keys: Some(limit as i32),
            is_truncated: Some(page.next.is_some()),
            // Without a delimiter, the last key says the same, unless the page has ended early.
            next_marker: page
                .next
                .filter(|next| has_delimiter || !ends_with(&page.objects, next))
                .map(|next| encoding.write(next)),
            contents: Some(page.objects.into_iter().map(|object| shown(object, encoding, Some(&user))).collect()),
            common_prefixes: encoding.prefixes(page.prefixes),
            delimiter: given(input.delimiter).map(|delimiter| encoding.write(delimiter)),
            encoding_type: input.encoding_type,
            request_charged: None,
        };
        Ok(S3Response::new(output))
    }

    pub(super) async fn list_version_2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let user = caller(&request)?;
        let mapper = ErrorMapper::of(&request, "ListObjectsV2");
        let revalidates = s3s_types::no_cache(&request.headers);
        let input = request.input;
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let limit = page_limit(input.max_keys, "maxKeys")?;
        let start_after = match input.continuation_token.as_deref() {
            Some(token) => Some(self.open_token(&input.bucket, token)?),
            None => given(input.start_after.clone()),
        };
        let prefix = input.prefix.clone().unwrap_or_default();
        let delimiter = given(input.delimiter.clone());
        let list = ListObjects { prefix, delimiter, start_after, limit, revalidates };
        let page = self.page(&input.bucket, list, &user, &mapper).await?;
        let owner = input.fetch_owner.unwrap_or(false).then_some(&*user);
        let output = ListObjectsV2Output {
            prefix: Some(encoding.write(input.prefix.unwrap_or_default())),
            max_keys: Some(limit as i32),
            key_count: Some((page.objects.len() + page.prefixes.len()) as i32),
            continuation_token: input.continuation_token,
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next.map(|next| self.tokens.make(&input.bucket, &next)),
            contents: Some(page.objects.into_iter().map(|object| shown(object, encoding, owner)).collect()),
            common_prefixes: encoding.prefixes(page.prefixes),
            delimiter: given(input.delimiter).map(|delimiter| encoding.write(delimiter)),
            encoding_type: input.encoding_type,
            start_after: input.start_after.map(|start| encoding.write(start)),
            name: Some(input.bucket),
            request_charged: None,
        };
        Ok(S3Response::new(output))
    }

    /// Every object is the only version of its key, `null`, as in a bucket that never had versions.
    pub(super) async fn list_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let user = caller(&request)?;
        let mapper = ErrorMapper::of(&request, "ListObjectVersions");
        let revalidates = s3s_types::no_cache(&request.headers);
        let input = request.input;
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let limit = page_limit(input.max_keys, "maxKeys")?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let start_after = given(input.key_marker.clone());
        if let Some(marker) = given(input.version_id_marker.clone()).filter(|_| start_after.is_none()) {
            let message = "A version-id marker cannot be specified without a key marker.";
            return Err(wrong_argument("version-id-marker", &marker, message));
        }
        // All objects here have the version `null`: versity/versitygw#1811.
        if let Some(marker) = given(input.version_id_marker.clone()).filter(|marker| marker != "null") {
            return Err(wrong_argument("version-id-marker", &marker, "Invalid version id specified"));
        }
        let delimiter = given(input.delimiter.clone());
        let start_after = behind_group(start_after, &prefix, delimiter.as_deref());
        let list = ListObjects { prefix, delimiter, start_after, limit, revalidates };
        let page = self.page(&input.bucket, list, &user, &mapper).await?;
        // A common prefix has no version, be it shown or left out. Source: as of `behind_group`.
        let ends_with_object = page.next.as_ref().is_some_and(|next| ends_with(&page.objects, next));
        let versions = page.objects.into_iter().map(|object| shown_version(object, encoding, &user));
        let output = ListObjectVersionsOutput {
            versions: Some(versions.collect()),
            common_prefixes: encoding.prefixes(page.prefixes),
            delimiter: given(input.delimiter).map(|delimiter| encoding.write(delimiter)),
            encoding_type: input.encoding_type,
            is_truncated: Some(page.next.is_some()),
            key_marker: Some(encoding.write(input.key_marker.unwrap_or_default())),
            version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
            max_keys: Some(limit as i32),
            next_version_id_marker: ends_with_object.then(|| "null".to_owned()),
            next_key_marker: page.next.map(|next| encoding.write(next)),
            prefix: Some(encoding.write(input.prefix.unwrap_or_default())),
            name: Some(input.bucket),
            ..ListObjectVersionsOutput::default()
        };
        Ok(S3Response::new(output))
    }
}

/// Whether this is the key of the last object.
fn ends_with(objects: &[ListedObject], key: &str) -> bool {
    objects.last().is_some_and(|last| last.key == key)
}

/// Without a DisplayName, which Amazon S3 gives no more since November 2025.
pub(super) fn owner_of(user: &User) -> Owner {
    Owner { display_name: None, id: Some(user.owner_id.clone()) }
}

fn shown(object: ListedObject, encoding: Encoding, owner: Option<&User>) -> Object {
    Object {
        checksum_algorithm: object.checksums.map(|names| names.algorithms().map(checksums::algorithm_name).collect()),
        checksum_type: object.checksums.map(|names| checksums::checksum_type(names.kind)),
        e_tag: Some(s3s_types::etag(&object.etag)),
        key: Some(encoding.write(object.key)),
        last_modified: Some(s3s_types::timestamp(object.last_modified_ms)),
        owner: owner.map(owner_of),
        size: Some(s3s_types::size(object.size)),
        storage_class: Some(object.storage_class.unwrap_or_else(|| "STANDARD".to_owned()).into()),
        ..Object::default()
    }
}

fn shown_version(object: ListedObject, encoding: Encoding, owner: &User) -> ObjectVersion {
    ObjectVersion {
        checksum_algorithm: object.checksums.map(|names| names.algorithms().map(checksums::algorithm_name).collect()),
        checksum_type: object.checksums.map(|names| checksums::checksum_type(names.kind)),
        e_tag: Some(s3s_types::etag(&object.etag)),
        is_latest: Some(true),
        key: Some(encoding.write(object.key)),
        last_modified: Some(s3s_types::timestamp(object.last_modified_ms)),
        owner: Some(owner_of(owner)),
        size: Some(s3s_types::size(object.size)),
        storage_class: Some(object.storage_class.unwrap_or_else(|| "STANDARD".to_owned()).into()),
        version_id: Some("null".to_owned()),
        ..ObjectVersion::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sizes_are_bounded() {
        for (requested, limit) in [(None, 1000), (Some(0), 0), (Some(7), 7), (Some(5000), 1000)] {
            assert_eq!(page_limit(requested, "max-keys").unwrap(), limit);
        }
        assert!(page_limit(Some(-1), "max-keys").is_err());
    }

    #[test]
    fn a_marker_in_a_common_prefix_is_behind_all_of_it() {
        let behind = |marker: &str, prefix: &str, delimiter| behind_group(Some(marker.to_owned()), prefix, delimiter);
        assert_eq!(behind_group(None, "a/", Some("/")), None);
        for (marker, prefix, delimiter, from) in [
            ("a/b/c", "a/", Some("/"), "a/b/"),
            ("a/b/", "a/", Some("/"), "a/b/"),
            ("a/b/c/d", "", Some("/"), "a/"),
            ("a\u{fc}--b", "", Some("--"), "a\u{fc}--"),
            ("a/b", "a/", Some("/"), "a/b"),
            ("a/b/c", "b/", Some("/"), "a/b/c"),
            ("a/b/c", "a/", None, "a/b/c"),
        ] {
            assert_eq!(behind(marker, prefix, delimiter).as_deref(), Some(from), "{marker} {prefix}");
        }
    }

    #[test]
    fn url_encoding_keeps_slashes_and_hides_the_rest() {
        assert_eq!(Encoding::Url.write("a b/é\n+%".to_owned()), "a%20b/%C3%A9%0A%2B%25");
        assert_eq!(Encoding::Plain.write("a b".to_owned()), "a b");
        assert!(Encoding::of(Some(&EncodingType::from("xml".to_owned()))).is_err());
    }
}
