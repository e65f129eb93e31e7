//! The way to an endpoint: its name, and a connection.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use forebay_env::Env;
use forebay_ufs::UnderStoreUrl;

use super::report::{Report, Unit};

/// Region of requests to Amazon that name none, as the S3 client has it.
const REGION_DEFAULT: &str = "us-east-1";
/// A connection within a region takes a millisecond or two; from here on it is another continent.
const FAR: Duration = Duration::from_millis(80);

/// Host and port of an under store; `None` for a directory, and for a nameservice of HDFS, which has several.
pub(super) fn endpoint(url: &UnderStoreUrl) -> Option<(String, u16)> {
    let (endpoint, region) = match url {
        UnderStoreUrl::Directory(_) => return None,
        UnderStoreUrl::Hdfs(location) => {
            let (host, port) = location.authority.rsplit_once(':')?;
            return Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?));
        }
        UnderStoreUrl::S3 { endpoint, region, .. } => (endpoint, region),
    };
    let Some(endpoint) = endpoint else {
        let region = region.as_deref().unwrap_or(REGION_DEFAULT);
        return Some((format!("s3.{region}.amazonaws.com"), 443));
    };
    let (scheme, rest) = endpoint.split_once("://")?;
    let authority = rest.split('/').next().unwrap_or_default();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let default = if scheme == "https" { 443 } else { 80 };
    // An IPv6 address has colons inside of its brackets.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        Some(_) | None => (authority, default),
    };
    Some((host.trim_matches(['[', ']']).to_owned(), port))
}

/// Resolves and connects. Returns whether both went well.
pub(super) async fn examine(name: &str, url: &UnderStoreUrl, limit: Duration, env: &Env, report: &mut Report) -> bool {
    let Some((host, port)) = endpoint(url) else { return true };
    let clock = env.clock.clone();
    let target = host.clone();
    let resolved = tokio::task::spawn_blocking(move || {
        let began = clock.monotonic();
        let addresses = (target.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        let resolved = clock.monotonic() - began;
        addresses.map(|addresses| (addresses, resolved))
    });
    let (addresses, took) = match resolved.await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => {
            report.find("under-store-unresolved", name, format!("{host}: {error}"));
            return false;
        }
        Err(_) => return true,
    };
    report.measured("under-store-resolve", name, took.as_secs_f64(), Unit::Seconds);
    let clock = env.clock.clone();
    let connected = tokio::task::spawn_blocking(move || {
        let began = clock.monotonic();
        connect(&addresses, limit).map(|()| clock.monotonic() - began)
    });
    match connected.await {
        Ok(Ok(took)) => {
            report.measured("under-store-connect", name, took.as_secs_f64(), Unit::Seconds);
            if took > FAR {
                report.find(
                    "under-store-far",
                    name,
                    format!("a connection takes {}", Unit::Seconds.show(took.as_secs_f64())),
                );
            }
            true
        }
        Ok(Err(error)) => {
            report.find("under-store-unreachable", name, format!("{host}:{port}: {error}"));
            false
        }
        Err(_) => true,
    }
}

/// To the first address that answers.
fn connect(addresses: &[SocketAddr], limit: Duration) -> std::io::Result<()> {
    let mut last = std::io::Error::other("no address");
    for address in addresses {
        match TcpStream::connect_timeout(address, limit) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_hosts_and_ports() {
        for (url, expected) in [
            ("file:///data", None),
            ("hdfs://host:8020/data", Some(("host", 8020))),
            ("hdfs://nameservice/data", None),
            ("s3://b?region=eu-west-1", Some(("s3.eu-west-1.amazonaws.com", 443))),
            ("s3://b", Some(("s3.us-east-1.amazonaws.com", 443))),
            ("s3://b?endpoint=http://host", Some(("host", 80))),
            ("s3://b?endpoint=https://user:word@host:9000/path", Some(("host", 9000))),
            ("s3://b?endpoint=https://[::1]:9000", Some(("::1", 9000))),
            ("s3://b?endpoint=https://[::1]", Some(("::1", 443))),
        ] {
            let found = endpoint(&url.parse().unwrap());
            assert_eq!(found, expected.map(|(host, port)| (host.to_owned(), port)), "{url}");
        }
    }

    #[tokio::test]
    async fn a_closed_port_and_a_name_without_address_are_told() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let found = async |url: String| {
            let mut report = Report::default();
            let limit = Duration::from_secs(5);
            let well = examine("s3", &url.parse().unwrap(), limit, &Env::real(), &mut report).await;
            (well, report.findings.first().map(|finding| finding.id))
        };
        assert_eq!(found(format!("s3://b?endpoint=http://127.0.0.1:{port}")).await, (true, None));
        drop(listener);
        let closed = format!("s3://b?endpoint=http://127.0.0.1:{port}");
        assert_eq!(found(closed).await, (false, Some("under-store-unreachable")));
        let nowhere = "s3://b?endpoint=http://name.invalid".to_owned();
        assert_eq!(found(nowhere).await, (false, Some("under-store-unresolved")));
    }
}
