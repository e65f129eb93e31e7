//! One HTTP/1.1 connection, with as little as a load generator needs. A request is written with one system call where
//! it fits, an answer is parsed where it was received, and a body passes through one buffer.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use forebay_env::Clock;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;

/// Most bytes of one read.
const BUFFER_BYTES: usize = 256 << 10;
/// Most bytes that are skipped at once: as much as a socket has received in a moment.
const SKIPPED_BYTES: usize = 1 << 20;
/// S3 sends about ten headers.
const HEADERS_MAX: usize = 64;
/// Most bytes that are kept of an answer that is parsed as a whole: more than a page of a list with the longest keys.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// A server: the name that is sent to it, and its address.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) authority: String,
    address: SocketAddr,
}

impl Endpoint {
    /// Parses `host:port` or `http://host:port`. The port is 80 when none is given.
    ///
    /// # Errors
    /// One line that names the text. Also for https, which this client does not speak.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with("https://") {
            return Err(format!(
                "{text:?}: https is not spoken here, since TLS would cost more than what is measured: give http"
            ));
        }
        let authority = text.strip_prefix("http://").unwrap_or(text);
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        if authority.is_empty() || authority.contains(['/', '@', '?', ' ']) {
            return Err(format!("{text:?} is not host:port or http://host:port"));
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let to_resolve = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        let mut addresses = to_resolve.to_socket_addrs().map_err(|error| format!("{text:?}: {error}"))?;
        let address = addresses.next().ok_or_else(|| format!("{text:?} has no address"))?;
        Ok(Self { authority: authority.to_owned(), address })
    }
}

/// Why there is no answer. In reports, the names count as error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    ConnectionRefused,
    ConnectionClosed,
    MalformedAnswer,
    Timeout,
}

/// Receives the body of an answer.
pub(crate) trait Sink: Send {
    /// The length that the server announces, before the first byte.
    fn begin(&mut self, length: Option<u64>);
    fn take(&mut self, bytes: &[u8]);
    /// Whether it looks at the bytes. Otherwise most of them need not be received.
    fn looks(&self) -> bool {
        true
    }
}

/// The status, and what is needed of the headers and the body.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) etag: Option<String>,
    pub(crate) body_bytes: u64,
    /// When the first byte came, by the monotonic clock.
    pub(crate) first_byte: Duration,
    /// The body, if the sink did not get it.
    pub(crate) text: Vec<u8>,
}

/// How the body of an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked,
    UntilClosed,
}

struct Head {
    answer: Answer,
    framing: Framing,
    closes: bool,
}

/// A connection that is opened on demand and kept open.
pub(crate) struct Connection {
    endpoint: Endpoint,
    clock: Arc<dyn Clock>,
    stream: Option<TcpStream>,
    buffer: Box<[u8]>,
    /// Received bytes that are not used yet are in `begin..end` of the buffer.
    begin: usize,
    end: usize,
    /// Never written: it only says how many bytes to skip.
    skipped: Box<[MaybeUninit<u8>]>,
}

impl Connection {
    pub(crate) fn new(endpoint: Endpoint, clock: Arc<dyn Clock>) -> Self {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        let skipped = Box::new_uninit_slice(SKIPPED_BYTES);
        Self { endpoint, clock, stream: None, buffer, begin: 0, end: 0, skipped }
    }

    pub(crate) fn authority(&self) -> &str {
        &self.endpoint.authority
    }

    /// Gives up what is in flight: the next request uses a new connection.
    pub(crate) fn reset(&mut self) {
        self.stream = None;
    }

