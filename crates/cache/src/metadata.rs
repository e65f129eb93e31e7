//! What the store keeps for the cache with each object: the metadata on disk, and the annex in memory.

use bytes::Bytes;
use forebay_catalog::records;
use forebay_store::NewObject;
use forebay_types::{ChecksumNames, ETag, Generation, ObjectInfo, ObjectPath, PathPolicy};
use serde::{Deserialize, Serialize};

use crate::policies::groups::group_of;
use crate::{Error, ErrorKind, Result};

/// The first byte of the metadata.
const VERSION: u8 = 1;

/// The first byte of an annex without names of checksums. Version 1, with text tags only, is still read.
const ANNEX_VERSION: u8 = 2;

/// The first byte of an annex with names of checksums. An older release reads it as one without tags.
const ANNEX_VERSION_CHECKSUMS: u8 = 3;

/// The part of an object's state that can change without its bytes. The store keeps it in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Annex {
    /// The under store's ETag of exactly this version, once the under store has it.
    pub(crate) remote_etag: Option<ETag>,
    /// The ETag that clients see, if it is a different one.
    pub(crate) etag: Option<ETag>,
    /// As clients see them: the under store may have another one. Listings show them.
    #[serde(skip)]
    pub(crate) checksums: Option<ChecksumNames>,
}

/// A version that the under store has, as the clean copy or the answer to the upload shows it.
pub(crate) struct CleanVersion {
    pub(crate) generation: Generation,
    /// As clients see it.
    pub(crate) etag: ETag,
    pub(crate) remote_etag: ETag,
}

impl CleanVersion {
    /// Whether the under store's ETag is not that of the bytes. Of an object in several parts, nothing is known.
    pub(crate) fn is_odd(&self) -> bool {
        self.etag.md5().is_some() && self.etag.md5() != self.remote_etag.md5()
    }

    /// Whether a gateway may have made the ETag up. An ETag of another form is that of an object in several parts, or
    /// of an under store whose ETags are no MD5s.
    pub(crate) fn may_be_made_up(&self) -> bool {
        self.is_odd() && self.remote_etag.md5().is_some()
    }
}

/// An annex as stored on disk and in the store's memory. There is one per object, and most tags are MD5s.
#[derive(Serialize, Deserialize)]
struct PackedAnnex {
    remote_etag: Option<PackedTag>,
    etag: Option<PackedTag>,
}

/// Version 3.
type Checksummed = (PackedAnnex, ChecksumNames);

#[derive(Serialize, Deserialize)]
enum PackedTag {
    Md5([u8; 16]),
    Text(ETag),
}

impl PackedTag {
    fn pack(tag: &ETag) -> Self {
        // Text that would not be restored exactly stays text, such as digits in upper case.
        let md5 = tag.md5().filter(|_| !tag.as_str().bytes().any(|digit| digit.is_ascii_uppercase()));
        md5.map_or_else(|| Self::Text(tag.clone()), Self::Md5)
    }

    fn unpack(self) -> ETag {
        match self {
            Self::Md5(md5) => ETag::from_md5(md5),
            Self::Text(tag) => tag,
        }
    }
}

impl Annex {
    pub(crate) fn clean(remote_etag: ETag, etag: &ETag, checksums: Option<ChecksumNames>) -> Self {
        let differs = remote_etag != *etag;
        Self { remote_etag: Some(remote_etag), etag: differs.then(|| etag.clone()), checksums }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let pack = |tag: &Option<ETag>| tag.as_ref().map(PackedTag::pack);
        let packed = PackedAnnex { remote_etag: pack(&self.remote_etag), etag: pack(&self.etag) };
        match self.checksums {
            Some(checksums) => encode::<Checksummed>(ANNEX_VERSION_CHECKSUMS, &(packed, checksums)),
            None => encode(ANNEX_VERSION, &packed),
        }
    }

    /// An unreadable annex counts as one without tags: the object is then validated before it is served.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let unpack = |packed: PackedAnnex, checksums| Self {
            remote_etag: packed.remote_etag.map(PackedTag::unpack),
            etag: packed.etag.map(PackedTag::unpack),
            checksums,
        };
        let decoded = match bytes.first() {
            Some(&ANNEX_VERSION) => decode(ANNEX_VERSION, bytes).map(|packed| unpack(packed, None)),
            Some(&ANNEX_VERSION_CHECKSUMS) => decode::<Checksummed>(ANNEX_VERSION_CHECKSUMS, bytes)
                .map(|(packed, checksums)| unpack(packed, Some(checksums))),
            Some(_) | None => decode(VERSION, bytes),
        };
        decoded.unwrap_or_default()
    }
}

