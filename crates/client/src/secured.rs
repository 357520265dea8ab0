//! Trust between this program and a service on a network.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, ClientConnection};
use wire::{BadCredentials, Credentials, Distrust, Link, Peer};

use crate::{Error, Result};

/// Names the directory of credentials.
const VARIABLE: &str = "NEARSIDE_CREDENTIALS";
/// The directory, where nobody says another.
const USUAL: &str = "nearside/credentials";

/// What this program says who it is with, and whom it believes, as it is now.
pub fn config(host: &str, credentials: Option<&Path>) -> Result<Arc<ClientConfig>> {
    let bad = |error: BadCredentials| Error::BadCredentials(Arc::new(error));
    let dir = find(host, credentials)?;
    Credentials::read(&dir).and_then(Credentials::client).map_err(bad)
}

/// The directory that has it.
fn find(host: &str, said: Option<&Path>) -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(dir) = said {
        return Ok(dir.to_path_buf());
    }
    if let Some(dir) = variable(VARIABLE) {
        return Ok(dir.into());
    }
    let own = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let own = own.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config")));
    let dirs = own.into_iter().chain(["/etc".into()]).map(|dir| dir.join(USUAL));
    let looked: Vec<PathBuf> = dirs.collect();
    match looked.iter().find(|dir| dir.is_dir()) {
        Some(dir) => Ok(dir.clone()),
        None => Err(Error::NoCredentials { address: format!("near://{host}"), looked }),
    }
}

/// The name, without the port, that the service's certificate has to have.
fn name(host: &str) -> Result<ServerName<'static>> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let wrong = |_| Error::NoAddress(format!("near://{host}"));
    ServerName::try_from(name.to_owned()).map_err(wrong)
}

/// Has both sides say who they are, and waits for that so long at most.
pub fn shake_hands(
    stream: TcpStream,
    config: Arc<ClientConfig>,
    host: &str,
    patience: Duration,
) -> Result<Link> {
    let address = format!("near://{host}");
    let begun = ClientConnection::new(config, name(host)?);
    let begun = begun.map_err(|error| distrust(&address, &error))?;
    let link = Link::encrypted(stream.into(), begun.into());
    let until = Instant::now() + patience;
    loop {
        match link.handshake() {
            Ok(true) => return Ok(link),
            Ok(false) => {}
            Err(error) => {
                return Err(Distrust::of(&error).map_or(Error::Lost, |why| distrust(&address, why)));
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let words = format!("it has not answered for {} s", patience.as_secs());
            return Err(Error::Refused(words));
        }
        let more =
            if link.transport().has_sent_all() { PollFlags::empty() } else { PollFlags::OUT };
        let mut events = [PollFd::new(&link, PollFlags::IN | more)];
        let _ = poll(&mut events, Timespec::try_from(left).ok().as_ref());
    }
}

/// The error that it is where one of the sides does not trust the other.
pub fn distrust(address: &str, why: &rustls::Error) -> Error {
    let (address, reason) = (address.to_owned(), Distrust(Peer::Service, why).to_string());
    match why {
        rustls::Error::AlertReceived(alert) if is_final(*alert) => {
            Error::Distrusted { address, reason }
        }
        _ => Error::Untrusted { address, reason },
    }
}

/// Whether this is said of who this program is, and not of bytes that a network has changed.
fn is_final(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
            | AlertDescription::ProtocolVersion
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_services_have_no_port() {
        for (host, name_there) in [
            ("near.example:7401", "near.example"),
            ("10.0.0.1:7", "10.0.0.1"),
            ("[::1]:7401", "::1"),
        ] {
            assert_eq!(name(host).unwrap().to_str(), name_there);
        }
        for host in ["a b:1", "[fe80::1%eth0]:1", ":1"] {
            assert!(matches!(name(host), Err(Error::NoAddress(_))), "{host}");
        }
    }

    #[test]
    fn who_names_a_directory_gets_that_one() {
        let dir = Path::new("/nowhere/at/all");
        assert_eq!(find("host:1", Some(dir)).unwrap(), dir);
        let error = config("host:1", Some(dir)).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/at/all/ca.pem: "), "{error}");
    }
}
