//! The stream: bytes in their order, as pieces in messages.
//!
//! A message is sent only where the other side has a place for it, which it grants: so nobody's
//! places run out, and nobody keeps what the other one does not take. One grant is kept for a
//! message that has no bytes and grants alone; that one is taken as soon as it comes, so two sides
//! that have both filled each other's places go on as soon as one of them reads.
//!
//! Who wants to wait asks [`may_sleep`](Stream::may_sleep) first, and then waits for the bell; it
//! rings by being readable, for who sends, too.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use parking_lot::Mutex;

use crate::bell::Bell;
use crate::endpoint::{Endpoint, Failed, MESSAGE_BYTES, RECEIVES, SENDS};
use crate::keys::Keys;
use crate::message::{HEAD_BYTES, Opener, PIECE_BYTES_MAX, Refused, Says, Sealer};

/// Things that are done, of which so many are looked at before anybody else has its turn.
const TURN: usize = 2 * (RECEIVES + SENDS);
/// Places that are free again and not granted so far, at most.
const UNGRANTED_MAX: u64 = RECEIVES as u64 / 2;

/// Why a stream has ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Broken {
    /// What came is not taken.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The fabric does not go on.
    #[error("a fabric has failed: {0}")]
    Failed(#[from] Failed),
}

/// A stream of bytes over an endpoint. It never waits.
#[derive(Debug)]
pub struct Stream<E> {
    state: Mutex<State<E>>,
    /// The bell's, for who waits without the lock.
    bell: OwnedFd,
}

#[derive(Debug)]
struct State<E> {
    endpoint: E,
    sealer: Sealer,
    opener: Opener,
    bell: Bell,
    /// Places that receive, in the order in which they will have messages,
    receiving: VecDeque<usize>,
    /// those of them that have one, and of how many bytes,
    came: [Option<usize>; RECEIVES],
    /// places with bytes of the stream that nobody has taken: where those are,
    filled: VecDeque<(usize, usize, usize)>,
    /// and places that are to receive.
    idle: VecDeque<usize>,
    /// Messages that the other side may have sent, and what it was told of them.
    granted: u64,
    told: u64,
    /// Messages that this side may have sent.
    may_send: u64,
    /// Places to send from.
    free: Vec<usize>,
    /// A message that the fabric has not taken: its place and bytes. None goes before it.
    stuck: Option<(usize, usize)>,
    /// Somebody was told that there is no room.
    is_starved: bool,
    broken: Option<Broken>,
    /// This side sends nothing more,
    has_ended: bool,
    /// and the other side does not.
    is_over: bool,
}

impl<E: Endpoint> Stream<E> {
    /// Over an endpoint that knows the other one. `beside` is the connection beside the fabric, for
    /// which the bell rings, too.
    ///
    /// # Errors
    /// The fabric is of no use, or the kernel has no more descriptors.
    pub fn new(endpoint: E, keys: Keys, beside: BorrowedFd<'_>) -> Result<Stream<E>> {
        let bell = Bell::new(endpoint.bell(), beside)?;
        let descriptor = bell.as_fd().try_clone_to_owned()?;
        let mut state = State {
            endpoint,
            sealer: Sealer::new(keys.sends),
            opener: Opener::new(keys.receives),
            bell,
            receiving: VecDeque::new(),
            came: [None; RECEIVES],
            filled: VecDeque::new(),
            idle: (0..RECEIVES).collect(),
            granted: 0,
            told: RECEIVES as u64,
            may_send: RECEIVES as u64,
            free: (RECEIVES..RECEIVES + SENDS).collect(),
            stuck: None,
            is_starved: false,
            broken: None,
            has_ended: false,
            is_over: false,
        };
        state.post().map_err(|failed| Error::other(Broken::Failed(failed)))?;
        if !state.idle.is_empty() {
            let failed = Failed("it takes fewer places than it was asked for".to_owned());
            return Err(Error::other(Broken::Failed(failed)));
        }
        Ok(Stream { state: Mutex::new(state), bell: descriptor })
    }

