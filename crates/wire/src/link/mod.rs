//! A connection over a network: what comes, what goes, and never a wait. What carries it is a
//! [`Transport`]: a socket as it is or encrypted, or a fabric beside a socket.

mod plain;
mod tls;

#[cfg(feature = "fabric")]
mod fabric;

use std::fmt::Debug;
use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustls::Connection;
use rustls::pki_types::CertificateDer;

use self::plain::Plain;
use self::tls::Tls;

#[cfg(feature = "fabric")]
pub use self::fabric::OverFabric;

/// Most bytes that a connection has encrypted and not sent, about.
pub const UNSENT_BYTES_MAX: usize = 64 << 10;

/// Carries the bytes of a connection, in their order. Whoever calls never waits here.
pub trait Transport: Debug + Send + Sync {
    /// Takes what has come; 0: there will be no more.
    ///
    /// # Errors
    /// Nothing has come (`WouldBlock`), the connection is lost, or (`InvalidData`) the other side
    /// is not to be trusted.
    fn receive(&self, room: &mut [u8]) -> Result<usize>;

    /// Sends the beginning of these parts, as much as is taken now; gives its length.
    ///
    /// # Errors
    /// Nothing is taken now (`WouldBlock`), or the connection is lost.
    fn send(&self, parts: [&[u8]; 3]) -> Result<usize>;

    /// Sends on what was taken and not sent. False: some of it is left.
    ///
    /// # Errors
    /// The connection is lost.
    fn flush(&self) -> Result<bool> {
        Ok(true)
    }

    /// Whether all that [`send`](Transport::send) took has gone.
    fn has_sent_all(&self) -> bool {
        true
    }

    /// Gives room back where nothing is in it.
    fn rest(&self) {}

    /// Ends it.
    fn shut(&self);

    /// The socket whose end is the connection's.
    fn socket(&self) -> BorrowedFd<'_>;

    /// What is readable when something may have come, and writable when more may be taken; or,
    /// where that [rings for both](Transport::rings_for_both), readable then, too.
    fn bell(&self) -> BorrowedFd<'_> {
        self.socket()
    }

    /// Whether the bell is readable for whatever may have happened.
    fn rings_for_both(&self) -> bool {
        false
    }

    /// Asked before somebody waits for the bell. False: it may not ring for what is here already.
    fn may_sleep(&self) -> bool {
        true
    }

    /// Has the bell ring for who receives, where it is not known to ring for what is here.
    fn ring(&self) {}
}

/// A connection that does not block.
#[derive(Debug)]
pub struct Link(Carrier);

/// What carries it. Not a pointer to any: the usual ones are at hand.
#[derive(Debug)]
enum Carrier {
    Plain(Plain),
    Tls(Box<Tls>),
    #[cfg(feature = "fabric")]
    Fabric(Box<OverFabric>),
}

impl Link {
    /// Sends what it is given as it is.
    pub fn plain(socket: OwnedFd) -> Link {
        Link(Carrier::Plain(Plain(socket)))
    }

    /// Encrypts it. Before that comes a [`handshake`](Link::handshake), which on the side that
    /// listens goes on with each [`receive`](Transport::receive).
    pub fn encrypted(socket: OwnedFd, connection: Connection) -> Link {
        Link(Carrier::Tls(Box::new(Tls::new(socket, connection))))
    }

    /// Goes by a fabric.
    #[cfg(feature = "fabric")]
    pub fn over_fabric(fabric: OverFabric) -> Link {
        Link(Carrier::Fabric(Box::new(fabric)))
    }

    /// What carries it.
    pub fn transport(&self) -> &dyn Transport {
        match &self.0 {
            Carrier::Plain(plain) => plain,
            Carrier::Tls(tls) => &**tls,
            #[cfg(feature = "fabric")]
            Carrier::Fabric(fabric) => &**fabric,
        }
    }

    /// The connection beside the fabric, if it goes by one.
    pub fn beside(&self) -> Option<&Link> {
        match &self.0 {
            Carrier::Plain(_) | Carrier::Tls(_) => None,
            #[cfg(feature = "fabric")]
            Carrier::Fabric(fabric) => Some(fabric.beside()),
        }
    }

    /// What encrypts it, if anything does.
    fn tls(&self) -> Option<&Tls> {
        match &self.0 {
            Carrier::Plain(_) => None,
            Carrier::Tls(tls) => Some(tls),
            #[cfg(feature = "fabric")]
            Carrier::Fabric(fabric) => fabric.beside().tls(),
        }
    }

    /// Takes what has come; 0: there will be no more.
    ///
    /// # Errors
    /// As [those of its transport](Transport::receive); with a [`rustls::Error`] where one of the
    /// sides does not trust the other.
    pub fn receive(&self, room: &mut [u8]) -> Result<usize> {
        self.transport().receive(room)
    }

    /// Sends the beginning of these parts, as much as is taken now; gives its length.
    ///
    /// # Errors
    /// Nothing is taken now (`WouldBlock`), or the connection is lost.
    pub fn send(&self, parts: [&[u8]; 3]) -> Result<usize> {
        self.transport().send(parts)
    }

    /// Sends on what was taken and not sent. False: some of it is left.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn flush(&self) -> Result<bool> {
        self.transport().flush()
    }

    /// Goes on with the handshake. False: more has to come, or to go, before it is over.
    ///
    /// # Errors
    /// As those of [`receive`](Link::receive); or the other side has gone (`UnexpectedEof`).
    pub fn handshake(&self) -> Result<bool> {
        self.tls().map_or(Ok(true), Tls::handshake)
    }

    /// The certificates by which the other side has said who it is, its own first.
    pub fn certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.tls()?.certificates()
    }

    /// Whether it is encrypted: then what has come may be here already, and not with the kernel.
    pub fn is_encrypted(&self) -> bool {
        !matches!(self.0, Carrier::Plain(_))
    }

    /// Bytes that both sides know and nobody else does, for what `label` says; none where nothing
    /// is encrypted.
    pub fn secret<const BYTES: usize>(&self, label: &[u8], context: &[u8]) -> Option<[u8; BYTES]> {
        self.tls()?.secret(label, context)
    }

    /// Where the other side is, as far as that can be said.
    pub fn peer(&self) -> String {
        let address = rustix::net::getpeername(self).ok().flatten();
        let address = address.and_then(|any| std::net::SocketAddr::try_from(any).ok());
        address.map_or_else(|| "an address that has gone".to_owned(), |it| it.to_string())
    }
}

/// The socket, whose end is the connection's.
impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport().socket()
    }
}

/// What is left of these parts behind so many bytes.
pub fn rest(parts: [&[u8]; 3], mut sent: usize) -> [&[u8]; 3] {
    parts.map(|part| {
        let skipped = sent.min(part.len());
        sent -= skipped;
        &part[skipped..]
    })
}
