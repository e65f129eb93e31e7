//! Clients that speak plain HTTP to a TLS port: they get an HTTP answer, since a failed handshake tells them nothing.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How much is read of a request that is refused. Unread bytes would show a client that still writes a reset instead of
/// the answer.
const REQUEST_BYTES_MAX: usize = 16 << 10;

/// Whether the first byte is of a method of HTTP. A handshake of TLS begins with another.
///
/// # Errors
/// As the connection has them.
pub async fn is_plain_http(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; 1];
    let bytes = stream.peek(&mut first).await?;
    Ok(bytes == 1 && first[0].is_ascii_uppercase())
}

/// Answers with 400 and this body, and ends the connection.
///
/// # Errors
/// As the connection has them.
pub async fn refuse_plain_http(mut stream: TcpStream, content_type: &str, body: &str) -> io::Result<()> {
    let mut request = vec![0; REQUEST_BYTES_MAX];
    let _ = stream.read(&mut request).await?;
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}
