//! How to reach etcd.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// Idle time of a connection with calls in flight before it is tested. etcd refuses clients that ask more often than
/// every five seconds.
const PING_PERIOD: Duration = Duration::from_secs(10);

const PREFIX_BYTES_MAX: usize = 128;

/// Where etcd is, and how to speak to it.
#[derive(Debug, Clone)]
pub struct EtcdSettings {
    /// One or more members of the same etcd cluster, as `http://host:2379` or `https://host:2379`.
    pub endpoints: Vec<String>,
    /// All keys begin with this name and a slash, so that several clusters can share one etcd. 1 to 128 letters,
    /// digits, `-`, `_` and `.`.
    pub prefix: String,
    pub user: Option<EtcdUser>,
    /// PEM file with the authorities that sign the members' certificates. Default: the roots of the system.
    pub ca_file: Option<PathBuf>,
    /// PEM file with the certificate that is shown to etcd. Needs `key_file`.
    pub certificate_file: Option<PathBuf>,
    /// PEM file with the private key of the certificate.
    pub key_file: Option<PathBuf>,
    /// How long a connection may take, TLS included.
    pub connect_timeout: Duration,
    /// How long one member may take to answer. A call may take three times as long, because others are asked when one
    /// is silent.
    pub request_timeout: Duration,
}

/// A user of etcd's own authentication.
#[derive(Clone)]
pub struct EtcdUser {
    pub name: String,
    pub password: String,
}

impl fmt::Debug for EtcdUser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("EtcdUser").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A setting that can't be used: its name, and why.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {problem}")]
pub struct InvalidSetting {
    pub setting: &'static str,
    pub problem: String,
}

impl InvalidSetting {
    fn new(setting: &'static str, problem: impl Into<String>) -> Self {
        Self { setting, problem: problem.into() }
    }

    fn of_file(setting: &'static str, path: &Path, problem: &dyn fmt::Display) -> Self {
        Self::new(setting, format!("{}: {problem}", path.display()))
    }
}

impl EtcdSettings {
    /// The defaults: keys begin with `forebay/`, no user, the system's roots, 1 s for a connection, 3 s for an answer.
    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            prefix: "forebay".to_owned(),
            user: None,
            ca_file: None,
            certificate_file: None,
            key_file: None,
            connect_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(3),
        }
    }

    /// What all keys begin with. A name without a slash is never the beginning of another prefix.
    pub(crate) fn key_prefix(&self) -> Result<Bytes, InvalidSetting> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        match self.prefix.bytes().all(is_plain) && (1..=PREFIX_BYTES_MAX).contains(&self.prefix.len()) {
            true => Ok(format!("{}/", self.prefix).into()),
            false => {
                let problem = format!("{:?}: give 1 to 128 letters, digits, '-', '_' and '.'", self.prefix);
                Err(InvalidSetting::new("prefix", problem))
            }
        }
    }

    /// Reads the files.
    pub(crate) fn connections(&self) -> Result<Vec<Endpoint>, InvalidSetting> {
        if self.endpoints.is_empty() {
            return Err(InvalidSetting::new("endpoints", "give at least one member of etcd"));
        }
        for (setting, timeout) in [("connect_timeout", self.connect_timeout), ("request_timeout", self.request_timeout)]
        {
            if timeout.is_zero() {
                return Err(InvalidSetting::new(setting, "must be longer than 0 s"));
            }
        }
        let uris: Vec<Uri> = self.endpoints.iter().map(|endpoint| parse(endpoint)).collect::<Result<_, _>>()?;
        let is_encrypted = |uri: &Uri| uri.scheme_str() == Some("https");
        let files =
            [("ca_file", &self.ca_file), ("certificate_file", &self.certificate_file), ("key_file", &self.key_file)];
        if let Some((setting, _)) = files.iter().find(|(_, file)| file.is_some())
            && !uris.iter().any(is_encrypted)
        {
            return Err(InvalidSetting::new(setting, "is of no use without an endpoint that begins with https://"));
        }
        let tls = uris.iter().any(is_encrypted).then(|| self.tls()).transpose()?;
        uris.into_iter()
            .map(|uri| {
                let tls = tls.clone().filter(|_| is_encrypted(&uri));
                let endpoint = Endpoint::from(uri)
                    .connect_timeout(self.connect_timeout)
                    .tcp_nodelay(true)
                    .http2_keep_alive_interval(PING_PERIOD)
                    .keep_alive_timeout(self.request_timeout);
                match tls {
                    Some(tls) => endpoint.tls_config(tls).map_err(|error| self.refused(&error)),
                    None => Ok(endpoint),
                }
            })
            .collect()
    }

    fn tls(&self) -> Result<ClientTlsConfig, InvalidSetting> {
        let tls = match &self.ca_file {
            Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(certificates("ca_file", path)?)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        match (&self.certificate_file, &self.key_file) {
            (None, None) => Ok(tls),
            (Some(certificate), Some(key)) => {
                let certificate = certificates("certificate_file", certificate)?;
                let private = read("key_file", key)?;
                PrivateKeyDer::from_pem_slice(&private)
                    .map_err(|_| InvalidSetting::of_file("key_file", key, &"holds no private key in PEM format"))?;
                Ok(tls.identity(Identity::from_pem(certificate, private)))
            }
            (Some(_), None) => Err(InvalidSetting::new("key_file", "is missing: certificate_file needs it")),
            (None, Some(_)) => Err(InvalidSetting::new("certificate_file", "is missing: key_file needs it")),
        }
    }

    /// The files are sound, each by itself.
    fn refused(&self, error: &tonic::transport::Error) -> InvalidSetting {
        use std::error::Error as _;
        let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        match (&self.ca_file, &self.certificate_file) {
            (_, Some(path)) => InvalidSetting::of_file("certificate_file", path, &cause),
            (Some(path), None) => InvalidSetting::of_file("ca_file", path, &cause),
            (None, None) => InvalidSetting::new(
                "ca_file",
                format!("is needed: the system's trusted authorities can't be used: {cause}"),
            ),
        }
    }
}

