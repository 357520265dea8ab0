//! Lock requests between question and answer, in memory that outlives the server.
//!
//! A request that waits for a lock leaves its thread's slot, so it lies here until it is answered.
//! One that does not wait lies here too, for its outcome: what a request did must not be done
//! again after its caller was told of it, for by then the caller may have let go of the lock. So
//! the outcome is noted before the reply goes out, and stays until no server will be given the
//! request again.
//!
//! A caller that got a signal is told of by another request, which may come first: that one is
//! noted under the number of the request that it means.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use nearside::files::LockTicket;
use parking_lot::Mutex;
use shm::Area;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::ask::Ask;
use crate::Result;
use crate::state::FOREIGN;
use crate::wire::LateReply;

/// Bytes of an entry.
const ENTRY_BYTES: usize = 128;
const ASK_AT: usize = 8;
const ERRNO_AT: usize = 4;
const _: () = assert!(ASK_AT + size_of::<Ask>() <= ENTRY_BYTES);

/// What the first word of an entry says.
const VACANT: u32 = 0;
const ASKED: u32 = 1;
const ANSWERED: u32 = 2;
const INTERRUPTED: u32 = 3;
/// What the second word says, beside ASKED, of a request whose caller got a signal. Of one that is
/// answered it has the errno.
const SIGNALLED: u32 = 1;

/// What becomes of a request that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It is to be served.
    New,
    /// It is here already: an earlier server was asked.
    Again,
    /// Its caller does not want it any more.
    Interrupted,
    /// There is no room.
    Full,
}

/// What becomes of a signal.
#[derive(Debug)]
pub(crate) enum Signal {
    /// This wait is to end.
    Cancel(LockTicket),
    /// It will be seen when the request comes, or has been.
    Noted,
    /// There is no room; the kernel is to say it again.
    Full,
}

/// Numbers of requests, and what they were answered.
pub(super) type Answers = Vec<(u64, Option<i32>)>;

/// What is to be done about the requests of an earlier server.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Waiting, in their order.
    pub(crate) asks: Vec<Ask>,
    /// Perhaps not answered: number and errno.
    pub(crate) answers: Vec<(u64, Option<i32>)>,
}

#[derive(Debug)]
struct Entry {
    at: usize,
    state: u32,
    waits: bool,
    ticket: Option<LockTicket>,
    /// Its caller got a signal before it waited.
    signalled: bool,
    /// The reply is out.
    answered: bool,
    /// No server will be given the request again.
    released: bool,
}

impl Entry {
    fn new(at: usize, state: u32, waits: bool) -> Entry {
        let (ticket, signalled, answered, released) = (None, false, false, false);
        Entry { at, state, waits, ticket, signalled, answered, released }
    }
}

#[derive(Debug)]
struct Inner {
    memory: Area,
    vacant: Vec<usize>,
    entries: HashMap<u64, Entry>,
    asked: u64,
    /// Nothing changes any more: the next server goes on.
    left: bool,
}

/// The lock requests of a door.
#[derive(Debug)]
pub(crate) struct Asked {
    /// How many there are, so that other requests need not look.
    open: AtomicUsize,
    inner: Mutex<Inner>,
}

impl Inner {
    fn state(&mut self, at: usize, state: u32) {
        self.memory.store(at * ENTRY_BYTES, state);
    }

    fn put(&mut self, at: usize, ask: &Ask) {
        let place = at * ENTRY_BYTES + ASK_AT;
        self.memory[place..place + size_of::<Ask>()].copy_from_slice(ask.as_bytes());
    }

    fn answer(&mut self, at: usize, errno: Option<i32>) {
        self.memory.store(at * ENTRY_BYTES + ERRNO_AT, errno.unwrap_or(0) as u32);
        self.state(at, ANSWERED);
    }

    /// Makes an entry in state `state`; false when there is no room.
    fn enter(&mut self, ask: &Ask, state: u32) -> bool {
        let Some(at) = self.vacant.pop() else { return false };
        self.put(at, ask);
        self.memory.store(at * ENTRY_BYTES + ERRNO_AT, 0);
        self.state(at, state);
        let (waits, unique) = (ask.waits != 0, ask.unique);
        self.entries.insert(unique, Entry::new(at, state, waits));
        true
    }

