//! What is known of a machine's memories: what accesses take, how busy each slice's is, and what
//! was made of it.

use crate::core::Core;
use crate::decided::Decisions;
use crate::inode::Inode;
use crate::migrator::Migrator;
use crate::mover::Movers;
use crate::placing::Placing;
use parking_lot::Mutex;
use placement::{Copying, Costs, DataRule, Kind, Levers, ThreadRule};
use pool::Pool;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// How often it is reckoned how busy memories are, ns.
const LOOK_NS: f64 = 1e7;
/// A memory is idle beside another one that is busy for so much more of the time.
const IDLE: f32 = 0.7;
/// No access takes longer than so many times what it takes alone.
const LONGEST: f32 = 4.0;

/// What is known and remembered.
#[derive(Debug)]
pub struct Known {
    /// Tells it from all others of this process.
    pub id: u64,
    /// What accesses take.
    pub costs: Costs,
    /// What this process uses at most.
    pub process: Levers,
    /// What somebody said of the whole pool: the code of a placing.
    pool: AtomicU32,
    /// When data moves,
    pub data: DataRule,
    /// and threads.
    pub threads: ThreadRule,
    began: Instant,
    /// Seconds at hand for a second of the machine.
    stretch: f64,
    loads: Loads,
    /// What was decided lately.
    pub decisions: Decisions,
    /// What is to move.
    pub migrator: Migrator,
    /// Who has moved.
    pub movers: Movers,
}

/// How busy each slice's memory is.
#[derive(Debug)]
struct Loads {
    /// The part of the time, as the bits of a float.
    busy: Box<[AtomicU32]>,
    /// Some memory has hardly any time left.
    any_full: AtomicBool,
    /// When that was reckoned last, ns, as the bits of a float.
    at: AtomicU64,
    /// What had been read and written of each then.
    seen: Mutex<Vec<[u64; 2]>>,
}

impl Known {
    /// Nothing yet, but what accesses take.
    pub fn new(pool: &Pool, costs: Costs) -> Known {
        let (slices, options) = (pool.slices().len(), pool.options());
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Known {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            data: DataRule::weighs(placement::WINDOW_NS),
            threads: options.thread_rule.unwrap_or(ThreadRule::weighs(costs.move_thread_ns)),
            process: options.levers,
            pool: AtomicU32::new(0),
            costs,
            began: Instant::now(),
            stretch: options.emulated.as_ref().map_or(1.0, |it| it.stretch()),
            loads: Loads {
                busy: (0..slices).map(|_| AtomicU32::new(0)).collect(),
                any_full: AtomicBool::new(false),
                at: AtomicU64::new(0),
                seen: Mutex::new(vec![[0; 2]; slices]),
            },
            decisions: Decisions::default(),
            migrator: Migrator::default(),
            movers: Movers::default(),
        }
    }

    /// What is used of this pool, as far as nothing is said of a file.
    pub fn levers(&self) -> Levers {
        // ordering: whoever changed it meanwhile did so before or after what is decided now
        let said = Placing::from_code(self.pool.load(Ordering::Relaxed)).unwrap_or_default();
        self.process.least(said.levers)
    }

    /// What is used of this file.
    pub fn levers_of(&self, inode: &Inode) -> Levers {
        self.levers().least(inode.placing().levers)
    }

    /// Somebody says how far all may move.
    pub fn let_levers(&self, levers: Levers) {
        let said = Placing { levers, ..Placing::default() };
        self.pool.store(said.code(), Ordering::Relaxed);
    }

    /// Time since the pool was opened, ns of the machine.
    pub fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64() / self.stretch * 1e9
    }

    /// The part of the time for which a slice's memory is busy.
    pub fn busy(&self, slice: u8) -> f32 {
        let busy = self.loads.busy.get(usize::from(slice));
        busy.map_or(0.0, |busy| f32::from_bits(busy.load(Ordering::Relaxed)))
    }

    /// Whether a slice's memory has hardly any time left.
    pub fn is_full(&self, slice: u8) -> bool {
        self.loads.any_full.load(Ordering::Relaxed) && self.busy(slice) > self.data.full
    }

    /// A slice that is idle beside this one.
    pub fn idler_than(&self, slice: u8) -> Option<u8> {
        let all = 0..self.loads.busy.len() as u8;
        let idlest = all.min_by(|one, other| self.busy(*one).total_cmp(&self.busy(*other)))?;
        (self.busy(idlest) < IDLE * self.busy(slice)).then_some(idlest)
    }

    /// What an access takes where its memory is as busy as it is, ns.
    pub fn takes(&self, kind: Kind, bytes: u64, slice: u8, is_local: bool) -> f32 {
        let waits = 1.0 / (1.0 - self.busy(slice)).max(1.0 / LONGEST);
        self.costs.takes(kind, bytes, is_local) * waits
    }

    /// What an access from elsewhere loses by that, as busy as the memory is, ns.
    pub fn loses(&self, kind: Kind, bytes: u64, slice: u8) -> f32 {
        let takes = |is_local| self.takes(kind, bytes, slice, is_local);
        (takes(false) - takes(true)).max(0.0)
    }

    /// Whether this slice's memory has no time left, and that one's has.
    pub fn balances(&self, [from, to]: [u8; 2]) -> bool {
        self.is_full(from) && self.busy(to) < IDLE * self.busy(from)
    }

    /// What moving so many bytes from slice to slice is, where an access takes so long.
    pub fn copying(&self, bytes: u64, [from, to]: [u8; 2], access_ns: [f32; 2]) -> Copying {
        let read = self.takes(Kind::Read, bytes, from, false);
        let write = self.takes(Kind::Write, bytes, to, true);
        let [there, here] = [from, to].map(|slice| self.busy(slice).min(1.0));
        Copying { ns: read + write, others_ns: there * read + here * write, access_ns, busy: there }
    }

    /// Looks how busy memories are, if nobody did for a while.
    pub fn look_now(&self, core: &Core) {
        let now = self.now();
        if now - f64::from_bits(self.loads.at.load(Ordering::Relaxed)) >= LOOK_NS {
            self.look(core, now);
        }
    }

    #[cold]
    fn look(&self, core: &Core, now: f64) {
        let at = f64::from_bits(self.loads.at.load(Ordering::Relaxed));
        let Some(mut seen) = self.loads.seen.try_lock().filter(|_| now - at >= LOOK_NS) else {
            return;
        };
        let seconds = (now - at) / 1e9;
        self.loads.at.store(now.to_bits(), Ordering::Relaxed);
        let mut any_full = false;
        for (slice, seen) in seen.iter_mut().enumerate() {
            let moved = core.moved_bytes(slice);
            let rates = [0, 1].map(|kind| moved[kind].saturating_sub(seen[kind]) as f64 / seconds);
            *seen = moved;
            let busy = (self.costs.busy(rates[0], rates[1]) + self.busy(slice as u8)) / 2.0;
            self.loads.busy[slice].store(busy.to_bits(), Ordering::Relaxed);
            any_full |= busy > self.data.full;
        }
        self.loads.any_full.store(any_full, Ordering::Relaxed);
    }
}