    /// Sends a request and receives its answer. The body of a successful one goes to `sink`, if there is one.
    pub(crate) async fn exchange<'a>(
        &mut self,
        head: &[u8],
        body: impl Iterator<Item = &'a [u8]> + Send,
        sink: Option<&mut dyn Sink>,
    ) -> Result<Answer, Trouble> {
        let mut stream = self.connected().await?;
        let sent = send(&mut stream, head, body).await;
        let received = self.receive(&mut stream, head.starts_with(b"HEAD "), sink).await;
        match (received, sent) {
            (Ok((answer, closes)), sent) => {
                self.stream = (!closes && sent.is_ok()).then_some(stream);
                Ok(answer)
            }
            (Err(trouble), _) => Err(trouble),
        }
    }

    /// The connection, taken out until a whole answer has arrived.
    async fn connected(&mut self) -> Result<TcpStream, Trouble> {
        (self.begin, self.end) = (0, 0);
        if let Some(stream) = self.stream.take() {
            // A server may close an idle connection: that is no answer to a request that was never sent.
            match stream.try_read(&mut [0]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(stream),
                _ => drop(stream),
            }
        }
        let stream = TcpStream::connect(self.endpoint.address).await.map_err(|_| Trouble::ConnectionRefused)?;
        stream.set_nodelay(true).map_err(|_| Trouble::ConnectionClosed)?;
        Ok(stream)
    }

    async fn receive(
        &mut self,
        stream: &mut TcpStream,
        is_head: bool,
        sink: Option<&mut dyn Sink>,
    ) -> Result<(Answer, bool), Trouble> {
        let mut head = self.receive_head(stream).await?;
        // 100 Continue and the like are not the answer.
        while head.answer.status < 200 {
            head = self.receive_head(stream).await?;
        }
        let Head { mut answer, framing, closes } = head;
        if is_head || answer.status == 204 || answer.status == 304 {
            return Ok((answer, closes));
        }
        let mut text = Kept(Vec::new());
        let sink: &mut dyn Sink = match sink {
            Some(sink) if answer.status < 300 => sink,
            _ => &mut text,
        };
        answer.body_bytes = self.receive_body(stream, framing, sink).await?;
        answer.text = text.0;
        Ok((answer, closes || framing == Framing::UntilClosed))
    }

    async fn receive_head(&mut self, stream: &mut TcpStream) -> Result<Head, Trouble> {
        let mut first_byte = None;
        loop {
            if self.begin < self.end {
                let first_byte = *first_byte.get_or_insert_with(|| self.clock.monotonic());
                if let Some((mut head, length)) = parse_head(&self.buffer[self.begin..self.end])? {
                    self.begin += length;
                    head.answer.first_byte = first_byte;
                    return Ok(head);
                }
            }
            if self.end == self.buffer.len() {
                return Err(Trouble::MalformedAnswer);
            }
            self.fill(stream).await?;
        }
    }

    /// Receives more bytes. When all bytes in the buffer are used, it begins at the start again.
    async fn fill(&mut self, stream: &mut TcpStream) -> Result<(), Trouble> {
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        }
        match stream.read(&mut self.buffer[self.end..]).await {
            Ok(0) | Err(_) => Err(Trouble::ConnectionClosed),
            Ok(length) => {
                self.end += length;
                Ok(())
            }
        }
    }

    async fn receive_body(
        &mut self,
        stream: &mut TcpStream,
        framing: Framing,
        sink: &mut dyn Sink,
    ) -> Result<u64, Trouble> {
        match framing {
            Framing::Length(length) => {
                sink.begin(Some(length));
                self.pass(stream, length, sink).await?;
                Ok(length)
            }
            Framing::Chunked => {
                sink.begin(None);
                self.receive_chunks(stream, sink).await
            }
            Framing::UntilClosed => {
                sink.begin(None);
                let mut total = 0;
                loop {
                    total += self.take(u64::MAX, sink);
                    match self.fill(stream).await {
                        Ok(()) => {}
                        Err(_) => return Ok(total),
                    }
                }
            }
        }
    }

    /// Passes on up to `length` bytes from the buffer.
    fn take(&mut self, length: u64, sink: &mut dyn Sink) -> u64 {
        let here = ((self.end - self.begin) as u64).min(length);
        sink.take(&self.buffer[self.begin..self.begin + here as usize]);
        self.begin += here as usize;
        here
    }

    async fn pass(&mut self, stream: &mut TcpStream, length: u64, sink: &mut dyn Sink) -> Result<(), Trouble> {
        let mut left = length - self.take(length, sink);
        while left > 0 && !sink.looks() {
            left -= self.skip(stream, left).await?;
        }
        while left > 0 {
            self.fill(stream).await?;
            left -= self.take(left, sink);
        }
        Ok(())
    }

    /// Has the kernel drop up to `length` bytes that have come: with MSG_TRUNC it copies nothing (tcp(7)). Returns how
    /// many. Clients that copied them would take the processor from the servers on the same machine.
    async fn skip(&mut self, stream: &mut TcpStream, length: u64) -> Result<u64, Trouble> {
        let length = length.min(self.skipped.len() as u64) as usize;
        let receive = || SockRef::from(&*stream).recv_with_flags(&mut self.skipped[..length], libc::MSG_TRUNC);
        match stream.async_io(Interest::READABLE, receive).await {
            Ok(0) | Err(_) => Err(Trouble::ConnectionClosed),
            Ok(skipped) => Ok(skipped as u64),
        }
    }

    async fn receive_chunks(&mut self, stream: &mut TcpStream, sink: &mut dyn Sink) -> Result<u64, Trouble> {
        let mut total = 0;
        loop {
            let line = self.line(stream).await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(size, 16).map_err(|_| Trouble::MalformedAnswer)?;
            if size == 0 {
                // Trailers, up to an empty line.
                while !self.line(stream).await?.is_empty() {}
                return Ok(total);
            }
            self.pass(stream, size, sink).await?;
            total += size;
            if !self.line(stream).await?.is_empty() {
                return Err(Trouble::MalformedAnswer);
            }
        }
    }

    /// The next line, without its end.
    async fn line(&mut self, stream: &mut TcpStream) -> Result<String, Trouble> {
        let mut line = Vec::new();
        loop {
            while self.begin < self.end {
                let byte = self.buffer[self.begin];
                self.begin += 1;
                match byte {
                    b'\n' => return String::from_utf8(line).map_err(|_| Trouble::MalformedAnswer),
                    b'\r' => {}
                    _ if line.len() > 4096 => return Err(Trouble::MalformedAnswer),
                    byte => line.push(byte),
                }
            }
            self.fill(stream).await?;
        }
    }
}