    /// Takes what has come.
    ///
    /// # Errors
    /// Nothing has (`WouldBlock`), or the stream has ended (`InvalidData`, with a [`Broken`]).
    pub fn receive(&self, room: &mut [u8]) -> Result<usize> {
        let mut state = self.state.lock();
        state.bell.heard();
        if state.filled.is_empty() {
            state.pump();
        }
        let taken = state.take(room);
        match &state.broken {
            _ if taken > 0 || room.is_empty() => Ok(taken),
            Some(broken) => Err(Error::new(ErrorKind::InvalidData, broken.clone())),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Sends the beginning of these parts, as much as there are places for; gives its length.
    ///
    /// # Errors
    /// There are none (`WouldBlock`), or the stream has ended.
    pub fn send(&self, mut parts: [&[u8]; 3]) -> Result<usize> {
        let mut state = self.state.lock();
        state.look_for_room()?;
        let mut sent = 0;
        while state.may_send_bytes() {
            let Some(bytes) = state.fill(&mut parts) else { break };
            state.send_message(bytes);
            sent += bytes;
        }
        match sent {
            0 if parts.iter().any(|part| !part.is_empty()) => {
                state.is_starved = true;
                Err(ErrorKind::WouldBlock.into())
            }
            sent => Ok(sent),
        }
    }

    /// Sends on what the fabric did not take. False: it still does not.
    ///
    /// # Errors
    /// The stream has ended.
    pub fn flush(&self) -> Result<bool> {
        let mut state = self.state.lock();
        if state.stuck.is_some() {
            state.look_for_room()?;
            state.is_starved = state.stuck.is_some();
        }
        Ok(state.stuck.is_none())
    }

    /// Whether the fabric has taken all that [`send`](Stream::send) took.
    pub fn has_sent_all(&self) -> bool {
        self.state.lock().stuck.is_none()
    }

    /// Whether the bell rings for all that comes from now on. False: there is something to do.
    pub fn may_sleep(&self) -> bool {
        let mut state = self.state.lock();
        if state.broken.is_some() || state.pump() || !state.endpoint.may_wait() {
            return false;
        }
        state.bell.wind().is_ok()
    }

    /// Has the bell ring, until somebody receives.
    pub fn ring(&self) {
        self.state.lock().bell.set_news(true);
    }

    /// Messages that this side has sent, and those that came.
    pub fn counts(&self) -> (u64, u64) {
        let mut state = self.state.lock();
        state.pump();
        (state.sealer.next, state.opener.next)
    }

    /// Sends nothing more, and says so.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.pump();
        if state.stuck.is_none() && state.may_send > state.sealer.next && !state.has_ended {
            state.has_ended = true;
            state.send_message(0);
        }
        state.has_ended = true;
    }

    /// Waits until the fabric has sent all that it took and the other side has sent its last, for
    /// so long at most. (To close an endpoint of ofi_rxm while messages come has killed processes:
    /// libfabric's issue 11828.)
    pub fn settle(&self, until: Instant) {
        loop {
            let mut state = self.state.lock();
            state.pump();
            let is_quiet = state.is_over && state.free.len() == SENDS;
            if is_quiet || state.broken.is_some() || Instant::now() >= until {
                return;
            }
            drop(state);
            std::thread::yield_now();
        }
    }
}

impl<E> AsFd for Stream<E> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl<E: Endpoint> State<E> {
    /// Looks at what is done. True: there is something new for somebody. What there is to receive
    /// is only found, and is told by the bell where it is not the receiver who looks.
    fn pump(&mut self) -> bool {
        if matches!(self.broken, Some(Broken::Refused(_))) {
            return false;
        }
        let before = (self.opener.next, self.broken.is_some());
        let had_room = self.may_send_bytes();
        if let Err(broken) = self.try_pump() {
            // what has come before is still to be had
            self.broken.get_or_insert(broken);
            self.bell.set_news(true);
        }
        if self.opener.next != before.0 {
            self.bell.hurry();
        }
        let has_room = self.may_send_bytes();
        if self.is_starved && (has_room || self.broken.is_some()) {
            self.is_starved = false;
            self.bell.set_room(true);
        }
        before != (self.opener.next, self.broken.is_some()) || has_room && !had_room
    }

    fn try_pump(&mut self) -> std::result::Result<(), Broken> {
        for _ in 0..TURN {
            let Some(done) = self.endpoint.poll()? else { break };
            match self.came.get_mut(done.place) {
                Some(came) => *came = Some(done.bytes?),
                None => {
                    self.free.push(done.place);
                    done.bytes?;
                }
            }
        }
        while let Some(place) = self.receiving.front().copied()
            && let Some(bytes) = self.came[place].take()
        {
            self.receiving.pop_front();
            self.open(place, bytes)?;
        }
        self.post()?;
        if let Some((place, bytes)) = self.stuck
            && self.endpoint.send(place, bytes)?
        {
            self.stuck = None;
        }
        self.grant();
        Ok(())
    }

