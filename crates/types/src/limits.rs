//! Limits that Amazon S3 documents and that Forebay enforces.
//! Source: "Amazon S3 multipart upload limits" and "Object key naming guidelines" in the S3 user guide.

/// Longest object key, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = 1024;
/// Largest body of one PutObject or UploadPart, in bytes (5 GiB).
pub const PUT_BYTES_MAX: u64 = 5 << 30;
/// Largest object, in bytes (5 TiB).
pub const OBJECT_BYTES_MAX: u64 = 5 << 40;
/// Smallest part of a multipart upload other than its last, in bytes (5 MiB).
pub const PART_BYTES_MIN: u64 = 5 << 20;
/// Largest part number.
pub const PART_NUMBER_MAX: u32 = 10_000;
/// Most keys that one list page holds.
pub const LIST_KEYS_MAX: u32 = 1000;
/// Most keys that one DeleteObjects request names.
pub const DELETE_KEYS_MAX: usize = 1000;
/// User metadata of one object, names and values together, in bytes (2 KiB).
pub const USER_METADATA_BYTES_MAX: usize = 2048;
/// Attributes of one object as headers, in bytes: 8 KiB for all headers of a PUT, less 2 KiB for those that are no
/// attributes.
pub const ATTRIBUTES_BYTES_MAX: usize = 6 << 10;
/// Most tags of one object.
pub const TAGS_MAX: usize = 10;
/// Longest tag key and tag value, in characters.
pub const TAG_KEY_CHARS_MAX: usize = 128;
/// Longest tag value, in characters.
pub const TAG_VALUE_CHARS_MAX: usize = 256;
