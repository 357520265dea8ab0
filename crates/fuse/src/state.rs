//! The state memory: what of a connection outlives a server.
//!
//! ```text
//!         0  head: who and what (`Head`), 4 KiB, then the mount point, 4 KiB
//!    8 KiB   what a server notes for the next one (`Memo`), 4 KiB
//!   12 KiB   lock requests, 1 MiB (`locks/asked.rs`)
//!  1 MiB+12K journal of locks, 4 MiB (`locks/journal.rs`)
//!  5 MiB+12K what is open at another machine's engine, 1 MiB (`forward/opened.rs`)
//!  6 MiB+12K slots, one for each thread: 4 KiB and 1 MiB, as many as threads may be
//! ```
//!
//! A thread reads a request from the kernel straight into its slot, 80 bytes before the end of the
//! first page: so the bytes that a write brings begin at a page. The first word of a request is
//! its length. It is zero before the kernel is asked, and zeroed again when the reply has gone out:
//! a length that is not zero is that of a request which was read and not answered. The kernel fills
//! the slot within one system call, which a SIGKILL does not cut in two, unless it meets a page
//! that is not there for this process: it gives up the fault for the signal, and the request with
//! EIO (fs/fuse/dev.c, `fuse_dev_do_read`). So a slot's pages are there before it is read into, and
//! a server that takes the
//! connection over finds all requests that its predecessor owes an answer, and serves them first.
//!
//! The kernel could be asked for them as well (FUSE_NOTIFY_RESEND), but only from Linux 6.9 on, and
//! without their order to requests that it had not handed out yet. This way works everywhere. Of a
//! predecessor killed between its reply and the zero, a request is served twice; the second reply
//! gets ENOENT. That such a change is made once is the engine's (request ids).
//!
//! A slot begins with a count of the requests that were read into it. It is moved on before the
//! kernel is asked, so that no two requests of a slot have the same.
//!
//! Slots that no thread uses take no memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use shm::Area;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::options::THREADS_MAX;
use crate::server::Owes;
use crate::service::REQUEST_BYTES_MAX;
use crate::settings::PAGE_BYTES;
use crate::wire::{InitAnswer, RequestHead, WRITE_HEAD_BYTES};
use crate::{Error, Result};

const HEAD_BYTES: usize = PAGE_BYTES;
/// The longest path that the kernel takes, with its NUL.
const DIR_BYTES_MAX: usize = PAGE_BYTES;
const ASKED_BYTES: usize = 1 << 20;
pub(crate) const JOURNAL_BYTES: usize = 4 << 20;
const OPENED_BYTES: usize = 1 << 20;
const MEMO_AT: usize = HEAD_BYTES + DIR_BYTES_MAX;
const MEMO_BYTES: usize = PAGE_BYTES;
const SLOT_BYTES: usize = PAGE_BYTES + REQUEST_BYTES_MAX;
const SLOTS_AT: usize = MEMO_AT + MEMO_BYTES + ASKED_BYTES + JOURNAL_BYTES + OPENED_BYTES;
/// Where in a slot a request begins.
const REQUEST_AT: usize = PAGE_BYTES - WRITE_HEAD_BYTES;
/// Bytes of the state memory.
pub(crate) const STATE_BYTES: u64 = (SLOTS_AT + SLOT_BYTES * THREADS_MAX) as u64;

const MAGIC: [u8; 8] = *b"NSFUSEST";
/// Grows with every change of this layout.
const VERSION: u32 = 3;

const _: () = assert!(size_of::<Head>() <= HEAD_BYTES);
const _: () = assert!(REQUEST_AT.is_multiple_of(align_of::<u64>()));

/// What is said of a connection.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Head {
    magic: [u8; 8],
    version: u32,
    /// 1 when the kernel's INIT was answered, or is about to be with what stands below.
    pub(crate) is_agreed: u32,
    /// Names the kernel as a client whose requests may be sent again.
    pub(crate) client: [u8; 16],
    /// Servers so far.
    pub(crate) turn: u32,
    /// Slots that were in use at any time.
    pub(crate) slots_used: u32,
    /// What the servers ask for, which the kernel's caches go by.
    pub(crate) wishes: u32,
    pub(crate) dir_bytes: u32,
    /// Major and minor number of the mount.
    pub(crate) device: [u32; 2],
    pub(crate) capabilities: u64,
    pub(crate) answer: InitAnswer,
}

impl Head {
    /// The head of a new connection.
    pub(crate) fn new(client: [u8; 16]) -> Head {
        Head { magic: MAGIC, version: VERSION, client, ..Head::new_zeroed() }
    }