    /// Forgets an entry that nobody needs any more.
    fn tidy(&mut self, unique: u64) {
        let is_done = |entry: &Entry| entry.released && (entry.answered || !entry.waits);
        if self.entries.get(&unique).is_some_and(is_done) {
            self.forget(unique);
        }
    }

    fn release(&mut self, unique: u64) {
        if let Some(entry) = self.entries.get_mut(&unique) {
            entry.released = true;
        }
        self.tidy(unique);
    }

    /// The wait of a request that is not answered.
    fn waits_of(&self, unique: u64) -> Option<LockTicket> {
        self.entries.get(&unique).filter(|entry| entry.state == ASKED)?.ticket
    }

    /// 0, or the errno, of a request that is answered.
    fn answer_to(&self, unique: u64) -> Option<i32> {
        let entry = self.entries.get(&unique).filter(|entry| entry.state == ANSWERED)?;
        let at = entry.at * ENTRY_BYTES + ERRNO_AT;
        let errno = self.memory.get(at..at + size_of::<i32>())?;
        Some(errno.try_into().map_or(0, i32::from_ne_bytes))
    }

    fn forget(&mut self, unique: u64) {
        if let Some(entry) = self.entries.remove(&unique) {
            self.state(entry.at, VACANT);
            self.vacant.push(entry.at);
        }
    }
}

impl Asked {
    /// Goes on with what a server before left in `memory`; `owed` are the requests that this
    /// server is given again.
    pub(crate) fn take_over(memory: Area, owed: &[u64]) -> Result<(Asked, Left)> {
        let entries = memory.len() / ENTRY_BYTES;
        let vacant = Vec::with_capacity(entries);
        let mut inner = Inner { memory, vacant, entries: HashMap::new(), asked: 0, left: false };
        let mut left = Left::default();
        for at in (0..entries).rev() {
            let bytes = &inner.memory[at * ENTRY_BYTES..];
            let (words, rest) = <[u32; 2]>::read_from_prefix(bytes).map_err(|_| FOREIGN)?;
            let (ask, _) = Ask::read_from_prefix(rest).map_err(|_| FOREIGN)?;
            let ([state, errno], waits) = (words, ask.waits != 0);
            let released = !owed.contains(&ask.unique);
            match state {
                ASKED if waits => left.asks.push(ask),
                ANSWERED => left.answers.push((ask.unique, Some(errno as i32).filter(|e| *e > 0))),
                INTERRUPTED if !released => {}
                // Of the others the caller has the answer, or they are served again.
                VACANT | ASKED | INTERRUPTED => {
                    inner.state(at, VACANT);
                    inner.vacant.push(at);
                    continue;
                }
                _ => return Err(FOREIGN),
            }
            let signalled = state == ASKED && errno == SIGNALLED;
            let entry = Entry { signalled, released, ..Entry::new(at, state, waits) };
            inner.entries.insert(ask.unique, entry);
        }
        left.asks.sort_by_key(|ask| ask.order);
        inner.asked = left.asks.last().map_or(0, |ask| ask.order);
        let open = AtomicUsize::new(inner.entries.len());
        Ok((Asked { open, inner: Mutex::new(inner) }, left))
    }

