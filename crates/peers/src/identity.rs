//! How workers know each other: by a key that all workers of a cluster have, and nobody else.
//!
//! A pair of Ed25519 keys follows from it. Each end of a connection shows the public key (RFC 7250) and proves in the
//! handshake that it has the private one. So there are no certificates to issue, renew or distribute.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use forebay_env::Random;
use hmac::{Hmac, KeyInit, Mac};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::sign::any_eddsa_type;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use sha2::{Digest, Sha256};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// What a connection carries. Workers with different versions of a protocol do not talk to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Messages in HTTP/1.1.
    Http,
    /// Frames: see [`crate::frames`].
    Frames,
}

impl Protocol {
    const ALL: [Self; 2] = [Self::Http, Self::Frames];

    fn name(self) -> &'static [u8] {
        match self {
            Self::Http => b"forebay-peer/1",
            Self::Frames => b"forebay-peer-frames/1",
        }
    }

    /// That of a connection. A client that offers none is let through the handshake.
    pub(crate) fn of(alpn: Option<&[u8]>) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| alpn == Some(protocol.name()))
    }
}

/// The names and versions of what workers of this release speak. Workers with different ones do not understand each
/// other.
pub fn protocols() -> String {
    let names = Protocol::ALL.map(|protocol| String::from_utf8_lossy(protocol.name()));
    names.join(" ")
}

/// Of the text of a key. A key with fewer could be guessed.
const KEY_LENGTH_MIN: usize = 32;
/// A longer one is a file that was named by mistake.
const KEY_LENGTH_MAX: usize = 4096;

/// Before the seed of an Ed25519 key, that makes PKCS #8 (RFC 8410, section 7).
const PKCS8_PREFIX: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The secret that makes a process a worker of a cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey(String);

impl fmt::Debug for ClusterKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClusterKey")
    }
}

impl ClusterKey {
    /// A key as it stands in a file: 32 to 4,096 printable characters. Spaces around it do not count.
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        const CURE: &str = "make one with `openssl rand -hex 32`";
        let text = text.trim();
        if text.len() < KEY_LENGTH_MIN || text.len() > KEY_LENGTH_MAX {
            return Err(format!(
                "a cluster key has {KEY_LENGTH_MIN} to {KEY_LENGTH_MAX} characters, and this one has {}: {CURE}",
                text.len()
            ));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("a cluster key is one word of printable ASCII characters: {CURE}"));
        }
        Ok(Self(text.to_owned()))
    }

    /// A new key of 256 bits.
    pub fn generate(random: &dyn Random) -> Self {
        Self(format!("{}{}", random.hex_id(), random.hex_id()))
    }

    /// The text of the key, to be kept where only workers read it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// What a worker shows to others, and what it wants to see of them.
#[derive(Clone)]
pub struct Identity {
    pub(crate) acceptor: TlsAcceptor,
    /// One for each protocol.
    connectors: [TlsConnector; 2],
    fingerprint: String,
    /// For digests that workers compare.
    digest_key: [u8; 32],
    /// For what workers keep for one another where others may read it.
    sealing_key: [u8; 32],
}

