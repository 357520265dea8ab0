//! The service's side of a stream: calls that come over a network, and their answers.
//!
//! Nobody waits for the other side. What of an answer the kernel does not take now is kept, and
//! sent when it says that it takes more; until then no more calls are taken.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, send, sendmsg, shutdown,
};
use serde::Serialize;
use wire::{Decoder, Frame, SLOTS, Taken, WORDS};

/// Data up to here is copied from the slot's memory, which stays; longer data takes it away.
const KEPT_BYTES: usize = 16 << 10;

/// A connection over a network.
#[derive(Debug)]
pub struct Stream {
    socket: OwnedFd,
    /// The session's number, and what waits for its bell, which is the socket.
    number: u64,
    bells: Arc<OwnedFd>,
    /// None: nothing more is taken from there.
    incoming: Mutex<Option<Decoder>>,
    /// The slots that have a call, and the data that came with it.
    has_call: [AtomicBool; SLOTS],
    data: [Mutex<Vec<u8>>; SLOTS],
    outgoing: Mutex<Outgoing>,
    is_behind: AtomicBool,
}

/// What the kernel has not taken so far.
#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Stream {
    /// Over a connected socket that does not block; `incoming` has what came behind the greeting.
    pub fn new(
        (socket, incoming): (OwnedFd, Decoder),
        (number, bells): (u64, Arc<OwnedFd>),
    ) -> Stream {
        Stream {
            socket,
            number,
            bells,
            incoming: Mutex::new(Some(incoming)),
            has_call: std::array::from_fn(|_| AtomicBool::new(false)),
            data: std::array::from_fn(|_| Mutex::default()),
            outgoing: Mutex::default(),
            is_behind: AtomicBool::new(false),
        }
    }

    /// Takes the next call; its message goes to `message`. `None`: there is none now.
    pub fn take(&self, message: &mut Vec<u8>) -> Option<Taken> {
        self.send_more();
        if self.is_behind() {
            // who takes no answers asks nothing: what is kept for it is of calls under way only
            return None;
        }
        // another worker looks after it, too
        let mut incoming = self.incoming.try_lock()?;
        let incoming = incoming.as_mut()?;
        loop {
            match incoming.frame() {
                Ok(Some(frame)) => return self.begin(frame, message),
                Ok(None) => {}
                Err(broken) => {
                    self.break_off(&broken);
                    return None;
                }
            }
            match recv(&self.socket, incoming.room(), RecvFlags::DONTWAIT) {
                Ok((bytes, _)) if bytes > 0 => incoming.fill(bytes),
                // nothing now, or never again, which who waits for ends of sessions hears
                _ => return None,
            }
        }
    }

    fn begin(&self, frame: Frame<'_>, message: &mut Vec<u8>) -> Option<Taken> {
        let slot = usize::from(frame.slot);
        let is_free = |it: &AtomicBool| !it.swap(true, Ordering::Acquire);
        if !self.has_call.get(slot).is_some_and(is_free) {
            self.break_off(&"a call came in a slot that has one");
            return None;
        }
        message.clear();
        message.extend_from_slice(frame.message);
        let mut data = self.data[slot].lock();
        data.clear();
        data.extend_from_slice(frame.data);
        Some(Taken::of(slot, frame.data.len()))
    }

    /// The data that came with a call; once.
    pub fn data(&self, taken: Taken, data: &mut Vec<u8>) {
        let mut own = self.data[taken.slot()].lock();
        if own.len() > KEPT_BYTES {
            *data = std::mem::take(&mut *own);
        } else {
            data.clear();
            data.extend_from_slice(&own);
        }
    }

    /// Answers a call.
    pub fn answer(&self, taken: Taken, message: &[u8], data: &[u8]) {
        let slot = taken.slot();
        let mut own = self.data[slot].lock();
        if own.len() > KEPT_BYTES {
            // of a call that looked at no data
            *own = Vec::new();
        }
        drop(own);
        // ordering: after all that was done for it; the next call may come before this returns
        self.has_call[slot].store(false, Ordering::Release);
        self.send(Frame { slot: slot as u16, message, data });
    }

    /// Says something that is no answer.
    pub fn say<S: Serialize>(&self, said: &S) -> std::io::Result<()> {
        let message = serde_json::to_vec(said)?;
        self.send(Frame { slot: WORDS, message: &message, data: &[] });
        Ok(())
    }

    fn send(&self, frame: Frame<'_>) {
        let head = frame.head();
        let mut outgoing = self.outgoing.lock();
        let mut sent = 0;
        if outgoing.bytes.is_empty() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let none = &mut SendAncillaryBuffer::default();
            match sendmsg(&self.socket, &frame.rest(&head, 0).map(IoSlice::new), none, flags) {
                Ok(bytes) => sent = bytes,
                Err(Errno::AGAIN | Errno::INTR) => {}
                // it has gone, and its end is heard elsewhere
                Err(_) => return,
            }
        }
        for part in frame.rest(&head, sent) {
            outgoing.bytes.extend_from_slice(part);
        }
        let is_behind = !outgoing.bytes.is_empty();
        self.is_behind.store(is_behind, Ordering::Relaxed);
        drop(outgoing);
        if is_behind {
            let flags = EventFlags::OUT | EventFlags::ONESHOT;
            // one that is not waited for yet is, with this, when it is
            let data = EventData::new_u64(self.number);
            let _ = epoll::modify(&*self.bells, &self.socket, data, flags);
        }
    }

    /// Sends what was kept, as far as the kernel takes it.
    fn send_more(&self) {
        if !self.is_behind() {
            return;
        }
        let mut outgoing = self.outgoing.lock();
        let Outgoing { bytes, sent } = &mut *outgoing;
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        while *sent < bytes.len()
            && let Ok(more) = send(&self.socket, &bytes[*sent..], flags)
        {
            *sent += more;
        }
        if *sent == bytes.len() {
            *outgoing = Outgoing::default();
            self.is_behind.store(false, Ordering::Relaxed);
        }
    }

    /// Whether the other side takes its answers slower than they come.
    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    /// From now on the socket is waited for. False: another worker is at it.
    pub fn park(&self) -> bool {
        let Some(mut incoming) = self.incoming.try_lock() else { return false };
        incoming.iter_mut().for_each(Decoder::rest);
        true
    }

    /// Takes no more calls, those neither that have come already.
    pub fn close(&self) {
        *self.incoming.lock() = None;
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Whether all calls that were taken are answered.
    pub fn is_idle(&self) -> bool {
        // ordering: what they did has happened for who makes calls next
        self.has_call.iter().all(|has_call| !has_call.load(Ordering::Acquire))
    }

    /// What came makes no sense: nothing more is taken from there.
    fn break_off(&self, why: &dyn std::fmt::Display) {
        tracing::warn!(session = self.number, "a connection is ended: {why}");
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
