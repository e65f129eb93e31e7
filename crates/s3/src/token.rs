//! Continuation tokens: opaque, authenticated, and good after a restart.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use forebay_auth::Secret;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// Bytes of the authentication code in a token: 128 bits, as RFC 2104 allows.
const CODE_BYTES: usize = 16;

/// Makes and checks tokens. The key is derived from a secret that stays the same over restarts.
#[derive(Clone)]
pub(crate) struct Tokens {
    key: [u8; 32],
}

impl Tokens {
    pub(crate) fn new(secret: &Secret) -> Self {
        Self { key: code(secret.expose().as_bytes(), &[b"forebay continuation token v1"]) }
    }

    /// A token that stands for `position` in listings of `scope` (a bucket).
    pub(crate) fn make(&self, scope: &str, position: &str) -> String {
        let mut bytes = self.code(scope, position)[..CODE_BYTES].to_vec();
        bytes.extend_from_slice(position.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The position, if this token was made here for this scope.
    pub(crate) fn open(&self, scope: &str, token: &str) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (given, position) = bytes.split_at_checked(CODE_BYTES)?;
        let position = std::str::from_utf8(position).ok()?;
        let right: bool = self.code(scope, position)[..CODE_BYTES].ct_eq(given).into();
        right.then(|| position.to_owned())
    }

    fn code(&self, scope: &str, position: &str) -> [u8; 32] {
        code(&self.key, &[scope.as_bytes(), b"\0", position.as_bytes()])
    }
}

fn code(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_hold_over_a_restart_and_nowhere_else() {
        let secret = Secret::new("root secret");
        let token = Tokens::new(&secret).make("bucket", "some/key é");
        assert_eq!(Tokens::new(&secret).open("bucket", &token).as_deref(), Some("some/key é"));
        assert_eq!(Tokens::new(&secret).open("other", &token), None);
        assert_eq!(Tokens::new(&Secret::new("another")).open("bucket", &token), None);
    }

    #[test]
    fn no_changed_token_is_believed() {
        let tokens = Tokens::new(&Secret::new("root secret"));
        let token = tokens.make("bucket", "key");
        for place in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'Q' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(tokens.open("bucket", &changed), None, "{changed}");
        }
        for junk in ["", "a", "????", "bmV4dA"] {
            assert_eq!(tokens.open("bucket", junk), None);
        }
    }
}
