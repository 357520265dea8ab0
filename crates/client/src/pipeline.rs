//! Writes that are under way at once, and wait for none of each other.
//!
//! Over a network each exchange takes longer than what is done for it. So writes are sent one
//! behind the other, several of them together, and their answers are awaited when there are many,
//! or at the end. Each is as durable as any other when its answer has come. Where the connection is
//! lost, or the service, those that were not answered are asked for again, in order and each once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use wire::{Reply, Request, Slot};

use crate::connection::{Connection, encoded};
use crate::session::{Session, State};
use crate::{Error, Result};

/// Writes that are under way at once: some slots are left for others.
const UNDER_WAY_MAX: usize = 16;
/// Bytes of them, beside those of one: as many as keep both sides busy, and the caches theirs.
const UNDER_WAY_BYTES_MAX: usize = 2 << 20;
/// Writes of so many bytes may be waited for.
const LONG_BYTES: usize = 128 << 10;
/// Long writes that are not, before it is tried again.
const KEPT_LONG: u32 = 64;

/// What came of a write, and of how many bytes it was.
pub type Answered = (Reply, usize);

/// Writes to a file, one behind the other.
///
/// What is under way is kept, for it may have to be asked for again: a copy, which costs about as
/// much as sending it. So a long write is waited for where its answer comes soon after it is sent:
/// then what the caller has is enough.
#[derive(Debug)]
pub struct Pipeline<'s> {
    session: &'s Session,
    file: u64,
    /// With their data.
    under_way: VecDeque<(Begun<'s>, Vec<u8>)>,
    /// Bytes of data of those.
    bytes: usize,
    /// Memory of those before.
    spare: Vec<Vec<u8>>,
    /// So many long ones are not waited for.
    long_kept: u32,
}

/// One that was sent, or is about to be.
#[derive(Debug)]
struct Begun<'s> {
    slot: Slot<'s>,
    offset: u64,
    message: Vec<u8>,
    /// Over which attachment.
    connection: Arc<Connection>,
    number: u64,
}

impl<'s> Pipeline<'s> {
    /// To the open file of this number; none where the service is on this machine, and there is
    /// no gain in it.
    pub fn new(session: &'s Session, file: u64) -> Option<Pipeline<'s>> {
        let (under_way, bytes, spare, long_kept) = Default::default();
        session.is_remote().then(|| Pipeline { session, file, under_way, bytes, spare, long_kept })
    }

    /// Writes, and waits for nothing but room, or where that is faster. The answers that it had to
    /// wait for go to `told`.
    ///
    /// # Errors
    /// There is no service any more.
    pub fn begin(
        &mut self,
        data: &[u8],
        offset: u64,
        told: &mut dyn FnMut(Answered),
    ) -> Result<()> {
        self.session.check_process()?;
        let slot = self.slot(data.len(), told)?;
        let begun = Instant::now();
        let write = self.send(slot, data, offset, told)?;
        let is_long = data.len() >= LONG_BYTES;
        let mut failed = None;
        if is_long && self.long_kept == 0 {
            let sent = Instant::now();
            match self.await_all(told) {
                Ok(()) => {
                    told(self.answer_to(&write, data)?);
                    let is_soon = sent.elapsed() * 2 <= sent - begun;
                    self.long_kept = if is_soon { 0 } else { KEPT_LONG };
                    return Ok(());
                }
                // this one's slot is its own until it is answered
                Err(error) => failed = Some(error),
            }
        }
        self.long_kept = self.long_kept.saturating_sub(is_long.into());
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(data);
        self.bytes += kept.len();
        self.under_way.push_back((write, kept));
        failed.map_or(Ok(()), Err)
    }

    fn send(
        &mut self,
        slot: Slot<'s>,
        data: &[u8],
        offset: u64,
        told: &mut dyn FnMut(Answered),
    ) -> Result<Begun<'s>> {
        let shared = &self.session.shared;
        let (connection, number) = self.attachment()?;
        while self.under_way.front().is_some_and(|(first, _)| first.number != number) {
            // those before it are asked for again: they come first
            self.await_first()?.into_iter().for_each(&mut *told);
        }
        // ordering: the slot is this call's alone, and whose it is next comes after
        let count = shared.counts[slot.number()].fetch_add(1, Ordering::Relaxed) + 1;
        let request = Request::Write { file: self.file, offset };
        let message = encoded(count, &request, Vec::new())?;
        // lost: who awaits the answer asks again
        let _ = connection.begin(slot.number(), &message, data);
        Ok(Begun { slot, offset, message, connection, number })
    }

    fn attachment(&self) -> Result<(Arc<Connection>, u64)> {
        match &*self.session.shared.state.read() {
            State::Attached(attachment) => Ok((attachment.connection.clone(), attachment.number)),
            State::Gone(error) => Err(error.clone()),
        }
    }

    fn slot(&mut self, bytes: usize, told: &mut dyn FnMut(Answered)) -> Result<Slot<'s>> {
        let slots = &self.session.shared.slots;
        loop {
            let has_room = self.under_way.len() < UNDER_WAY_MAX
                && (self.bytes == 0 || self.bytes + bytes <= UNDER_WAY_BYTES_MAX);
            if let Some(slot) = has_room.then(|| slots.try_take()).flatten() {
                return Ok(slot);
            }
            match self.await_first()? {
                Some(answered) => told(answered),
                None => return Ok(slots.take()),
            }
        }
    }

    fn await_all(&mut self, told: &mut dyn FnMut(Answered)) -> Result<()> {
        while let Some(answered) = self.await_first()? {
            told(answered);
        }
        Ok(())
    }

    /// Waits for the answer to the first that is under way, if one is.
    ///
    /// # Errors
    /// None follows the service that has gone; or it cannot say whether this was done.
    pub fn await_first(&mut self) -> Result<Option<Answered>> {
        let Some((first, data)) = self.under_way.pop_front() else { return Ok(None) };
        self.bytes -= data.len();
        let answered = self.answer_to(&first, &data);
        self.spare.push(data);
        answered.map(Some)
    }

    /// Waits for the answer to one that was sent, and asks again where the connection was lost.
    fn answer_to(&self, write: &Begun<'_>, data: &[u8]) -> Result<Answered> {
        let Begun { slot, offset, message, connection, number } = write;
        if let Ok(answer) = connection.await_answer(slot.number()) {
            let reply = wire::decode(&answer).map_err(|_| Error::Nonsense("an answer"))?;
            return Ok((reply, data.len()));
        }
        let request = Request::Write { file: self.file, offset: *offset };
        let asked = (&request, &message[..], data);
        let answered = |_: &Connection, reply, _| Ok(Some(reply));
        let (slot, answer) = (slot.number(), &mut Vec::new());
        let again = self.session.shared.ask(Some(*number), slot, asked, answer, &mut [], answered);
        again.map(|reply| (reply, data.len()))
    }
}

impl Drop for Pipeline<'_> {
    fn drop(&mut self) {
        // their slots are theirs until they are answered
        while !self.under_way.is_empty() {
            let _ = self.await_first();
        }
    }
}