impl Identity {
    /// The identity of all workers of the cluster `name`. Clusters of different names do not talk to each other, even
    /// with the same key.
    pub fn new(key: &ClusterKey, name: &str) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let seed = mac(key.0.as_bytes(), b"forebay peers, Ed25519", name.as_bytes());
        let digest_key = mac(key.0.as_bytes(), b"forebay peers, digests", name.as_bytes());
        let sealing_key = mac(key.0.as_bytes(), b"forebay peers, sealed", name.as_bytes());
        let document = [&PKCS8_PREFIX[..], &seed[..]].concat();
        let signing = any_eddsa_type(&PrivatePkcs8KeyDer::from(document)).expect("every 32 bytes are a seed");
        let public = signing.public_key().expect("an Ed25519 key has a public key").into_owned();
        let fingerprint = hex::encode(&Sha256::digest(public.as_ref())[..16]);
        let shown = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.as_ref().to_vec())], signing));
        let verifier = Arc::new(Verifier { public, algorithms: provider.signature_verification_algorithms });
        let acceptor = TlsAcceptor::from(Arc::new(server(&provider, &verifier, &shown)));
        let connector = |protocol| TlsConnector::from(Arc::new(client(&provider, &verifier, &shown, protocol)));
        Self { acceptor, connectors: Protocol::ALL.map(connector), fingerprint, digest_key, sealing_key }
    }

    pub(crate) fn connector(&self, protocol: Protocol) -> TlsConnector {
        let [http, frames] = &self.connectors;
        match protocol {
            Protocol::Http => http.clone(),
            Protocol::Frames => frames.clone(),
        }
    }

    /// Of a value that has a name, for another worker of the cluster to compare with its own. Nobody else can tell a
    /// right guess of the value from a wrong one. Hexadecimal.
    pub fn digest(&self, name: &str, value: &[u8]) -> String {
        hex::encode(mac(&self.digest_key, name.as_bytes(), value))
    }

    /// Encrypts a text for the workers of the cluster (AES-256-GCM). `about` is not part of the result,
    /// and must be the same to open it: a text for one purpose does not pass for another.
    pub fn seal(&self, random: &dyn Random, about: &str, text: &[u8]) -> Vec<u8> {
        let [first, second] = [random.next_u64(), random.next_u64()].map(u64::to_ne_bytes);
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&first);
        nonce[8..].copy_from_slice(&second[..NONCE_LEN - 8]);
        let mut sealed = text.to_vec();
        let (key, unique) = (self.sealer(), Nonce::assume_unique_for_key(nonce));
        let done = key.seal_in_place_append_tag(unique, Aad::from(about.as_bytes()), &mut sealed);
        done.expect("a text is shorter than 64 GiB");
        [&nonce[..], &sealed].concat()
    }

    /// The text of [`Identity::seal`]. `None`: it was sealed with another key or about something else, or is damaged.
    pub fn open(&self, about: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let (key, mut text) = (self.sealer(), sealed.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = key.open_in_place(nonce, Aad::from(about.as_bytes()), &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }

    fn sealer(&self) -> LessSafeKey {
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &self.sealing_key).expect("the key has 256 bits"))
    }

    /// Differs between clusters, and between keys. It is no secret.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

/// HMAC-SHA256 of a purpose, which has no NUL, and a text.
fn mac(key: &[u8], purpose: &[u8], text: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(purpose);
    mac.update(b"\0");
    mac.update(text);
    mac.finalize().into_bytes().into()
}

const TLS: &str = "the provider has TLS 1.3";

fn server(provider: &Arc<CryptoProvider>, verifier: &Arc<Verifier>, shown: &Arc<CertifiedKey>) -> ServerConfig {
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect(TLS)
        .with_client_cert_verifier(Arc::clone(verifier) as _)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(shown))));
    config.alpn_protocols = Protocol::ALL.map(|protocol| protocol.name().to_vec()).into();
    // Connections are kept, and each new one proves the key again.
    config.send_tls13_tickets = 0;
    config
}

fn client(
    provider: &Arc<CryptoProvider>,
    verifier: &Arc<Verifier>,
    shown: &Arc<CertifiedKey>,
    protocol: Protocol,
) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect(TLS)
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(verifier) as _)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(shown))));
    config.alpn_protocols = vec![protocol.name().to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    config
}

