//! Signature Version 4 as Amazon's documents have it, written down once more so that the tests can bend it.

use std::net::SocketAddr;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;

pub(crate) const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// A request to be signed; tests change what they want to break.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Sorted by name, encoded.
    pub(crate) query: Vec<(String, String)>,
    /// Lower-case names; all are signed but those in `unsigned_headers`.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) unsigned_headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Value of `x-amz-content-sha256`; the body's hash when `None`.
    pub(crate) payload: Option<String>,
    pub(crate) key: String,
    pub(crate) secret: String,
    pub(crate) region: String,
    pub(crate) time: OffsetDateTime,
}

pub(crate) struct Signed {
    pub(crate) bytes: Vec<u8>,
    pub(crate) signature: String,
    pub(crate) date: String,
    pub(crate) scope: String,
    pub(crate) signing_key: Vec<u8>,
}

impl Request {
    #[expect(
        clippy::disallowed_methods,
        reason = "signatures need the time of the server's clock, which is the system's"
    )]
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let now: OffsetDateTime = std::time::SystemTime::now().into();
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: Vec::new(),
            headers: Vec::new(),
            unsigned_headers: Vec::new(),
            body: Vec::new(),
            payload: None,
            key: super::ROOT_KEY.to_owned(),
            secret: super::ROOT_SECRET.to_owned(),
            region: "us-east-1".to_owned(),
            time: now,
        }
    }

    pub(crate) fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn unsigned_header(mut self, name: &str, value: &str) -> Self {
        self.unsigned_headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn payload(mut self, payload: &str) -> Self {
        self.payload = Some(payload.to_owned());
        self
    }

    fn date(&self) -> String {
        self.time.format(format_description!("[year][month][day]T[hour][minute][second]Z")).expect("date")
    }

    fn scope(&self, date: &str) -> String {
        format!("{}/{}/s3/aws4_request", &date[..8], self.region)
    }

    /// The request without any signature.
    pub(crate) fn anonymous(&self, address: SocketAddr) -> Vec<u8> {
        let mut headers = self.headers.clone();
        headers.push(("host".to_owned(), address.to_string()));
        self.write(&headers, &self.query)
    }

    /// The request with its signature in the header.
    pub(crate) fn sign(&self, address: SocketAddr) -> Signed {
        let date = self.date();
        let payload = self.payload.clone().unwrap_or_else(|| hex::encode(Sha256::digest(&self.body)));
        let mut headers = self.headers.clone();
        headers.push(("host".to_owned(), address.to_string()));
        headers.push(("x-amz-content-sha256".to_owned(), payload.clone()));
        headers.push(("x-amz-date".to_owned(), date.clone()));
        let (signature, signed_headers, signing_key) = self.signature(&headers, &self.query, &payload, &date);
        let scope = self.scope(&date);
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={signed_headers}, Signature={signature}",
            self.key
        );
        headers.push(("authorization".to_owned(), authorization));
        Signed { bytes: self.write(&headers, &self.query), signature, date, scope, signing_key }
    }

    /// The request with its signature in the query.
    pub(crate) fn presign(&self, address: SocketAddr, expires: &str) -> Vec<u8> {
        let date = self.date();
        let mut headers = self.headers.clone();
        headers.push(("host".to_owned(), address.to_string()));
        let names = signed_names(&headers);
        let credential = format!("{}/{}", self.key, self.scope(&date)).replace('/', "%2F");
        let mut query = self.query.clone();
        for (name, value) in [
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", &credential),
            ("X-Amz-Date", &date),
            ("X-Amz-Expires", expires),
            ("X-Amz-SignedHeaders", &names.replace(';', "%3B")),
        ] {
            query.push((name.to_owned(), value.to_owned()));
        }
        query.sort();
        let (signature, _, _) = self.signature(&headers, &query, UNSIGNED, &date);
        query.push(("X-Amz-Signature".to_owned(), signature));
        self.write(&headers, &query)
    }

    fn signature(
        &self,
        headers: &[(String, String)],
        query: &[(String, String)],
        payload: &str,
        date: &str,
    ) -> (String, String, Vec<u8>) {
        let mut sorted = headers.to_vec();
        sorted.sort();
        let names = signed_names(headers);
        let lines: String = sorted.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let canonical = format!("{}\n{}\n{}\n{lines}\n{names}\n{payload}", self.method, self.path, query_text(query));
        let scope = self.scope(date);
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex::encode(Sha256::digest(canonical)));
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for part in scope.split('/') {
            key = mac(&key, part.as_bytes());
        }
        (hex::encode(mac(&key, text.as_bytes())), names, key)
    }

    fn write(&self, headers: &[(String, String)], query: &[(String, String)]) -> Vec<u8> {
        let query = if query.is_empty() { String::new() } else { format!("?{}", query_text(query)) };
        let mut text = format!("{} {}{query} HTTP/1.1\r\n", self.method, self.path);
        let all: Vec<_> = headers.iter().chain(&self.unsigned_headers).collect();
        for (name, value) in &all {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !all.iter().any(|(name, _)| name == "content-length" || name == "transfer-encoding") {
            text.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        if !all.iter().any(|(name, _)| name == "connection") {
            text.push_str("connection: close\r\n");
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

impl Signed {
    /// The chunks of `STREAMING-AWS4-HMAC-SHA256-PAYLOAD`, the final one included.
    pub(crate) fn chunks(&self, chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut previous = self.signature.clone();
        let all = chunks.iter().copied().chain([b"".as_slice()]);
        all.map(|data| {
            let empty = hex::encode(Sha256::digest(b""));
            let text = format!(
                "AWS4-HMAC-SHA256-PAYLOAD\n{}\n{}\n{previous}\n{empty}\n{}",
                self.date,
                self.scope,
                hex::encode(Sha256::digest(data))
            );
            previous = hex::encode(mac(&self.signing_key, text.as_bytes()));
            let mut chunk = format!("{:x};chunk-signature={previous}\r\n", data.len()).into_bytes();
            chunk.extend_from_slice(data);
            chunk.extend_from_slice(b"\r\n");
            chunk
        })
        .collect()
    }
}

fn query_text(query: &[(String, String)]) -> String {
    query.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

fn signed_names(headers: &[(String, String)]) -> String {
    let mut names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.join(";")
}

fn mac(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("key");
    mac.update(data);
    mac.finalize().into_bytes().to_vec()
}
