//! What a process asks through: memory that it shares with the service, or a stream.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustix::io::{ReadWriteFlags, preadv2};
use rustix::net::{Shutdown, shutdown};
use wire::{Channel, Said, Served, Taken};

use crate::data::Data;
use crate::stream::{Next, Serves, Stream};

/// What a process asks through.
#[derive(Debug)]
pub enum Line {
    /// A process of this machine.
    Memory {
        /// Its calls.
        calls: Served,
        /// Its socket, whose end is its own.
        channel: Channel,
        /// Rings when it asks while nobody looks.
        bell: OwnedFd,
    },
    /// One of another.
    Stream(Arc<Stream>),
}

impl Line {
    /// Whether there is no memory that both share.
    pub fn is_remote(&self) -> bool {
        matches!(self, Line::Stream(_))
    }

    /// Its end is the process's.
    pub fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Line::Memory { channel, .. } => channel.as_fd(),
            Line::Stream(stream) => stream.as_fd(),
        }
    }

    /// What of the socket says that the process has ended: one of this machine says nothing before.
    pub fn ends_by(&self) -> EventFlags {
        match self {
            Line::Memory { .. } => EventFlags::IN | EventFlags::RDHUP,
            Line::Stream(_) => EventFlags::RDHUP,
        }
    }

    /// Rings when the process asks while nobody looks.
    pub fn bell(&self) -> BorrowedFd<'_> {
        match self {
            Line::Memory { bell, .. } => bell.as_fd(),
            Line::Stream(stream) => stream.bell(),
        }
    }

    /// What waits for its bell, if that is a station's of its own.
    pub fn bells(&self) -> Option<&OwnedFd> {
        match self {
            Line::Memory { .. } => None,
            Line::Stream(stream) => Some(stream.bells()),
        }
    }

    /// What of the bell rings, once.
    pub fn rings_by(&self) -> EventFlags {
        let rings = match self {
            Line::Memory { .. } => EventFlags::IN,
            Line::Stream(stream) => stream.rings_by(),
        };
        rings | EventFlags::ONESHOT
    }

    /// Has the bell ring, where it is not known to ring for what is here already.
    pub fn ring(&self) {
        if let Line::Stream(stream) = self {
            stream.ring();
        }
    }

    /// A call is not answered: nobody waits for that any more.
    pub fn forget(&self, taken: Taken) {
        if let Line::Stream(stream) = self {
            stream.forget(taken);
        }
    }

    /// Silences the bell.
    pub fn silence(&self) {
        let Line::Memory { bell, .. } = self else { return };
        // It may not have rung, or the process may have silenced it; and it has the same bell, so
        // that it says whether a usual read waits.
        let (mut heard, never_waits) = ([0u8; 8], ReadWriteFlags::NOWAIT);
        let _ = preadv2(bell, &mut [IoSliceMut::new(&mut heard)], u64::MAX, never_waits);
    }

    /// Has the next call served that waits, from slot `from` on where slots are looked at in turn:
    /// its message, and the data that came with it. What is in shared memory is copied first, to
    /// `message` and `data`.
    pub fn serve_next(
        &self,
        from: usize,
        (message, data): (&mut Vec<u8>, &mut Vec<u8>),
        serves: &mut dyn Serves,
    ) -> Next {
        match self {
            Line::Memory { calls, .. } => {
                let Some(taken) = calls.take(from, message) else { return Next::Nothing };
                data.resize(taken.data_len, 0);
                calls.data(taken, data);
                serves.serve(taken, message, Data::Here(data));
                Next::Served(taken)
            }
            Line::Stream(stream) => stream.serve_next(serves),
        }
    }

    /// Answers a call.
    pub fn answer(&self, taken: Taken, message: &[u8], data: &[u8]) {
        match self {
            Line::Memory { calls, .. } => calls.answer(taken, message, data),
            Line::Stream(stream) => stream.answer(taken, message, data),
        }
    }

    /// From now on the bell rings. False: something was asked already.
    pub fn park(&self) -> bool {
        match self {
            Line::Memory { calls, .. } => calls.park(),
            Line::Stream(stream) => stream.park(),
        }
    }

    /// Says something to the process.
    pub fn send(&self, said: &Said, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        match self {
            Line::Memory { channel, .. } => channel.send(said, descriptors),
            Line::Stream(stream) if descriptors.is_empty() => stream.say(said),
            Line::Stream(_) => Err(std::io::ErrorKind::Unsupported.into()),
        }
    }

    /// Says something to a forwarder that is no answer.
    pub fn notice(&self, message: &[u8], data: &[u8]) {
        if let Line::Stream(stream) = self {
            stream.notice(message, data);
        }
    }

    /// Ends it.
    pub fn shut(&self) {
        match self {
            Line::Memory { channel, .. } => drop(shutdown(channel, Shutdown::Both)),
            Line::Stream(stream) => stream.shut(),
        }
    }
}
