//! The engine of one file system: its pool, the inodes in DRAM, and how a change is made.
//!
//! A change: pass the gate, take locks, write data to new blocks, append one record (one fence),
//! publish in DRAM, let go. Nothing is published before its fence; nobody waits for log space or a
//! checkpoint while holding a lock.

use crate::background::Signals;
use crate::by_slice::BySlice;
use crate::caches;
use crate::change_dues::ChangeDues;
use crate::delegate::Delegation;
use crate::dirty::DirtyInodes;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode_table::{self, InodeTable};
use crate::item::REQUEST_BYTES;
use crate::layout::Stripes;
use crate::leased::{AllRecalled, Lending, has_spare};
use crate::locks::Locks;
use crate::log_pace::LogPace;
use crate::meter::Meter;
use crate::observer::Observer;
use crate::references::References;
use crate::refused::Refusals;
use crate::request;
use crate::resilver::Resilvering;
use crate::stats::CheckpointTimes;
use crate::take_over::Inherited;
use crate::tickets::Tickets;
use crate::tracer::Tracer;
use crate::traffic::Traffic;
use crate::write_back::WriteBack;
use ::locks::Mutex;
use pmem::{InFlight, Process};
use pool::tree::Key;
use pool::{Atime, BlockAddr, Pool, RecordBuffer, Slice};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use tier::Tier;

/// Most units of one checkpoint: what the cut encodes while changes wait.
const DIRTY_MAX: u64 = 1 << 18;
/// What changed since the last cut is not evicted: it stays below a share of the memory for caches.
const MEMORY_PER_UNIT: u64 = 512;
/// Units that new pages hold at least: they are half full or better.
const UNITS_PER_PAGE: u64 = 32;

/// What an entry of a directory takes in DRAM.
pub const DIRENT_BYTES: u64 = 128;
/// Entries of directories take an eighth of the memory for caches.
const MEMORY_PER_DIRENT: u64 = 8 * DIRENT_BYTES;

/// The part of what may change before a checkpoint that one record may.
const RECORD_SHARE: u64 = 8;

/// The engine of one file system.
#[derive(Debug)]
pub struct Core {
    /// Who opened the pool.
    pub process: Process,
    /// The pool below.
    pub pool: Pool,
    /// Key of the hash of names.
    pub hash_key: [u8; 16],
    /// Who copies what is large.
    pub delegation: Delegation,
    /// The capacity tier, if the pool has one.
    pub tier: Option<Tier>,
    /// What is to be moved there.
    pub write_back: WriteBack,
    /// How fast changes may come.
    pub log_pace: LogPace,
    /// Who copied what.
    pub traffic: Traffic,
    /// Bytes that moved to slices from others.
    pub arrived: BySlice,
    /// What accesses have lost for where their data is.
    pub observer: Observer,
    /// Who records calls.
    pub tracer: Tracer,
    /// How stripes lie over the slices.
    pub stripes: Stripes,
    /// Longest payload of a record, apart from the id of a request.
    pub payload_max: usize,
    /// Whether small writes change blocks in place.
    pub stores_in_place: bool,
    /// The inodes in DRAM.
    pub table: InodeTable,
    /// Inodes that changed since the last cut.
    pub dirty: DirtyInodes,
    /// Values of the trees (of inodes, leaves, patches, entries) that changed since the last cut,
    /// in units of about 64 bytes.
    pub dirty_units: AtomicU64,
    /// More than that are not let in before a checkpoint: set at each cut by the reserve and the
    /// trees' size.
    pub dirty_max: AtomicU64,
    /// Inodes of the last complete checkpoint, to be tidied at the next cut.
    pub folded: Mutex<Vec<Arc<Inode>>>,
    /// What a change does before its call returns.
    pub dues: ChangeDues,
    /// Changes that are to be let in with more than a record's units: others leave them room.
    pub long_waiting: AtomicU64,
    /// How many places blocks have that may have several.
    pub references: References,
    /// Requests that are done and may not be answered.
    pub tickets: Tickets,
    /// Inodes that clients of an earlier server may hold.
    pub inherited: Inherited,
    /// Who lends files to others.
    pub lending: Lending,
    /// Inodes that exist.
    pub inodes: AtomicI64,
    /// One checkpoint at a time.
    pub checkpointing: Mutex<()>,
    /// Whether a thread makes checkpoints in the background.
    pub background: AtomicBool,
    /// Directory moves, one at a time.
    pub moves: Mutex<()>,
    /// Inodes that DRAM may cache.
    pub inodes_max: usize,
    /// Bytes of DRAM in leaves.
    pub leaf_bytes: BySlice,
    /// More than that, and clean leaves are let go at a checkpoint.
    pub leaf_bytes_max: u64,
    /// Entries of directories in DRAM.
    pub dirents: BySlice,
    /// More than that, and those that the tree has are let go at a checkpoint.
    pub dirents_max: u64,
    /// Whether reads move the time of the last read on.
    pub keeps_accessed: bool,
    /// Times of the last read up to this one are a day old, ns.
    pub accessed_too_old: AtomicI64,
    /// What was read while a checkpoint was being cut.
    pub accessed_late: Mutex<Vec<Arc<Inode>>>,
    /// Locks that programs hold on files.
    pub locks: Locks,
    /// Who wants a checkpoint, and who waits for one.
    pub signals: Signals,
    /// What checkpoints cost so far.
    pub checkpoint_bytes: AtomicU64,
    /// Number of checkpoints.
    pub checkpoints: AtomicU64,
    /// What they took.
    pub checkpoint_times: CheckpointTimes,
    /// Calls that doors served.
    pub meter: Meter,
    /// Keys of the trees whose pages the next checkpoint writes anew: the slice, whether of its
    /// main tree, the key.
    pub touched: Mutex<Vec<(usize, bool, Key)>>,
    /// Blocks whose copies a crash may have left different, where recovery only looks.
    pub unsettled: Mutex<HashSet<BlockAddr>>,
    /// Bringing stale copies of a mirrored pool up to date.
    pub resilvering: Resilvering,
}

