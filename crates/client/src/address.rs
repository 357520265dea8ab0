//! Where a service listens.

use std::ffi::OsString;
use std::fmt::{Display, Formatter};
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use wire::{Channel, Greeting, Joining, Link, Place, Provider, Side, Welcome};

use crate::connection::accepted;
use crate::line::Socket;
use crate::stream::Stream;
use crate::{Error, Result, secured};

/// What the scheme of an address on a network begins with,
const SCHEME: &str = "near";
/// and what follows where nothing is encrypted, and nobody asked who it is,
const INSECURE: &str = "+insecure";
/// and before the name of a fabric that it is to go by.
const FABRIC: &str = "+fabric-";

/// Where a service listens.
#[derive(Debug)]
pub enum Address {
    /// On this machine.
    Here {
        /// The socket's directory, which stays the same when the process goes to another one.
        dir: PathBuf,
        /// Its name there.
        name: OsString,
    },
    /// On a network.
    There {
        /// The machine and the port.
        host: String,
        /// Whether the two sides are to say who they are, and what they say is encrypted.
        is_secured: bool,
        /// What it goes by, if by a fabric.
        fabric: Option<Provider>,
    },
}

/// What the scheme of an address says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Scheme {
    is_secured: bool,
    /// A fabric, if one is named; none: of this name there is none.
    fabric: Option<Option<Provider>>,
}

impl Address {
    /// Of the pool in directory `path`, or of the socket `path`; or of a service on a network,
    /// `near://HOST[:PORT]`, or `near+insecure://HOST[:PORT]`; either scheme may end with
    /// `+fabric-PROVIDER`.
    pub fn of(path: &Path) -> Result<Address> {
        if let Some(there) = remote(path) {
            return there;
        }
        let path = std::path::absolute(path).map_err(Error::io("getcwd"))?;
        if path.is_dir() {
            return Ok(Address::Here { dir: path, name: wire::SOCKET_NAME.into() });
        }
        let none = || Error::NoService(path.clone());
        let name = path.file_name().ok_or_else(none)?;
        let dir = path.parent().ok_or_else(none)?;
        Ok(Address::Here { dir: dir.to_path_buf(), name: name.to_owned() })
    }

    /// The service and the directory that `near://HOST[:PORT][/PATH]` names, if it is such an
    /// address.
    pub fn with_path(address: &Path) -> Result<Option<(Address, Vec<u8>)>> {
        let Some((rest, scheme)) = behind_scheme(address) else { return Ok(None) };
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (named, path) = rest.split_at(end);
        let path = if path.is_empty() { b"/" } else { path };
        Ok(Some((there(host(named, address)?, scheme, address)?, path.to_vec())))
    }

    /// Connects, and waits `patience` at most for each thing that the service is to do.
    /// `credentials`: where they are, if that was said.
    pub fn connect(&self, credentials: Option<&Path>, patience: Duration) -> Result<Socket> {
        match self {
            Address::Here { dir, name } => {
                let socket = connect_here(dir, name, patience)?;
                Ok(Socket::Here(Channel::new(socket)))
            }
            Address::There { host, is_secured, fabric } => {
                let config = match is_secured {
                    true => Some(secured::config(host, credentials)?),
                    false => None,
                };
                let stream = connect_there(self, host, patience)?;
                wire::prepare(&stream).map_err(Error::io("setsockopt"))?;
                let link = match config {
                    Some(config) => secured::shake_hands(stream, config, host, patience)?,
                    None => Link::plain(stream.into()),
                };
                let link = match fabric {
                    None => link,
                    Some(provider) => self.over_fabric(*provider, link, patience)?,
                };
                Ok(Socket::There(Box::new(self.stream(link)?)))
            }
        }
    }
}

impl Address {
    fn stream(&self, link: Link) -> Result<Stream> {
        Stream::new(link, self.to_string()).map_err(Error::io("eventfd"))
    }

    /// Goes on over a fabric, whose place the service says.
    fn over_fabric(&self, provider: Provider, link: Link, patience: Duration) -> Result<Link> {
        let none = |error: wire::NoFabric| Error::NoFabric(Arc::new(error));
        let mut joining = Joining::begin(provider, &link).map_err(none)?;
        let fabric = Some(joining.place().map_err(none)?);
        let greeting = Greeting { version: wire::VERSION, returns: None, mount: None, fabric };
        let socket = Socket::There(Box::new(self.stream(link)?));
        let (welcome, _) = socket.greet(&greeting, patience)?;
        let (Socket::There(stream), Welcome::Fabric(theirs)) = (socket, accepted(welcome)?) else {
            return Err(Error::Nonsense("it says nothing of a fabric"));
        };
        joining.meet(&theirs).map_err(none)?;
        joining.join(stream.into_link(), Side::Program).map_err(none)
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Here { dir, name } => write!(f, "{}", dir.join(name).display()),
            Address::There { host, is_secured, fabric } => {
                f.write_str(SCHEME)?;
                if !is_secured {
                    f.write_str(INSECURE)?;
                }
                if let Some(provider) = fabric {
                    write!(f, "{FABRIC}{provider}")?;
                }
                write!(f, "://{host}")
            }
        }
    }
}

/// Whether this names a service on a network.
pub fn is_address(path: &Path) -> bool {
    behind_scheme(path).is_some()
}

