//! rustls set up as `sslmode` and its neighbours say, by libpq's table (CON-5):
//!
//! | sslmode | encrypted | chain checked | name checked |
//! |---|---|---|---|
//! | disable | no | | |
//! | allow | if the server insists | if a root certificate is there | no |
//! | prefer (default) | if the server can | if a root certificate is there | no |
//! | require | yes | if a root certificate is there | no |
//! | verify-ca | yes | yes | no |
//! | verify-full (default with `sslrootcert=system`) | yes | yes | yes |
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};

use super::certificate::{Check, Verifier};
use super::here::{Files, Here, Seen};
use super::params::{ConninfoError, Settings, refuse};

/// How much TLS is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    /// None.
    Disable,
    /// Only if the server takes nothing else.
    Allow,
    /// If the server can.
    Prefer,
    /// Or there is no connection.
    Require,
    /// And the certificate's chain ends at a root of ours.
    VerifyCa,
    /// And it carries the host's name.
    VerifyFull,
}

/// Where the roots come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roots {
    /// A file that need not be there.
    IfThere(Option<PathBuf>),
    /// A file that was named.
    File(PathBuf),
    /// Those of the operating system.
    System,
}

/// What the parameters say about TLS. No file has been read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// How much.
    pub mode: SslMode,
    /// Whom we believe.
    pub roots: Roots,
    /// Our certificate, and whether it was named: the one at its usual place need not be there.
    pub cert: Option<(PathBuf, bool)>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// The host's name is sent in the clear, for a proxy that routes by it.
    pub sni: bool,
    /// TLS begins with the first byte, without asking.
    pub direct: bool,
    /// Oldest version is 1.3.
    pub only_13: bool,
    /// Newest version is 1.2.
    pub only_12: bool,
}

impl TlsSettings {
    pub(super) fn of(settings: &Settings, here: &Here<'_>) -> Result<Self, ConninfoError> {
        let roots = match settings.text("sslrootcert") {
            Some("system") => Roots::System,
            Some(path) => Roots::File(path.into()),
            None => Roots::IfThere(here.at_home(".postgresql/root.crt")),
        };
        let mode = mode(settings, &roots)?;
        let direct = match settings.get("sslnegotiation") {
            Some(value) => match value.text.as_str() {
                "postgres" => false,
                "direct" if mode >= SslMode::Require => true,
                "direct" => {
                    return Err(ConninfoError::Together(
                        "sslnegotiation=direct needs sslmode=require or stronger".into(),
                    ));
                }
                _ => return Err(refuse("sslnegotiation", value, "postgres or direct")),
            },
            None => false,
        };
        let cert = match settings.text("sslcert") {
            _ if settings.text("sslcertmode") == Some("disable") => None,
            Some(path) => Some((path.into(), true)),
            None => here.at_home(".postgresql/postgresql.crt").map(|path| (path, false)),
        };
        let key = settings.text("sslkey").map(PathBuf::from);
        let only_13 = settings.text("ssl_min_protocol_version") == Some("TLSv1.3");
        let only_12 = settings.text("ssl_max_protocol_version") == Some("TLSv1.2");
        if only_13 && only_12 {
            return Err(ConninfoError::Together(
                "ssl_min_protocol_version is above ssl_max_protocol_version".into(),
            ));
        }
        Ok(Self {
            mode,
            roots,
            cert,
            key: key.or_else(|| here.at_home(".postgresql/postgresql.key")),
            sni: settings.text("sslsni") != Some("0"),
            direct,
            only_13,
            only_12,
        })
    }

    fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        static NEW: [&SupportedProtocolVersion; 1] = [&version::TLS13];
        static OLD: [&SupportedProtocolVersion; 1] = [&version::TLS12];
        match (self.only_12, self.only_13) {
            (true, _) => &OLD,
            (false, true) => &NEW,
            (false, false) => &BOTH,
        }
    }

    /// Reads the files and sets rustls up for `host`, whose name the certificate must carry under
    /// `verify-full`.
    ///
    /// # Errors
    /// A file that is missing, open to others, or not what it should be.
    pub fn client(&self, files: &Files<'_>, host: &str) -> Result<ClientConfig, ConninfoError> {
        let provider = Arc::new(ring::default_provider());
        let roots = self.roots(files)?;
        let check = match (self.mode, &roots) {
            (SslMode::VerifyFull, _) => Check::ChainAndName(host.to_owned()),
            (SslMode::VerifyCa, _) | (_, Some(_)) => Check::Chain,
            (_, None) => Check::Nothing,
        };
        let verifier = Verifier::new(check, roots.unwrap_or_default(), Arc::clone(&provider));
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions())
            .map_err(|error| ConninfoError::Together(format!("TLS cannot be set up: {error}")))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match self.identity(files)? {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| {
                ConninfoError::File(format!("sslcert and sslkey do not go together: {error}"))
            })?,
        };
        config.enable_sni = self.sni;
        if self.direct {
            config.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        Ok(config)
    }

    fn roots(
        &self,
        files: &Files<'_>,
    ) -> Result<Option<Vec<CertificateDer<'static>>>, ConninfoError> {
        let path = match &self.roots {
            Roots::System => return system().map(Some),
            Roots::File(path) => path,
            Roots::IfThere(path) => {
                let absent = |error: std::io::Error| {
                    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
                };
                let there = path.as_ref().filter(|path| !files(path).is_err_and(absent));
                match (there, self.mode) {
                    (Some(path), _) => path,
                    (None, SslMode::VerifyCa | SslMode::VerifyFull) => {
                        return Err(ConninfoError::File(
                            "sslmode asks to check the server's certificate, and there is no root \
                             certificate: give sslrootcert=FILE or sslrootcert=system"
                                .into(),
                        ));
                    }
                    (
                        None,
                        SslMode::Disable | SslMode::Allow | SslMode::Prefer | SslMode::Require,
                    ) => return Ok(None),
                }
            }
        };
        let seen = open(files, path, "root certificate file")?;
        Ok(Some(certificates(&seen, path)?))
    }

    fn identity(&self, files: &Files<'_>) -> Result<Option<Identity>, ConninfoError> {
        let Some((path, named)) = &self.cert else { return Ok(None) };
        let seen = match files(path) {
            Ok(seen) => seen,
            Err(error) if !named && error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable("certificate file", path, &error)),
        };
        let chain = certificates(&seen, path)?;
        let Some(key) = &self.key else {
            return Err(ConninfoError::Together("sslcert needs sslkey".into()));
        };
        let seen = open(files, key, "private key file")?;
        check_mode(&seen, key)?;
        let key = PrivateKeyDer::from_pem_slice(&seen.bytes).map_err(|_| {
            let key = key.display();
            ConninfoError::File(format!(
                "{key} holds no private key in PEM form, or an encrypted one"
            ))
        })?;
        Ok(Some((chain, key)))
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn mode(settings: &Settings, roots: &Roots) -> Result<SslMode, ConninfoError> {
    let system = *roots == Roots::System;
    let Some(value) = settings.get("sslmode") else {
        return Ok(if system { SslMode::VerifyFull } else { SslMode::Prefer });
    };
    let mode = match value.text.as_str() {
        "disable" => SslMode::Disable,
        "allow" => SslMode::Allow,
        "prefer" => SslMode::Prefer,
        "require" => SslMode::Require,
        "verify-ca" => SslMode::VerifyCa,
        "verify-full" => SslMode::VerifyFull,
        _ => {
            let takes = "disable, allow, prefer, require, verify-ca or verify-full";
            return Err(refuse("sslmode", value, takes));
        }
    };
    if system && mode != SslMode::VerifyFull {
        // Anyone can have a certificate that some system root signed, for a name of his own.
        let text =
            format!("sslmode={} is too weak for sslrootcert=system: use verify-full", value.text);
        return Err(ConninfoError::Together(text));
    }
    Ok(mode)
}

fn system() -> Result<Vec<CertificateDer<'static>>, ConninfoError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        return Err(ConninfoError::File(
            "the system has no root certificates (sslrootcert=system): install ca-certificates"
                .into(),
        ));
    }
    Ok(found.certs)
}

fn unreadable(what: &str, path: &Path, error: &std::io::Error) -> ConninfoError {
    ConninfoError::File(format!("the {what} {} cannot be read: {error}", path.display()))
}

fn open(files: &Files<'_>, path: &Path, what: &str) -> Result<Seen, ConninfoError> {
    files(path).map_err(|error| unreadable(what, path, &error))
}

fn certificates(seen: &Seen, path: &Path) -> Result<Vec<CertificateDer<'static>>, ConninfoError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&seen.bytes).collect();
    match read {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => {
            let path = path.display();
            Err(ConninfoError::File(format!("{path} holds no certificate in PEM form")))
        }
    }
}

/// A key that others can read is no key; root's may be shared with a group.
fn check_mode(seen: &Seen, path: &Path) -> Result<(), ConninfoError> {
    let (path, forbidden) = (path.display(), if seen.uid == 0 { 0o027 } else { 0o077 });
    if !seen.regular {
        return Err(ConninfoError::File(format!("the private key file {path} is no plain file")));
    }
    if seen.mode & forbidden != 0 {
        return Err(ConninfoError::File(format!(
            "the private key file {path} can be used by others: chmod 0600 {path} \
             (0640 if root owns it)"
        )));
    }
    Ok(())
}

/// The roots as rustls takes them.
pub(super) fn store(roots: &[CertificateDer<'static>]) -> RootCertStore {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.iter().cloned());
    store
}
