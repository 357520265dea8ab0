//! One connection: bytes that came, bytes to go, and no more of either than is allowed.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::PollFlags;

/// Bytes read at once.
const PIECE_BYTES: usize = 4096;

/// What a connection comes over.
#[derive(Debug)]
pub enum Stream {
    /// The control socket.
    Control(UnixStream),
    /// The port of `--http`.
    Http(TcpStream),
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    pub stream: Stream,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    /// Ends when all is written.
    last: bool,
    /// When something moved.
    pub moved: Instant,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Control(stream) => stream.as_fd(),
            Stream::Http(stream) => stream.as_fd(),
        }
    }
}

impl Connection {
    pub fn new(stream: Stream, now: Instant) -> io::Result<Connection> {
        match &stream {
            Stream::Control(stream) => stream.set_nonblocking(true)?,
            Stream::Http(stream) => stream.set_nonblocking(true)?,
        }
        let (input, output) = (Vec::new(), Vec::new());
        Ok(Connection { stream, input, output, written: 0, last: false, moved: now })
    }

    /// What to wait for: who does not fetch an answer is not listened to.
    pub fn wanted(&self) -> PollFlags {
        if self.output.is_empty() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Takes what came, `most` bytes in all; false at the end.
    pub fn fill(&mut self, most: usize, now: Instant) -> io::Result<bool> {
        let mut piece = [0; PIECE_BYTES];
        while self.input.len() < most {
            let room = (most - self.input.len()).min(PIECE_BYTES);
            let read = match &mut self.stream {
                Stream::Control(stream) => stream.read(&mut piece[..room]),
                Stream::Http(stream) => stream.read(&mut piece[..room]),
            };
            match read {
                Ok(0) => return Ok(false),
                Ok(bytes) => self.input.extend_from_slice(&piece[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.moved = now;
        }
        Ok(true)
    }

    /// What came up to `end` and with it, if it is there.
    pub fn take(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        let at = self.input.windows(end.len()).position(|window| window == end)?;
        let rest = self.input.split_off(at + end.len());
        Some(std::mem::replace(&mut self.input, rest))
    }

    /// Bytes that came and are not taken.
    pub fn pending(&self) -> usize {
        self.input.len()
    }

    /// Puts an answer up for sending; with `last` nothing comes after it.
    pub fn put(&mut self, answer: Vec<u8>, last: bool) {
        self.output.extend(answer);
        self.last |= last;
    }

    /// Whether nothing more is to be read: an answer waits, or was the last.
    pub fn is_answering(&self) -> bool {
        self.last || !self.output.is_empty()
    }

    /// Sends what can be sent; false when that was all, and the last.
    pub fn flush(&mut self, now: Instant) -> io::Result<bool> {
        while self.written < self.output.len() {
            let rest = &self.output[self.written..];
            let written = match &mut self.stream {
                Stream::Control(stream) => stream.write(rest),
                Stream::Http(stream) => stream.write(rest),
            };
            match written {
                Ok(0) => return Ok(false),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.moved = now;
        }
        self.output.clear();
        self.written = 0;
        Ok(!self.last)
    }
}