fn parse(endpoint: &str) -> Result<Uri, InvalidSetting> {
    let refused = |problem: &str| InvalidSetting::new("endpoints", format!("{endpoint:?}: {problem}"));
    const SHAPE: &str = "must look like http://host:2379 or https://host:2379";
    let uri: Uri = endpoint.parse().map_err(|_| refused(SHAPE))?;
    let has_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    match uri.host() {
        Some(host) if has_scheme && !host.is_empty() => {}
        _ => return Err(refused(SHAPE)),
    }
    if has_user {
        return Err(InvalidSetting::new("endpoints", "can't hold a user: use the setting user"));
    }
    if uri.port_u16().is_none() {
        return Err(refused("give the port; etcd listens at 2379 by default"));
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(refused("must not have a path"));
    }
    Ok(uri)
}

/// A PEM file with one certificate at least.
fn certificates(setting: &'static str, path: &Path) -> Result<Vec<u8>, InvalidSetting> {
    let text = read(setting, path)?;
    let found = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if !found.is_empty() => Ok(text),
        Ok(_) => Err(InvalidSetting::of_file(setting, path, &"holds no certificate in PEM format")),
        Err(error) => Err(InvalidSetting::of_file(setting, path, &error)),
    }
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, InvalidSetting> {
    std::fs::read(path).map_err(|error| InvalidSetting::of_file(setting, path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(endpoint: &str) -> EtcdSettings {
        EtcdSettings::new(vec![endpoint.to_owned()])
    }

    #[track_caller]
    fn check(settings: &EtcdSettings, setting: &str, problem: &str) {
        let error = settings.connections().expect_err("a bad setting");
        assert_eq!(error.setting, setting, "{error}");
        assert!(error.to_string().contains(problem), "{error}");
    }

    #[test]
    fn bad_endpoints_are_refused_with_the_reason() {
        for endpoint in ["http://127.0.0.1:2379", "http://etcd-0.etcd:2379/", "http://[::1]:2379"] {
            settings(endpoint).connections().unwrap();
        }
        check(&EtcdSettings::new(Vec::new()), "endpoints", "at least one");
        for endpoint in ["", "host:2379", "ftp://host:1", "http://", "not a uri"] {
            check(&settings(endpoint), "endpoints", "must look like");
        }
        check(&settings("http://host"), "endpoints", "2379");
        check(&settings("http://host:1/path"), "endpoints", "path");
        check(&settings("http://user:secret@host:1"), "endpoints", "setting user");
        check(&EtcdSettings { request_timeout: Duration::ZERO, ..settings("http://h:1") }, "request_timeout", "0 s");
    }

    #[test]
    fn bad_files_are_refused_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            Some(path)
        };
        let https = || settings("https://host:1");
        let missing = Some(directory.path().join("missing"));
        check(&EtcdSettings { ca_file: missing, ..https() }, "ca_file", "No such file");
        check(&EtcdSettings { ca_file: file("text", "text"), ..https() }, "ca_file", "holds no certificate");
        check(&EtcdSettings { ca_file: file("text", "text"), ..settings("http://host:1") }, "ca_file", "https://");
        let made = rcgen::generate_simple_self_signed(vec!["host".to_owned()]).unwrap();
        let (ca_file, key) = (file("ca", &made.cert.pem()), file("key", &made.signing_key.serialize_pem()));
        let trusting = || EtcdSettings { ca_file: ca_file.clone(), ..https() };
        trusting().connections().unwrap();
        check(&EtcdSettings { certificate_file: ca_file.clone(), ..trusting() }, "key_file", "missing");
        check(&EtcdSettings { key_file: key.clone(), ..trusting() }, "certificate_file", "missing");
        let no_key = EtcdSettings { certificate_file: ca_file.clone(), key_file: ca_file.clone(), ..trusting() };
        check(&no_key, "key_file", "private key");
        EtcdSettings { certificate_file: ca_file.clone(), key_file: key, ..trusting() }.connections().unwrap();
    }

    #[test]
    fn prefixes_are_plain_and_passwords_are_not_shown() {
        let with = |prefix: &str| EtcdSettings { prefix: prefix.to_owned(), ..settings("http://h:1") }.key_prefix();
        assert_eq!(with("forebay-2").unwrap(), "forebay-2/");
        for prefix in ["", "a/b", "a b", &"x".repeat(129)] {
            assert_eq!(with(prefix).unwrap_err().setting, "prefix");
        }
        let user = EtcdUser { name: "name".to_owned(), password: "secret".to_owned() };
        assert!(!format!("{user:?}").contains("secret"));
    }
}