    /// Reads the head of a state memory, which may be anything.
    pub(crate) fn read(state: BorrowedFd<'_>) -> Result<Head> {
        let mut bytes = [0; size_of::<Head>()];
        read_at(state, &mut bytes, 0)?;
        let head = Head::read_from_bytes(&bytes).map_err(|_| FOREIGN)?;
        let is_ours = head.magic == MAGIC && head.dir_bytes as usize <= DIR_BYTES_MAX;
        if !is_ours || rustix::fs::fstat(state).map_err(io)?.st_size as u64 != STATE_BYTES {
            return Err(FOREIGN);
        }
        if head.version != VERSION {
            return Err(Error::Takeover("its state is of another version of nearside"));
        }
        if head.slots_used as usize > THREADS_MAX {
            return Err(FOREIGN);
        }
        Ok(head)
    }

    /// Reads the mount point.
    pub(crate) fn read_dir(&self, state: BorrowedFd<'_>) -> Result<Vec<u8>> {
        let mut dir = vec![0; self.dir_bytes as usize];
        read_at(state, &mut dir, HEAD_BYTES)?;
        Ok(dir)
    }

    /// Writes head and mount point of a new connection.
    pub(crate) fn write(mut self, state: BorrowedFd<'_>, dir: &[u8]) -> Result<()> {
        if dir.len() > DIR_BYTES_MAX {
            return Err(io(Errno::NAMETOOLONG));
        }
        self.dir_bytes = dir.len() as u32;
        write_at(state, dir, HEAD_BYTES)?;
        write_at(state, self.as_bytes(), 0)
    }
}

pub(crate) const FOREIGN: Error = Error::Takeover("its state is not that of a nearside mount");

fn io(errno: Errno) -> Error {
    Error::Session(errno.into())
}

fn read_at(state: BorrowedFd<'_>, bytes: &mut [u8], at: usize) -> Result<()> {
    match rustix::io::pread(state, &mut *bytes, at as u64).map_err(io)? {
        all if all == bytes.len() => Ok(()),
        _ => Err(FOREIGN),
    }
}

fn write_at(state: BorrowedFd<'_>, bytes: &[u8], at: usize) -> Result<()> {
    match rustix::io::pwrite(state, bytes, at as u64).map_err(io)? {
        all if all == bytes.len() => Ok(()),
        _ => Err(io(Errno::NOSPC)),
    }
}

/// Numbers of the requests that were read and not answered.
pub(crate) fn in_flight(state: BorrowedFd<'_>) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    for slot in 0..Head::read(state)?.slots_used as usize {
        let mut head = [0; WRITE_HEAD_BYTES];
        read_at(state, &mut head, SLOTS_AT + slot * SLOT_BYTES + REQUEST_AT)?;
        if let Ok(head) = RequestHead::parse(&head)
            && head.len != 0
            && head.unique != 0
        {
            found.push(head.unique);
        }
    }
    Ok(found)
}

/// Where a server keeps its locks: all zero at first, then as the server before left it.
#[derive(Debug)]
pub(crate) struct LockMemory {
    pub(crate) asked: Area,
    pub(crate) journal: Area,
}

impl LockMemory {
    /// Memory that nobody keeps for another server.
    pub(crate) fn new() -> Result<LockMemory> {
        let memory = shm::create("nearside-locks", (ASKED_BYTES + JOURNAL_BYTES) as u64)?;
        let mut cutter = shm::map(memory.as_fd())?;
        let mut cut = |bytes: usize| cutter.cut(bytes).ok_or(FOREIGN);
        Ok(LockMemory { asked: cut(ASKED_BYTES)?, journal: cut(JOURNAL_BYTES)? })
    }
}

/// What a server notes for the next one; nothing at first.
#[derive(Debug)]
pub(crate) struct Memo(OwnedFd);

impl Memo {
    /// What was noted last.
    pub(crate) fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; MEMO_BYTES];
        read_at(self.0.as_fd(), &mut bytes, MEMO_AT)?;
        let (len, rest) = bytes.split_first_chunk::<4>().ok_or(FOREIGN)?;
        let len = u32::from_ne_bytes(*len) as usize;
        Ok(rest.get(..len).ok_or(FOREIGN)?.to_vec())
    }

    /// Notes this in place of what was there: one call, which a kill does not cut in two.
    pub(crate) fn write(&self, note: &[u8]) -> Result<()> {
        let bytes = [&(note.len() as u32).to_ne_bytes(), note].concat();
        match bytes.len() <= MEMO_BYTES {
            true => write_at(self.0.as_fd(), &bytes, MEMO_AT),
            false => Err(io(Errno::NOSPC)),
        }
    }
}

