//! Calls as they happen, for who plays them again elsewhere (`nearside trace`).
//!
//! While nobody records, a call looks at one flag, and that is all. While somebody does, each read,
//! write and append of an open file is noted when it is over, apart by CPU, as long as there is
//! room; who records takes them away again and again. Where he does not for a while the recording
//! ends by itself, and it ends when another one begins: each has a number, by which who records
//! learns of that. Neither what attached processes read and write by themselves is such a call, nor
//! what transactions do.

use crate::extents::ExtentOn;
use crate::inode::Inode;
use crate::system::FileSystem;
use crate::types::Ino;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use placement::Kind;
use pool::Pool;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use topology::place_of;

/// Calls that wait to be taken, at most, of all shards.
const CALLS_MAX: usize = 1 << 16;
/// Shards at most.
const SHARDS_MAX: usize = 64;
/// A recording ends when nobody has taken anything for so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracedCall {
    /// When it began, ns since the pool was opened.
    pub began_ns: u64,
    /// How long it took, ns.
    pub took_ns: u64,
    /// Who made it, as the door that served it tells callers apart; a thread's number else.
    pub caller: u64,
    /// The slice near the CPU on which it was served.
    pub slice: u8,
    /// What it did.
    pub kind: Kind,
    /// The file.
    pub ino: Ino,
    /// Where in it,
    pub offset: u64,
    /// and how many bytes.
    pub bytes: u64,
}

/// What was recorded since it was taken last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Traced {
    /// Calls, by when they began.
    pub calls: Vec<TracedCall>,
    /// Calls for which there was no room.
    pub lost: u64,
}

/// Where a file that was traced lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracedFile {
    /// Its size, bytes.
    pub bytes: u64,
    /// The slice on which it begins, if that is known.
    pub first: Option<u8>,
}

#[derive(Debug, Default)]
struct Shard {
    calls: Vec<TracedCall>,
    lost: u64,
}

/// Who records.
#[derive(Debug)]
pub struct Tracer {
    is_on: AtomicBool,
    /// The number of the recording, the next one's if there is none.
    number: AtomicU64,
    /// Calls that wait.
    waiting: AtomicUsize,
    began: Instant,
    /// When something was taken last, ns after that.
    taken_ns: AtomicU64,
    shards: Box<[CachePadded<Mutex<Shard>>]>,
}

thread_local! {
    static CALLER: Cell<u64> = const { Cell::new(0) };
}

/// What the calling thread does from now on it does for this caller (0: for itself), as far as a
/// recording tells callers apart.
#[inline]
pub fn trace_as(caller: u64) {
    CALLER.set(caller);
}

impl Tracer {
    /// Nobody records.
    pub fn new(pool: &Pool) -> Tracer {
        let shards = pool.nodes().cpus().clamp(1, SHARDS_MAX);
        Tracer {
            is_on: AtomicBool::new(false),
            number: AtomicU64::new(1),
            waiting: AtomicUsize::new(0),
            began: Instant::now(),
            taken_ns: AtomicU64::new(0),
            shards: (0..shards).map(|_| CachePadded::default()).collect(),
        }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    #[cold]
    fn note(&self, call: TracedCall, cpu: usize) {
        let waited = call.began_ns.saturating_sub(self.taken_ns.load(Ordering::Relaxed));
        if waited > PATIENCE.as_nanos() as u64 {
            return self.end();
        }
        let Some(shard) = self.shards.get(place_of(cpu, self.shards.len())) else { return };
        let mut shard = shard.lock();
        // ordering: a bound of their sum, more or less
        match self.waiting.fetch_add(1, Ordering::Relaxed) < CALLS_MAX {
            true => shard.calls.push(call),
            false => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                shard.lost += 1;
            }
        }
    }

    fn begin(&self) -> u64 {
        self.end();
        self.taken_ns.store(self.now_ns(), Ordering::Relaxed);
        // ordering: a call that began before is none of this recording
        self.is_on.store(true, Ordering::Relaxed);
        self.number.load(Ordering::Relaxed)
    }

    /// Nothing of a recording that has ended.
    fn take(&self, number: u64) -> Option<Traced> {
        let is_it =
            self.is_on.load(Ordering::Relaxed) && self.number.load(Ordering::Relaxed) == number;
        if !is_it {
            return None;
        }
        self.taken_ns.store(self.now_ns(), Ordering::Relaxed);
        let mut all = Traced::default();
        for shard in &self.shards {
            let Shard { calls, lost } = std::mem::take(&mut *shard.lock());
            self.waiting.fetch_sub(calls.len(), Ordering::Relaxed);
            all.calls.extend(calls);
            all.lost += lost;
        }
        all.calls.sort_by_key(|call| call.began_ns);
        Some(all)
    }

    fn end(&self) {
        self.number.fetch_add(1, Ordering::Relaxed);
        self.is_on.store(false, Ordering::Relaxed);
        for shard in &self.shards {
            let Shard { calls, .. } = std::mem::take(&mut *shard.lock());
            self.waiting.fetch_sub(calls.len(), Ordering::Relaxed);
        }
    }
}

impl FileSystem {
    /// A call begins: when that is, or 0 where nobody records.
    #[inline]
    pub(crate) fn trace_began(&self) -> u64 {
        let tracer = &self.core.tracer;
        if tracer.is_on.load(Ordering::Relaxed) { tracer.now_ns() } else { 0 }
    }

    /// It is over, and was about so many bytes.
    #[inline]
    pub(crate) fn trace_done(&self, began_ns: u64, inode: &Inode, about: (Kind, u64, usize)) {
        if began_ns != 0 {
            self.traced(began_ns, inode.ino, about);
        }
    }

    #[cold]
    fn traced(&self, began_ns: u64, ino: Ino, (kind, offset, bytes): (Kind, u64, usize)) {
        if bytes == 0 {
            return;
        }
        let (tracer, cpu) = (&self.core.tracer, topology::current_cpu() as usize);
        let caller = match CALLER.get() {
            0 => u64::from(topology::current_thread()),
            caller => caller,
        };
        let call = TracedCall {
            began_ns,
            took_ns: tracer.now_ns().saturating_sub(began_ns),
            caller,
            slice: self.core.pool.nodes().near(cpu),
            kind,
            ino,
            offset,
            bytes: bytes as u64,
        };
        tracer.note(call, cpu);
    }

    /// Records the reads, writes and appends of open files from now on, and no more for whoever did
    /// before; gives the recording's number. If nobody takes anything for ten seconds it ends.
    pub fn begin_trace(&self) -> u64 {
        self.core.tracer.begin()
    }

    /// What was recorded since the last time; nothing of a recording that has ended.
    pub fn trace(&self, number: u64) -> Option<Traced> {
        self.core.tracer.take(number)
    }

    /// Ends a recording, if it has not ended before; gives what was not taken of it.
    pub fn end_trace(&self, number: u64) -> Option<Traced> {
        let rest = self.core.tracer.take(number)?;
        self.core.tracer.end();
        Some(rest)
    }

    /// Where a file lies, for who has calls about it; none if it is gone.
    pub fn traced_file(&self, ino: Ino) -> Option<TracedFile> {
        let bytes = self.getattr(ino).ok()?.size;
        let (extents, _) = self.extents(ino, 0, 1).ok()?;
        let first = extents.first().and_then(|extent| match extent.on {
            ExtentOn::Slice(slice) => Some(slice),
            ExtentOn::Device(_) => None,
        });
        Some(TracedFile { bytes, first })
    }
}
