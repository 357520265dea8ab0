//! Reading a file: without a lock, one version of all blocks of the call.
//!
//! 1. pin an epoch, so that no block is used again while it is copied;
//! 2. copy the slots of all blocks, and the size;
//! 3. take them only if no leaf published meanwhile, else begin again;
//! 4. copy the data out of the blocks;
//! 5. take that only if no block of those leaves changed in place meanwhile, else begin again;
//!    after a few times, under the range's lock.

use crate::away::{AWAY_BYTES_MAX, away};
use crate::core::Core;
use crate::delegate::{Run, Turns};
use crate::error::Result;
use crate::inode::Inode;
use crate::leaf::{LEAF_BLOCKS, Leaf};
use crate::leaves::leaf_of;
use crate::slot::SlotView;
use crate::write::blocks_of;
use placement::Kind;
use pool::{BLOCK_BYTES, BlockAddr};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Reads of less load no memory in earnest: they take no turn at it.
const COUNTED_BYTES: usize = 4096;

/// Views that a thread keeps room for between calls: of a read of 4 MiB.
const VIEWS_MAX: usize = 1024;

thread_local! {
    static VIEWS: Cell<Vec<SlotView>> = const { Cell::new(Vec::new()) };
}

/// Gives back the room that views had; those that are in it are dropped.
fn keep_room(mut views: Vec<SlotView>) {
    views.clear();
    views.shrink_to(VIEWS_MAX);
    VIEWS.set(views);
}

/// How often a read is tried without a lock.
const TRIES_MAX: u32 = 8;

/// Reads what is in memory, and notes what it looked at.
type Read<'r> = dyn Fn(&mut [u8], &mut Vec<SlotView>) -> Result<usize> + 'r;

/// A leaf that was read; none: it was a hole.
struct Seen {
    index: u64,
    leaf: Option<Arc<Leaf>>,
    sequence: u64,
    in_place: u64,
}

impl Core {
    /// Reads at `offset`; fewer bytes than asked only at the end of the file.
    pub fn read(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if let Some(read) = self.read_block(inode, offset, buffer)? {
            return Ok(read);
        }
        let mut views = VIEWS.take();
        let mut result = self.read_blocks(inode, offset, buffer, &mut views);
        if self.tier.is_some()
            && let Err(Some(addr)) = result.as_ref().map_err(away)
        {
            if buffer.len() > AWAY_BYTES_MAX {
                keep_room(views);
                return self.read_by_parts(inode, offset, buffer);
            }
            let again =
                |buffer: &mut [u8], views: &mut _| self.read_blocks(inode, offset, buffer, views);
            result = self.read_fetched(inode, offset, buffer, (&mut views, addr), &again);
        }
        keep_room(views);
        result
    }

    /// Reads `again` what was refused for `missing`, which is on the capacity tier: that and all
    /// else that was looked at and is away is fetched at once, and what comes behind it where the
    /// file is read in order. No more than [`AWAY_BYTES_MAX`].
    #[cold]
    fn read_fetched(
        &self,
        inode: &Inode,
        offset: u64,
        buffer: &mut [u8],
        (views, missing): (&mut Vec<SlotView>, BlockAddr),
        again: &Read<'_>,
    ) -> Result<usize> {
        let blocks = blocks_of(offset, buffer.len());
        let fetched = self.fetch_for_read(inode, blocks, missing, views);
        let mut result = fetched.and_then(|()| again(buffer, views));
        // that was there, and went meanwhile
        while let Err(Some(addr)) = result.as_ref().map_err(away) {
            result = self.fetch(&[addr]).and_then(|()| again(buffer, views));
        }
        self.let_go();
        result
    }

    /// The same for who holds the range of these blocks already, of what is in memory; else an
    /// error that says what is not.
    pub fn read_in_memory(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut views = VIEWS.take();
        let result = self.read_without_lock(inode, offset, buffer, &mut views);
        keep_room(views);
        result
    }

    /// Reads without a lock of any range; what is on the capacity tier is fetched, all of it at
    /// once, after `waits`. The caller has no more than [`AWAY_BYTES_MAX`] read.
    pub fn read_and_fetch(
        &self,
        inode: &Inode,
        offset: u64,
        buffer: &mut [u8],
        waits: &mut dyn FnMut(),
    ) -> Result<usize> {
        let mut views = VIEWS.take();
        let again =
            |buffer: &mut [u8], views: &mut _| self.read_without_lock(inode, offset, buffer, views);
        let mut result = again(buffer, &mut views);
        if let Err(Some(addr)) = result.as_ref().map_err(away) {
            waits();
            result = self.read_fetched(inode, offset, buffer, (&mut views, addr), &again);
        }
        keep_room(views);
        result
    }

