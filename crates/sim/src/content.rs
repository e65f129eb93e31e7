//! Bodies that tell which version they are of: no part of one passes for a part of another.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_env::random::SeededRandom;
use forebay_types::{ETag, Tags};
use md5::{Digest, Md5};

/// A body, by its seed and its size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Body {
    pub seed: u32,
    pub size: u32,
}

impl Body {
    pub(crate) fn bytes(self) -> Bytes {
        SeededRandom::new(u64::from(self.seed)).bytes(self.size as usize).into()
    }
}

/// The number of a content in [`Contents`]: what a key's register holds. The same bytes under another tag are another
/// content.
pub(crate) type ContentId = u32;

/// The number of a set of tags: 0 is none.
pub(crate) type TagsId = u32;

const TAG: &str = "t";

pub(crate) fn tags(id: TagsId) -> Tags {
    (id > 0).then(|| (TAG.to_owned(), id.to_string())).into_iter().collect()
}

/// `None` when nobody has ever given an object such tags.
pub(crate) fn tags_id(tags: &Tags) -> Option<TagsId> {
    match tags.len() {
        0 => Some(0),
        1 => tags.get(TAG)?.parse().ok(),
        _ => None,
    }
}

/// All contents that clients have ever sent, by their tags.
#[derive(Default)]
pub(crate) struct Contents {
    bytes: Vec<Bytes>,
    by_etag: HashMap<ETag, ContentId>,
}

pub(crate) fn etag_of(bytes: &[u8]) -> ETag {
    ETag::from_md5(Md5::digest(bytes).into())
}

impl Contents {
    /// Notes a content, under its MD5.
    pub(crate) fn add(&mut self, bytes: Bytes) -> ContentId {
        let etag = etag_of(&bytes);
        if let Some(known) = self.by_etag.get(&etag) {
            return *known;
        }
        let id = self.bytes.len() as ContentId;
        self.bytes.push(bytes);
        self.by_etag.insert(etag, id);
        id
    }

    /// Notes an object made of parts, under the tag that S3 gives it: conditions tell it from the same bytes in one
    /// piece. Returns it, and what a copy of it is: the same bytes in one piece.
    pub(crate) fn add_parts(&mut self, parts: &[Bytes]) -> (ContentId, ContentId) {
        let copy = self.add(parts.concat().into());
        let md5s: Vec<u8> = parts.iter().flat_map(|part| Md5::digest(part).to_vec()).collect();
        let etag = ETag::from_parts(Md5::digest(md5s).into(), parts.len());
        if let Some(known) = self.by_etag.get(&etag) {
            return (*known, copy);
        }
        let id = self.bytes.len() as ContentId;
        self.bytes.push(self.bytes(copy));
        self.by_etag.insert(etag, id);
        (id, copy)
    }

    pub(crate) fn of_etag(&self, etag: &ETag) -> Option<ContentId> {
        self.by_etag.get(etag).copied()
    }

    pub(crate) fn bytes(&self, id: ContentId) -> Bytes {
        self.bytes[id as usize].clone()
    }
}

/// A body cut into pieces as a network does it; broken off in the middle when `breaks`.
pub(crate) fn pieces(bytes: &Bytes, piece: usize, breaks: bool) -> Vec<Bytes> {
    let sent = if breaks { bytes.slice(..bytes.len() / 2) } else { bytes.clone() };
    (0..sent.len()).step_by(piece).map(|at| sent.slice(at..(at + piece).min(sent.len()))).collect()
}

/// For closures that outlive their creator.
pub(crate) type SharedContents = Arc<parking_lot::Mutex<Contents>>;
