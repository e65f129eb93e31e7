//! TLS of the S3 listener and, with `server.admin_tls`, of the admin listener.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::{Config, Problem};

/// `None` when no certificate is configured.
///
/// # Errors
/// When a file can't be read, or certificate and key do not belong together.
pub(crate) fn acceptor(config: &Config) -> Result<Option<TlsAcceptor>, Problem> {
    let (Some(certificate), Some(key)) = (&config.server.tls_cert, &config.server.tls_key) else { return Ok(None) };
    let refused = |setting: &'static str, path: &Path, wrong: &dyn std::fmt::Display| {
        config.problem("server", setting, &format!("{}: {wrong}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|wrong| refused("tls_cert", certificate, &wrong))?;
    if chain.is_empty() {
        return Err(refused("tls_cert", certificate, &"holds no certificate"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|wrong| refused("tls_key", key, &wrong))?;
    let mut tls = rustls::ServerConfig::builder_with_provider(cryptography())
        .with_safe_default_protocol_versions()
        .map_err(|wrong| refused("tls_cert", certificate, &wrong))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|wrong| refused("tls_key", key, &wrong))?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(tls))))
}

/// The cryptography of all TLS: the library that the S3 SDK brings along.
pub(crate) fn cryptography() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
