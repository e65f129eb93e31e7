use futures::TryStreamExt;

use super::*;
use crate::buffers::Buffers;

/// Feeds the text in pieces of `step` bytes.
async fn pass(framing: Framing, text: &str, step: usize) -> Result<String, BodyError> {
    let pieces: Vec<Result<Bytes, StdError>> =
        text.as_bytes().chunks(step).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let context = Arc::new(RequestContext::new("id".to_owned(), "http"));
    let out: Result<Vec<Bytes>, StdError> =
        watch(futures::stream::iter(pieces), framing, context, Buffers::default().begin()).try_collect().await;
    match out {
        Ok(pieces) => Ok(String::from_utf8(pieces.concat()).unwrap()),
        Err(error) => Err(BodyError::from_stream(&*error)),
    }
}

/// What the chunks hold, and what follows the final one.
fn decode(mut text: &str) -> (String, &str) {
    let mut data = String::new();
    loop {
        let (size, rest) = text.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (data, rest);
        }
        data.push_str(&rest[..size]);
        text = rest[size..].strip_prefix("\r\n").unwrap();
    }
}

fn signed(size: &str) -> String {
    format!("{size};chunk-signature={}\r\n", "a".repeat(64))
}

#[tokio::test]
async fn unsigned_chunks_are_cut_as_their_bytes_arrive() {
    let text = "1a\r\nabcdefghijklmnopqrstuvwxyz\r\n2\r\n01\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
    for step in 1..text.len() + 1 {
        let out = pass(Framing::Unsigned, text, step).await.unwrap();
        let (data, trailers) = decode(&out);
        assert_eq!(data, "abcdefghijklmnopqrstuvwxyz01", "step {step}");
        assert_eq!(trailers, "x-amz-checksum-crc32:AAAAAA==\r\n\r\n");
    }
}

#[tokio::test]
async fn chunks_that_nobody_signed_are_decoded() {
    let text = "1a\r\nabcdefghijklmnopqrstuvwxyz\r\n2\r\n01\r\n0\r\n";
    let trailers = |text: &str| trailer(text.as_bytes()).map(|headers| headers.len());
    for behind in ["x-amz-checksum-crc32:AAAAAA==\r\n\r\n", "x-amz-checksum-crc32: AAAAAA==\r\n", "\r\n", ""] {
        for step in 1..text.len() + 1 {
            let out = pass(Framing::Anonymous, &format!("{text}{behind}"), step).await;
            assert_eq!(out.as_deref(), Ok("abcdefghijklmnopqrstuvwxyz01"), "step {step}");
        }
        assert_eq!(trailers(behind), Some(usize::from(behind.len() > 2)), "{behind:?}");
    }
    assert_eq!(trailers("a:b\r\na:c\r\n\r\n"), Some(2));
    for wrong in ["a", "a\r\n\r\n", "a b:c\r\n", "a:\u{1}\r\n", "a:b\r\n\r\nPUT / HTTP/1.1\r\n"] {
        assert_eq!(trailers(wrong), None, "{wrong:?}");
        let out = pass(Framing::Anonymous, &format!("{text}{wrong}"), 7).await;
        assert_eq!(out, Err(BodyError::Trailers), "{wrong:?}");
    }
    let long = format!("{text}a:{}\r\n\r\n", "b".repeat(TRAILER_BYTES_MAX));
    assert_eq!(pass(Framing::Anonymous, &long, 100).await, Err(BodyError::Trailers));
}

#[tokio::test]
async fn signed_chunks_go_on_unchanged() {
    let text = format!("{}abc\r\n{}\r\n", signed("3"), signed("0"));
    for step in 1..text.len() + 1 {
        assert_eq!(pass(Framing::Signed, &text, step).await.as_deref(), Ok(text.as_str()), "step {step}");
    }
}

#[tokio::test]
async fn a_body_without_its_final_chunk_is_incomplete_wherever_it_ends() {
    let text = format!("{}abc\r\n{}", signed("3"), signed("0"));
    for length in 0..text.len() {
        assert_eq!(pass(Framing::Signed, &text[..length], 7).await, Err(BodyError::Framing), "{length}");
    }
    for framing in [Framing::Unsigned, Framing::Anonymous] {
        assert_eq!(pass(framing, "3\r\nabc\r\n0", 7).await, Err(BodyError::Framing));
    }
}

#[tokio::test]
async fn wrong_framing_is_refused() {
    for text in
        ["+3\r\nabc\r\n", "-1\r\n", "3 \r\nabc", "0x3\r\nabc", "\r\n", "3\nabc", "3\r\nabcd", "3;x=1\r\nabc", "g\r\n"]
    {
        assert_eq!(pass(Framing::Unsigned, text, 4).await, Err(BodyError::Framing), "{text:?}");
    }
    assert_eq!(pass(Framing::Unsigned, &signed("3"), 9).await, Err(BodyError::Framing));
    assert_eq!(pass(Framing::Signed, "3\r\nabc\r\n", 9).await, Err(BodyError::Framing));
    assert_eq!(pass(Framing::Unsigned, &"1".repeat(300), 9).await, Err(BodyError::Framing));
    assert_eq!(pass(Framing::Signed, &signed("1000001"), 9).await, Err(BodyError::ChunkTooLarge));
}
