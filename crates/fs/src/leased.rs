//! Files of which ranges are leased: a process writes there by itself, into a lane of its own, and
//! what it has written comes into the file when the lane is folded.
//!
//! The lender ([`Lender`]) knows the leases and the lanes. The file system asks it for two things:
//! - before it reads of such a file, or tells of it, that what was written is in the file;
//! - before it changes bytes that are leased, that they are not any more. Whoever changes them
//!   looks when it has their range, gets an error of the attempt, and has the lease recalled when
//!   it holds nothing; no new one is given there until its change has ended.
//!
//! The lender's own changes, which fold lanes, pass (`folding`). What moves data and leaves its
//! bytes as they are need not ask.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::privileges::{BEFORE_CHANGES, LEASED, RAISES, TOLD_BEFORE};
use crate::request;
use crate::system::FileSystem;
use crate::types::Ino;
use pool::{BlockAddr, Extent};
use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Blocks of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The file.
    pub ino: Ino,
    /// Which of them.
    pub blocks: RangeInclusive<u64>,
}

impl Blocks {
    /// Whether the two have a block in common.
    pub fn meet(&self, other: &Blocks) -> bool {
        self.ino == other.ino
            && self.blocks.start() <= other.blocks.end()
            && other.blocks.start() <= self.blocks.end()
    }
}

/// Lends ranges of files to processes that write by themselves.
pub trait Lender: Debug + Send + Sync {
    /// What was written to the file under leases, and returned before, is in it when this returns.
    /// The caller holds no lock of the file system's.
    fn settle(&self, ino: Ino);

    /// Whether any of these blocks is leased. The caller has their range: this must not call the
    /// file system, nor wait for who does.
    fn lends(&self, blocks: &Blocks) -> bool;

    /// None of these blocks is leased when this returns, nor later, while the answer lives. The
    /// caller holds no lock of the file system's.
    fn recall(&self, blocks: &Blocks) -> Box<dyn Recalled>;
}

/// Keeps blocks from being leased as long as it lives.
pub trait Recalled: Debug {}

/// What one attempt had recalled.
pub type AllRecalled = Vec<Box<dyn Recalled>>;

/// Who lends.
pub type Lending = arc_swap::ArcSwapOption<Arc<dyn Lender>>;

thread_local! {
    /// Whether this thread folds a lane.
    static FOLDS: Cell<bool> = const { Cell::new(false) };
    /// Blocks that it may take.
    static SPARE: RefCell<Vec<BlockAddr>> = const { RefCell::new(Vec::new()) };
}

/// Runs `fold`, which writes where leases are: it is what was written under them. On a full pool it
/// is written to the spare blocks.
pub fn folding<T>(spare: &mut Spare, fold: impl FnOnce() -> T) -> T {
    struct Ends<'s>(bool, &'s mut Spare);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            FOLDS.set(self.0);
            self.1.addrs = SPARE.take();
        }
    }
    SPARE.set(std::mem::take(&mut spare.addrs));
    let _ends = Ends(FOLDS.replace(true), spare);
    // whoever has it folded may serve a request, which this is no part of
    request::repeatable(fold)
}

/// Whether this thread folds a lane.
pub fn folds() -> bool {
    FOLDS.get()
}

/// Free blocks that nobody else gets: what was committed under leases finds room in a full pool.
#[derive(Debug)]
pub struct Spare {
    core: Arc<Core>,
    addrs: Vec<BlockAddr>,
}

impl Spare {
    /// None so far.
    pub fn new(fs: &FileSystem) -> Spare {
        Spare { core: fs.core.clone(), addrs: Vec::new() }
    }

    /// How many there are.
    pub fn blocks(&self) -> usize {
        self.addrs.len()
    }

    /// Has so many, if there is room for them.
    pub fn refill(&mut self, blocks: usize) -> Result<()> {
        let mut extents = Vec::new();
        let lacking = blocks.saturating_sub(self.addrs.len()) as u64;
        self.core.pool.reclaim().allocate(lacking, 0, &mut extents)?;
        self.addrs.extend(extents.iter().flat_map(Extent::blocks));
        Ok(())
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        for addr in self.addrs.drain(..) {
            self.core.pool.reclaim().give_one(addr);
        }
    }
}

/// So many of the spare blocks of the fold that this thread makes; `None`: it makes none, or there
/// are too few.
#[cold]
pub fn take_spare(count: usize) -> Option<Vec<BlockAddr>> {
    SPARE.with_borrow_mut(|spare| {
        let from = spare.len().checked_sub(count)?;
        Some(spare.split_off(from))
    })
}

