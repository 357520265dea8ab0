//! One attached process.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fs::{LockTicket, RequestId};
use nearside::Pool;
use parking_lot::Mutex;
use wire::{Flags, Proof, Reply, Said, Taken};

use crate::bounds::Bounds;
use crate::cache_calls::Cache;
use crate::copies::Copies;
use crate::gate::Certified;
use crate::holders::{Holders, Side};
use crate::identity::Identities;
use crate::lane_calls::Lane;
use crate::leases::Leases;
use crate::line::Line;
use crate::mount::Mounted;
use crate::opened::Table;
use crate::transact::Stage;

/// Threads that serve long calls of one process.
const SLOW_MAX: usize = 8;

/// One attached process.
#[derive(Debug)]
pub struct Session {
    /// Its number among the sessions of this service; it is that of its socket and of its bell in
    /// what the workers wait for.
    pub number: u64,
    /// The pool as this process may use it.
    pub pool: Pool,
    /// What it asks through.
    pub line: Line,
    /// What it has open.
    pub opened: Table,
    /// Who it is, also to the next service.
    pub client: u128,
    /// By which certificate it was let in, if by one.
    pub certified: Option<Certified>,
    /// Nothing that it asks for changes anything.
    pub read_only: bool,
    identities: Arc<Identities>,
    holders: Arc<Holders>,
    /// It is written down there.
    has_locks: AtomicBool,
    /// What it writes by itself.
    pub lane: Lane,
    /// What it has mapped.
    pub copies: Copies,
    /// What it has read.
    pub cache: Cache,
    /// Parts of transactions that are longer than a call.
    pub stage: Stage,
    /// The mount that it has, if it is one's: then it asks nothing else.
    pub mount: Option<Arc<Mounted>>,
    /// The last call of each slot, by its count.
    counts: [AtomicU64; wire::SLOTS],
    /// The waits of calls for locks, by slot; also of some that are over.
    waits: Mutex<[Option<LockTicket>; wire::SLOTS]>,
    has_ended: AtomicBool,
    /// Its connection is lost.
    is_lost: AtomicBool,
    /// It has made a call: so it has heard what it was welcomed with.
    has_called: AtomicBool,
    /// Its calls that may take long.
    slow: Mutex<Slow>,
}

/// Who a session is for.
#[derive(Debug)]
pub struct Who {
    /// The process.
    pub client: u128,
    /// The pool as it may use it.
    pub pool: Pool,
    /// Nothing that it asks for changes anything.
    pub read_only: bool,
    /// By which certificate it was let in, if by one.
    pub certified: Option<Certified>,
}

/// Calls that may take long.
#[derive(Debug, Default)]
struct Slow {
    /// Threads that serve them.
    threads: usize,
    /// Those that wait for one of the threads, of which there is one then; each has a slot.
    waiting: VecDeque<(Taken, Vec<u8>)>,
}

/// How a call that may take long is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// By a thread of its own, or that ends with it.
    InThread,
    /// By one that serves another one now.
    Waits,
    /// By whoever took it.
    Here,
}

/// What a call is, by its count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// The next one of its slot.
    Next(RequestId),
    /// The last one, which may have been made before.
    Again(RequestId),
    /// One whose answer has come, as the process has said by a later one.
    Past,
}

impl Session {
    pub fn new(
        number: u64,
        who: Who,
        (identities, holders): (Arc<Identities>, Arc<Holders>),
        line: Line,
        (leases, bounds): (Option<Arc<Leases>>, &Bounds),
    ) -> Session {
        let Who { client, pool, read_only, certified } = who;
        let is_remote = line.is_remote();
        let room = if is_remote { &bounds.copies_there } else { &bounds.copies };
        let copies = Copies::new(room.clone());
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        for (slot, count) in pool.fs().requests_of(client).iter().filter_map(RequestId::slot) {
            counts.get(usize::from(slot)).inspect(|last| last.store(count, Ordering::Relaxed));
        }
        Session {
            number,
            client,
            certified,
            read_only,
            identities,
            holders,
            has_locks: AtomicBool::new(false),
            counts,
            pool,
            line,
            lane: Lane::new(leases),
            copies,
            cache: Cache::new(bounds),
            stage: Stage::new(bounds.staged.clone()),
            opened: Table::default(),
            mount: None,
            waits: Mutex::default(),
            has_ended: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            has_called: AtomicBool::new(false),
            slow: Mutex::default(),
        }
    }

    /// Says something to the process.
    pub fn send(&self, said: &Said, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        self.line.send(said, descriptors)
    }

    /// What follows is done for a slot of this process, as recordings tell callers apart: not as
    /// threads of this one have numbers.
    pub fn trace_as(&self, slot: usize) {
        nearside::files::trace_as(1 << 63 | self.number << 8 | slot as u64);
    }

