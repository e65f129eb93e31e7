//! Signature Version 4 of Amazon S3, in the header (AWS: "Authenticating Requests: Using the Authorization Header").
//!
//! The load generator shares the cores with the server that it measures. So it derives the signing key once a day, and
//! can keep signatures; `aws-sigv4` derives the key for each request.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use forebay_env::Clock;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

/// The value of `x-amz-content-sha256` when the body is not signed.
pub(crate) const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";
/// SHA-256 of nothing.
pub(crate) const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// S3 refuses a signature that is 15 minutes old. A signature that is reused is at most a third of that old.
const CACHED_FOR_MS: u64 = 5 * 60 * 1000;
/// Most signatures that are kept, of about 300 bytes each with their requests.
const CACHED_MAX: usize = 1 << 18;

/// Whether each request gets a new signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Signatures {
    /// Signs every request, as clients do
    Each,
    /// Signs a request once, and sends the same signature again for five minutes when the same request comes again
    Cached,
}

/// Whose signature it is.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    pub(crate) region: String,
}

/// What is signed.
pub(crate) struct Canonical<'a> {
    pub(crate) method: &'a str,
    /// With everything but unreserved characters and `/` percent-encoded.
    pub(crate) path: &'a str,
    /// Encoded, and sorted by name.
    pub(crate) query: &'a str,
    /// Lower-case names, sorted; with `host`, `x-amz-date` and `x-amz-content-sha256`.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) payload_sha256: &'a str,
}

/// The two headers that a signature needs.
#[derive(Debug, Clone)]
pub(crate) struct Signed {
    /// `x-amz-date`
    pub(crate) date: String,
    /// `Authorization`
    pub(crate) authorization: String,
}

/// Signs requests. The key of a day is computed once.
pub(crate) struct Signer {
    credentials: Credentials,
    clock: Arc<dyn Clock>,
    day: String,
    key: [u8; 32],
    cache: Option<HashMap<String, (u64, Signed)>>,
}

impl Signer {
    pub(crate) fn new(credentials: Credentials, signatures: Signatures, clock: Arc<dyn Clock>) -> Self {
        let cache = (signatures == Signatures::Cached).then(HashMap::new);
        Self { credentials, clock, day: String::new(), key: [0; 32], cache }
    }

    /// Signs a request that has no headers except those that must be signed.
    pub(crate) fn sign(&mut self, host: &str, method: &str, path: &str, query: &str, payload_sha256: &str) -> Signed {
        let now_ms = self.clock.unix_ms();
        if self.cache.is_none() {
            return self.sign_now(now_ms, host, method, path, query, payload_sha256);
        }
        let request = [method, host, path, query, payload_sha256].join(" ");
        let cached = self.cache.as_ref().and_then(|cache| cache.get(&request));
        if let Some((_, signed)) = cached.filter(|(signed_ms, _)| now_ms.saturating_sub(*signed_ms) < CACHED_FOR_MS) {
            return signed.clone();
        }
        let signed = self.sign_now(now_ms, host, method, path, query, payload_sha256);
        let cache = self.cache.as_mut().expect("looked at above");
        if cache.len() < CACHED_MAX || cache.contains_key(&request) {
            cache.insert(request, (now_ms, signed.clone()));
        }
        signed
    }

    fn sign_now(
        &mut self,
        now_ms: u64,
        host: &str,
        method: &str,
        path: &str,
        query: &str,
        payload_sha256: &str,
    ) -> Signed {
        let date = date(now_ms);
        let headers = [("host", host), ("x-amz-content-sha256", payload_sha256), ("x-amz-date", &date)];
        let authorization =
            self.authorization(&date, &Canonical { method, path, query, headers: &headers, payload_sha256 });
        Signed { date, authorization }
    }

