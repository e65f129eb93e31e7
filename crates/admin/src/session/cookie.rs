//! The id of a session in a cookie.

use http::{HeaderMap, HeaderValue, header};

const COOKIE: &str = "forebay_session";

/// The challenge for scripts of the console: to one that it does not know a browser shows no dialog for keys, which it
/// would then keep.
pub(crate) const CHALLENGE: HeaderValue = HeaderValue::from_static("Session realm=\"forebay\"");

/// The header that gives a browser this id; an empty one for a session that has ended.
pub(super) fn cookie(id: &str, is_encrypted: bool) -> String {
    let secure = if is_encrypted { "; Secure" } else { "" };
    format!("{COOKIE}={id}; Path=/; HttpOnly; SameSite=Strict{secure}")
}

/// The id in the cookie, when there is one.
pub(crate) fn of(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, id)| id)
}
