//! A fabric, beside a socket.
//!
//! The bytes go by the fabric. By the socket goes nothing but its end, which is the connection's:
//! the kernel tells it of a side that was killed, which a fabric does not. Who ends in order says
//! before that how many messages it has sent, 8 bytes: the other side takes those that are still on
//! their way, for a moment at most.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ::fabric::{Broken, Libfabric, Stream};
use parking_lot::Mutex;

use super::{Link, Transport};

/// How long the last messages are waited for.
const LAST_ONES_MAX: Duration = Duration::from_secs(1);
/// How long each side has to say that it sends no more, before the endpoint is closed.
const SETTLES_MAX: Duration = Duration::from_millis(100);
/// Looks at a fabric on which nothing comes for one at the socket.
const LOOKS: u32 = 64;

/// A fabric, and the socket beside it.
#[derive(Debug)]
pub struct OverFabric {
    stream: Stream<Libfabric>,
    beside: Link,
    end: Mutex<End>,
    looks: AtomicU32,
    /// Somebody was about to wait.
    may_have_slept: AtomicBool,
    is_shut: AtomicBool,
    /// It was ended in order, by one side at least: what was sent last is to arrive.
    is_to_settle: AtomicBool,
}

/// What the socket has said.
#[derive(Debug, Default)]
struct End {
    since: Option<Instant>,
    word: [u8; 8],
    len: usize,
}

impl End {
    /// Messages that the other side has sent, if it has said so.
    fn sent(&self) -> u64 {
        if self.len == self.word.len() { u64::from_le_bytes(self.word) } else { 0 }
    }
}

impl OverFabric {
    /// A stream that was just made, and the connection that it was made by.
    pub fn new(stream: Stream<Libfabric>, beside: Link) -> OverFabric {
        let end = Mutex::default();
        let (looks, may_have_slept, is_shut, is_to_settle) = Default::default();
        OverFabric { stream, beside, end, looks, may_have_slept, is_shut, is_to_settle }
    }

    /// The connection beside the fabric.
    pub fn beside(&self) -> &Link {
        &self.beside
    }

    /// Whether the other side has ended, and nothing more is to come.
    fn has_ended(&self) -> Result<bool> {
        let mut end = self.end.lock();
        while end.since.is_none() {
            let mut room = [0; 9];
            match self.beside.receive(&mut room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
                Ok(0) => end.since = Some(Instant::now()),
                Ok(bytes) => {
                    let (from, to) = (end.len, end.len + bytes);
                    let Some(word) = end.word.get_mut(from..to) else {
                        let words = "it speaks beside the fabric";
                        return Err(Error::new(ErrorKind::InvalidData, words));
                    };
                    word.copy_from_slice(&room[..bytes]);
                    end.len = to;
                }
            }
        }
        let is_over = end.since.is_some_and(|since| since.elapsed() >= LAST_ONES_MAX);
        Ok(is_over || self.stream.counts().1 >= end.sent())
    }

    /// Whether it is time to look at the socket.
    fn looks_beside(&self) -> bool {
        // ordering: who misses one looks again soon
        self.may_have_slept.swap(false, Ordering::Relaxed)
            || self.looks.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOKS)
    }
}

impl Transport for OverFabric {
    fn receive(&self, room: &mut [u8]) -> Result<usize> {
        let error = match self.stream.receive(room) {
            Err(error) => error,
            received => return received,
        };
        match error.kind() {
            ErrorKind::WouldBlock if !self.looks_beside() => return Err(error),
            ErrorKind::WouldBlock => {}
            // a fabric fails where the other side has gone, too
            _ if is_refused(&error) => return Err(error),
            _ => {}
        }
        if !self.has_ended()? {
            return Err(error);
        }
        // what came before the end
        self.stream.receive(room).or(Ok(0))
    }

    fn send(&self, parts: [&[u8]; 3]) -> Result<usize> {
        self.stream.send(parts)
    }

    fn flush(&self) -> Result<bool> {
        self.stream.flush()
    }

    fn has_sent_all(&self) -> bool {
        self.stream.has_sent_all()
    }

    fn shut(&self) {
        if !self.is_shut.swap(true, Ordering::SeqCst) {
            let was_killed = self.has_ended().is_err() || {
                let end = self.end.lock();
                end.since.is_some() && end.len == 0
            };
            self.is_to_settle.store(!was_killed, Ordering::SeqCst);
            self.stream.end();
            let (sent, _) = self.stream.counts();
            let _ = self.beside.send([&sent.to_le_bytes(), &[], &[]]);
        }
        self.beside.transport().shut();
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.beside.as_fd()
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn rings_for_both(&self) -> bool {
        true
    }

    fn may_sleep(&self) -> bool {
        self.may_have_slept.store(true, Ordering::Relaxed);
        self.stream.may_sleep()
    }

    fn ring(&self) {
        self.stream.ring();
    }
}

fn is_refused(error: &Error) -> bool {
    let broken = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(broken, Some(Broken::Refused(_)))
}

impl Drop for OverFabric {
    fn drop(&mut self) {
        if self.is_to_settle.load(Ordering::SeqCst) {
            // what the fabric has not sent would go with the endpoint
            self.stream.settle(Instant::now() + SETTLES_MAX);
        }
    }
}