/// Keeps a small body.
struct Kept(Vec<u8>);

impl Sink for Kept {
    fn begin(&mut self, _: Option<u64>) {}

    fn take(&mut self, bytes: &[u8]) {
        let room = KEPT_BYTES_MAX - self.0.len();
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// Sends the head and the first piece of the body in one system call.
async fn send<'a>(
    stream: &mut TcpStream,
    head: &[u8],
    mut body: impl Iterator<Item = &'a [u8]> + Send,
) -> io::Result<()> {
    let first = body.next().unwrap_or_default();
    let mut sent = 0;
    while sent < head.len() {
        sent += stream.write_vectored(&[IoSlice::new(&head[sent..]), IoSlice::new(first)]).await?;
    }
    stream.write_all(&first[sent - head.len()..]).await?;
    for piece in body {
        stream.write_all(piece).await?;
    }
    Ok(())
}

/// A head with its length in bytes, if it has arrived completely.
fn parse_head(bytes: &[u8]) -> Result<Option<(Head, usize)>, Trouble> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Trouble::MalformedAnswer),
    };
    let status = response.code.ok_or(Trouble::MalformedAnswer)?;
    let mut head = Head {
        answer: Answer { status, ..Answer::default() },
        framing: Framing::UntilClosed,
        closes: response.version == Some(0),
    };
    for header in response.headers.iter() {
        let value = std::str::from_utf8(header.value).map_err(|_| Trouble::MalformedAnswer)?.trim();
        apply(&mut head, header.name, value)?;
    }
    Ok(Some((head, length)))
}

fn apply(head: &mut Head, name: &str, value: &str) -> Result<(), Trouble> {
    if name.eq_ignore_ascii_case("content-length") {
        if head.framing != Framing::Chunked {
            head.framing = Framing::Length(value.parse().map_err(|_| Trouble::MalformedAnswer)?);
        }
    } else if name.eq_ignore_ascii_case("transfer-encoding") {
        head.framing = Framing::Chunked;
    } else if name.eq_ignore_ascii_case("connection") {
        head.closes = value.eq_ignore_ascii_case("close");
    } else if name.eq_ignore_ascii_case("etag") {
        head.answer.etag = Some(value.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;
    use tokio::net::TcpListener;

    use super::*;

    /// Serves connections with one answer each, cut into pieces as given.
    async fn answered(pieces: &'static [&'static [u8]]) -> Result<Answer, Trouble> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = forebay_env::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await.unwrap();
            for piece in pieces {
                stream.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        let mut connection = Connection::new(Endpoint::parse(&address).unwrap(), Env::real().clock);
        let answer = connection.exchange(b"GET / HTTP/1.1\r\n\r\n", std::iter::empty(), None).await;
        server.join().await;
        answer
    }

    #[tokio::test]
    async fn bodies_end_by_length_by_chunks_and_by_the_connection() {
        let by_length =
            answered(&[b"HTTP/1.1 200 OK\r\nContent-", b"Length: 5\r\nETag: \"e\"\r\n\r\nhe", b"llo"]).await;
        let by_length = by_length.unwrap();
        assert_eq!((by_length.status, by_length.text.as_slice(), by_length.body_bytes), (200, &b"hello"[..], 5));
        assert_eq!(by_length.etag.as_deref(), Some("\"e\""));
        let chunked: &[&[u8]] =
            &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhe", b"l\r\n2;x\r\nlo\r\n0\r\n\r\n"];
        assert_eq!(answered(chunked).await.unwrap().text, b"hello");
        assert_eq!(answered(&[b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo"]).await.unwrap().text, b"hello");
        assert_eq!(
            answered(&[b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 204 No\r\n\r\n"]).await.unwrap().status,
            204
        );
    }

    #[tokio::test]
    async fn what_is_no_whole_answer_is_trouble() {
        let short = answered(&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"]).await;
        assert_eq!(short.unwrap_err(), Trouble::ConnectionClosed);
        assert_eq!(answered(&[b"SSH-2.0-x\r\n\r\n"]).await.unwrap_err(), Trouble::MalformedAnswer);
        let chunks = answered(&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"]).await;
        assert_eq!(chunks.unwrap_err(), Trouble::MalformedAnswer);
    }

    #[test]
    fn endpoints_are_plain_http() {
        for good in ["127.0.0.1:9700", "http://127.0.0.1:9700/", "127.0.0.1"] {
            assert!(Endpoint::parse(good).is_ok(), "{good}");
        }
        for wrong in ["https://127.0.0.1:9700", "", "http://127.0.0.1/bucket", "127.0.0.1:port", "ftp://127.0.0.1"] {
            let error = Endpoint::parse(wrong).expect_err(wrong);
            assert!(error.contains(wrong), "{error}");
        }
        assert!(Endpoint::parse("https://localhost").unwrap_err().contains("https is not spoken"));
    }
}