/// Takes the one public key that all workers of the cluster have.
#[derive(Debug)]
struct Verifier {
    public: SubjectPublicKeyInfoDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn check(&self, shown: &CertificateDer<'_>) -> std::result::Result<(), rustls::Error> {
        match shown.as_ref() == self.public.as_ref() {
            true => Ok(()),
            false => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.check(shown)?;
        verify_tls13_signature_with_raw_key(message, &self.public, signature, &self.algorithms)
    }
}

fn no_tls12() -> rustls::Error {
    rustls::Error::General("workers talk TLS 1.3".to_owned())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> std::result::Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;

    use super::*;

    #[test]
    fn all_workers_with_a_key_are_one_cluster_and_others_are_not() {
        let key = ClusterKey::parse(" 0123456789abcdef0123456789abcdef\n").expect("a key");
        let print = |key: &ClusterKey, name: &str| Identity::new(key, name).fingerprint().to_owned();
        assert_eq!(print(&key, "a"), print(&key.clone(), "a"));
        assert_ne!(print(&key, "a"), print(&key, "b"));
        let random = Env::real().random;
        let other = ClusterKey::generate(random.as_ref());
        assert_eq!(ClusterKey::parse(other.reveal()), Ok(other.clone()));
        assert_ne!(print(&key, "a"), print(&other, "a"));
        let digest = |key: &ClusterKey, cluster: &str, name: &str| Identity::new(key, cluster).digest(name, b"value");
        let digests = [
            digest(&key, "a", "name"),
            digest(&key, "a", "other"),
            digest(&key, "b", "name"),
            digest(&other, "a", "name"),
        ];
        assert_eq!(digest(&key.clone(), "a", "name"), digests[0]);
        assert_eq!(digests.iter().collect::<std::collections::HashSet<_>>().len(), 4);
    }

    #[test]
    fn a_sealed_text_is_for_workers_of_the_cluster_alone() {
        let key = ClusterKey::parse("0123456789abcdef0123456789abcdef").expect("a key");
        let (random, own) = (Env::real().random, Identity::new(&key, "a"));
        let seal = |text: &str| own.seal(random.as_ref(), "about", text.as_bytes());
        for text in ["", "a secret of 25 characters"] {
            let sealed = seal(text);
            assert_eq!(Identity::new(&key, "a").open("about", &sealed).as_deref(), Some(text.as_bytes()));
            assert_eq!(Identity::new(&key, "b").open("about", &sealed), None);
            assert_eq!(Identity::new(&ClusterKey::generate(random.as_ref()), "a").open("about", &sealed), None);
            assert_eq!(own.open("another", &sealed), None);
            for at in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[at] ^= 1;
                assert_eq!(own.open("about", &changed), None, "byte {at}");
                assert_eq!(own.open("about", &sealed[..at]), None, "{at} bytes");
            }
            assert_ne!(seal(text), sealed, "nobody sees that it is the same");
        }
        assert!(!seal("a secret").windows(8).any(|bytes| bytes == b"a secret"));
    }

    /// It decides whether workers of two releases understand each other. Computed with OpenSSL.
    #[test]
    fn the_fingerprint_of_a_key_stays_what_it_is() {
        let key = ClusterKey::parse("0123456789abcdef0123456789abcdef").expect("a key");
        assert_eq!(Identity::new(&key, "lake").fingerprint(), "8e12ff9f3d2d90172c1b7e5f7941b5f5");
    }

    /// What the server accepts of a client that offers these protocols.
    async fn negotiated(offered: &[&[u8]]) -> Option<Protocol> {
        let key = ClusterKey::parse("0123456789abcdef0123456789abcdef").expect("a key");
        let identity = Identity::new(&key, "lake");
        let mut config = ClientConfig::clone(identity.connector(Protocol::Http).config());
        config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
        let (near, far) = tokio::io::duplex(1 << 16);
        let name = ServerName::try_from("worker").expect("this is a name");
        let client = TlsConnector::from(Arc::new(config)).connect(name, near);
        let (accepted, _connected) = tokio::join!(identity.acceptor.accept(far), client);
        let accepted = accepted.ok()?;
        Protocol::of(accepted.get_ref().1.alpn_protocol())
    }

    #[tokio::test]
    async fn a_worker_that_speaks_another_version_of_the_protocol_is_refused() {
        assert_eq!(negotiated(&[b"forebay-peer/1"]).await, Some(Protocol::Http));
        assert_eq!(negotiated(&[b"forebay-peer/2", b"forebay-peer-frames/1"]).await, Some(Protocol::Frames));
        let strangers: [&[&[u8]]; 4] =
            [&[b"forebay-peer/2", b"forebay-peer-frames/2"], &[b"forebay-peer"], &[b"http/1.1"], &[]];
        for offered in strangers {
            assert_eq!(negotiated(offered).await, None, "{offered:?}");
        }
        assert_eq!(protocols(), "forebay-peer/1 forebay-peer-frames/1");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for (text, problem) in [
            ("", "32 to 4096 characters, and this one has 0"),
            ("0123456789abcdef0123456789abcde", "has 31"),
            ("0123456789abcdef 0123456789abcdef", "one word"),
            ("0123456789äbcdef0123456789abcdef", "one word"),
            (&"x".repeat(4097), "has 4097"),
        ] {
            let refused = ClusterKey::parse(text).expect_err("this is no key");
            assert!(refused.contains(problem) && refused.contains("openssl rand -hex 32"), "{refused}");
        }
        assert!(!format!("{:?}", ClusterKey::parse(&"s".repeat(40))).contains("sss"));
    }
}
