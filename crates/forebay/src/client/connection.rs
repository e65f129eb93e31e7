//! Which worker a command talks to, and with whose keys.

use std::net::IpAddr;
use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use clap::builder::FalseyValueParser;
use forebay_auth::Secret;
use ureq::http::Uri;

use crate::failure::Failure;

const ENDPOINT_DEFAULT: &str = "http://127.0.0.1:9701";

/// Environment variables of access key and secret key that are asked when neither flags nor their own variables are
/// set, in this order. A pair comes from one place: the access key of one and the secret key of another are never what
/// is meant.
const KEY_VARIABLES: [(&str, &str); 2] = [("FOREBAY_ROOT_ACCESS_KEY", "FOREBAY_ROOT_SECRET_KEY"), AWS_VARIABLES];

/// They may be the keys to somebody's cloud, which every other tool signs with and never sends: they go to this
/// machine, or encrypted, and else nowhere.
const AWS_VARIABLES: (&str, &str) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");

#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// URL of the admin API [default: http://127.0.0.1:9701]
    #[arg(long, global = true, value_name = "URL", env = "FOREBAY_ADMIN_ENDPOINT")]
    endpoint: Option<String>,
    /// Access key of a user with an admin grant; else FOREBAY_ROOT_ACCESS_KEY, or AWS_ACCESS_KEY_ID for this machine
    /// and https
    #[arg(long, global = true, value_name = "KEY", env = "FOREBAY_ACCESS_KEY", hide_env_values = true)]
    access_key: Option<String>,
    /// Its secret key; prefer the variable, because the process list shows flags; else FOREBAY_ROOT_SECRET_KEY, or
    /// AWS_SECRET_ACCESS_KEY for this machine and https
    #[arg(long, global = true, value_name = "KEY", env = "FOREBAY_SECRET_KEY", hide_env_values = true, value_parser = secret)]
    secret_key: Option<Secret>,
    /// PEM file of the authorities that the server's certificate may come from, instead of the usual ones
    #[arg(long, global = true, value_name = "FILE", env = "FOREBAY_CA_CERT")]
    pub(crate) ca_cert: Option<PathBuf>,
    /// Accepts any certificate: anybody between client and server can read the keys
    #[arg(long, global = true, env = "FOREBAY_INSECURE", value_parser = FalseyValueParser::new())]
    pub(crate) insecure: bool,
}

fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

