//! The certificate that clients see, and when it expires.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::time::Time;

/// What clients see. It is replaced while the server runs.
#[derive(Debug)]
pub(crate) struct Present(RwLock<Certified>);

/// A certificate with its key.
#[derive(Debug)]
pub(crate) struct Certified {
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) validity: Option<Validity>,
}

/// From when on and until when clients accept a certificate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Validity {
    not_before_ms: u64,
    not_after_ms: u64,
}

/// The validity of a certificate as seen at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CertificateExpiry {
    pub(crate) not_before_ms: u64,
    pub(crate) not_after_ms: u64,
    pub(crate) now_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CertificateState {
    NotYet,
    Valid,
    /// It should have been renewed by now.
    Expiring,
    Expired,
}

/// It counts as expiring with less than this left, and less than this part of its lifetime: Certbot renews with a third
/// left, Vault's agent with a tenth.
const EXPIRING_MS: u64 = 14 * 24 * 3_600_000;
const EXPIRING_PART: u64 = 12;

/// The clock of an authority may be ahead of ours.
const CLOCK_MS: u64 = 5 * 60_000;

impl CertificateExpiry {
    pub(crate) fn state(self) -> CertificateState {
        let Self { not_before_ms, not_after_ms, now_ms } = self;
        let soon_ms = EXPIRING_MS.min(not_after_ms.saturating_sub(not_before_ms) / EXPIRING_PART);
        match not_after_ms.saturating_sub(now_ms) {
            // Until the last second of it.
            _ if now_ms >= not_after_ms.saturating_add(1000) => CertificateState::Expired,
            _ if now_ms.saturating_add(CLOCK_MS) < not_before_ms => CertificateState::NotYet,
            left_ms if left_ms < soon_ms => CertificateState::Expiring,
            _ => CertificateState::Valid,
        }
    }
}

impl Validity {
    /// Of the first certificate of a chain, which is the server's own. The others may have expired without harm:
    /// clients may know a newer one of the same authority. `None` if it cannot be read, which is no reason not to use
    /// the certificate.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let parsed = Certificate::from_der(certificate);
        let parsed = parsed.inspect_err(|error| {
            tracing::warn!(%error, "the certificate could not be parsed: Forebay cannot warn before it expires");
        });
        let validity = *parsed.ok()?.tbs_certificate().validity();
        let ms = |at: Time| at.to_unix_duration().as_millis() as u64;
        Some(Self { not_before_ms: ms(validity.not_before), not_after_ms: ms(validity.not_after) })
    }
}

impl Present {
    pub(crate) fn new(certified: Certified) -> Self {
        Self(RwLock::new(certified))
    }

    /// Returns what clients saw before.
    pub(crate) fn replace(&self, certified: Certified) -> Certified {
        std::mem::replace(&mut *self.0.write(), certified)
    }

    pub(crate) fn expiry(&self, now_ms: u64) -> Option<CertificateExpiry> {
        let Validity { not_before_ms, not_after_ms } = self.0.read().validity?;
        Some(CertificateExpiry { not_before_ms, not_after_ms, now_ms })
    }
}

impl ResolvesServerCert for Present {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().key))
    }
}