    /// A call of this count begins; the one before it in its slot is answered, therefore.
    pub fn turn(&self, slot: usize, count: u64) -> Turn {
        // ordering: a slot has one call at a time, and who takes it next comes after
        let last = self.counts[slot].load(Ordering::Relaxed);
        if count == 0 || count < last || count > RequestId::COUNT_MAX {
            return Turn::Past;
        }
        if !self.has_called.load(Ordering::Relaxed) && !self.has_called.swap(true, Ordering::SeqCst)
        {
            self.goes_on();
        }
        let id = |count| RequestId::of_slot(self.client, slot as u8, count);
        if count == last {
            return Turn::Again(id(count));
        }
        if last > 0 {
            self.pool.fs().acknowledge(id(last));
        }
        self.counts[slot].store(count, Ordering::Relaxed);
        Turn::Next(id(count))
    }

    /// It makes its first call: so it has heard what it was welcomed with.
    fn goes_on(&self) {
        if self.identities.given_up.remove(self.client) {
            // it asks for none of that again
            self.pool.fs().forget_client(self.client);
        }
    }

    /// Whose process it is.
    pub fn user(&self) -> u32 {
        self.pool.caller().map_or(0, |caller| caller.uid())
    }

    /// What shows that it has this open.
    pub fn proof(&self, number: u64, ino: u64, flags: Option<Flags>) -> Proof {
        self.identities.proof(self.client, number, ino, flags)
    }

    /// It is about to get a lock: the next service is to know that it may have some.
    pub fn has_locks(&self) {
        if !self.has_locks.load(Ordering::SeqCst) {
            let side = if self.line.is_remote() { Side::There } else { Side::Here };
            self.has_locks.store(self.holders.add(self.client, side), Ordering::SeqCst);
        }
    }

    /// The number of the service among those of the pool.
    pub fn service(&self) -> u64 {
        self.identities.service()
    }

    /// A call that may take long: whether it is to get a thread of its own, which `may_begin` says
    /// in the end. Where others of the process have threads already, it may wait for one of them.
    pub fn begin_slow(
        &self,
        taken: Taken,
        message: &[u8],
        may_begin: impl FnOnce() -> bool,
    ) -> Begin {
        let mut slow = self.slow.lock();
        if slow.threads < SLOW_MAX && may_begin() {
            slow.threads += 1;
            return Begin::InThread;
        }
        if slow.threads == 0 {
            return Begin::Here;
        }
        slow.waiting.push_back((taken, message.to_vec()));
        Begin::Waits
    }

    /// A thread of its long calls is done with one: the next; none: it has ended.
    pub fn next_slow(&self) -> Option<(Taken, Vec<u8>)> {
        let mut slow = self.slow.lock();
        let next = slow.waiting.pop_front();
        if next.is_none() {
            slow.threads -= 1;
        }
        next
    }

    /// Whether the process is gone.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Whether nothing that it asked has to be answered any more.
    pub fn is_gone(&self) -> bool {
        self.has_ended() || self.is_lost.load(Ordering::SeqCst)
    }

    /// Answers a call.
    pub fn answer(&self, taken: Taken, reply: &Reply, data: &[u8]) {
        let message = wire::encode(reply, Vec::new()).unwrap_or_default();
        self.line.answer(taken, &message, data);
    }

    /// The wait of a call for a lock, to be ended with the session.
    pub fn add_wait(&self, taken: Taken, ticket: LockTicket) {
        self.waits.lock()[taken.slot()] = Some(ticket);
        if self.is_gone() {
            self.cancel_waits();
        }
    }

    fn cancel_waits(&self) {
        let waits = std::mem::take(&mut *self.waits.lock());
        for ticket in waits.into_iter().flatten() {
            self.pool.fs().cancel_lock(ticket);
        }
    }

    /// The connection is lost, and the process may come back over another one: it keeps what it has
    /// open, and asks nothing more until then. False: its connection is not one that could be lost.
    pub fn lose(&self) -> bool {
        let Line::Stream(stream) = &self.line else { return false };
        self.is_lost.store(true, Ordering::SeqCst);
        stream.close();
        // nothing is told there any more, and nothing shown
        self.copies.end(self.pool.fs());
        // who comes back asks for these again
        self.cancel_waits();
        true
    }

    /// What came makes no sense: nothing more is taken from there.
    pub fn break_off(&self, why: &str) {
        if let Line::Stream(stream) = &self.line {
            stream.break_off(&why);
        }
    }

    /// Whether this session, whose connection is lost, is another one's from now on. Not while
    /// calls of it are under way, which are to be made once.
    pub fn retire(&self) -> bool {
        matches!(&self.line, Line::Stream(stream) if stream.is_idle())
            && !self.has_ended.swap(true, Ordering::SeqCst)
    }

    /// Goes on with what a session had that has retired.
    pub fn inherit(&self, last: &Session) {
        for (count, last) in self.counts.iter().zip(&last.counts) {
            count.store(last.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        last.stage.clear();
        self.opened.inherit(&last.opened);
    }

    /// The process is gone, or is to go: what it had open is closed, and its locks end.
    pub fn end(&self) {
        if self.has_ended.swap(true, Ordering::SeqCst) {
            return;
        }
        self.cancel_waits();
        self.lane.end();
        self.copies.end(self.pool.fs());
        self.cache.end();
        self.stage.clear();
        drop(self.opened.clear());
        self.mount.iter().for_each(|mount| mount.end());
        // what it is at is forgotten by who is at it
        self.pool.fs().forget_client(self.client);
        self.line.shut();
    }
}