/// What stands behind the scheme of an address on a network, and what that says.
fn behind_scheme(path: &Path) -> Option<(&[u8], Scheme)> {
    let path = path.as_os_str().as_bytes();
    let end = path.windows(3).position(|three| three == b"://")?;
    let scheme = std::str::from_utf8(&path[..end]).ok()?.strip_prefix(SCHEME)?;
    let insecure = scheme.strip_prefix(INSECURE);
    let fabric = match insecure.unwrap_or(scheme) {
        "" => None,
        fabric => Some(fabric.strip_prefix(FABRIC)?.parse().ok()),
    };
    Some((&path[end + 3..], Scheme { is_secured: insecure.is_none(), fabric }))
}

/// The service that a path names, if it is the address of one on a network.
fn remote(path: &Path) -> Option<Result<Address>> {
    let (rest, scheme) = behind_scheme(path)?;
    let end = rest.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    Some(host(&rest[..end], path).and_then(|host| there(host, scheme, path)))
}

fn there(host: String, Scheme { is_secured, fabric }: Scheme, whole: &Path) -> Result<Address> {
    let unknown = || Error::UnknownFabric(whole.to_string_lossy().into_owned());
    let fabric = fabric.map(|named| named.ok_or_else(unknown)).transpose()?;
    Ok(Address::There { host, is_secured, fabric })
}

/// The host and the port of the address `whole`, where these bytes say both, or the host alone.
fn host(bytes: &[u8], whole: &Path) -> Result<String> {
    let wrong = || Error::NoAddress(whole.to_string_lossy().into_owned());
    match std::str::from_utf8(bytes).map_err(|_| wrong())? {
        "" => Err(wrong()),
        host if host.contains('/') => Err(wrong()),
        // a port stands behind the last colon, unless that is one of an IPv6 address
        host if host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']')) => {
            Ok(host.to_owned())
        }
        host => Ok(format!("{host}:{}", wire::PORT)),
    }
}

fn connect_there(address: &Address, host: &str, patience: Duration) -> Result<TcpStream> {
    let until = Instant::now() + patience;
    let found = host
        .to_socket_addrs()
        .map_err(|error| Error::NoSuchHost { host: host.to_owned(), source: Arc::new(error) })?;
    let mut last = ErrorKind::AddrNotAvailable.into();
    for number in found {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&number, left) {
            // a kernel may connect a socket to itself, where nobody listens at its port
            Ok(stream) if stream.local_addr().ok() == Some(number) => {
                last = ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    match last.kind() {
        ErrorKind::ConnectionRefused => Err(Error::NoService(address.to_string().into())),
        _ => Err(Error::io("connect")(last)),
    }
}

fn connect_here(
    dir: &Path,
    name: &std::ffi::OsStr,
    patience: Duration,
) -> Result<std::os::fd::OwnedFd> {
    let path = dir.join(name);
    let refused = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory => {
            Error::NoService(path.clone())
        }
        ErrorKind::PermissionDenied => Error::NotAllowed(path.clone()),
        _ => Error::io("connect")(error),
    };
    let place = Place::of(dir, name.len()).map_err(refused)?;
    let address = SocketAddrUnix::new(place.join(name));
    let address = address.map_err(|errno| refused(errno.into()))?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)
        .map_err(|errno| Error::io("socket")(errno.into()))?;
    for direction in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        let waits = sockopt::set_socket_timeout(&socket, direction, Some(patience));
        waits.map_err(|errno| Error::io("setsockopt")(errno.into()))?;
    }
    connect(&socket, &address).map_err(|errno| refused(errno.into()))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(path: &str) -> Option<String> {
        match Address::of(Path::new(path)) {
            Ok(address @ Address::There { .. }) => Some(address.to_string()),
            Ok(Address::Here { .. }) => None,
            Err(error) => Some(error.to_string()),
        }
    }

    #[test]
    fn an_address_on_a_network_has_a_port() {
        let port = wire::PORT;
        for trust in ["near", "near+insecure", "near+fabric-shm", "near+insecure+fabric-verbs"] {
            let there = |host: &str| there(&format!("{trust}://{host}"));
            assert_eq!(there("host"), Some(format!("{trust}://host:{port}")));
            assert_eq!(there("host/"), Some(format!("{trust}://host:{port}")));
            assert_eq!(there("host:7"), Some(format!("{trust}://host:7")));
            assert_eq!(there("[::1]"), Some(format!("{trust}://[::1]:{port}")));
            assert_eq!(there("[::1]:9"), Some(format!("{trust}://[::1]:9")));
            for wrong in ["", "/", "host/dir"] {
                assert!(there(wrong).unwrap().contains("near://HOST"), "{wrong}");
            }
        }
        for here in ["near:/host", "nearer://host", "near+other://host", "/a/near://host"] {
            assert_eq!(there(here), None, "{here}");
        }
        for unknown in ["near+fabric-none://host", "near+fabric-://host"] {
            assert!(there(unknown).unwrap().contains("verbs"), "{unknown}");
        }
    }

    #[test]
    fn a_mount_has_a_path_besides() {
        let parts = |path: &str| match Address::with_path(Path::new(path)) {
            Ok(Some((Address::There { host, .. }, path))) => Some((host, path)),
            _ => None,
        };
        let root = |host: &str| Some((host.to_owned(), b"/".to_vec()));
        assert_eq!(parts("near://host:7"), root("host:7"));
        assert_eq!(parts("near://host:7/"), root("host:7"));
        assert_eq!(parts("near://[::1]:7/a/b"), Some(("[::1]:7".to_owned(), b"/a/b".to_vec())));
        assert_eq!(parts("near:///a"), None);
        assert_eq!(parts("/a"), None);
    }
}
