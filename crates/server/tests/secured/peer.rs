//! A program that speaks by hand, encrypted.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use wire::{
    Credentials, Decoder, Flags, Frame, Greeting, Identity, Link, Proof, Reply, Request, WORDS,
    Welcome,
};

use crate::served::SOON;

pub struct Peer {
    link: Link,
    incoming: Decoder,
    count: u64,
}

fn wait(link: &Link) {
    let time = Timespec::try_from(SOON).unwrap();
    assert_eq!(poll(&mut [PollFd::new(link, PollFlags::IN)], Some(&time)), Ok(1), "nothing came");
}

impl Peer {
    /// Whose certificate the service believes.
    pub fn connect(address: &str, credentials: &Path) -> Peer {
        let stream = TcpStream::connect(address.strip_prefix("near://").unwrap()).unwrap();
        let config = Credentials::read(credentials).and_then(Credentials::client).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let begun = ClientConnection::new(config, name).unwrap();
        let link = Link::encrypted(stream.into(), begun.into());
        while !link.handshake().unwrap() {
            wait(&link);
        }
        Peer { link, incoming: Decoder::default(), count: 0 }
    }

    pub fn send(&self, slot: u16, message: &[u8], data: &[u8]) {
        for part in (Frame { slot, message, data }).parts() {
            assert_eq!(self.link.send(part.rest(0)).unwrap(), part.bytes());
        }
    }

    /// The next frame; none: the connection has ended.
    pub fn hear(&mut self) -> Option<(u16, Vec<u8>, Vec<u8>)> {
        loop {
            if let Some(frame) = self.incoming.frame().unwrap() {
                return Some((frame.slot, frame.message.to_vec(), frame.data.to_vec()));
            }
            match self.link.receive(self.incoming.room()) {
                Ok(0) => return None,
                Ok(bytes) => self.incoming.fill(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => wait(&self.link),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Gives room back.
    pub fn rest(&mut self) {
        self.incoming.rest();
        self.link.transport().rest();
    }

    /// What is said to it when it says who it is.
    pub fn greet(&mut self, returns: Option<Identity>) -> Welcome {
        let greeting = Greeting { version: wire::VERSION, returns, mount: None, fabric: None };
        self.send(WORDS, &serde_json::to_vec(&greeting).unwrap(), &[]);
        serde_json::from_slice(&self.hear().unwrap().1).unwrap()
    }

    /// One that was let in, and who it is.
    pub fn attach(address: &str, credentials: &Path) -> (Peer, Identity) {
        let mut peer = Peer::connect(address, credentials);
        match peer.greet(None) {
            Welcome::Attached { identity, .. } => (peer, identity),
            other => panic!("{other:?}"),
        }
    }

    /// Asks in slot 0.
    pub fn ask(&mut self, request: &Request<'_>, data: &[u8]) -> (Reply, Vec<u8>) {
        self.count += 1;
        self.send(0, &wire::encode(&(self.count, request), Vec::new()).unwrap(), data);
        let (slot, message, data) = self.hear().unwrap();
        assert_eq!(slot, 0);
        (wire::decode(&message).unwrap(), data)
    }

    /// The error number of what is refused.
    pub fn refused(&mut self, request: &Request<'_>, data: &[u8]) -> i32 {
        match self.ask(request, data).0 {
            Reply::Failed(failure) => failure.error().errno(),
            other => panic!("{request:?}: {other:?}"),
        }
    }

    pub fn open(&mut self, path: &str, flags: Flags) -> (u64, u64, Proof) {
        match self.ask(&Request::Open(path.as_bytes(), flags), &[]).0 {
            Reply::Opened(number, attributes, proof) => (number, attributes.ino.0, proof),
            other => panic!("{path}: {other:?}"),
        }
    }
}
