//! The metadata of a file: in its extended attributes.

use forebay_types::{ETag, ObjectInfo, ObjectKey, Tags};
use md5::{Digest, Md5};

use super::remote::Remote;
use crate::file_meta::{self, FileIdentity, FileMeta};
use crate::{Error, ErrorKind, RemoteObject, Result, Upload};

/// The attributes that the metadata is in, one after the other.
const META: [&str; 8] = [
    "user.forebay.meta",
    "user.forebay.meta.1",
    "user.forebay.meta.2",
    "user.forebay.meta.3",
    "user.forebay.meta.4",
    "user.forebay.meta.5",
    "user.forebay.meta.6",
    "user.forebay.meta.7",
];

/// Has an attribute of its own, so that tags are replaced in one step.
const TAGS: &str = "user.forebay.tags";

/// `dfs.namenode.fs-limits.max-xattr-size` is 16,384 with the name.
const ATTRIBUTE_BYTES_MAX: usize = 16_000;

/// What the attributes of a file say.
pub(super) struct Attributes {
    pub(super) object: RemoteObject,
    pub(super) tags: Tags,
}

/// The ETag of a file. HDFS never uses a number again, so that another file always has another one, and a file that
/// was changed in place has another length or time.
pub(super) fn remote_etag(file: FileIdentity) -> ETag {
    let identity = format!("hdfs:{}:{}:{}", file.number, file.size, file.modified_ns);
    // This is no MD5 of the bytes, so it is written in a form that no client takes for one.
    ETag::from_parts(Md5::digest(identity.as_bytes()).into(), 0)
}

/// # Errors
/// `NotFound` when the file is gone.
pub(super) async fn read(remote: &Remote, path: &str, key: &ObjectKey, file: FileIdentity) -> Result<Attributes> {
    let attributes = remote.attributes(path).await?;
    let value = |name: &str| attributes.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_slice());
    let bytes: Vec<u8> = META.iter().map_while(|name| value(name)).flatten().copied().collect();
    let meta = FileMeta::decode(&bytes, key.as_str(), file);
    let tags = value(TAGS).and_then(|tags| serde_json::from_slice(tags).ok()).unwrap_or_default();
    Ok(Attributes { object: file_meta::object(file, remote_etag(file), meta.as_ref()), tags })
}

/// Stores the metadata of a file that is not in its place yet.
pub(super) async fn write(
    remote: &Remote,
    path: &str,
    key: &ObjectKey,
    file: FileIdentity,
    upload: &Upload,
) -> Result<()> {
    let info = ObjectInfo { tags: Tags::new(), ..upload.info.as_ref().clone() };
    let encoded = |info| FileMeta::new(key.as_str(), upload.generation, info, file).encode();
    let mut bytes = encoded(info.clone());
    if bytes.len() > META.len() * ATTRIBUTE_BYTES_MAX {
        // What thousands of parts say alone does not fit.
        bytes = encoded(ObjectInfo { parts: Vec::new(), ..info });
    }
    for (name, piece) in META.iter().zip(bytes.chunks(ATTRIBUTE_BYTES_MAX)) {
        remote.set_attribute(path, name, piece).await?;
    }
    match upload.info.tags.is_empty() {
        true => Ok(()),
        false => write_tags(remote, path, &upload.info.tags).await,
    }
}

pub(super) async fn write_tags(remote: &Remote, path: &str, tags: &Tags) -> Result<()> {
    let bytes = serde_json::to_vec(tags).expect("memory takes all tags");
    if bytes.len() > ATTRIBUTE_BYTES_MAX {
        let context = format!("these tags take {} bytes, and HDFS keeps {ATTRIBUTE_BYTES_MAX}", bytes.len());
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    remote.set_attribute(path, TAGS, &bytes).await
}