    /// A message is here.
    fn open(&mut self, place: usize, bytes: usize) -> std::result::Result<(), Refused> {
        let message = self.endpoint.place(place).get_mut(..bytes).ok_or(Refused::Length)?;
        let (piece, says) = self.opener.open(message)?;
        let most = self.sealer.next + RECEIVES as u64;
        if says.granted < self.may_send || says.granted > most || self.is_over {
            return Err(Refused::Nonsense);
        }
        (self.may_send, self.is_over) = (says.granted, says.is_last);
        match piece.is_empty() {
            true => self.idle.push_back(place),
            false => self.filled.push_back((place, piece.start, piece.end)),
        }
        Ok(())
    }

    /// Has places receive again.
    fn post(&mut self) -> std::result::Result<(), Failed> {
        while let Some(place) = self.idle.front().copied()
            && self.endpoint.receive(place)?
        {
            self.idle.pop_front();
            self.receiving.push_back(place);
            self.granted += 1;
        }
        Ok(())
    }

    /// Tells the other side that there is room again, if it has not heard of much of it.
    fn grant(&mut self) {
        let is_told = self.granted - self.told < UNGRANTED_MAX;
        let may_send = !self.has_ended && self.may_send > self.sealer.next;
        if !is_told && self.stuck.is_none() && may_send {
            self.send_message(0);
        }
    }

    /// Takes what is here.
    fn take(&mut self, room: &mut [u8]) -> usize {
        let mut taken = 0;
        while taken < room.len()
            && let Some((place, start, end)) = self.filled.front_mut()
        {
            let bytes = (*end - *start).min(room.len() - taken);
            let piece = &self.endpoint.place(*place)[*start..*start + bytes];
            room[taken..taken + bytes].copy_from_slice(piece);
            (taken, *start) = (taken + bytes, *start + bytes);
            if start == end {
                self.idle.push_back(*place);
                self.filled.pop_front();
            }
        }
        if taken > 0 && self.broken.is_none() {
            match self.post() {
                Ok(()) => self.grant(),
                Err(failed) => self.broken = Some(failed.into()),
            }
        }
        taken
    }

    fn may_send_bytes(&self) -> bool {
        let is_granted = self.may_send > self.sealer.next + 1 && !self.has_ended;
        is_granted && self.stuck.is_none() && !self.free.is_empty() && self.broken.is_none()
    }

    /// Before something is sent.
    fn look_for_room(&mut self) -> Result<()> {
        self.is_starved = false;
        self.bell.set_room(false);
        if !self.may_send_bytes() {
            let before = self.opener.next;
            self.pump();
            if self.opener.next != before {
                // who waits to receive does not hear of it otherwise
                self.bell.set_news(true);
            }
        }
        match &self.broken {
            Some(broken) => Err(Error::new(ErrorKind::ConnectionAborted, broken.clone())),
            None => Ok(()),
        }
    }

    /// Puts the next piece where a message is made of it; none is left otherwise.
    fn fill(&mut self, parts: &mut [&[u8]; 3]) -> Option<usize> {
        let place = &mut self.endpoint.place(*self.free.last()?)[HEAD_BYTES..];
        let mut filled = 0;
        for part in parts {
            let bytes = part.len().min(PIECE_BYTES_MAX - filled);
            let (now, later) = part.split_at(bytes);
            place[filled..filled + bytes].copy_from_slice(now);
            (filled, *part) = (filled + bytes, later);
        }
        (filled > 0).then_some(filled)
    }

    /// Sends a message of so many bytes, which are in the last free place.
    fn send_message(&mut self, bytes: usize) {
        let Some(place) = self.free.pop() else { return };
        let message = self.endpoint.place(place);
        debug_assert_eq!(message.len(), MESSAGE_BYTES);
        let says = Says { granted: self.granted, is_last: self.has_ended };
        let bytes = self.sealer.seal(message, bytes, says);
        self.told = self.granted;
        match self.endpoint.send(place, bytes) {
            Ok(true) => {}
            Ok(false) => self.stuck = Some((place, bytes)),
            Err(failed) => {
                self.broken.get_or_insert(failed.into());
                self.bell.set_news(true);
            }
        }
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
