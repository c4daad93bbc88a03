//! The check of a server's certificate as OpenSSL does it for libpq, where rustls alone would
//! refuse what operators of private databases commonly have: a self-signed certificate that is its
//! own root, and a name that stands in the subject only.
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::tls;

/// How much of a certificate is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// Nothing: encryption against listeners, none against a server that poses as ours.
    Nothing,
    /// It leads to a root of ours and is in date.
    Chain,
    /// And it carries this host's name.
    ChainAndName(String),
}

/// Checks server certificates.
#[derive(Debug)]
pub struct Verifier {
    check: Check,
    roots: Vec<CertificateDer<'static>>,
    store: RootCertStore,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    /// A verifier that believes `roots`.
    #[must_use]
    pub fn new(
        check: Check,
        roots: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Self {
        Self { store: tls::store(&roots), check, roots, provider }
    }

    fn chain(
        &self,
        parsed: &ParsedCertificate<'_>,
        presented: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        let verdict = verify_server_cert_signed_by_trust_anchor(
            parsed,
            &self.store,
            between,
            now,
            algorithms,
        );
        // A self-signed certificate that was handed out as its own root: the very bytes are
        // believed, so no signature could add to that; its dates still count.
        if verdict.is_err() && self.roots.iter().any(|root| root == presented) {
            return in_date(presented, now);
        }
        verdict
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.check != Check::Nothing {
            let parsed = ParsedCertificate::try_from(end_entity)?;
            self.chain(&parsed, end_entity, intermediates, now)?;
            if let Check::ChainAndName(host) = &self.check {
                name(&parsed, end_entity, host)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.check == Check::Nothing {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // A server that may be anyone need not prove that the key is its own; asking would only
        // refuse certificates of a form that rustls cannot read.
        if self.check == Check::Nothing {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn decoded(cert: &CertificateDer<'_>) -> Result<Certificate, Error> {
    Certificate::from_der(cert)
        .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))
}

fn in_date(cert: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let cert = decoded(cert)?;
    let validity = cert.tbs_certificate().validity();
    let at = now.as_secs();
    if at < validity.not_before.to_unix_duration().as_secs() {
        return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
    }
    if at > validity.not_after.to_unix_duration().as_secs() {
        return Err(Error::InvalidCertificate(CertificateError::Expired));
    }
    Ok(())
}

/// By the alternative names; by the subject's common name only where there are none.
fn name(
    parsed: &ParsedCertificate<'_>,
    cert: &CertificateDer<'_>,
    host: &str,
) -> Result<(), Error> {
    let wrong = Error::InvalidCertificate(CertificateError::NotValidForName);
    let verdict = match ServerName::try_from(host) {
        Ok(host) => verify_server_name(parsed, &host),
        Err(_) => Err(wrong.clone()),
    };
    let Err(refused) = verdict else { return Ok(()) };
    let cert = decoded(cert)?;
    let alternatives = cert.tbs_certificate().get_extension::<SubjectAltName>();
    let named = match alternatives {
        Ok(Some((_, names))) => names
            .0
            .iter()
            .any(|name| matches!(name, GeneralName::DnsName(_) | GeneralName::IpAddress(_))),
        Ok(None) => false,
        Err(_) => true,
    };
    let common = common_name(&cert);
    match common {
        Some(common) if !named && fits(&common, host) => Ok(()),
        Some(_) | None => Err(refused),
    }
}

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

fn common_name(cert: &Certificate) -> Option<String> {
    let subject = cert.tbs_certificate().subject();
    let attribute = subject.iter().filter(|one| one.oid == COMMON_NAME).last()?;
    let plain = [Tag::Utf8String, Tag::PrintableString, Tag::TeletexString, Tag::Ia5String];
    if !plain.contains(&attribute.value.tag()) {
        return None;
    }
    String::from_utf8(attribute.value.value().to_vec()).ok()
}

/// A `*` stands for one first label, and never for part of an address.
fn fits(common: &str, host: &str) -> bool {
    if common.eq_ignore_ascii_case(host) {
        return true;
    }
    if host.parse::<IpAddr>().is_ok() {
        return false;
    }
    match (common.strip_prefix("*."), host.split_once('.')) {
        (Some(below), Some((first, rest))) => {
            !first.is_empty() && below.contains('.') && below.eq_ignore_ascii_case(rest)
        }
        (Some(_), None) | (None, _) => false,
    }
}

/// The digest that SCRAM binds to (RFC 5929, `tls-server-end-point`): by the hash function of the
/// certificate's signature, SHA-256 in place of the broken ones. None where the signature names
/// no hash function.
#[must_use]
pub fn end_point(cert: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let oid = Certificate::from_der(cert).ok()?.signature_algorithm().oid.to_string();
    Some(match oid.as_str() {
        // md5, sha1 and sha256 with RSA; ECDSA with sha1 and sha256.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.1"
        | "1.2.840.10045.4.3.2" => Sha256::digest(cert).to_vec(),
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => Sha384::digest(cert).to_vec(),
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => Sha512::digest(cert).to_vec(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_stands_for_one_first_label() {
        assert!(fits("DB.example.com", "db.example.com"));
        assert!(fits("*.example.com", "db.example.com"));
        assert!(!fits("*.example.com", "a.db.example.com"));
        assert!(!fits("*.example.com", "example.com"));
        assert!(!fits("*.com", "example.com"));
        assert!(!fits("*.0.0.1", "127.0.0.1"));
    }
}
