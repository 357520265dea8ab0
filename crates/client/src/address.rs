//! Where a service listens.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use wire::{Channel, Place};

use crate::line::Socket;
use crate::stream::Stream;
use crate::{Error, Result};

/// What an address on a network begins with.
const SCHEME: &str = "near://";

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
    There(String),
}

impl Address {
    /// Of the pool in directory `path`, or of the socket `path`; or of a service on a network,
    /// `near://HOST[:PORT]`.
    pub fn of(path: &Path) -> Result<Address> {
        if let Some(host) = remote(path) {
            return Ok(Address::There(host?));
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

    /// Connects, and waits `patience` at most for each thing that the service is to do.
    pub fn connect(&self, patience: Duration) -> Result<Socket> {
        match self {
            Address::Here { dir, name } => {
                let socket = connect_here(dir, name, patience)?;
                Ok(Socket::Here(Channel::new(socket)))
            }
            Address::There(host) => {
                let stream = connect_there(host, patience)?;
                wire::prepare(&stream).map_err(Error::io("setsockopt"))?;
                Ok(Socket::There(Box::new(Stream::new(stream))))
            }
        }
    }
}

/// Host and port that a path names, if it is the address of a service on a network.
fn remote(path: &Path) -> Option<Result<String>> {
    let rest = path.as_os_str().as_bytes().strip_prefix(SCHEME.as_bytes())?;
    let wrong = || Error::NoAddress(path.to_string_lossy().into_owned());
    let host = std::str::from_utf8(rest).map(|host| host.trim_end_matches('/'));
    Some(host.map_err(|_| wrong()).and_then(|host| match host {
        "" => Err(wrong()),
        host if host.contains('/') => Err(wrong()),
        // a port stands behind the last colon, unless that is one of an IPv6 address
        host if host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']')) => {
            Ok(host.to_owned())
        }
        host => Ok(format!("{host}:{}", wire::PORT)),
    }))
}

fn connect_there(host: &str, patience: Duration) -> Result<TcpStream> {
    let until = Instant::now() + patience;
    let found = host.to_socket_addrs().map_err(|error| Error::NoSuchHost {
        host: host.to_owned(),
        source: std::sync::Arc::new(error),
    })?;
    let mut last = ErrorKind::AddrNotAvailable.into();
    for address in found {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            // a kernel may connect a socket to itself, where nobody listens at its port
            Ok(stream) if stream.local_addr().ok() == Some(address) => {
                last = ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    match last.kind() {
        ErrorKind::ConnectionRefused => Err(Error::NoService(format!("{SCHEME}{host}").into())),
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
            Ok(Address::There(host)) => Some(host),
            Ok(Address::Here { .. }) => None,
            Err(error) => Some(error.to_string()),
        }
    }

    #[test]
    fn an_address_on_a_network_has_a_port() {
        let port = wire::PORT;
        assert_eq!(there("near://host"), Some(format!("host:{port}")));
        assert_eq!(there("near://host/"), Some(format!("host:{port}")));
        assert_eq!(there("near://host:7"), Some("host:7".to_owned()));
        assert_eq!(there("near://[::1]"), Some(format!("[::1]:{port}")));
        assert_eq!(there("near://[::1]:9"), Some("[::1]:9".to_owned()));
        for wrong in ["near://", "near:///", "near://host/dir"] {
            assert!(there(wrong).unwrap().contains("near://HOST"), "{wrong}");
        }
        assert_eq!(there("near:/host"), None);
    }
}
