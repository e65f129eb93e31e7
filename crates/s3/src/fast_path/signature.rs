//! Signature Version 4 in the header of a request, as
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html> has it.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_auth::{User, equal_in_constant_time};
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use time::PrimitiveDateTime;
use time::macros::format_description;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// What the body of a request without one is signed as.
const EMPTY_BODIES: [&str; 2] =
    ["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "UNSIGNED-PAYLOAD"];
/// How far the clock of a client may be off, in milliseconds: 15 minutes, as Amazon S3 has it.
const SKEW_MS_MAX: u64 = 15 * 60 * 1000;

/// What a signature covers of the first line of a request.
pub(crate) struct RequestLine<'a> {
    pub(crate) method: &'a str,
    /// As it is encoded in the request.
    pub(crate) path: &'a str,
    /// Its parameters in order, each with a `=`.
    pub(crate) query: &'a str,
}

impl<'a> RequestLine<'a> {
    pub(crate) fn get(path: &'a str) -> Self {
        Self { method: "GET", path, query: "" }
    }
}

/// A signature as a request gives it.
pub(crate) struct Claim<'a> {
    pub(crate) access_key: &'a str,
    /// `DATE/REGION/s3/aws4_request`
    scope: &'a str,
    signed_headers: &'a str,
    signature: &'a str,
    time: &'a str,
    body: &'a str,
}

impl<'a> Claim<'a> {
    /// `None` when the signature is anything but what all SDKs write, or covers less than it must.
    pub(crate) fn of(headers: &'a HeaderMap, region: &str) -> Option<Self> {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        let mut fields = text(AUTHORIZATION.as_str())?.strip_prefix(ALGORITHM)?.strip_prefix(' ')?.split(',');
        let mut field = |name: &str| fields.next()?.trim().strip_prefix(name)?.strip_prefix('=');
        let (credential, signed_headers) = (field("Credential")?, field("SignedHeaders")?);
        let signature = field("Signature")?;
        let (access_key, scope) = credential.split_once('/')?;
        let (time, body) = (text("x-amz-date")?, text("x-amz-content-sha256")?);
        let claim = Self { access_key, scope, signed_headers, signature, time, body };
        let is_usual = fields.next().is_none()
            && scope.split('/').eq([time.get(..8)?, region, "s3", "aws4_request"])
            && claim.covers(headers);
        is_usual.then_some(claim)
    }

    /// Whether the signed headers are in order, and all among them that must be.
    fn covers(&self, headers: &HeaderMap) -> bool {
        let names = || self.signed_headers.split(';');
        let must_be_signed = |name: &str| name == "host" || name.starts_with("x-amz-");
        names().is_sorted_by(|a, b| a < b)
            && headers.keys().all(|name| !must_be_signed(name.as_str()) || names().any(|signed| signed == name))
    }

    /// Whether the request is signed as one without a body.
    pub(crate) fn is_without_body(&self) -> bool {
        EMPTY_BODIES.contains(&self.body)
    }

    /// Whether `user` has signed a request of this line with these headers, not long ago.
    pub(crate) fn holds(
        &self,
        user: &Arc<User>,
        keys: &SigningKeys,
        line: &RequestLine<'_>,
        headers: &HeaderMap,
        now_ms: u64,
    ) -> bool {
        let format = format_description!("[year][month][day]T[hour][minute][second]Z");
        let Ok(time) = PrimitiveDateTime::parse(self.time, format) else { return false };
        let signed_ms = u64::try_from(time.assume_utc().unix_timestamp()).unwrap_or(0).saturating_mul(1000);
        if signed_ms.abs_diff(now_ms) > SKEW_MS_MAX {
            return false;
        }
        let mut text = String::with_capacity(1024);
        if self.write_canonical_request(&mut text, line, headers).is_none() {
            return false;
        }
        let digest = Sha256::digest(&text);
        text.clear();
        text.extend([ALGORITHM, "\n", self.time, "\n", self.scope, "\n", in_hex(&digest, &mut [0; 64])]);
        let signature = mac(&keys.of(user, self.scope), &text);
        equal_in_constant_time(in_hex(&signature, &mut [0; 64]), self.signature)
    }

