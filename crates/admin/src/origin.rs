//! What a browser says of the page that a request comes from.
//!
//! Credentials are bound to the host: the session's cookie by the browser (and `SameSite=Strict` keeps it at home),
//! keys by the user who types them. That is also why no list of host names guards against DNS rebinding. A stranger's
//! page whose host name comes to resolve to this server sends its requests under the stranger's name, for which the
//! browser holds neither cookie nor keys. It gets what any client gets: health, metrics, the empty console. A list
//! would have to contain every name of every proxy and service in front of us.

use http::request::Parts;
use http::{HeaderMap, StatusCode, header};

use crate::problem::{Answer, Problem};

/// Set by browsers, out of reach of scripts, on requests to `https` and to the local machine (W3C Fetch Metadata).
const FETCH_SITE: &str = "sec-fetch-site";

/// Refuses requests that a page of another site has made, with whatever credentials.
pub(crate) fn refuse_other_sites(parts: &Parts) -> Answer<()> {
    if text(&parts.headers, FETCH_SITE) == Some("cross-site") {
        return Err(Problem::new(StatusCode::FORBIDDEN, "a page of another site may not ask this"));
    }
    Ok(())
}

/// Refuses requests that another origin's page has made: a page of the same host on another port is of the same site,
/// and its requests carry the cookie. Where the browser does not say the relation, the names are compared.
pub(crate) fn refuse_other_origins(parts: &Parts) -> Answer<()> {
    let from_here = match text(&parts.headers, FETCH_SITE) {
        Some(relation) => relation == "same-origin" || relation == "none",
        None => match text(&parts.headers, header::ORIGIN.as_str()) {
            Some(origin) => {
                origin.split_once("://").map(|(_, host)| host) == text(&parts.headers, header::HOST.as_str())
            }
            // No browser: those say where a request comes from that changes something.
            None => true,
        },
    };
    if from_here {
        return Ok(());
    }
    Err(Problem::new(StatusCode::FORBIDDEN, "a page of another origin may not change anything"))
}

/// Whether a browser's script asks: then it shows a form of its own, and the browser should not.
pub(crate) fn is_browser(headers: &HeaderMap) -> bool {
    headers.contains_key(FETCH_SITE)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    // A value that is not text is no value that a browser sends: it matches nothing.
    headers.get(name).map(|value| value.to_str().unwrap_or(""))
}
