//! Bytes of another worker that become an object of the store.

use forebay_store::Writer;
use futures::StreamExt;

use crate::{ByteStream, Error, ErrorKind, Result};

/// Appends the whole stream, which must have `size` bytes.
///
/// # Errors
/// `Unavailable` when it has another number of bytes; those of the stream and of the store.
pub(super) async fn append_all(writer: &mut Writer, mut stream: ByteStream, size: u64) -> Result<()> {
    let mut bytes = 0;
    while let Some(data) = stream.next().await {
        let data = data?;
        bytes += data.len() as u64;
        if bytes > size {
            break;
        }
        writer.append(data).await?;
    }
    if bytes != size {
        return Err(Error::new(ErrorKind::Unavailable, format!("it has {bytes} bytes, not {size}")));
    }
    Ok(())
}