    /// Works on the entries, and counts them.
    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.lock();
        let result = work(&mut inner);
        // Relaxed: a thread sees what it did itself; what others do is about other requests.
        self.open.store(inner.entries.len(), Ordering::Relaxed);
        result
    }

    /// Notes a request before it is served.
    pub(crate) fn begin(&self, ask: &Ask) -> Begun {
        self.with(|inner| {
            match inner.entries.get_mut(&ask.unique) {
                Some(entry) if entry.state == INTERRUPTED => return Begun::Interrupted,
                Some(_) => return Begun::Again,
                None => {}
            }
            inner.asked += 1;
            match inner.enter(&Ask { order: inner.asked, ..*ask }, ASKED) {
                true => Begun::New,
                false => Begun::Full,
            }
        })
    }

    /// The request waits. True if that is to end, for its caller got a signal.
    pub(super) fn waits(&self, unique: u64, ticket: LockTicket) -> bool {
        self.with(|inner| {
            let Some(entry) = inner.entries.get_mut(&unique) else { return false };
            entry.ticket = Some(ticket);
            entry.signalled
        })
    }

    /// Answers a request.
    /// True: that is noted.
    pub(crate) fn end(&self, unique: u64, reply: LateReply, errno: Option<i32>) -> bool {
        let is_ours = self.with(|inner| {
            let at = inner.entries.get_mut(&unique).filter(|_| !inner.left).map(|entry| {
                entry.state = ANSWERED;
                entry.at
            });
            at.map(|at| inner.answer(at, errno)).is_some()
        });
        match is_ours {
            false => reply.leave(),
            true => {
                reply.answer(errno);
                self.told(unique);
            }
        }
        is_ours
    }

    /// All that are not answered, in their order, and whether their callers got a signal.
    pub(crate) fn pending(&self) -> Vec<(Ask, bool)> {
        self.with(|inner| {
            let asked = inner.entries.values().filter(|entry| entry.state == ASKED);
            let mut all: Vec<(Ask, bool)> = asked
                .filter_map(|entry| {
                    let bytes = inner.memory.get(entry.at * ENTRY_BYTES + ASK_AT..)?;
                    Some((Ask::read_from_prefix(bytes).ok()?.0, entry.signalled))
                })
                .collect();
            all.sort_by_key(|(ask, _)| ask.order);
            all
        })
    }

    /// Whether a request waits whose caller got a signal.
    pub(crate) fn is_signalled(&self, unique: u64) -> bool {
        self.with(|inner| {
            let entry = inner.entries.get(&unique).filter(|entry| entry.state == ASKED);
            entry.is_some_and(|entry| entry.signalled)
        })
    }

    /// The answer to a request is out.
    pub(crate) fn told(&self, unique: u64) {
        self.with(|inner| {
            if let Some(entry) = inner.entries.get_mut(&unique) {
                entry.answered = true;
            }
            inner.tidy(unique);
        });
    }

    /// The caller of a request got a signal. `owes` tells whether a request is in a thread's slot:
    /// of one that is not, nothing is noted, for nobody would let go of it.
    pub(crate) fn interrupt(&self, unique: u64, owes: impl Fn(u64) -> bool) -> Signal {
        let signal = self.signal(unique);
        // Asked after the note was made: a request that leaves its slot later takes it along.
        if matches!(signal, Signal::Noted) && !owes(unique) {
            self.with(|inner| {
                let note = inner.entries.get(&unique).filter(|entry| entry.state == INTERRUPTED);
                if note.is_some() {
                    inner.forget(unique);
                }
            });
        }
        signal
    }

    fn signal(&self, unique: u64) -> Signal {
        self.with(|inner| {
            let Some(entry) = inner.entries.get_mut(&unique) else {
                let note = Ask { unique, ..Ask::new_zeroed() };
                return if inner.enter(&note, INTERRUPTED) { Signal::Noted } else { Signal::Full };
            };
            match entry.ticket {
                Some(ticket) => Signal::Cancel(ticket),
                None => {
                    let at = entry.at;
                    entry.signalled = true;
                    if entry.state == ASKED {
                        inner.memory.store(at * ENTRY_BYTES + ERRNO_AT, SIGNALLED);
                    }
                    Signal::Noted
                }
            }
        })
    }

    /// Of all requests but `open` the callers have answers. Gives the answers to these, as far as
    /// there are any, and the waits of others, for which nobody waits any more.
    pub(super) fn resume(&self, open: &[u64]) -> (Answers, Vec<LockTicket>) {
        self.with(|inner| {
            let numbers: Vec<u64> = inner.entries.keys().copied().collect();
            let (mut answers, mut waits) = (Answers::new(), Vec::new());
            for unique in numbers {
                if !open.contains(&unique) {
                    waits.extend(inner.waits_of(unique));
                    inner.release(unique);
                } else if let Some(errno) = inner.answer_to(unique) {
                    answers.push((unique, Some(errno).filter(|errno| *errno > 0)));
                }
            }
            (answers, waits)
        })
    }

    /// No server will be given request `unique` again.
    pub(crate) fn released(&self, unique: u64) {
        if self.open.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.with(|inner| inner.release(unique));
    }

    /// From now on nothing is answered: what waits is the next server's.
    pub(crate) fn leave(&self) {
        self.inner.lock().left = true;
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }
}
