//! TLS of the S3 listener and, with `server.admin_tls`, of the admin listener.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_admin::{Notice, Notices, Severity};
use forebay_env::{Env, Task};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

use crate::certificate::{Certified, Present, Validity};
use crate::config::{Config, Problem};
use crate::watch;

/// How often the files are looked at.
const WATCH_PERIOD: Duration = Duration::from_secs(5);

const REFUSED: &str = "certificate-refused";

/// The certificate that is shown to clients, and the files that it comes from: a new one is taken up without a restart.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    present: Arc<Present>,
    certificate: PathBuf,
    key: PathBuf,
}

/// What is wrong with one of the files.
struct Wrong {
    setting: &'static str,
    what: String,
}

impl Wrong {
    fn new(setting: &'static str, path: &Path, wrong: &dyn fmt::Display) -> Self {
        Self { setting, what: format!("{}: {wrong}", path.display()) }
    }
}

/// `None` when no certificate is configured.
///
/// # Errors
/// When a file can't be read, or certificate and key do not belong together.
pub(crate) fn load(config: &Config) -> Result<Option<Tls>, Problem> {
    let (Some(certificate), Some(key)) = (&config.server.tls_cert, &config.server.tls_key) else { return Ok(None) };
    let refused = |wrong: Wrong| config.problem("server", wrong.setting, &wrong.what);
    let present = Arc::new(Present::new(read(certificate, key).map_err(refused)?));
    let mut tls = rustls::ServerConfig::builder_with_provider(cryptography())
        .with_safe_default_protocol_versions()
        .map_err(|wrong| refused(Wrong::new("tls_cert", certificate, &wrong)))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(&present) as _);
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    Ok(Some(Tls { acceptor, present, certificate: certificate.clone(), key: key.clone() }))
}

fn read(certificate: &Path, key: &Path) -> Result<Certified, Wrong> {
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|wrong| Wrong::new("tls_cert", certificate, &wrong))?;
    let Some(own) = chain.first() else {
        return Err(Wrong::new("tls_cert", certificate, &"holds no certificate"));
    };
    let validity = Validity::of(own);
    let private = PrivateKeyDer::from_pem_file(key).map_err(|wrong| Wrong::new("tls_key", key, &wrong))?;
    let key =
        CertifiedKey::from_der(chain, private, &cryptography()).map_err(|wrong| Wrong::new("tls_key", key, &wrong));
    Ok(Certified { key: Arc::new(key?), validity })
}

impl Tls {
    /// What clients see now.
    pub(crate) fn certificate(&self) -> Arc<Present> {
        Arc::clone(&self.present)
    }

    /// Takes up new files until the task is aborted. Bad ones change nothing, and raise a notice.
    pub(crate) fn watch(self, env: &Env, notices: &Notices) -> Task<()> {
        forebay_env::spawn(self.run(env.clone(), notices.clone()))
    }

    async fn run(self, env: Env, notices: Notices) {
        // Nothing: the files may have changed since they were read first, while the store was opened.
        let (mut taken, mut refused) = ([None, None], None);
        loop {
            env.clock.sleep(WATCH_PERIOD).await;
            let contents = self.contents();
            if contents == taken {
                refused = None;
                notices.clear(REFUSED, "");
                continue;
            }
            match read(&self.certificate, &self.key) {
                Ok(certified) => {
                    let own = Arc::clone(&certified.key);
                    if self.present.replace(certified).key.cert != own.cert {
                        tracing::info!(certificate = %self.certificate.display(), "the certificate has been read again");
                    }
                    notices.clear(REFUSED, "");
                    (taken, refused) = (contents, None);
                }
                // Of two files one may be new and the other yet to come.
                Err(wrong) if refused.as_ref() == Some(&contents) => {
                    watch::raise(&notices, notice(&wrong, env.clock.unix_ms()));
                }
                Err(_) => refused = Some(contents),
            }
        }
    }

    fn contents(&self) -> [Option<Vec<u8>>; 2] {
        [&self.certificate, &self.key].map(|file| std::fs::read(file).ok())
    }
}

fn notice(wrong: &Wrong, since_ms: u64) -> Notice {
    Notice {
        id: REFUSED.to_owned(),
        severity: Severity::Warning,
        subject: String::new(),
        title: format!(
            "the new certificate can't be used, and the previous one stays in use: server.{}: {}",
            wrong.setting, wrong.what
        ),
        cure: "Put a certificate and its own key into the files; they are reloaded automatically".to_owned(),
        since_ms,
    }
}

/// The cryptography of all TLS: the library that the S3 SDK brings along.
pub(crate) fn cryptography() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
