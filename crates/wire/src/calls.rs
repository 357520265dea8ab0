//! Calls through memory that a process shares with the service: how they are asked and answered.
//!
//! ```text
//! 0      parked: the service sleeps, and wants its bell rung
//! 64     slot 0:  +0 state  +4 the caller sleeps  +8 bytes of the message  +12 bytes of the data
//! 128    slot 1 ...
//! 4096   slot 0:  +0 the message, then its answer     +16384 data, either way
//!        slot 1 ...
//! ```
//!
//! Who looks at all slots touches one page: a process that does nothing has no others.
//!
//! A call has a slot to itself. Its process stores what it asks and then the state, the service
//! stores the answer and then the state. Each side sleeps when the other one takes long, and says
//! so before: the other one wakes it.
//!
//! The memory is the process's to scribble over, so the service believes nothing of it: it copies a
//! message once and looks at the copy, holds lengths to what a slot has, and knows by itself which
//! calls it is at ([`Served`]). A process believes the service.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering, fence};
use std::time::Duration;

use locks::futex::EventCount;
use parking_lot::Mutex;
use shm::Shared;

/// Slots of a process: calls that it can have under way.
pub const SLOTS: usize = 32;
/// Of these, slots that are kept for pages of copies: a thread that waits for a page may have one
/// of the others.
pub const SLOTS_KEPT: usize = 4;
/// Longest message or answer, bytes: two paths and a name fit.
pub const MESSAGE_BYTES_MAX: usize = SLOT_DATA_AT;
/// Most data that comes with a call or its answer: one atomic write.
pub const DATA_BYTES_MAX: usize = fs::ATOMIC_WRITE_BYTES_MAX;

const PARKED_AT: usize = 0;
const WORDS_AT: usize = 64;
const WORDS_BYTES: usize = 64;
const SLOTS_AT: usize = 4096;
const STATE_AT: usize = 0;
const SLEEPS_AT: usize = 4;
const MESSAGE_LEN_AT: usize = 8;
const DATA_LEN_AT: usize = 12;
const SLOT_DATA_AT: usize = 16 << 10;
const SLOT_BYTES: usize = SLOT_DATA_AT + DATA_BYTES_MAX;

const _: () = assert!(WORDS_AT + SLOTS * WORDS_BYTES <= SLOTS_AT);

const FREE: u32 = 0;
const ASKED: u32 = 1;
const ANSWERED: u32 = 2;
/// The service has gone, and answers no more.
const LOST: u32 = 3;

/// Looks at the state of a call before its caller sleeps.
const SPINS: u32 = 2000;
/// Looks without a pause for who should answer, and may wait for this very CPU.
const SPINS_ALONE: u32 = 40;
/// A caller who sleeps looks again after that, whoever should have woken it.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Makes the memory for the calls of one process.
pub fn create() -> shm::Result<OwnedFd> {
    shm::create("nearside-calls", (SLOTS_AT + SLOTS * SLOT_BYTES) as u64)
}

/// Memory for calls of which every place that the functions here name is inside.
fn map(memory: BorrowedFd<'_>) -> shm::Result<Shared> {
    let shared = Shared::map(memory)?;
    match shared.len() >= SLOTS_AT + SLOTS * SLOT_BYTES {
        true => Ok(shared),
        false => Err(shm::Error::Foreign),
    }
}

/// Where the words of a slot are.
fn words_at(slot: usize) -> usize {
    WORDS_AT + slot * WORDS_BYTES
}

/// Where its message is, and behind that its data.
fn slot_at(slot: usize) -> usize {
    SLOTS_AT + slot * SLOT_BYTES
}

/// The side of the process that calls.
#[derive(Debug)]
pub struct Calls {
    memory: Shared,
    is_lost: AtomicBool,
}

/// Which slots of a process are free. A call keeps its slot when it is sent again to the next
/// service, which has memory of its own.
#[derive(Debug)]
pub struct Slots {
    usual: Free,
    kept: Free,
}

/// Some that are free.
#[derive(Debug)]
struct Free {
    slots: Mutex<Vec<usize>>,
    freed: EventCount,
}

impl Default for Slots {
    fn default() -> Slots {
        // the one that was used last is taken next: its pages are there
        let usual = (0..SLOTS - SLOTS_KEPT).rev().collect();
        let kept = (SLOTS - SLOTS_KEPT..SLOTS).rev().collect();
        let [usual, kept] =
            [usual, kept].map(|slots| Free { slots: Mutex::new(slots), freed: EventCount::new() });
        Slots { usual, kept }
    }
}