    /// Reads what is in memory without a lock, and block by block where that cannot be.
    fn read_without_lock(
        &self,
        inode: &Inode,
        offset: u64,
        buffer: &mut [u8],
        views: &mut Vec<SlotView>,
    ) -> Result<usize> {
        match self.try_read(inode, offset, buffer, views)? {
            Some(read) => Ok(read),
            None => self.read_block_by_block(inode, offset, buffer),
        }
    }

    /// The same of blocks that are in memory; else an error that says which is not.
    fn read_blocks(
        &self,
        inode: &Inode,
        offset: u64,
        buffer: &mut [u8],
        views: &mut Vec<SlotView>,
    ) -> Result<usize> {
        match self.try_read(inode, offset, buffer, views)? {
            Some(read) => Ok(read),
            None => self.read_locked(inode, offset, buffer, views),
        }
    }

    /// Tries a few times without a lock. `None`: others publish in the same leaves all the time.
    #[inline]
    fn try_read(
        &self,
        inode: &Inode,
        offset: u64,
        buffer: &mut [u8],
        views: &mut Vec<SlotView>,
    ) -> Result<Option<usize>> {
        for _ in 0..TRIES_MAX {
            let _pin = crossbeam_epoch::pin();
            if let Some(read) = self.read_once(inode, offset, buffer, views)? {
                return Ok(Some(read));
            }
        }
        Ok(None)
    }

