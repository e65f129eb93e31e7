//! Bodies that are not what was asked for, or not what was stored.

use super::*;

/// A proxy drops the range of a request, or answers with another range that it has.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_another_range_than_was_asked_for_are_none() {
    let head = "ETag: \"remote\"\r\nx-amz-request-id: 1\r\n";
    let all = format!("HTTP/1.1 200 X\r\n{head}Content-Length: 10\r\n\r\n0123456789");
    let part = |first: u64, bytes: &str| {
        let (last, length) = (first + bytes.len() as u64 - 1, bytes.len());
        let range = format!("Content-Range: bytes {first}-{last}/10\r\nContent-Length: {length}\r\n");
        format!("HTTP/1.1 206 X\r\n{head}{range}\r\n{bytes}")
    };
    let (middle, end, beyond) = (ByteRange::new(4, 8), ByteRange::new(6, 100), ByteRange::new(10, 12));
    for (range, answer, expected) in [
        (Some(middle), part(4, "4567"), Ok("4567")),
        (Some(middle), all.clone(), Err(ErrorKind::Unavailable)),
        (Some(middle), part(0, "0123"), Err(ErrorKind::Unavailable)),
        (Some(middle), part(4, "456"), Err(ErrorKind::Unavailable)),
        (Some(end), part(6, "6789"), Ok("6789")),
        (Some(end), all.clone(), Err(ErrorKind::Unavailable)),
        (Some(beyond), all.clone(), Err(ErrorKind::Unavailable)),
        // The range is the whole.
        (Some(ByteRange::of_size(10)), all.clone(), Ok("0123456789")),
        (Some(ByteRange::new(0, 100)), all.clone(), Ok("0123456789")),
        (None, all.clone(), Ok("0123456789")),
        (None, part(0, "0123"), Err(ErrorKind::Unavailable)),
        // There is nothing to be had of an empty object.
        (Some(middle), format!("HTTP/1.1 200 X\r\n{head}Content-Length: 0\r\n\r\n"), Ok("")),
    ] {
        let server = Recorder::answering(answer.clone()).await;
        for store in server.both(S3Settings::default()).await {
            let read = match store.get(&key("a"), range, None).await {
                Ok(body) => body.stream.try_collect::<Vec<_>>().await.map(|pieces| pieces.concat()),
                Err(error) => Err(error),
            };
            let expected = expected.map(|text| text.as_bytes().to_vec());
            assert_eq!(read.map_err(|error| error.kind), expected, "{range:?} {answer}");
        }
    }
}

/// Who knows the length of a body does not read on to its end.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_bytes_come_after_the_comparison() {
    let damaged = Recorder::answering(whole().replace("abcd", "abxd")).await;
    let [direct, _] = damaged.both(S3Settings::default()).await;
    let mut stream = direct.get(&key("a"), None, None).await.unwrap().stream;
    let mut bytes = 0;
    while let Some(Ok(piece)) = stream.next().await {
        bytes += piece.len();
    }
    assert!(bytes < 4, "a client would take {bytes} bytes for the whole object");
}
