//! A program that speaks by hand, by a fabric.

use std::io::ErrorKind;
use std::net::TcpStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::{
    Decoder, FabricPlace, Flags, Frame, Greeting, Joining, Link, Reply, Request, Side, WORDS,
    Welcome,
};

use crate::served::SOON;

pub struct Peer {
    pub link: Link,
    incoming: Decoder,
}

fn wait(link: &Link) {
    if link.transport().may_sleep() {
        let time = Timespec::try_from(SOON).unwrap();
        let bell = link.transport().bell();
        let mut events = [PollFd::new(&bell, PollFlags::IN)];
        assert_eq!(poll(&mut events, Some(&time)), Ok(1), "nothing came");
    }
}

/// One that has connected to a service that encrypts nothing, and where it is on the fabric.
pub fn connect(address: &str) -> (Peer, Joining) {
    let (_, address) = address.split_once("://").unwrap();
    let link = Link::plain(TcpStream::connect(address).unwrap().into());
    let joining = Joining::begin(crate::provider(), &link).unwrap();
    (Peer { link, incoming: Decoder::default() }, joining)
}

impl Peer {
    /// One that is on the fabric.
    pub fn join(address: &str) -> Peer {
        let (mut peer, mut joining) = connect(address);
        match peer.ask_for(joining.place().unwrap()) {
            Some(Welcome::Fabric(theirs)) => joining.meet(&theirs).unwrap(),
            other => panic!("{other:?}"),
        }
        let link = joining.join(peer.link, Side::Program).unwrap();
        Peer { link, incoming: Decoder::default() }
    }

    /// One that was let in.
    pub fn attach(address: &str) -> Peer {
        let mut peer = Peer::join(address);
        assert!(matches!(peer.greet(None), Some(Welcome::Attached { .. })));
        peer
    }

    /// What is said to it when it asks for a fabric.
    pub fn ask_for(&mut self, place: FabricPlace) -> Option<Welcome> {
        self.greet(Some(place))
    }

    /// What is said to its first words; none: the connection has ended.
    pub fn greet(&mut self, fabric: Option<FabricPlace>) -> Option<Welcome> {
        self.greet_as(wire::VERSION, fabric)
    }

    /// The same, of one that speaks this version.
    pub fn greet_as(&mut self, version: u32, fabric: Option<FabricPlace>) -> Option<Welcome> {
        let greeting = Greeting { version, returns: None, mount: None, fabric };
        self.send(WORDS, &serde_json::to_vec(&greeting).unwrap());
        Some(serde_json::from_slice(&self.hear()?).unwrap())
    }

    /// Sends a message, whole.
    pub fn send(&self, slot: u16, message: &[u8]) {
        let mut sent = 0;
        while !self.try_send(slot, message, &mut sent) {
            wait(&self.link);
        }
    }

    /// Sends as much of it as goes now. False: some of it is left.
    pub fn try_send(&self, slot: u16, message: &[u8], sent: &mut usize) -> bool {
        let bytes = Frame { slot, message, data: &[] }.bytes();
        while *sent < bytes.len() {
            match self.link.send([&bytes[*sent..], &[], &[]]) {
                Ok(more) => *sent += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("{error}"),
            }
        }
        self.link.flush().unwrap()
    }

    /// The next message; none: the connection has ended.
    fn hear(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(frame) = self.incoming.frame().unwrap() {
                return Some(frame.message.to_vec());
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

    /// Opens a file in slot 0.
    pub fn open(&mut self, path: &str) -> u64 {
        let flags = Flags { read: true, ..Flags::default() };
        let request = Request::Open(path.as_bytes(), flags);
        self.send(0, &wire::encode(&(1u64, request), Vec::new()).unwrap());
        match wire::decode(&self.hear().unwrap()).unwrap() {
            Reply::Opened(file, ..) => file,
            other => panic!("{other:?}"),
        }
    }
}
