//! What a side shows to say who it is, and whom it believes: a directory of PEM files.
//!
//! ```text
//! ca.pem       certificates of the authorities that it believes
//! cert.pem     its own certificate, and those between that and an authority, if there are any
//! key.pem      the private key of its own, which nobody else can read
//! revoked.pem  lists of certificates that are not believed any more, if there are any
//! ```
//!
//! They are read for each connection, or when they have changed, and never written here.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The files of a directory of credentials.
pub const CREDENTIALS: [&str; 4] = [CA, CERT, KEY, REVOKED];
const CA: &str = "ca.pem";
const CERT: &str = "cert.pem";
const KEY: &str = "key.pem";
const REVOKED: &str = "revoked.pem";

/// Longest file.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Permission bits by which others read a file.
const OTHERS: u32 = 0o077;
/// Those that the key of root may have, whose group's programs use it.
const GROUP_READS: u32 = 0o040;

/// Why credentials are of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadCredentials {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The key is no secret.
    #[error("{}: others can read this private key; chmod 600 it, or make another", .0.display())]
    Open(PathBuf),
    /// A file is not what it should be.
    #[error("{}: {why}", path.display())]
    Nonsense {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

type Result<T> = std::result::Result<T, BadCredentials>;

/// What a side shows to say who it is, and whom it believes.
#[derive(Debug)]
pub struct Credentials {
    dir: PathBuf,
    believed: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
}

impl Credentials {
    /// Those in this directory.
    ///
    /// # Errors
    /// A file is missing, or makes no sense; or others can read the key.
    pub fn read(dir: &Path) -> Result<Credentials> {
        let mut believed = RootCertStore::empty();
        for certificate in certificates(&dir.join(CA))? {
            believed.add(certificate).map_err(|error| nonsense(&dir.join(CA), &error))?;
        }
        let revoked = match text(&dir.join(REVOKED), 0) {
            Err(BadCredentials::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Vec::new()
            }
            found => sections(&dir.join(REVOKED), &found?)?,
        };
        let key = dir.join(KEY);
        Ok(Credentials {
            believed: Arc::new(believed),
            chain: certificates(&dir.join(CERT))?,
            key: PrivateKeyDer::from_pem_slice(&text(&key, OTHERS)?)
                .map_err(|error| nonsense(&key, &error))?,
            revoked,
            dir: dir.to_path_buf(),
        })
    }

    /// For a side that connects.
    ///
    /// # Errors
    /// The files do not belong together.
    pub fn client(self) -> Result<Arc<ClientConfig>> {
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(self.believed.clone(), provider.clone())
                .with_crls(self.revoked.iter().cloned())
                .allow_unknown_revocation_status()
                .build()
                .map_err(|error| nonsense(&self.dir, &error))?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| nonsense(&self.dir, &error))?
            .with_webpki_verifier(verifier)
            .with_client_auth_cert(self.chain, self.key)
            .map_err(|error| nonsense(&self.dir.join(CERT), &error))?;
        // who is revoked says nothing any more, and a session that goes on would not be asked
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    /// For a side that listens, and what tells whether it believes who connects.
    ///
    /// # Errors
    /// The files do not belong together.
    pub fn server(self) -> Result<(Arc<ServerConfig>, Arc<dyn ClientCertVerifier>)> {
        let provider = Arc::new(ring::default_provider());
        let verifier = self.verifier(&provider)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| nonsense(&self.dir, &error))?
            .with_client_cert_verifier(verifier.clone())
            .with_single_cert(self.chain, self.key)
            .map_err(|error| nonsense(&self.dir.join(CERT), &error))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok((Arc::new(config), verifier))
    }

    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>> {
        WebPkiClientVerifier::builder_with_provider(self.believed.clone(), provider.clone())
            .with_crls(self.revoked.iter().cloned())
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| nonsense(&self.dir.join(REVOKED), &error))
    }
}

/// The first DNS name of a certificate: whose it is.
pub fn name_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    certificate.valid_dns_names().next().map(str::to_ascii_lowercase)
}

fn nonsense(path: &Path, why: &impl ToString) -> BadCredentials {
    BadCredentials::Nonsense { path: path.to_path_buf(), why: why.to_string() }
}

/// What is in a file that has none of these permission bits.
fn text(path: &Path, forbidden: u32) -> Result<Vec<u8>> {
    let failed = |source| BadCredentials::Io { path: path.to_path_buf(), source };
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let forbidden = if found.uid() == 0 { forbidden & !GROUP_READS } else { forbidden };
    if found.mode() & forbidden != 0 {
        return Err(BadCredentials::Open(path.to_path_buf()));
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
    Ok(text)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = sections(path, &text(path, 0)?)?;
    match found.is_empty() {
        true => Err(nonsense(path, &"there is no certificate in it")),
        false => Ok(found),
    }
}

fn sections<T: PemObject>(path: &Path, text: &[u8]) -> Result<Vec<T>> {
    T::pem_slice_iter(text)
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| nonsense(path, &error))
}
