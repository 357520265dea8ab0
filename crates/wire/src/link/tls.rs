//! A socket, encrypted.
//!
//! It keeps little itself: a piece of what came, and of what is to go. What it has encrypted and
//! the kernel does not take goes before anything else.

use std::io::{Error, ErrorKind, IoSlice, Read, Result, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::net::{Shutdown, shutdown};
use rustls::Connection;
use rustls::pki_types::CertificateDer;

use super::plain::{Socket, take};
use super::{Transport, UNSENT_BYTES_MAX, rest};

/// Bytes that are taken from the kernel at a time.
const PIECE_BYTES: usize = 32 << 10;

/// A connected socket, and what encrypts and decrypts.
#[derive(Debug)]
pub struct Tls {
    socket: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    connection: Connection,
    /// What came; `taken..filled` is not decrypted so far.
    came: Vec<u8>,
    taken: usize,
    filled: usize,
}

impl Tls {
    pub fn new(socket: OwnedFd, mut connection: Connection) -> Tls {
        connection.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        let state = State { connection, came: Vec::new(), taken: 0, filled: 0 };
        Tls { socket, state: Mutex::new(state) }
    }

    pub fn handshake(&self) -> Result<bool> {
        self.state.lock().handshake(&self.socket)
    }

    pub fn certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let state = self.state.lock();
        let chain = state.connection.peer_certificates()?;
        Some(chain.iter().map(|one| one.clone().into_owned()).collect())
    }

    pub fn secret<const BYTES: usize>(&self, label: &[u8], context: &[u8]) -> Option<[u8; BYTES]> {
        let connection = &self.state.lock().connection;
        connection.export_keying_material([0; BYTES], label, Some(context)).ok()
    }
}

impl Transport for Tls {
    fn receive(&self, room: &mut [u8]) -> Result<usize> {
        self.state.lock().receive(&self.socket, room)
    }

    fn send(&self, parts: [&[u8]; 3]) -> Result<usize> {
        self.state.lock().send(&self.socket, parts)
    }

    fn flush(&self) -> Result<bool> {
        self.state.lock().flush(&self.socket)
    }

    fn has_sent_all(&self) -> bool {
        !self.state.lock().connection.wants_write()
    }

    fn rest(&self) {
        let mut state = self.state.lock();
        if state.taken == state.filled {
            (state.came, state.taken, state.filled) = Default::default();
        }
    }

    fn shut(&self) {
        let mut state = self.state.lock();
        state.connection.send_close_notify();
        let _ = state.flush(&self.socket);
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl State {
    fn receive(&mut self, socket: &OwnedFd, room: &mut [u8]) -> Result<usize> {
        loop {
            match self.connection.reader().read(room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            // it may end without a word: so does who is killed
            if !self.decrypt(socket)? {
                return Ok(0);
            }
        }
    }

    fn handshake(&mut self, socket: &OwnedFd) -> Result<bool> {
        loop {
            let flushed = self.flush(socket)?;
            if !self.connection.is_handshaking() {
                return Ok(flushed);
            }
            match self.decrypt(socket) {
                Ok(true) => {}
                Ok(false) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Decrypts a piece of what has come. False: there will be no more.
    fn decrypt(&mut self, socket: &OwnedFd) -> Result<bool> {
        if self.taken == self.filled {
            self.came.resize(PIECE_BYTES, 0);
            (self.taken, self.filled) = (0, 0);
            self.filled = take(socket, &mut self.came)?;
        }
        let mut rest = &self.came[self.taken..self.filled];
        if rest.is_empty() {
            return Ok(false);
        }
        let taken = self.connection.read_tls(&mut rest);
        self.taken = self.filled - rest.len();
        let distrust = |error| Error::new(ErrorKind::InvalidData, error);
        let decrypted = taken.and_then(|_| self.connection.process_new_packets().map_err(distrust));
        // also what tells the other side why it is not trusted
        let flushed = self.flush(socket);
        decrypted.and(flushed).map(|_| true)
    }

    fn send(&mut self, socket: &OwnedFd, parts: [&[u8]; 3]) -> Result<usize> {
        let mut sent = 0;
        while self.flush(socket)? {
            let rest = rest(parts, sent);
            if rest.iter().all(|part| part.is_empty()) {
                return Ok(sent);
            }
            sent += self.connection.writer().write_vectored(&rest.map(IoSlice::new))?;
        }
        if sent > 0 { Ok(sent) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    fn flush(&mut self, socket: &OwnedFd) -> Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Socket(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