    /// `None` when a signed header is missing.
    fn write_canonical_request(&self, request: &mut String, line: &RequestLine<'_>, headers: &HeaderMap) -> Option<()> {
        request.extend([line.method, "\n", line.path, "\n", line.query, "\n"]);
        for name in self.signed_headers.split(';') {
            request.extend([name, ":"]);
            for (index, word) in headers.get(name)?.to_str().ok()?.split_ascii_whitespace().enumerate() {
                request.extend([if index == 0 { "" } else { " " }, word]);
            }
            request.push('\n');
        }
        request.extend(["\n", self.signed_headers, "\n", self.body]);
        Some(())
    }
}

/// The key that each user signs with on a day, made once.
#[derive(Default)]
pub(crate) struct SigningKeys {
    /// By access key. A user who has got another secret is another one.
    known: RwLock<HashMap<String, SigningKey>>,
}

struct SigningKey {
    owner: Arc<User>,
    scope: String,
    key: [u8; 32],
}

/// Users whose keys are cached. The next user after that empties the cache.
const USERS_MAX: usize = 1024;

impl SigningKeys {
    fn of(&self, user: &Arc<User>, scope: &str) -> [u8; 32] {
        if let Some(known) = self.known.read().get(&user.access_key)
            && Arc::ptr_eq(&known.owner, user)
            && known.scope == scope
        {
            return known.key;
        }
        let key = signing_key(user.secret.expose(), scope);
        let mut known = self.known.write();
        if known.len() >= USERS_MAX {
            known.clear();
        }
        let (owner, scope) = (Arc::clone(user), scope.to_owned());
        known.insert(user.access_key.clone(), SigningKey { owner, scope, key });
        key
    }
}

fn signing_key(secret: &str, scope: &str) -> [u8; 32] {
    let mut parts = scope.split('/');
    let first = mac(format!("AWS4{secret}").as_bytes(), parts.next().unwrap_or_default());
    parts.fold(first, |key, part| mac(&key, part))
}

fn in_hex<'a>(bytes: &[u8], text: &'a mut [u8; 64]) -> &'a str {
    hex::encode_to_slice(bytes, text).expect("two digits for each of 32 bytes");
    std::str::from_utf8(text).expect("digits")
}