    /// The commonest read: inside one block, which is verified and has no patches. Nothing is
    /// pinned: a block that is used again meanwhile was replaced in its leaf before. `None`: it is
    /// no such read, or something changed meanwhile.
    #[inline]
    fn read_block(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<Option<usize>> {
        let at = (offset % BLOCK_BYTES) as usize;
        let size = inode.size.load(Ordering::Acquire);
        let inside = at + buffer.len() <= BLOCK && offset < size;
        if !inside || buffer.is_empty() {
            return Ok(None);
        }
        let len = (buffer.len() as u64).min(size - offset) as usize;
        let (index, slot) = leaf_of(offset / BLOCK_BYTES);
        let lent = inode.map.lent(index);
        let Some(leaf) = lent.as_ref().and_then(|lent| lent.as_ref()) else { return Ok(None) };
        let Some(sequence) = leaf.begin_read() else { return Ok(None) };
        let Some(addr) = leaf.plain(slot) else { return Ok(None) };
        let _turn = match len < COUNTED_BYTES {
            true => None,
            false => match self.turn(addr.slice(), Kind::Read) {
                None => return Ok(None),
                turn => turn,
            },
        };
        if self.pool.read(addr, at as u64, &mut buffer[..len]).is_err() {
            return Ok(None);
        }
        self.copied(Kind::Read, addr.slice(), len);
        if self.tier.is_some() {
            leaf.heat(slot);
        }
        let same = leaf.still(sequence) && inode.size.load(Ordering::Acquire) == size;
        if same {
            self.observe_read(inode, offset / BLOCK_BYTES, (1, len), &|_| addr);
        }
        Ok(same.then_some(len))
    }

    /// The same while no writer changes these blocks. Nothing is pinned before the lock is held:
    /// who waits must not keep blocks from being used again.
    #[cold]
    fn read_locked(
        &self,
        inode: &Inode,
        offset: u64,
        buffer: &mut [u8],
        views: &mut Vec<SlotView>,
    ) -> Result<usize> {
        let (first, last) = blocks_of(offset, buffer.len());
        // leaves are of many blocks: those around must not change either
        let whole = |block: u64| block / LEAF_BLOCKS * LEAF_BLOCKS;
        let _range = inode.ranges.lock(whole(first), whole(last) + LEAF_BLOCKS - 1);
        loop {
            let _pin = crossbeam_epoch::pin();
            if let Some(read) = self.read_once(inode, offset, buffer, views)? {
                return Ok(read);
            }
        }
    }

    /// `None`: something changed meanwhile.
    fn read_once(
        &self,
        inode: &Inode,
        offset: u64,
        buffer: &mut [u8],
        views: &mut Vec<SlotView>,
    ) -> Result<Option<usize>> {
        let size = inode.size.load(Ordering::Acquire);
        if offset >= size || buffer.is_empty() {
            return Ok(Some(0));
        }
        let len = (buffer.len() as u64).min(size - offset) as usize;
        let buffer = &mut buffer[..len];
        let (first, last) = blocks_of(offset, len);
        let (index, slot) = leaf_of(first);
        views.clear();
        if index == leaf_of(last).0
            && let Some(lent) = inode.map.lent(index)
            && let Some(leaf) = lent.as_ref()
        {
            let Some(sequence) = leaf.begin_read() else { return Ok(None) };
            let in_place = leaf.in_place();
            views.extend((slot..=slot + (last - first) as usize).map(|slot| leaf.view(slot)));
            if inode.size.load(Ordering::Acquire) != size || !leaf.still(sequence) {
                return Ok(None);
            }
            let copied = self.copy_out(inode, first, views, offset, buffer);
            return if leaf.still_in_place(in_place) {
                copied.map(|()| Some(len))
            } else {
                Ok(None)
            };
        }
        let seen = self.view_leaves(inode, first, last, views)?;
        let same_size = inode.size.load(Ordering::Acquire) == size;
        let same = |seen: &Seen| match &seen.leaf {
            Some(leaf) => leaf.still(seen.sequence),
            None => inode.map.cached(seen.index).is_none(),
        };
        let Some(seen) = seen.filter(|seen| same_size && seen.iter().all(same)) else {
            return Ok(None);
        };
        let copied = self.copy_out(inode, first, views, offset, buffer);
        let unchanged = |seen: &Seen| match &seen.leaf {
            Some(leaf) => leaf.still_in_place(seen.in_place),
            None => true,
        };
        if seen.iter().all(unchanged) { copied.map(|()| Some(len)) } else { Ok(None) }
    }

    /// Copies the slots of blocks in several leaves, to be validated; `None`: a leaf was dead.
    fn view_leaves(
        &self,
        inode: &Inode,
        first: u64,
        last: u64,
        views: &mut Vec<SlotView>,
    ) -> Result<Option<Vec<Seen>>> {
        let mut seen: Vec<Seen> = Vec::new();
        for index in leaf_of(first).0..=leaf_of(last).0 {
            let leaf = self.leaf(inode, index)?;
            let sequence = match &leaf {
                Some(leaf) => leaf.begin_read(),
                None => Some(0),
            };
            let Some(sequence) = sequence else { return Ok(None) };
            let in_place = leaf.as_ref().map_or(0, |leaf| leaf.in_place());
            seen.push(Seen { index, leaf, sequence, in_place });
        }
        for block in first..=last {
            let (index, slot) = leaf_of(block);
            let leaf = &seen[(index - leaf_of(first).0) as usize].leaf;
            views.push(leaf.as_ref().map_or_else(SlotView::default, |leaf| leaf.view(slot)));
        }
        Ok(Some(seen))
    }

    fn copy_out(
        &self,
        inode: &Inode,
        first: u64,
        views: &[SlotView],
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        let start = (offset - first * BLOCK_BYTES) as usize;
        let (is_read, _turns) = self.read_plain(views, start, buffer);
        let (mut at, mut done, mut index) = (start, 0, 0);
        while done < buffer.len() {
            let mut run = run_length(&views[index..]);
            let mut len = (run * BLOCK - at).min(buffer.len() - done);
            let out = &mut buffer[done..done + len];
            let is_plain_run = run > 1 || is_plain(&views[index]);
            let is_copied = is_plain_run
                && (is_read || self.pool.read(views[index].addr, at as u64, out).is_ok());
            if is_copied && !is_read {
                self.copied(Kind::Read, views[index].addr.slice(), len);
            }
            if !is_copied {
                // where memory has failed, block by block
                run = 1;
                len = len.min(BLOCK - at);
                let out = &mut buffer[done..done + len];
                self.copy_block(inode, first + index as u64, &views[index], at, out)?;
                if !views[index].addr.is_none() && views[index].addr.device().is_none() {
                    self.copied(Kind::Read, views[index].addr.slice(), len);
                }
            }
            done += len;
            index += run;
            at = 0;
        }
        self.observe_read(inode, first, (views.len(), buffer.len()), &|at| views[at].addr);
        Ok(())
    }

    /// Reads all that needs no more than to be copied, if workers are to help; else gives the
    /// caller its turns to do it.
    fn read_plain(&self, views: &[SlotView], start: usize, buffer: &mut [u8]) -> (bool, Turns<'_>) {
        if !self.delegation.thinks_about(Kind::Read, buffer.len()) {
            return (false, Turns::new());
        }
        let mut runs: SmallVec<[Run; 16]> = SmallVec::new();
        let (mut index, mut done, mut at) = (0, 0, start);
        while done < buffer.len() {
            let blocks = run_length(&views[index..]);
            let len = (blocks * BLOCK - at).min(buffer.len() - done);
            if is_plain(&views[index]) {
                runs.push(Run { addr: views[index].addr, at, from: done, len });
            }
            (done, index, at) = (done + len, index + blocks, 0);
        }
        self.read_runs(&runs, buffer)
    }
}

#[inline]
fn is_plain(view: &SlotView) -> bool {
    view.verified && view.patches.is_none() && !view.addr.is_none()
}

/// How many views from the first on are neighbours in PM that can be copied in one go.
#[inline]
fn run_length(views: &[SlotView]) -> usize {
    let Some(first) = views.first().filter(|view| is_plain(view)) else { return 1 };
    let neighbours = views.iter().enumerate().take_while(|(i, view)| {
        is_plain(view) && view.addr.bits() == first.addr.bits() + *i as u64
    });
    neighbours.count()
}