impl Slots {
    /// Takes one; waits until there is one.
    pub fn take(&self) -> Slot<'_> {
        self.usual.take()
    }

    /// Takes one if there is one.
    pub fn try_take(&self) -> Option<Slot<'_>> {
        let number = self.usual.slots.lock().pop()?;
        Some(Slot { of: &self.usual, number })
    }

    /// Takes one of those that are kept for pages.
    pub fn take_kept(&self) -> Slot<'_> {
        self.kept.take()
    }
}

impl Free {
    fn take(&self) -> Slot<'_> {
        let pop = || self.slots.lock().pop();
        let number = pop().unwrap_or_else(|| self.freed.wait_until(pop));
        Slot { of: self, number }
    }
}

/// The service has gone: whether it did what it was asked is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost;

/// A slot that is this call's.
#[derive(Debug)]
pub struct Slot<'s> {
    of: &'s Free,
    number: usize,
}

impl Slot<'_> {
    /// Which one.
    pub fn number(&self) -> usize {
        self.number
    }
}

impl Calls {
    /// Over the memory that the service made.
    pub fn new(memory: BorrowedFd<'_>) -> shm::Result<Calls> {
        Ok(Calls { memory: map(memory)?, is_lost: AtomicBool::new(false) })
    }

    /// Asks `message`, with `data`, in a slot that is the caller's alone meanwhile, and waits for
    /// the answer: its message goes to `answer`, and its data to the beginning of `into`. `ring`
    /// wakes the service.
    ///
    /// # Errors
    /// The service has gone before it answered.
    ///
    /// # Panics
    /// If the message or the data are longer than a slot has room for, or there is no such slot.
    pub fn ask(
        &self,
        slot: usize,
        message: &[u8],
        data: &[u8],
        ring: &dyn Fn(),
        answer: &mut Vec<u8>,
        into: &mut [u8],
    ) -> Result<usize, Lost> {
        assert!(message.len() <= MESSAGE_BYTES_MAX && data.len() <= DATA_BYTES_MAX, "it fits");
        assert!(slot < SLOTS, "there is such a slot");
        let at = words_at(slot);
        self.memory.store(slot_at(slot), message);
        self.memory.store(slot_at(slot) + SLOT_DATA_AT, data);
        let state = self.memory.word(at + STATE_AT);
        self.memory.word(at + SLEEPS_AT).store(0, Ordering::Relaxed);
        self.memory.word(at + MESSAGE_LEN_AT).store(message.len() as u32, Ordering::Relaxed);
        self.memory.word(at + DATA_LEN_AT).store(data.len() as u32, Ordering::Relaxed);
        shm::publish(state, ASKED);
        let parked = self.memory.word(PARKED_AT);
        // ordering: pairs with the fence of `Served::park`: it sees the call, or this its sleep
        fence(Ordering::SeqCst);
        if parked.load(Ordering::Relaxed) != 0 && parked.swap(0, Ordering::Relaxed) != 0 {
            ring();
        }
        let answered = self.wait(at);
        let _over = Over(state);
        answered?;
        let word = |place| self.memory.word(at + place).load(Ordering::Relaxed) as usize;
        answer.resize(word(MESSAGE_LEN_AT).min(MESSAGE_BYTES_MAX), 0);
        self.memory.load(slot_at(slot), answer);
        let len = word(DATA_LEN_AT).min(into.len());
        self.memory.load(slot_at(slot) + SLOT_DATA_AT, &mut into[..len]);
        Ok(len)
    }

    fn wait(&self, at: usize) -> Result<(), Lost> {
        let state = self.memory.word(at + STATE_AT);
        let mut spins = 0;
        loop {
            match state.load(Ordering::Acquire) {
                ANSWERED => return Ok(()),
                LOST => return Err(Lost),
                _ if self.is_lost.load(Ordering::SeqCst) => return Err(Lost),
                _ if spins < SPINS => {
                    spins += 1;
                    std::hint::spin_loop();
                    if spins % SPINS_ALONE == 0 {
                        std::thread::yield_now();
                    }
                }
                seen => {
                    shm::publish(self.memory.word(at + SLEEPS_AT), 1);
                    shm::sleep_at(state, seen, Some(SLEEP_MAX));
                }
            }
        }
    }

    /// The service has gone: ends all calls, those to come as well.
    pub fn lose(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
        for slot in 0..SLOTS {
            let state = self.memory.word(words_at(slot) + STATE_AT);
            let _ = state.compare_exchange(ASKED, LOST, Ordering::SeqCst, Ordering::Relaxed);
            shm::wake_all(state);
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.of.slots.lock().push(self.number);
        self.of.freed.notify_one();
    }
}

/// The state of a call that is over.
struct Over<'c>(&'c AtomicU32);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(FREE, Ordering::Relaxed);
    }
}

/// The side of the service.
#[derive(Debug)]
pub struct Served {
    memory: Shared,
    /// How far each slot's call is, whatever its state in the memory says.
    progress: [AtomicU8; SLOTS],
}