fn mac(key: &[u8], text: &str) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a MAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use forebay_auth::Secret;
    use http::HeaderValue;

    use super::*;

    /// The example "GET Object" of Amazon's documents.
    fn example() -> HeaderMap {
        let authorization = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
            SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
            Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        HeaderMap::from_iter(
            [
                ("host", "examplebucket.s3.amazonaws.com"),
                ("range", "bytes=0-9"),
                ("x-amz-content-sha256", EMPTY_BODIES[0]),
                ("x-amz-date", "20130524T000000Z"),
                ("authorization", authorization),
            ]
            .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value))),
        )
    }

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    /// 2013-05-24T00:00:00Z
    const TIME_MS: u64 = 1_369_353_600_000;

    fn user(secret: &str) -> Arc<User> {
        let (name, owner_id, access_key) = ("name".to_owned(), String::new(), "AKIAIOSFODNN7EXAMPLE".to_owned());
        Arc::new(User { name, owner_id, access_key, secret: Secret::new(secret), grants: Vec::new() })
    }

    fn holds(headers: &HeaderMap, secret: &str, path: &str, now_ms: u64) -> bool {
        let (user, keys) = (user(secret), SigningKeys::default());
        let holds = |claim: Claim<'_>| claim.holds(&user, &keys, &RequestLine::get(path), headers, now_ms);
        Claim::of(headers, "us-east-1").is_some_and(holds)
    }

    #[test]
    fn a_key_is_remembered_for_one_secret_and_one_scope() {
        let (keys, old, new) = (SigningKeys::default(), user("old"), user("new"));
        let of = |secret, scope| signing_key(secret, scope);
        for _ in 0..2 {
            assert_eq!(keys.of(&old, "1/r/s3/x"), of("old", "1/r/s3/x"));
        }
        assert_eq!(keys.of(&old, "2/r/s3/x"), of("old", "2/r/s3/x"));
        assert_eq!(keys.of(&new, "2/r/s3/x"), of("new", "2/r/s3/x"));
        assert_eq!(keys.of(&old, "2/r/s3/x"), of("old", "2/r/s3/x"));
    }

    #[test]
    fn the_example_of_the_documents_holds_and_nothing_else_does() {
        let headers = example();
        assert!(holds(&headers, SECRET, "/test.txt", TIME_MS));
        assert!(holds(&headers, SECRET, "/test.txt", TIME_MS + SKEW_MS_MAX));
        assert!(!holds(&headers, SECRET, "/test.txt", TIME_MS + SKEW_MS_MAX + 1));
        assert!(!holds(&headers, SECRET, "/test.txt", TIME_MS - SKEW_MS_MAX - 1));
        assert!(!holds(&headers, SECRET, "/test.tx", TIME_MS));
        assert!(!holds(&headers, "wJalrXUtnFEMI", "/test.txt", TIME_MS));
        assert!(Claim::of(&headers, "eu-west-1").is_none());
        let mut missing = headers.clone();
        missing.remove("range");
        assert!(!holds(&missing, SECRET, "/test.txt", TIME_MS));
        for (name, value) in [("range", "bytes=0-8"), ("host", "other"), ("x-amz-date", "20130524T000001Z")] {
            let mut changed = headers.clone();
            changed.insert(name, HeaderValue::from_static(value));
            assert!(!holds(&changed, SECRET, "/test.txt", TIME_MS), "{name}");
        }
    }

    #[test]
    fn a_claim_covers_what_it_must_and_is_written_as_all_write_it() {
        let good = example()["authorization"].to_str().unwrap().to_owned();
        for (from, to) in [
            ("host;range", "range"),
            ("host;range", "range;host"),
            ("host;range", "host;host;range"),
            (";x-amz-date,", ","),
            ("SignedHeaders", "signedheaders"),
            ("Signature=", "Signature=x,Signature="),
            ("/s3/", "/sts/"),
            ("/s3/", "/s3/s3/"),
            ("20130524/", "20130525/"),
            ("AWS4-HMAC-SHA256 ", "AWS4-HMAC-SHA256"),
        ] {
            let mut headers = example();
            let changed = good.replacen(from, to, 1);
            assert_ne!(changed, good);
            headers.insert(AUTHORIZATION, HeaderValue::try_from(changed).unwrap());
            assert!(Claim::of(&headers, "us-east-1").is_none(), "{from} {to}");
        }
        let mut unsigned = example();
        unsigned.insert("x-amz-checksum-mode", HeaderValue::from_static("ENABLED"));
        assert!(Claim::of(&unsigned, "us-east-1").is_none());
        let mut body = example();
        body.insert("x-amz-content-sha256", HeaderValue::from_static("STREAMING-AWS4-HMAC-SHA256-PAYLOAD"));
        assert!(Claim::of(&example(), "us-east-1").unwrap().is_without_body());
        assert!(!Claim::of(&body, "us-east-1").unwrap().is_without_body());
    }

    /// The examples "PUT Object" and "Get Bucket (List Objects)" of Amazon's documents.
    #[test]
    fn a_claim_covers_the_method_and_the_parameters() {
        let put = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
            SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,\
            Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
        let list = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
            SignedHeaders=host;x-amz-content-sha256;x-amz-date,\
            Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        let of_body = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
        let (user, keys) = (user(SECRET), SigningKeys::default());
        let holds = |headers: &HeaderMap, line: RequestLine<'_>| {
            Claim::of(headers, "us-east-1").unwrap().holds(&user, &keys, &line, headers, TIME_MS)
        };
        let text = HeaderValue::from_static;
        let mut headers = example();
        headers.remove("range");
        headers.insert("authorization", text(list));
        let query = "max-keys=2&prefix=J";
        assert!(holds(&headers, RequestLine { method: "GET", path: "/", query }));
        assert!(!holds(&headers, RequestLine { method: "GET", path: "/", query: "max-keys=3&prefix=J" }));
        assert!(!holds(&headers, RequestLine { method: "PUT", path: "/", query }));
        headers.insert("authorization", text(put));
        headers.insert("date", text("Fri, 24 May 2013 00:00:00 GMT"));
        headers.insert("x-amz-storage-class", text("REDUCED_REDUNDANCY"));
        headers.insert("x-amz-content-sha256", text(of_body));
        let line = |method| RequestLine { method, path: "/test%24file.text", query: "" };
        assert!(holds(&headers, line("PUT")));
        assert!(!holds(&headers, line("GET")));
    }
}
