//! The service's side of a stream: calls that come over a network, and their answers.
//!
//! Nobody waits for the other side. What of an answer the kernel does not take now is kept, and
//! sent when it says that it takes more; until then no more calls are taken. A call is served from
//! where its bytes were received; the data of a long write goes to its blocks as it comes. The
//! memory for long calls, and those blocks, are all streams' ([`Credit`]).

mod coming;
mod gone;
mod sending;

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use fs::Arrival;
use parking_lot::Mutex;
use rustix::event::epoll::EventFlags;
use serde::Serialize;
use wire::{Decoder, Frame, Link, NOTICE, SLOTS, Taken, WORDS};

use self::coming::{Coming, Long};
use self::sending::{Outgoing, TOGETHER};
use crate::credit::{Credit, Holds};
use crate::data::Data;

/// A connection over a network.
#[derive(Debug)]
pub struct Stream {
    link: Link,
    peer: Peer,
    /// None: nothing more is taken from there.
    incoming: Mutex<Option<Incoming>>,
    /// The slots that have a call.
    has_call: [AtomicBool; SLOTS],
    outgoing: Mutex<Outgoing>,
    is_behind: AtomicBool,
    is_closed: AtomicBool,
    /// Hears what a forwarder says by itself: the message, and the data.
    hears: OnceLock<Hears>,
}

/// Whose a stream is, and what it shares with the others.
#[derive(Debug)]
pub struct Peer {
    /// The session's number.
    pub number: u64,
    /// The user's.
    pub user: u32,
    /// What waits for its bell.
    pub bells: Arc<OwnedFd>,
    pub credit: Arc<Credit<Stream>>,
}

/// Is told a message and its data.
type Hear = dyn Fn(&[u8], &[u8]) + Send + Sync;

/// Hears what the other side says by itself, in the order in which it says it.
pub struct Hears(pub Box<Hear>);

impl std::fmt::Debug for Hears {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Hears")
    }
}

#[derive(Debug)]
struct Incoming {
    decoder: Decoder,
    long: Long,
}

/// Serves calls.
pub trait Serves {
    /// A call has begun whose data comes by and by, so much of it: where that goes. `None`: it is
    /// collected.
    fn begin(&mut self, message: &[u8], data: usize) -> Option<Arrival>;

    /// Serves a call: its message, and the data that came with it.
    fn serve(&mut self, taken: Taken, message: &[u8], data: Data<'_>);
}

/// What a stream had to serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// This call was served, the last of some perhaps.
    Served(Taken),
    /// None now.
    Nothing,
    /// None before there is memory for it, which is told by the bell.
    Waits,
}

impl Stream {
    /// Over a connection; `decoder` has what came behind the greeting.
    pub fn new((link, decoder): (Link, Decoder), peer: Peer) -> Arc<Stream> {
        Arc::new(Stream {
            link,
            peer,
            incoming: Mutex::new(Some(Incoming { decoder, long: Long::default() })),
            has_call: std::array::from_fn(|_| AtomicBool::new(false)),
            outgoing: Mutex::default(),
            is_behind: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            hears: OnceLock::new(),
        })
    }

    /// What waits for its bell.
    pub fn bells(&self) -> &OwnedFd {
        &self.peer.bells
    }

    /// Has what the other side says by itself heard; before anything is taken.
    pub fn hear_by(&self, hears: Hears) {
        let _ = self.hears.set(hears);
    }

    /// Has the next call served: its message, and the data that came with it. Of several that came
    /// together all are, and what they are answered goes together; not of a mount, where one may
    /// wait for what its kernel does when it has the answer to another.
    pub fn serve_next(self: &Arc<Self>, serves: &mut dyn Serves) -> Next {
        self.send_more();
        if self.is_behind() {
            // who takes no answers asks nothing: what is kept for it is of calls under way only
            return Next::Nothing;
        }
        // another worker looks after it, too
        let Some(mut incoming) = self.incoming.try_lock() else { return Next::Nothing };
        if self.is_closed() {
            *incoming = None;
        }
        let Some(incoming) = incoming.as_mut() else { return Next::Nothing };
        if !self.may_go_on(incoming) {
            return Next::Waits;
        }
        let mut is_corked = false;
        let next = self.serve_some(incoming, &mut is_corked, serves);
        if is_corked {
            self.uncork();
        }
        next
    }

