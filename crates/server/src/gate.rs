//! Who is let in over a network by certificate: as the files say now.
//!
//! They are looked at again when somebody comes, and every second. What they say then holds for
//! those who are here, too: who is revoked, or may do something else, is sent away. Files that make
//! no sense change nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ServerConfig, ServerConnection};
use wire::{CREDENTIALS, Credentials, Distrust, Link, Peer};

use crate::access::Access;
use crate::rights::Rights;
use crate::shared::Shared;
use crate::{Error, Result};

/// How often the files are looked at while nobody comes.
pub const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// What the access file is called beside the credentials.
const ACCESS_NAME: &str = "access";

/// Who is let in over a network, by certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secured {
    /// The directory of the service's credentials: `ca.pem`, whose certificates are believed,
    /// `cert.pem`, `key.pem`, and perhaps `revoked.pem`.
    pub credentials: PathBuf,
    /// The access file, which says what each may do; none: `access` in that directory.
    pub access: Option<PathBuf>,
}

impl Secured {
    /// An error if the files cannot be used as they are now.
    pub fn check(&self) -> Result<()> {
        State::read(self).map(drop)
    }

    fn access(&self) -> PathBuf {
        self.access.clone().unwrap_or_else(|| self.credentials.join(ACCESS_NAME))
    }
}

/// One who was let in by certificate.
#[derive(Debug)]
pub struct Certified {
    /// Its name there.
    pub name: String,
    /// What it may do.
    pub rights: Rights,
    chain: Vec<CertificateDer<'static>>,
    /// When its certificates were of use.
    came: UnixTime,
}

/// What the files say.
#[derive(Debug)]
struct State {
    config: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
    access: Access,
}

/// What shows that a file has changed: device, inode, length, times.
type Stamp = Option<(u64, u64, u64, [i64; 4])>;

/// Lets in who comes with a certificate.
#[derive(Debug)]
pub struct Gate {
    secured: Secured,
    /// None: they have made no sense so far, and nobody is let in.
    state: Option<State>,
    seen: Vec<Stamp>,
    looked: Instant,
}

impl State {
    fn read(secured: &Secured) -> Result<State> {
        let bad = Error::Credentials;
        let (config, verifier) =
            Credentials::read(&secured.credentials).and_then(Credentials::server).map_err(bad)?;
        let path = secured.access();
        let text = std::fs::read_to_string(&path)
            .map_err(|source| Error::Access { path: path.clone(), source })?;
        let access = Access::parse(&text).map_err(|source| Error::AccessLine { path, source })?;
        Ok(State { config, verifier, access })
    }

    /// Why these certificates were not to be believed then, if so.
    fn verify(
        &self,
        chain: &[CertificateDer<'static>],
        then: UnixTime,
    ) -> std::result::Result<(), rustls::Error> {
        let (own, between) = chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        self.verifier.verify_client_cert(own, between, then).map(drop)
    }

    /// Why one who is here may not stay so, if so.
    fn reason_against(&self, one: &Certified) -> Option<String> {
        if self.access.of(&one.name) != Some(&one.rights) {
            return Some("its line in the access file has changed".to_owned());
        }
        // when it came they had not expired, which it is asked when it comes again; one that has is
        // said to have expired, whoever has revoked it
        let believed = self.verify(&one.chain, one.came);
        believed.err().map(|error| Distrust(Peer::Program, &error).to_string())
    }
}

impl Gate {
    /// By these files. Where they make no sense now nobody is let in until they do.
    pub fn new(secured: Secured) -> Gate {
        let mut gate = Gate { secured, state: None, seen: Vec::new(), looked: Instant::now() };
        gate.read_again();
        gate
    }

    fn stamps(&self) -> Vec<Stamp> {
        let files = CREDENTIALS.iter().map(|name| self.secured.credentials.join(name));
        let stamp = |path: PathBuf| {
            let found = std::fs::metadata(path).ok()?;
            let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
            Some((found.dev(), found.ino(), found.len(), times))
        };
        files.chain([self.secured.access()]).map(stamp).collect()
    }

    /// Reads the files if they have changed. False: they have not, or make no sense.
    fn read_again(&mut self) -> bool {
        let stamps = self.stamps();
        if stamps == self.seen {
            return false;
        }
        // before they are read: what changes meanwhile is read once more
        self.seen = stamps;
        match (State::read(&self.secured), &self.state) {
            (Ok(state), _) => {
                self.state = Some(state);
                return true;
            }
            (Err(error), Some(_)) => tracing::warn!("{error}; what was read before still holds"),
            (Err(error), None) => tracing::error!("{error}; nobody is let in until it is right"),
        }
        false
    }

    /// How long it is until the files are looked at again.
    pub fn rest(&self) -> Duration {
        LOOKS_EVERY.saturating_sub(self.looked.elapsed())
    }

    /// Has the files hold as they are now, for those who are here, too.
    pub fn look(&mut self, shared: &Shared) {
        self.looked = Instant::now();
        if !self.read_again() {
            return;
        }
        let Some(state) = &self.state else { return };
        tracing::info!("credentials and access are read again");
        for session in shared.sessions() {
            let Some(one) = &session.certified else { continue };
            if let Some(reason) = state.reason_against(one) {
                let (number, name) = (session.number, &one.name);
                tracing::info!(session = number, name, "it is sent away: {reason}");
                shared.grace().has_its_locks(session.client);
                shared.end_session(number);
            }
        }
    }

    /// One who has connected, and is to say who it is.
    pub fn receive(&self, socket: OwnedFd) -> Option<Link> {
        let state = self.state.as_ref()?;
        match ServerConnection::new(state.config.clone()) {
            Ok(connection) => Some(Link::encrypted(socket, connection.into())),
            Err(error) => {
                tracing::warn!("nobody can be let in over the network: {error}");
                None
            }
        }
    }

    /// Who has connected, and what it may do; or why it may do nothing.
    pub fn admit(&self, link: &Link) -> std::result::Result<Certified, String> {
        let state = self.state.as_ref().ok_or("the files that say who may come make no sense")?;
        let chain = link.certificates().unwrap_or_default();
        let now = UnixTime::now();
        state.verify(&chain, now).map_err(|error| Distrust(Peer::Program, &error).to_string())?;
        let name = chain.first().and_then(wire::name_of);
        let name = name.ok_or("its certificate has no DNS name, and so it is nobody")?;
        match state.access.of(&name) {
            Some(rights) => Ok(Certified { rights: rights.clone(), name, chain, came: now }),
            None => Err(format!(
                "the access file has no line for {name}; add one, like \"{name} 1000:1000\""
            )),
        }
    }
}

/// Why a connection ended in which somebody was to say who it is.
pub fn why_not(error: &io::Error) -> String {
    match Distrust::of(error) {
        Some(why) => Distrust(Peer::Program, why).to_string(),
        None => error.to_string(),
    }
}