/// Whether there are some.
#[cold]
pub fn has_spare() -> bool {
    SPARE.with_borrow(|spare| !spare.is_empty())
}

impl Core {
    fn lender(&self) -> Option<Arc<dyn Lender>> {
        self.lending.load().as_deref().cloned()
    }

    /// Some of these blocks, whose range the caller has, are going to be changed: who caches them
    /// is told. An error of the attempt if they are leased.
    #[inline(always)]
    pub fn may_change(&self, inode: &Arc<Inode>, first: u64, last: u64) -> Result<()> {
        match inode.marks.get() & BEFORE_CHANGES {
            0 => Ok(()),
            marks => self.check_marked(inode, marks, (first, last)),
        }
    }

    #[cold]
    fn check_marked(&self, inode: &Arc<Inode>, marks: u8, (first, last): (u64, u64)) -> Result<()> {
        if marks & LEASED != 0 {
            self.check_leased_blocks(inode, first, last)?;
        }
        if marks & RAISES != 0 {
            self.take_privileges(inode)?;
        }
        if marks & TOLD_BEFORE != 0 { inode.tell_changes(self, &(first..=last)) } else { Ok(()) }
    }

    /// An error of the attempt if some of these blocks, whose range the caller has, are leased.
    #[inline(always)]
    pub fn check_leased(&self, inode: &Inode, first: u64, last: u64) -> Result<()> {
        if inode.marks.has(LEASED) {
            return self.check_leased_blocks(inode, first, last);
        }
        Ok(())
    }

    #[cold]
    fn check_leased_blocks(&self, inode: &Inode, first: u64, last: u64) -> Result<()> {
        let blocks = Blocks { ino: inode.ino, blocks: first..=last };
        let is_leased = self.lender().is_some_and(|lender| lender.lends(&blocks));
        if is_leased && !FOLDS.get() { Err(Error::Leased(blocks)) } else { Ok(()) }
    }

    /// The attempt met a lease: it is recalled, and gives place until the change has ended.
    #[cold]
    pub fn recall(&self, blocks: &Blocks, recalled: &mut AllRecalled) {
        if let Some(lender) = self.lender() {
            recalled.push(lender.recall(blocks));
        }
    }

    /// What was written to the file under leases is in it when this returns. The caller holds
    /// nothing.
    #[inline]
    pub fn settle(&self, inode: &Inode) {
        // a write that returned before this call was made under a lease that was given before it
        if inode.marks.has(LEASED) {
            self.settle_ino(inode.ino);
        }
    }

    #[cold]
    fn settle_ino(&self, ino: Ino) {
        if let Some(lender) = self.lender()
            && !FOLDS.get()
        {
            lender.settle(ino);
        }
    }
}

impl FileSystem {
    /// From now on `lender` lends; `None`: nobody does, and nothing is leased.
    pub fn set_lender(&self, lender: Option<Arc<dyn Lender>>) {
        self.core.lending.store(lender.map(Arc::new));
    }

    /// Something of this file is going to be leased, or nothing is any more. A lender says so one
    /// after the other.
    pub fn set_leased(&self, handle: &Handle, is_leased: bool) {
        handle.inode.marks.set(LEASED, is_leased);
    }

    /// What was written to the file under leases, and returned before, is in it when this returns.
    pub fn settle(&self, handle: &Handle) {
        self.core.settle(&handle.inode);
    }

    /// Whoever was changing these blocks when this was called has ended.
    pub fn await_changes(&self, handle: &Handle, blocks: RangeInclusive<u64>) {
        drop(handle.inode.ranges.lock(*blocks.start(), *blocks.end()));
    }

    /// Nothing of the file is leased when this returns.
    pub(crate) fn recall_all(&self, handle: &Handle) {
        // after its mapping was said; a lender says that it lends, and then looks for mappings
        if handle.inode.marks.has_after_stores(LEASED) {
            let blocks = Blocks { ino: handle.ino(), blocks: 0..=u64::MAX };
            self.core.recall(&blocks, &mut AllRecalled::new());
        }
    }

    /// Whether others keep copies of the file's bytes, or once did, who do not heed leases: nothing
    /// of it is leased then.
    pub fn is_mapped(&self, handle: &Handle) -> bool {
        handle.inode.has_heedless_mappings()
    }
}