impl Connection {
    pub(crate) fn endpoint(&self) -> Result<String, Failure> {
        let given = self.endpoint.as_deref().filter(|text| !text.is_empty()).unwrap_or(ENDPOINT_DEFAULT);
        let wrong = |why: &str| Failure::Refused(format!("--endpoint {given:?}: {why}"));
        let uri: Uri = given.parse().map_err(|_| wrong("is no URL such as http://127.0.0.1:9701"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return Err(wrong("must begin with http:// or https:// and name a host"));
        }
        if uri.query().is_some() || given.contains('#') {
            return Err(wrong("must end with the host, the port or a path"));
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(wrong("holds keys: give them as --access-key and --secret-key"));
        }
        Ok(given.trim_end_matches('/').to_owned())
    }
}

pub(crate) fn is_loopback(endpoint: &str) -> bool {
    let uri: Option<Uri> = endpoint.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// The keys of an administrator.
pub(super) struct Keys {
    access_key: String,
    secret_key: Secret,
}

impl Keys {
    pub(super) fn find(connection: &Connection) -> Result<Self, Failure> {
        Self::find_in(connection, &|name| std::env::var(name).ok())
    }

    fn find_in(connection: &Connection, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let access_key = given(connection.access_key.clone());
        let secret_key = given(connection.secret_key.as_ref().map(|secret| secret.expose().to_owned()));
        let own =
            (("--access-key or FOREBAY_ACCESS_KEY", "--secret-key or FOREBAY_SECRET_KEY"), (access_key, secret_key));
        let endpoint = connection.endpoint()?;
        let is_safe = is_loopback(&endpoint) || (endpoint.starts_with("https://") && !connection.insecure);
        let others = KEY_VARIABLES.into_iter().filter(|names| is_safe || *names != AWS_VARIABLES);
        let others = others.map(|names| (names, (given(variable(names.0)), given(variable(names.1)))));
        let wanted =
            |what: &str| Failure::Refused(format!("{what} is missing: give the keys of a user with an admin grant"));
        for ((access_name, secret_name), keys) in std::iter::once(own).chain(others) {
            match keys {
                (Some(access_key), _) if access_key.contains(':') => {
                    return Err(Failure::Refused(format!("{access_name}: an access key holds no ':'")));
                }
                (Some(access_key), Some(secret)) => return Ok(Self { access_key, secret_key: Secret::new(&secret) }),
                (Some(_), None) => return Err(wanted(secret_name)),
                (None, Some(_)) => return Err(wanted(access_name)),
                (None, None) => {}
            }
        }
        Err(wanted("FOREBAY_ACCESS_KEY with FOREBAY_SECRET_KEY"))
    }

    /// The value of the header `Authorization`.
    pub(super) fn authorization(&self) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(format!("{}:{}", self.access_key, self.secret_key.expose())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(endpoint: &str, access_key: &str, secret_key: &str) -> Connection {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Connection {
            endpoint: given(endpoint),
            access_key: given(access_key),
            secret_key: given(secret_key).map(|text| Secret::new(&text)),
            ca_cert: None,
            insecure: false,
        }
    }

    fn refusal<T>(result: Result<T, Failure>) -> String {
        match result {
            Err(Failure::Refused(line)) => line,
            Err(other) => panic!("{other:?} is no refusal"),
            Ok(_) => panic!("taken"),
        }
    }

    #[test]
    fn keys_come_in_pairs_from_the_first_place_that_has_one() {
        let variables = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            move |name: &str| names.iter().any(|known| known == name).then(|| format!("of {name}"))
        };
        let root = ["FOREBAY_ROOT_ACCESS_KEY", "FOREBAY_ROOT_SECRET_KEY"];
        let aws = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
        let find = |own: (&str, &str), names: &[&str]| Keys::find_in(&connection("", own.0, own.1), &variables(names));
        let access_key = |keys: Result<Keys, Failure>| keys.expect("a pair").access_key;
        for (endpoint, is_taken) in
            [("https://far.test:1", true), ("http://[::1]:1", true), ("http://far.test:1", false)]
        {
            assert_eq!(Keys::find_in(&connection(endpoint, "", ""), &variables(&aws)).is_ok(), is_taken, "{endpoint}");
        }
        assert_eq!(access_key(find(("mine", "secret"), &root)), "mine");
        assert_eq!(access_key(find(("", ""), &[root, aws].concat())), "of FOREBAY_ROOT_ACCESS_KEY");
        assert_eq!(access_key(find(("", ""), &aws)), "of AWS_ACCESS_KEY_ID");
        assert!(refusal(find(("mine", ""), &root)).contains("FOREBAY_SECRET_KEY"));
        assert!(refusal(find(("", "secret"), &root)).contains("FOREBAY_ACCESS_KEY"));
        assert!(refusal(find(("", ""), &[root[0], aws[0], aws[1]])).contains("FOREBAY_ROOT_SECRET_KEY"));
        assert!(refusal(find(("", ""), &[])).contains("FOREBAY_ACCESS_KEY"));
        assert!(refusal(find(("a:b", "c"), &[])).contains("':'"));
    }

    #[test]
    fn an_endpoint_is_a_url_without_keys() {
        for (given, endpoint) in [
            ("", ENDPOINT_DEFAULT),
            ("http://forebay:1/", "http://forebay:1"),
            ("https://[::1]:9701/below", "https://[::1]:9701/below"),
        ] {
            assert_eq!(connection(given, "", "").endpoint().expect("a URL"), endpoint);
        }
        for given in ["127.0.0.1:9701", "ftp://x", "http://", "http://a:b@c", "http://a?b=c", "http://a#b", "x y"] {
            assert!(refusal(connection(given, "", "").endpoint()).contains(given), "{given}");
        }
    }

    #[test]
    fn only_addresses_of_this_machine_go_past_a_proxy() {
        for (endpoint, expected) in [
            ("http://127.0.0.1:1", true),
            ("https://[::1]:1/x", true),
            ("http://LocalHost", true),
            ("http://10.0.0.1", false),
            ("http://localhost.example.com", false),
        ] {
            assert_eq!(is_loopback(endpoint), expected, "{endpoint}");
        }
    }
}