/// Adapts what is kept back for checkpoints to what is free.
pub fn adapt(pool: &Pool) {
    pool.slices().iter().for_each(|slice| slice.space.adapt_reserve());
}

/// How many units of changed values a checkpoint can fold for certain: the pages that it writes
/// fit in the reserve of the smallest slice. At worst each value falls into a page of its own,
/// until all pages of the tree are written anew; and each brings its own bytes, in pages that are
/// half full.
pub fn dirty_max(pool: &Pool) -> u64 {
    let spaces = pool.slices().iter().map(|slice| &slice.space);
    let pages = spaces.map(|space| space.promise_to_checkpoint()).min().unwrap_or(0) * 2 / 3;
    let tree = pool.tree_pages();
    let many = pages.saturating_sub(tree) * UNITS_PER_PAGE;
    let in_memory = (pool.options().memory() / MEMORY_PER_UNIT).min(DIRTY_MAX);
    many.max(pages * 4 / 5).min(in_memory).max(12)
}

/// A value of the tree makes no sense.
pub fn damaged_value(key: &Key) -> Error {
    Error::Damaged(format!(
        "the value of object {}, kind {}, index {} makes no sense",
        key.object, key.kind, key.index
    ))
}

impl Core {
    /// The engine over this pool, nothing in DRAM yet.
    pub fn new(pool: Pool) -> Core {
        let superblock = pool.slices().first().map(|slice| slice.superblock);
        let payload_max = pool.slices().iter().map(|slice| slice.superblock.payload_bytes_max());
        let payload_max = payload_max.min().unwrap_or(0).saturating_sub(REQUEST_BYTES);
        let (memory, slices) = (pool.options().memory(), pool.slices().len());
        Core {
            process: Process::here(),
            hash_key: superblock.map(|s| s.pool_uuid).unwrap_or_default(),
            delegation: Delegation::new(&pool),
            traffic: Traffic::of(&pool),
            observer: Observer::of(&pool),
            tracer: Tracer::new(&pool),
            arrived: BySlice::new(pool.slices().len()),
            tier: caches::tier_of(&pool),
            write_back: WriteBack::of(&pool),
            log_pace: LogPace::default(),
            stripes: Stripes::of(&pool),
            payload_max,
            stores_in_place: pool.domain() != pmem::Domain::Sync,
            table: inode_table::new(),
            dirty: DirtyInodes::new(),
            dirty_units: AtomicU64::new(0),
            dirty_max: AtomicU64::new(dirty_max(&pool)),
            folded: Mutex::default(),
            dues: ChangeDues::default(),
            long_waiting: AtomicU64::new(0),
            references: References::new(slices),
            tickets: Tickets::new(&[], false),
            inherited: Inherited::default(),
            lending: Lending::default(),
            inodes: AtomicI64::new(pool.inodes_at_open() as i64),
            checkpointing: Mutex::new(()),
            background: AtomicBool::new(false),
            moves: Mutex::new(()),
            leaf_bytes: BySlice::new(slices),
            leaf_bytes_max: memory / 16 * 7,
            dirents: BySlice::new(slices),
            dirents_max: memory / MEMORY_PER_DIRENT,
            inodes_max: (memory / 2048).clamp(64, 1 << 24) as usize,
            keeps_accessed: pool.options().atime == Atime::Relatime && !pool.read_only(),
            accessed_too_old: AtomicI64::new(i64::MIN),
            accessed_late: Mutex::default(),
            locks: Locks::default(),
            signals: Signals::default(),
            checkpoint_bytes: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            checkpoint_times: CheckpointTimes::default(),
            unsettled: Mutex::default(),
            touched: Mutex::default(),
            resilvering: Resilvering::default(),
            meter: Meter::new(pool.cpus()),
            pool,
        }
    }

    /// Makes one change: `op` runs inside the gate; again after a checkpoint if the log was full.
    #[inline]
    pub fn change<T>(&self, op: impl FnMut() -> Result<T>) -> Result<T> {
        let ended = self.change_unpaid(op);
        if self.write_back.is_paced() {
            self.pay();
        }
        if self.dues.are_any() {
            self.meet_dues();
        }
        ended
    }

