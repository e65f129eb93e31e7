//! A fuzz target for the stamp on objects of an S3 under store. It takes arbitrary bytes, and panics when a promise is
//! broken.

use forebay_types::limits::{PART_NUMBER_MAX, USER_METADATA_BYTES_MAX};
use forebay_types::{ETag, ObjectInfo};

use crate::stamp::{STAMP_NAME, Subject, read, write};

const SUBJECT: Subject<'static> = Subject { key: "key", has_md5: true };

/// A stamp that is believed fits the object, and reads the same after it was written again.
pub fn stamp(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // The size that the stamp names, so that it is believed.
    let mut sizes = text.split(';').filter_map(|field| field.strip_prefix("s=")?.parse().ok());
    let told = ObjectInfo::new(sizes.next_back().unwrap_or(0), ETag::new("told"), 5);
    let mut info = told.clone();
    let Some(stamp) = read(text, &mut info, SUBJECT) else {
        return assert_eq!(info, told, "what is not believed has no effect");
    };
    assert_eq!(info.size, told.size);
    assert!(info.parts.len() <= PART_NUMBER_MAX as usize);
    let mut other = ObjectInfo::new(told.size.wrapping_add(1), ETag::new("told"), 5);
    assert_eq!(read(text, &mut other, SUBJECT), None, "a stamp of another size is not believed");
    // Quotes around an ETag are not part of it, and none of ours contains any.
    if info.etag.as_str().contains('"') {
        return;
    }
    let Some(written) = write(stamp.generation, &info, SUBJECT, 0) else { return };
    assert!(written.len() + STAMP_NAME.len() <= USER_METADATA_BYTES_MAX);
    let mut again = told;
    assert_eq!(read(&written, &mut again, SUBJECT), Some(stamp));
    // A long list of parts is left out.
    if !written.contains(";p=") {
        again.parts.clone_from(&info.parts);
    }
    assert_eq!(again, info);
}
