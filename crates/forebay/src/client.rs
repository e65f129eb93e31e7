//! A client of the admin API: one request at a time, over one connection, and an error that is one line.

mod connection;
mod error;
mod paths;

use std::time::Duration;

use serde::de::DeserializeOwned;
use ureq::http::{Method, Request, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Proxy};

pub(crate) use connection::Connection;
pub(crate) use error::CallError;
pub(crate) use paths::{object_path, prefix_path};

use crate::failure::Failure;
use crate::tls;
use connection::Keys;

/// How long a connection may take to come about: a worker is near, or it is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer may take as a whole. The slowest is a page of a listing, of which an under store with retries may
/// need most.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Largest answer, in bytes: a page of a thousand objects with the longest keys, each byte of them escaped, has 8 MB.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A worker, as its admin API shows it.
pub(crate) struct Client {
    agent: Agent,
    /// URL without a slash at its end.
    endpoint: String,
    authorization: String,
}

/// What a request has brought.
pub(crate) struct Answer {
    /// The body, as the API has written it.
    pub(crate) text: String,
    /// The version in the `ETag`, as `If-Match` wants it back.
    pub(crate) version: Option<String>,
}

impl Answer {
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_str(&self.text).map_err(|error| CallError::Strange(error.to_string()))
    }
}

/// A request; what is not set is left out.
#[derive(Default)]
pub(crate) struct Call<'a> {
    method: Method,
    page: String,
    query: Vec<(&'a str, String)>,
    version: Option<&'a str>,
    body: Option<String>,
}

impl<'a> Call<'a> {
    /// A request of a page below `/api/v1/`.
    pub(crate) fn new(method: Method, page: impl Into<String>) -> Self {
        Self { method, page: page.into(), ..Self::default() }
    }

    pub(crate) fn get(page: impl Into<String>) -> Self {
        Self::new(Method::GET, page)
    }

    pub(crate) fn query(mut self, name: &'a str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    /// Refused when the state has another version by now.
    pub(crate) fn if_match(mut self, version: Option<&'a str>) -> Self {
        self.version = version;
        self
    }

    pub(crate) fn json(mut self, body: &impl serde::Serialize) -> Self {
        self.body = Some(serde_json::to_string(body).expect("the API's types have text keys only"));
        self
    }
}

impl Client {
    /// A client with the keys of an administrator; nothing is sent yet.
    pub(crate) fn new(connection: &Connection) -> Result<Self, Failure> {
        let endpoint = connection.endpoint()?;
        let keys = Keys::find(connection)?;
        let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(tls::cryptography());
        if let Some(roots) = connection
            .ca_cert
            .as_deref()
            .filter(|file| !file.as_os_str().is_empty())
            .map(read_certificates)
            .transpose()?
        {
            tls = tls.root_certs(RootCerts::from(roots));
        }
        if connection.insecure {
            tls = tls.disable_verification(true);
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // The keys go to the named endpoint and nowhere else.
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(ANSWER_TIMEOUT))
            .user_agent(concat!("forebay/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.build());
        // A proxy can't reach this machine's own addresses.
        let proxy = if connection::is_loopback(&endpoint) { None } else { Proxy::try_from_env() };
        let agent = config.proxy(proxy).build().new_agent();
        Ok(Self { agent, endpoint, authorization: keys.authorization() })
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Sends a request, and reads an answer that is no error.
    pub(crate) fn call(&self, call: Call<'_>) -> Result<Answer, CallError> {
        let unreachable = |error: ureq::Error| CallError::unreachable(&self.endpoint, &error);
        let mut request = Request::builder()
            .method(call.method)
            .uri(self.url(&call.page, &call.query))
            .header(header::AUTHORIZATION, &self.authorization);
        if let Some(version) = call.version {
            request = request.header(header::IF_MATCH, version);
        }
        if call.body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(call.body.unwrap_or_default()).map_err(|error| unreachable(error.into()))?;
        let mut response = self.agent.run(request).map_err(unreachable)?;
        let status = response.status();
        let version = response.headers().get(header::ETAG).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().map_err(unreachable)?;
        if status.is_success() { Ok(Answer { text, version }) } else { Err(CallError::refused(status, &text)) }
    }

    /// Sends a GET, and reads what it brings.
    pub(crate) fn read<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<T, CallError> {
        self.call(call)?.read()
    }

    fn url(&self, page: &str, query: &[(&str, String)]) -> String {
        let pairs: Vec<_> = query.iter().map(|(name, value)| format!("{name}={}", paths::encoded(value))).collect();
        let mark = if pairs.is_empty() { "" } else { "?" };
        format!("{}/api/v1/{page}{mark}{}", self.endpoint, pairs.join("&"))
    }
}

fn read_certificates(file: &std::path::Path) -> Result<Vec<Certificate<'static>>, Failure> {
    let wrong = |why: &str| Failure::Refused(format!("--ca-cert {:?}: {why}", file.display().to_string()));
    let text = std::fs::read(file).map_err(|error| wrong(&error.to_string()))?;
    let items: Result<Vec<_>, _> = parse_pem(&text).collect();
    let certificates = items.map_err(|error| wrong(&error.to_string()))?.into_iter().filter_map(|item| match item {
        PemItem::Certificate(certificate) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = certificates.collect();
    if certificates.is_empty() { Err(wrong("holds no certificate in PEM")) } else { Ok(certificates) }
}
