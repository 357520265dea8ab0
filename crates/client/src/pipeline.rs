//! Writes that are under way at once, and wait for none of each other.
//!
//! Over a network each exchange takes longer than what is done for it. So writes are sent one
//! behind the other, several of them together, and their answers are awaited when there are many,
//! or at the end. Each is as durable as any other when its answer has come. Where the connection is
//! lost, or the service, those that were not answered are asked for again, in order and each once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use wire::{Reply, Request, Slot};

use crate::connection::{Connection, encoded};
use crate::session::{Session, State};
use crate::{Error, Result};

/// Writes that are under way at once: some slots are left for others.
const UNDER_WAY_MAX: usize = 16;
/// Bytes of them, beside those of one: as many as keep both sides busy, and the caches theirs.
const UNDER_WAY_BYTES_MAX: usize = 2 << 20;

/// What came of a write, and of how many bytes it was.
pub type Answered = (Reply, usize);

/// Writes to a file, one behind the other.
#[derive(Debug)]
pub struct Pipeline<'s> {
    session: &'s Session,
    file: u64,
    under_way: VecDeque<Begun<'s>>,
    /// Bytes of data of those.
    bytes: usize,
    /// Memory of those before.
    spare: Vec<Vec<u8>>,
}

/// One that was sent, or is about to be.
#[derive(Debug)]
struct Begun<'s> {
    slot: Slot<'s>,
    offset: u64,
    message: Vec<u8>,
    data: Vec<u8>,
    /// Over which attachment.
    connection: Arc<Connection>,
    number: u64,
}

impl<'s> Pipeline<'s> {
    /// To the open file of this number; none where the service is on this machine, and there is
    /// no gain in it.
    pub fn new(session: &'s Session, file: u64) -> Option<Pipeline<'s>> {
        let (under_way, bytes, spare) = Default::default();
        session.is_remote().then(|| Pipeline { session, file, under_way, bytes, spare })
    }

    /// Writes, and waits for nothing but room. The answers to those before that it had to wait for
    /// go to `told`.
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
        let shared = &self.session.shared;
        let (connection, number) = self.attachment()?;
        while self.under_way.front().is_some_and(|first| first.number != number) {
            // those before it are asked for again: they come first
            self.await_first()?.into_iter().for_each(&mut *told);
        }
        // ordering: the slot is this call's alone, and whose it is next comes after
        let count = shared.counts[slot.number()].fetch_add(1, Ordering::Relaxed) + 1;
        let request = Request::Write { file: self.file, offset };
        let message = encoded(count, &request, Vec::new())?;
        // lost: who awaits the answer asks again
        let _ = connection.begin(slot.number(), &message, data);
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(data);
        self.bytes += kept.len();
        let data = kept;
        self.under_way.push_back(Begun { slot, offset, message, data, connection, number });
        Ok(())
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

    /// Waits for the answer to the first that is under way, if one is.
    ///
    /// # Errors
    /// None follows the service that has gone; or it cannot say whether this was done.
    pub fn await_first(&mut self) -> Result<Option<Answered>> {
        let Some(first) = self.under_way.pop_front() else { return Ok(None) };
        let Begun { slot, offset, message, data, connection, number } = first;
        let len = data.len();
        self.bytes -= len;
        if let Ok(answer) = connection.await_answer(slot.number()) {
            let reply = wire::decode(&answer).map_err(|_| Error::Nonsense("an answer"))?;
            self.spare.push(data);
            return Ok(Some((reply, len)));
        }
        let request = Request::Write { file: self.file, offset };
        let asked = (&request, &message[..], &data[..]);
        let answered = |_: &Connection, reply, _| Ok(Some(reply));
        let (slot, answer) = (slot.number(), &mut Vec::new());
        let again = self.session.shared.ask(Some(number), slot, asked, answer, &mut [], answered);
        again.map(|reply| Some((reply, len)))
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