    /// The value of `Authorization` at a date such as `20130524T000000Z`.
    pub(crate) fn authorization(&mut self, date: &str, request: &Canonical) -> String {
        let day = &date[..8];
        if self.day != day {
            self.key = signing_key(&self.credentials, day);
            day.clone_into(&mut self.day);
        }
        let names = request.headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let scope = format!("{day}/{}/s3/aws4_request", self.credentials.region);
        let hash = hex::encode(Sha256::digest(canonical(request, &names)));
        let signature = hex::encode(mac(&self.key, format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hash}").as_bytes()));
        let access_key = &self.credentials.access_key;
        format!("AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}")
    }
}

fn canonical(request: &Canonical, names: &str) -> String {
    let Canonical { method, path, query, headers, payload_sha256 } = request;
    let mut text = String::with_capacity(512);
    let lines = headers.iter().map(|(name, value)| (name, value.trim()));
    write!(text, "{method}\n{path}\n{query}\n").expect("a string takes all");
    lines.for_each(|(name, value)| writeln!(text, "{name}:{value}").expect("a string takes all"));
    write!(text, "\n{names}\n{payload_sha256}").expect("a string takes all");
    text
}

fn signing_key(credentials: &Credentials, day: &str) -> [u8; 32] {
    let first = mac(format!("AWS4{}", credentials.secret_key).as_bytes(), day.as_bytes());
    [credentials.region.as_str(), "s3", "aws4_request"].iter().fold(first, |key, word| mac(&key, word.as_bytes()))
}

fn mac(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a MAC takes keys of any length");
    mac.update(data);
    mac.finalize().into_bytes().into()
}

/// As in `20130524T000000Z`.
fn date(unix_ms: u64) -> String {
    // A machine's clock stays within the years that the type can hold.
    let now = OffsetDateTime::from_unix_timestamp((unix_ms / 1000) as i64).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (date, time) = (now.date(), now.time());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", time.hour(), time.minute(), time.second())
}

/// Percent-encodes everything except unreserved characters, and `/` where a path keeps it.
pub(crate) fn encoded(text: &str, keep_slash: bool) -> String {
    let mut encoded = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (keep_slash && byte == b'/');
        if unreserved {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes all");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;

    use super::*;

    fn signer(signatures: Signatures) -> (Signer, Arc<forebay_env::clock::ManualClock>) {
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            region: "us-east-1".to_owned(),
        };
        let (env, clock) = Env::simulated(1);
        (Signer::new(credentials, signatures, env.clock), clock)
    }

    /// The examples of "Signature Calculations for the Authorization Header" in the Amazon S3 API reference.
    #[test]
    fn the_published_examples_have_their_signatures() {
        let host = ("host", "examplebucket.s3.amazonaws.com");
        let date = ("x-amz-date", "20130524T000000Z");
        let empty = ("x-amz-content-sha256", EMPTY_SHA256);
        let put_sha256 = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
        let put = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            host,
            ("x-amz-content-sha256", put_sha256),
            date,
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let ranged = [host, ("range", "bytes=0-9"), empty, date];
        let plain = [host, empty, date];
        let cases = [
            (
                "GET",
                "/test.txt",
                "",
                ranged.as_slice(),
                EMPTY_SHA256,
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                "PUT",
                "/test%24file.text",
                "",
                put.as_slice(),
                put_sha256,
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                "GET",
                "/",
                "lifecycle=",
                plain.as_slice(),
                EMPTY_SHA256,
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                "GET",
                "/",
                "max-keys=2&prefix=J",
                plain.as_slice(),
                EMPTY_SHA256,
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ];
        for (method, path, query, headers, payload_sha256, signature) in cases {
            let request = Canonical { method, path, query, headers, payload_sha256 };
            let authorization = signer(Signatures::Each).0.authorization("20130524T000000Z", &request);
            assert!(
                authorization.ends_with(&format!("Signature={signature}")),
                "{method} {path}?{query}: {authorization}"
            );
        }
        assert_eq!(encoded("test$file.text", true), "test%24file.text");
        assert_eq!(encoded("a/b c~ä", false), "a%2Fb%20c~%C3%A4");
    }

    #[test]
    fn cached_signatures_are_used_again_for_five_minutes() {
        let sign = |signer: &mut Signer| signer.sign("host", "GET", "/b/k", "", EMPTY_SHA256);
        for (signatures, again) in [(Signatures::Cached, true), (Signatures::Each, false)] {
            let (mut signer, clock) = signer(signatures);
            let first = sign(&mut signer);
            assert_eq!(first.date, "20200101T000000Z");
            clock.advance(std::time::Duration::from_secs(200));
            assert_eq!(sign(&mut signer).authorization == first.authorization, again);
            clock.advance(std::time::Duration::from_secs(200));
            assert_ne!(sign(&mut signer).authorization, first.authorization);
            assert_eq!(sign(&mut signer).date, "20200101T000640Z");
        }
    }
}