/// Nothing of the slot is being served.
const IDLE: u8 = 0;
/// Its call is being served.
const SERVING: u8 = 1;
/// It is being answered: when it is seen as asked, that may be the next call already.
const ANSWERING: u8 = 2;

/// A call that was taken, and is to be answered, by its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    slot: usize,
    /// Bytes of data that came with it.
    pub data_len: usize,
}

impl Taken {
    /// A call that came otherwise than through memory.
    pub fn of(slot: usize, data_len: usize) -> Taken {
        Taken { slot, data_len }
    }

    /// Which slot it has.
    pub fn slot(&self) -> usize {
        self.slot
    }
}

impl Served {
    /// Over memory that [`create`] made.
    pub fn new(memory: BorrowedFd<'_>) -> shm::Result<Served> {
        let progress = std::array::from_fn(|_| AtomicU8::new(IDLE));
        Ok(Served { memory: map(memory)?, progress })
    }

    /// Takes the next call that waits, from slot `from` on; its message goes to `message`.
    pub fn take(&self, from: usize, message: &mut Vec<u8>) -> Option<Taken> {
        (from..SLOTS).find_map(|slot| self.take_slot(slot, message))
    }

    fn take_slot(&self, slot: usize, message: &mut Vec<u8>) -> Option<Taken> {
        let at = words_at(slot);
        let is_asked = || self.memory.word(at + STATE_AT).load(Ordering::Acquire) == ASKED;
        let progress = &self.progress[slot];
        // ordering: Acquire: after all that was done for the slot's call before
        let (ours, theirs) = (Ordering::Acquire, Ordering::Relaxed);
        if !is_asked() || progress.compare_exchange(IDLE, SERVING, ours, theirs).is_err() {
            return None;
        }
        // another thread may have answered it between the two looks
        if !is_asked() {
            progress.store(IDLE, Ordering::Release);
            return None;
        }
        let word = |place| self.memory.word(at + place).load(Ordering::Relaxed) as usize;
        message.resize(word(MESSAGE_LEN_AT).min(MESSAGE_BYTES_MAX), 0);
        self.memory.load(slot_at(slot), message);
        Some(Taken { slot, data_len: word(DATA_LEN_AT).min(DATA_BYTES_MAX) })
    }

    /// Copies the data that came with a call.
    ///
    /// # Panics
    /// If that is more than a slot has.
    pub fn data(&self, taken: Taken, buffer: &mut [u8]) {
        assert!(buffer.len() <= DATA_BYTES_MAX, "it fits");
        self.memory.load(slot_at(taken.slot) + SLOT_DATA_AT, buffer);
    }

    /// Answers a call, which is over then.
    ///
    /// # Panics
    /// If the message or the data are longer than a slot has room for.
    pub fn answer(&self, taken: Taken, message: &[u8], data: &[u8]) {
        assert!(message.len() <= MESSAGE_BYTES_MAX && data.len() <= DATA_BYTES_MAX, "it fits");
        let at = words_at(taken.slot);
        self.memory.store(slot_at(taken.slot), message);
        self.memory.store(slot_at(taken.slot) + SLOT_DATA_AT, data);
        self.memory.word(at + MESSAGE_LEN_AT).store(message.len() as u32, Ordering::Relaxed);
        self.memory.word(at + DATA_LEN_AT).store(data.len() as u32, Ordering::Relaxed);
        let state = self.memory.word(at + STATE_AT);
        let progress = &self.progress[taken.slot];
        // ordering: before the state changes, for who looks at both in the other order (`park`)
        progress.store(ANSWERING, Ordering::SeqCst);
        // Only what was asked becomes answered: a process that gave the slot up uses it anew.
        let _ = state.compare_exchange(ASKED, ANSWERED, Ordering::SeqCst, Ordering::Relaxed);
        // ordering: Release: who takes this slot next does so after all that was done here
        progress.store(IDLE, Ordering::Release);
        if self.memory.word(at + SLEEPS_AT).load(Ordering::SeqCst) != 0 {
            shm::wake_all(state);
        }
    }

    /// From now on the process rings before it asks. False: it has asked something already, and the
    /// service is to look again.
    pub fn park(&self) -> bool {
        let parked = self.memory.word(PARKED_AT);
        parked.store(1, Ordering::Relaxed);
        // ordering: pairs with the fence of `ask`
        fence(Ordering::SeqCst);
        let asks = |slot: usize| {
            let state = self.memory.word(words_at(slot) + STATE_AT).load(Ordering::SeqCst);
            state == ASKED && self.progress[slot].load(Ordering::SeqCst) != SERVING
        };
        let asked = (0..SLOTS).any(asks);
        if asked {
            parked.store(0, Ordering::Relaxed);
        }
        !asked
    }
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