    /// The same for who makes room for others, and is not to be slowed down for what little of it
    /// he takes himself.
    #[inline]
    pub fn change_unpaid<T>(&self, mut op: impl FnMut() -> Result<T>) -> Result<T> {
        match self.try_change(&mut op) {
            Err(error @ (Error::Leased(_) | Error::Pool(_))) => self.change_again(error, op),
            ended => {
                self.let_go();
                ended
            }
        }
    }

    /// The same, when the first attempt ended so.
    #[cold]
    fn change_again<T>(&self, first: Error, mut op: impl FnMut() -> Result<T>) -> Result<T> {
        let mut refusals = Refusals::default();
        let mut recalled = AllRecalled::new();
        let mut tried = Err(first);
        let ended = loop {
            match tried {
                Err(Error::Leased(blocks)) => self.recall(&blocks, &mut recalled),
                Err(Error::Pool(error)) => match self.make_way(&mut refusals, error) {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
                ended => break ended,
            }
            tried = self.try_change(&mut op);
        };
        self.let_go();
        ended
    }

    /// Makes a change, once.
    #[inline(always)] // on the way of every change, whose instructions are counted
    fn try_change<T>(&self, op: &mut impl FnMut() -> Result<T>) -> Result<T> {
        let dirty = self.dirty_units.load(Ordering::Relaxed);
        if dirty > self.dirty_max.load(Ordering::Relaxed) / 2 {
            self.hold_back(dirty)?;
        }
        let _entered = self.pool.enter();
        // inside the gate: who closes the pool refuses changes while it holds the gate
        self.pool.check_writable()?;
        op()
    }

    /// Lets a checkpoint keep up with the changes, before the gate.
    #[cold]
    fn hold_back(&self, dirty: u64) -> Result<()> {
        let is_full = dirty > self.dirty_max.load(Ordering::Relaxed);
        if is_full || self.long_waiting.load(Ordering::Relaxed) > 0 {
            self.log_pace.brake.waits();
            // one that has no room is not to be tried again by the change
            return self.wait_for_checkpoint().map_err(|error| match error {
                Error::Pool(error) if error.errno() == libc::ENOSPC => Error::NoSpace,
                error => error,
            });
        }
        self.ask_for_checkpoint();
        Ok(())
    }

    /// Units that one record may add, of those that are let in before a checkpoint.
    pub fn record_units(&self) -> u64 {
        self.dirty_max.load(Ordering::Relaxed) / RECORD_SHARE
    }

    /// An error if what a change adds to the trees might not fit: data leaves that room free.
    #[inline]
    pub fn check_room(&self) -> Result<()> {
        if self.pool.has_room() || has_spare() { Ok(()) } else { Err(pool::Error::NoSpace.into()) }
    }

    /// Appends one record that concerns `inodes`, and publishes.
    pub fn log(
        &self,
        record: &mut RecordBuffer,
        inodes: &[&Arc<Inode>],
        publish: impl FnOnce(),
    ) -> Result<()> {
        self.log_after(record, inodes, InFlight::none(), publish)
    }

    /// The same, with data in flight under the same fence.
    pub fn log_after(
        &self,
        record: &mut RecordBuffer,
        inodes: &[&Arc<Inode>],
        in_flight: InFlight,
        publish: impl FnOnce(),
    ) -> Result<()> {
        request::mark(record);
        let (mut in_flight, mut spilled) = (in_flight, None);
        if record.payload_len() > self.payload_max + REQUEST_BYTES {
            let (all, blocks) = self.spill(record, in_flight)?;
            (in_flight, spilled) = (all, Some(blocks));
        }
        let after = inodes.iter().map(|inode| inode.begin_change()).max().unwrap_or(0);
        let (mut lane, slice) = self.pool.lane();
        let appended = lane.append(&slice.mapping, record, after, in_flight);
        drop(lane);
        if let Some(spilled) = spilled {
            self.spilled(spilled, appended.is_ok());
        }
        let (stamp, _clean) = appended?;
        publish();
        for inode in inodes {
            inode.stamped(stamp);
        }
        if request::is_current() {
            self.ticket();
        }
        if slice.log.pressed() {
            self.ask_for_checkpoint();
        }
        Ok(())
    }

    /// Appends one record that concerns `inode`. To be published, and then `logged`: `log` in two
    /// parts, for the way of every small write, where they are to be inlined. Not for a request
    /// that has an id: the record does not carry it.
    #[inline(always)]
    pub fn append_one(&self, record: &mut RecordBuffer, inode: &Inode) -> Result<(u64, &Slice)> {
        let after = inode.begin_change();
        let (mut lane, slice) = self.pool.lane();
        let (stamp, _clean) = lane.append(&slice.mapping, record, after, InFlight::none())?;
        Ok((stamp, slice))
    }

    /// What a record with this stamp said of `inode` is published.
    #[inline(always)]
    pub fn logged(&self, inode: &Inode, stamp: u64, slice: &Slice) {
        inode.stamped(stamp);
        if slice.log.pressed() {
            self.ask_for_checkpoint();
        }
    }
}