/// What the store keeps of an object in addition to its bytes.
pub(crate) fn new_object(
    path: &ObjectPath,
    policy: &PathPolicy,
    generation: Generation,
    info: &ObjectInfo,
    pinned: bool,
) -> NewObject {
    NewObject {
        key: records::object_key(path),
        generation,
        metadata: encode_info(info),
        annex: Annex { checksums: info.checksums.names(), ..Annex::default() }.encode(),
        pinned,
        group: group_of(policy),
        size: info.size,
    }
}

pub(crate) fn encode_info(info: &ObjectInfo) -> Bytes {
    encode(VERSION, info)
}

pub(crate) fn decode_info(bytes: &[u8]) -> Result<ObjectInfo> {
    decode(VERSION, bytes)
}

fn encode<T: Serialize>(version: u8, value: &T) -> Bytes {
    let bytes = postcard::to_extend(value, vec![version]).expect("memory takes every value that derives Serialize");
    bytes.into()
}

fn decode<T: for<'a> Deserialize<'a>>(version: u8, bytes: &[u8]) -> Result<T> {
    match bytes.split_first() {
        Some((found, rest)) if *found == version => postcard::from_bytes(rest)
            .map_err(|error| Error::new(ErrorKind::Corrupt, format!("the object's metadata: {error}"))),
        Some((found, _)) => {
            Err(Error::new(ErrorKind::Corrupt, format!("the object's metadata has the unknown version {found}")))
        }
        None => Err(Error::new(ErrorKind::Corrupt, "the object's metadata is empty")),
    }
}

#[cfg(test)]
mod tests {
    use forebay_types::{Algorithm, ChecksumKind};

    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_newer_version_is_refused() {
        let mut info = ObjectInfo::new(5, ETag::new("abc-3"), 1_700_000_000_123);
        info.user.insert("name".into(), "wert \u{1f600}".into());
        let bytes = encode_info(&info);
        assert_eq!(decode_info(&bytes).unwrap(), info);
        let mut newer = bytes.to_vec();
        newer[0] = VERSION + 1;
        assert_eq!(decode_info(&newer).unwrap_err().kind, ErrorKind::Corrupt);
        assert_eq!(decode_info(&[]).unwrap_err().kind, ErrorKind::Corrupt);
    }

    #[test]
    fn an_annex_is_short_and_keeps_every_tag_as_it_is_spelt() {
        let md5 = "900150983cd24fb0d6963f7d28e17f72";
        let annex = |remote: &str, ours: &str| Annex::clean(ETag::new(remote), &ETag::new(ours), None);
        assert_eq!(annex(md5, md5).etag, None);
        assert_eq!(annex(md5, md5).encode().len(), 20);
        for remote in [md5, &md5.to_uppercase(), "900150983cd24fb0d6963f7d28e17f72-7", "r", ""] {
            for ours in [md5, "s"] {
                let annex = annex(remote, ours);
                assert_eq!(Annex::decode(&annex.encode()), annex);
            }
        }
        let mut newer = annex("r", "r").encode().to_vec();
        newer[0] = ANNEX_VERSION_CHECKSUMS + 1;
        assert_eq!(Annex::decode(&newer), Annex::default());
        let names = ChecksumNames::of(ChecksumKind::FullObject, [Algorithm::Crc64Nvme]);
        let dirty = Annex { checksums: names, ..Annex::default() };
        assert_eq!(dirty.encode(), [3, 0, 0, 0, 4].as_slice());
        let clean = Annex::clean(ETag::new(md5), &ETag::new(md5), names);
        assert_eq!(clean.encode().len(), 22);
        for annex in [dirty, clean] {
            assert_eq!(Annex::decode(&annex.encode()), annex);
        }
        let first = [&[1, 1, 32], md5.as_bytes(), &[0]].concat();
        assert_eq!(Annex::decode(&first), annex(md5, md5), "as version 1 wrote it");
    }
}
