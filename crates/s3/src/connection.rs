//! What is known of a client before it asks for anything.

use std::net::IpAddr;

use tokio_rustls::rustls::{CipherSuite, ProtocolVersion, ServerConnection};

/// One connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Connection {
    /// `http` or `https`
    pub(crate) scheme: &'static str,
    /// None in tests without a socket.
    pub(crate) peer: Option<IpAddr>,
    pub(crate) tls: Option<Tls>,
}

/// Names as OpenSSL writes them, and with it Amazon's logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) version: &'static str,
    pub(crate) cipher_suite: String,
}

impl Connection {
    pub(crate) fn plain(peer: Option<IpAddr>) -> Self {
        Self { scheme: "http", peer, tls: None }
    }

    pub(crate) fn encrypted(peer: Option<IpAddr>, connection: &ServerConnection) -> Self {
        let suite = connection.negotiated_cipher_suite().map(|suite| suite_name(suite.suite()));
        let version = connection.protocol_version().map(version_name);
        let tls = version.zip(suite).map(|(version, cipher_suite)| Tls { version, cipher_suite });
        Self { scheme: "https", peer, tls }
    }
}

fn version_name(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::TLSv1_3 => "TLSv1.3",
        // `rustls` speaks no other.
        _ => "TLSv1.2",
    }
}

/// `TLS13_AES_128_GCM_SHA256` is `TLS_AES_128_GCM_SHA256` to OpenSSL, and `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` is
/// `ECDHE-RSA-AES128-GCM-SHA256`.
fn suite_name(suite: CipherSuite) -> String {
    let name = format!("{suite:?}");
    if let Some(rest) = name.strip_prefix("TLS13_") {
        return format!("TLS_{rest}");
    }
    let name = name.trim_start_matches("TLS_").replace("_WITH_", "-").replace("AES_", "AES");
    // The one suite whose hash OpenSSL leaves out.
    name.replace("POLY1305_SHA256", "POLY1305").replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_have_the_names_that_openssl_gives_them() {
        for (suite, name) in [
            (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384"),
            (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256"),
            (CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, "ECDHE-RSA-AES128-GCM-SHA256"),
            (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "ECDHE-ECDSA-AES256-GCM-SHA384"),
            (CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-RSA-CHACHA20-POLY1305"),
        ] {
            assert_eq!(suite_name(suite), name);
        }
    }
}