    fn serve_some(
        self: &Arc<Self>,
        incoming: &mut Incoming,
        is_corked: &mut bool,
        serves: &mut dyn Serves,
    ) -> Next {
        let (is_mount, mut served) = (self.hears.get().is_some(), 1);
        loop {
            let Incoming { decoder, long } = &mut *incoming;
            let has_more = served < TOGETHER && !is_mount && decoder.has_two();
            if has_more && !std::mem::replace(is_corked, true) {
                self.outgoing.lock().is_corked = true;
            }
            let mut coming = Coming { stream: self, long, serves: &mut *serves, waits: false };
            let frame = decoder.frame_or_pieces(&mut coming);
            let waits = coming.waits;
            match frame {
                Ok(Some(Frame { slot: NOTICE, message, data })) => {
                    let Some(hears) = self.hears.get() else {
                        self.break_off(&"it said something that nobody hears");
                        return Next::Nothing;
                    };
                    (hears.0)(message, data);
                    self.done_with_one(incoming);
                    continue;
                }
                Ok(Some(Frame { slot, message, data })) => {
                    let data = match long.arrival.take() {
                        Some(arrival) => Data::Arrived(arrival),
                        None => Data::Here(data),
                    };
                    let Some(taken) = self.begin(slot, data.bytes()) else { return Next::Nothing };
                    serves.serve(taken, message, data);
                    self.done_with_one(incoming);
                    if has_more && !self.is_behind() {
                        served += 1;
                        continue;
                    }
                    return Next::Served(taken);
                }
                Ok(None) if waits => {
                    decoder.shrink();
                    return Next::Waits;
                }
                Ok(None) => {}
                Err(broken) => {
                    self.break_off(&broken);
                    return Next::Nothing;
                }
            }
            match self.link.receive(decoder.room()) {
                Ok(bytes) if bytes > 0 => decoder.fill(bytes),
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    self.break_off(&error);
                    return Next::Nothing;
                }
                // nothing now, or never again, which who waits for ends of sessions hears
                _ => return Next::Nothing,
            }
        }
    }

    /// A call begins, of so much data; no other one has its slot.
    fn begin(&self, slot: u16, data_len: usize) -> Option<Taken> {
        let slot = usize::from(slot);
        // ordering: before it is looked at whether the stream is closed: who closes it looks at
        // both in the other order, and misses no call that is made (`is_idle`)
        let is_free = |it: &AtomicBool| !it.swap(true, Ordering::SeqCst);
        if !self.has_call.get(slot).is_some_and(is_free) {
            self.break_off(&"a call came in a slot that has one");
            return None;
        }
        if self.is_closed() {
            self.has_call[slot].store(false, Ordering::SeqCst);
            return None;
        }
        Some(Taken::of(slot, data_len))
    }

    /// Answers a call.
    pub fn answer(self: &Arc<Self>, taken: Taken, message: &[u8], data: &[u8]) {
        let slot = taken.slot();
        // ordering: after all that was done for it; the next call may come before this returns
        self.has_call[slot].store(false, Ordering::Release);
        self.send(Frame { slot: slot as u16, message, data });
    }

    /// A call of a connection that is lost is not answered.
    pub fn forget(&self, taken: Taken) {
        // ordering: see `answer`
        self.has_call[taken.slot()].store(false, Ordering::Release);
    }

    /// Says something to a forwarder that is no answer.
    pub fn notice(self: &Arc<Self>, message: &[u8], data: &[u8]) {
        self.send(Frame { slot: NOTICE, message, data });
    }

    /// Says something that is no answer.
    pub fn say<S: Serialize>(self: &Arc<Self>, said: &S) -> std::io::Result<()> {
        let message = serde_json::to_vec(said)?;
        self.send(Frame { slot: WORDS, message: &message, data: &[] });
        Ok(())
    }

    /// From now on the bell is waited for. False: another worker is at it, or something came.
    pub fn park(self: &Arc<Self>) -> bool {
        let Some(mut incoming) = self.incoming.try_lock() else { return false };
        if let Some(Incoming { decoder, long }) = incoming.as_mut()
            && !long.comes
        {
            self.give_back(decoder, long);
            decoder.rest();
        }
        let transport = self.link.transport();
        transport.rest();
        transport.may_sleep()
    }

    /// Takes no more calls, those neither that have come already.
    pub fn close(&self) {
        // ordering: see `begin`
        self.is_closed.store(true, Ordering::SeqCst);
        self.shut();
        if let Some(mut incoming) = self.incoming.try_lock() {
            *incoming = None;
        }
        *self.outgoing.lock() = Outgoing::default();
        self.is_behind.store(false, Ordering::Relaxed);
        self.peer.credit.forget(self.peer.number);
    }

    /// Whether all calls that were taken are answered.
    pub fn is_idle(&self) -> bool {
        // ordering: what they did has happened for who makes calls next; and see `begin`
        self.has_call.iter().all(|has_call| !has_call.load(Ordering::SeqCst))
    }
}

impl Holds for Stream {
    fn number(&self) -> u64 {
        self.peer.number
    }

    fn user(&self) -> u32 {
        self.peer.user
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn go_on(&self) {
        // calls may be here already: as soon as it could be answered, which is at once
        self.ring();
        self.listen(EventFlags::IN | EventFlags::OUT);
    }

    fn break_off(&self, why: &dyn std::fmt::Display) {
        Stream::break_off(self, why);
    }
}

impl Stream {
    /// Rings when something was asked, or more is taken of what was kept.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.link.transport().bell()
    }

    /// What of the bell says so.
    pub fn rings_by(&self) -> EventFlags {
        match self.is_behind() && !self.link.transport().rings_for_both() {
            true => EventFlags::OUT,
            false => EventFlags::IN,
        }
    }

    /// Has the bell ring, where it is not known to ring for what is here already.
    pub fn ring(&self) {
        self.link.transport().ring();
    }

    /// Ends the connection.
    pub fn shut(&self) {
        self.link.transport().shut();
    }

    /// What came makes no sense: nothing more is taken from there.
    pub fn break_off(&self, why: &dyn std::fmt::Display) {
        tracing::warn!(session = self.peer.number, "a connection is ended: {why}");
        self.shut();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.link.beside().is_some() {
            // what was said last goes by the fabric, which a socket's end would overtake
            self.shut();
        }
        self.peer.credit.forget(self.peer.number);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}