/// The state memory, mapped by the server whose turn it is.
pub(crate) struct State {
    memory: OwnedFd,
    head: Area,
    /// For the server's locks; taken by it.
    pub(crate) locks: Option<LockMemory>,
    /// For what is open; taken as well.
    pub(crate) opened: Option<Area>,
    pub(crate) slots: Vec<Slot>,
}

impl State {
    /// Maps the state for a server with this many threads. There may be more slots than that: what
    /// an earlier server left in them is to be served.
    pub(crate) fn map(state: BorrowedFd<'_>, threads: usize) -> Result<State> {
        let used = Head::read(state)?.slots_used as usize;
        let mut cutter = shm::map(state)?;
        let mut cut = |bytes: usize| cutter.cut(bytes).ok_or(FOREIGN);
        let head = cut(HEAD_BYTES)?;
        cut(DIR_BYTES_MAX + MEMO_BYTES)?;
        let locks = LockMemory { asked: cut(ASKED_BYTES)?, journal: cut(JOURNAL_BYTES)? };
        let opened = Some(cut(OPENED_BYTES)?);
        let count = threads.max(used);
        let slot = |number| Ok(Slot { number, memory: cut(SLOT_BYTES)? });
        let slots = (0..count).map(slot).collect::<Result<_>>()?;
        let memory = state.try_clone_to_owned().map_err(Error::Session)?;
        let mut state = State { memory, head, locks: Some(locks), opened, slots };
        let turn = state.head()?.turn.wrapping_add(1);
        state.change(|head| {
            head.turn = turn;
            head.slots_used = count as u32;
        })?;
        Ok(state)
    }

    /// What tells whether a request is in a slot, from any thread: as the memory says, for a slot
    /// is its own thread's.
    pub(crate) fn owes(&self) -> Result<Owes> {
        let memory = self.memory.try_clone().map_err(Error::Session)?;
        Ok(Arc::new(move |unique| {
            in_flight(memory.as_fd()).is_ok_and(|found| found.contains(&unique))
        }))
    }

    pub(crate) fn memo(&self) -> Result<Memo> {
        Ok(Memo(self.memory.try_clone().map_err(Error::Session)?))
    }

    pub(crate) fn head(&self) -> Result<Head> {
        Ok(Head::read_from_prefix(&self.head).map_err(|_| FOREIGN)?.0)
    }

    /// Changes the head.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Head)) -> Result<()> {
        let (head, _) = Head::mut_from_prefix(&mut self.head).map_err(|_| FOREIGN)?;
        change(head);
        Ok(())
    }
}

/// What one thread reads requests into.
pub(crate) struct Slot {
    number: usize,
    memory: Area,
}

/// Where in a slot its count is.
const COUNT_AT: std::ops::Range<usize> = 0..8;

impl Slot {
    /// The next request that is read into it has the next count.
    pub(crate) fn count_on(&mut self) {
        let count = self.turn().1 + 1;
        self.memory[COUNT_AT].copy_from_slice(&count.to_ne_bytes());
    }

    /// Its number, and the count of the request in it.
    pub(crate) fn turn(&self) -> (usize, u64) {
        let count = self.memory[COUNT_AT].try_into().map_or(0, u64::from_ne_bytes);
        (self.number, count)
    }

    /// Where a request goes.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.memory[REQUEST_AT..]
    }

    /// Has all its memory there. Without it a kill may cost a caller an error, so where that cannot
    /// be had the mount goes on.
    pub(crate) fn populate(&mut self) {
        if let Err(error) = self.memory.populate() {
            tracing::warn!(%error, "memory for requests");
        }
    }

    /// The request that was read into it.
    pub(crate) fn request(&self) -> &[u8] {
        &self.memory[REQUEST_AT..]
    }

    /// The number of a request that was read into it and not answered.
    pub(crate) fn owed(&self) -> Option<u64> {
        let head = RequestHead::parse(self.request()).ok()?;
        (head.len != 0).then_some(head.unique)
    }

    /// Whether that says that the kernel forgets something.
    pub(crate) fn forgets(&self) -> bool {
        RequestHead::parse(self.request()).is_ok_and(|head| head.is_forget())
    }

    /// The request is answered.
    pub(crate) fn clear(&mut self) {
        self.memory.store(REQUEST_AT, 0);
    }
}
