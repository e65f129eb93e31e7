//! Under stores in S3 whose endpoint comes from the environment, and those that would be this server itself: each
//! request to them would wait for another one of their own kind.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use forebay_ufs::UnderStoreUrl;

use super::problem::Problem;
use super::sections::Config;

/// What the SDK reads for a mount without an endpoint, first to last.
const VARIABLES: [&str; 2] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];

impl Config {
    /// Warns of endpoints that come from the environment.
    ///
    /// # Errors
    /// The first under store that is this server.
    pub(super) fn check_endpoints(&mut self, variables: &BTreeMap<String, String>) -> Result<(), Problem> {
        let inherited = inherited(variables);
        let mut warnings = Vec::new();
        let mounts = self.mounts.iter().map(|(bucket, under_store)| (format!("mounts.{bucket}"), under_store));
        for (setting, under_store) in self.root.iter().map(|root| ("under_store.url".to_owned(), root)).chain(mounts) {
            let UnderStoreUrl::S3 { endpoint, .. } = &under_store.url else { continue };
            let told = |wrong: &str| under_store.origin.problem(&setting, wrong);
            match (endpoint.as_deref(), inherited) {
                (Some(own), _) if is_served_at(own, self.server.listen) => {
                    return Err(told("its endpoint is the address of this server (server.listen)"));
                }
                (None, Some((variable, url))) if is_served_at(url, self.server.listen) => {
                    return Err(told(&format!(
                        "it has no endpoint, and {variable} of the environment is the address of this server (server.listen): unset {variable}, or give the under store an endpoint"
                    )));
                }
                (None, Some((variable, _))) => {
                    let wrong = format!("it has no endpoint, so {variable} of the environment is used");
                    warnings.push(told(&wrong).to_string());
                }
                (Some(_), _) | (None, None) => {}
            }
        }
        self.warnings.extend(warnings);
        self.inherited_endpoint = inherited.map(|(_, url)| url.to_owned());
        Ok(())
    }
}

/// The variable that says where under stores without an endpoint are, and its value.
fn inherited(variables: &BTreeMap<String, String>) -> Option<(&'static str, &str)> {
    let ignored = variables.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    if ignored.is_some_and(|ignored| ignored.eq_ignore_ascii_case("true")) {
        return None;
    }
    let found = |variable: &&'static str| Some((*variable, variables.get(*variable)?.as_str()));
    VARIABLES.iter().filter_map(found).find(|(_, url)| !url.is_empty())
}

/// Whether a URL leads to what listens at an address of this machine. Other names of the machine are not looked up.
fn is_served_at(url: &str, listen: SocketAddr) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return false };
    let default = if url.scheme_str() == Some("https") { 443 } else { 80 };
    if listen.port() == 0 || url.port_u16().unwrap_or(default) != listen.port() {
        return false;
    }
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_own = |ip: IpAddr| {
        let listens_to_all = listen.ip().is_unspecified() && (listen.is_ipv6() || ip.is_ipv4());
        ip == listen.ip() || (ip.is_loopback() && listens_to_all)
    };
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => is_own(loopback(ip.is_ipv4())),
        Ok(ip) => is_own(ip),
        Err(_) => host == "localhost" && [true, false].into_iter().map(loopback).any(is_own),
    }
}

fn loopback(is_ipv4: bool) -> IpAddr {
    if is_ipv4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_server_is_known_by_its_names() {
        for (url, listen, is_own) in [
            ("http://127.0.0.1:9700", "127.0.0.1:9700", true),
            ("http://localhost:9700/", "127.0.0.1:9700", true),
            ("http://127.0.0.1:9700", "0.0.0.0:9700", true),
            ("http://localhost:9700", "0.0.0.0:9700", true),
            ("http://[::1]:9700", "[::]:9700", true),
            ("http://127.0.0.1:9700", "[::]:9700", true),
            ("http://0.0.0.0:9700", "127.0.0.1:9700", true),
            ("http://[::1]:9700", "0.0.0.0:9700", false),
            ("http://127.0.0.1:9700", "127.0.0.2:9700", false),
            ("http://localhost:9700", "127.0.0.2:9700", false),
            ("https://10.0.0.7", "10.0.0.7:443", true),
            ("http://127.0.0.1:9000", "127.0.0.1:9700", false),
            ("http://10.0.0.8:9700", "10.0.0.7:9700", false),
            ("http://127.0.0.1:9700", "10.0.0.7:9700", false),
            ("http://storage:9700", "127.0.0.1:9700", false),
            ("http://127.0.0.1:0", "127.0.0.1:0", false),
            ("9700", "127.0.0.1:9700", false),
        ] {
            assert_eq!(is_served_at(url, listen.parse().unwrap()), is_own, "{url} {listen}");
        }
    }
}
