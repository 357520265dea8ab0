//! Moving blocks from slice to slice: data goes to who uses it.
//!
//! What is written in which order, and what a crash between leaves:
//! 1. the blocks' bytes, to free blocks of the other slice, which nobody names; one fence, and in
//!    the `sync` domain a sync of that slice;
//! 2. one record that names the blocks of a leaf and their new places; one fence;
//! 3. in DRAM: the slots name the new places, and the old ones are retired.
//!
//! A crash before 2 leaves the blocks where they were. Nobody is kept waiting meanwhile: the bytes
//! are copied as any reader copies them. Under the range's lock, before the record, a leaf in which
//! nothing was published since then has them still; of one in which something was, each block is
//! compared. So who writes meanwhile wins, and a block that he wrote stays where he put it.
//!
//! What is shared with other files stays where it is, for a copy would be one more; what has
//! patches does until a checkpoint has taken them off.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::leaf::{LEAF_BLOCKS, LEAF_INDEX_MAX, Leaf};
use crate::leaves::leaf_of;
use crate::moves::{Alive, Plan};
use crate::slot::SlotView;
use crate::system::FileSystem;
use crate::types::{FileKind, Ino};
use pmem::InFlight;
use pool::{BLOCK_BYTES, BlockAddr, Extent};
use std::ops::Range;
use std::sync::Arc;

/// Blocks that are copied at one time.
const PIECE_BLOCKS: usize = 64;
/// The part of a slice that stays free for those who write near it.
const FREE_PART: u64 = 16;
/// How often a leaf is looked at that changes all the time.
const LOOKS_MAX: usize = 8;

/// What became of blocks that were to move.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Migrated {
    /// Blocks that moved.
    pub moved: u64,
    /// Blocks that were there already.
    pub there: u64,
    /// Blocks that stay where they are: they are shared or have patches, were written meanwhile, or
    /// there is no room for them.
    pub stayed: u64,
}

impl Migrated {
    fn add(&mut self, other: Migrated) {
        self.moved += other.moved;
        self.there += other.there;
        self.stayed += other.stayed;
    }
}

/// A block that is to move: as it was when it was looked at.
struct Going {
    block: u64,
    view: SlotView,
    to: BlockAddr,
}

/// How many of these, from the first on, lie one behind the other where they are and where they go.
fn run_of(going: &[Going]) -> usize {
    let goes_on = |pair: &[Going]| {
        let follows = |one: BlockAddr, next: BlockAddr| next.bits() == one.bits() + 1;
        follows(pair[0].to, pair[1].to) && follows(pair[0].view.addr, pair[1].view.addr)
    };
    let rest = going.windows(2).take(PIECE_BLOCKS - 1);
    1 + rest.take_while(|pair| goes_on(pair)).count()
}

/// A leaf, as it was when it was looked at.
struct Looked {
    leaf: Arc<Leaf>,
    sequence: u64,
    in_place: u64,
    blocks: Vec<(u64, SlotView)>,
}

impl FileSystem {
    /// Moves what a file has in these bytes to a slice, as far as there is room for it; what is
    /// written meanwhile stays where it is put.
    pub fn migrate(&self, ino: Ino, bytes: Range<u64>, to: u8) -> Result<Migrated> {
        let inode = self.core.inode(ino)?;
        if inode.kind != FileKind::File {
            return Err(Error::Invalid("only a regular file holds data"));
        }
        if usize::from(to) >= self.core.pool.slices().len() {
            return Err(Error::Invalid("the pool has no such slice"));
        }
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        let mut sum = Migrated::default();
        let mut index = self.core.first_leaf(&inode, blocks.start / LEAF_BLOCKS)?;
        while index <= LEAF_INDEX_MAX && index * LEAF_BLOCKS < blocks.end {
            sum.add(self.core.migrate_leaf(&inode, index, &blocks, to)?);
            index = self.core.first_leaf(&inode, index + 1)?;
        }
        Ok(sum)
    }
}

impl Core {
    /// Moves what a leaf has of these blocks to a slice, as far as there is room for it.
    pub fn migrate_leaf(
        &self,
        inode: &Arc<Inode>,
        index: u64,
        blocks: &Range<u64>,
        to: u8,
    ) -> Result<Migrated> {
        self.pool.check_writable()?;
        let mut done = Migrated::default();
        let Some(looked) = self.look_at_leaf(inode, index, blocks, to, &mut done)? else {
            return Ok(done);
        };
        let mut extents = Vec::new();
        let wanted = looked.blocks.len() as u64;
        let room = self.room_in(usize::from(to));
        let spare = room.free.saturating_sub(room.blocks / FREE_PART);
        let taken = self.pool.reclaim().take_on(to, wanted.min(spare), &mut extents);
        done.stayed += wanted - taken;
        let places: Vec<BlockAddr> = extents.iter().flat_map(Extent::blocks).collect();
        let going = looked.blocks.iter().zip(&places);
        let mut going: Vec<Going> = going
            .map(|((block, view), to)| Going { block: *block, view: view.clone(), to: *to })
            .collect();
        let (in_flight, unread) = self.copy_over(&going);
        let _ = pmem::fence(in_flight);
        let mut unused: Vec<BlockAddr> = Vec::new();
        for at in unread.into_iter().rev() {
            unused.push(going.remove(at).to);
        }
        // where a fence is not enough: the record has no checksums to tell what a crash tore
        let synced = self.pool.sync_slices(usize::from(to)..usize::from(to) + 1);
        let name = || self.change_unpaid(|| self.name_over(inode, &looked, &going));
        let moved = synced.map_err(Error::from).and_then(|()| name());
        let gone = moved.as_ref().map_or(&[][..], Vec::as_slice);
        unused.extend(going.iter().map(|it| it.to).filter(|to| !gone.contains(to)));
        for addr in &unused {
            self.pool.reclaim().give_one(*addr);
        }
        let moved = moved?.len() as u64;
        done.stayed += taken - moved;
        done.moved = moved;
        self.arrived.add(to, moved * BLOCK_BYTES);
        Ok(done)
    }

    /// The blocks of a leaf that can go to a slice; those that cannot are counted. `None`: none
    /// can, or it changes all the time.
    fn look_at_leaf(
        &self,
        inode: &Inode,
        index: u64,
        blocks: &Range<u64>,
        to: u8,
        done: &mut Migrated,
    ) -> Result<Option<Looked>> {
        for _ in 0..LOOKS_MAX {
            let Some(leaf) = self.leaf(inode, index)? else { return Ok(None) };
            let Some(sequence) = leaf.begin_read() else { continue };
            let in_place = leaf.in_place();
            let (mut found, mut count) = (Vec::new(), Migrated::default());
            for slot in 0..leaf.room() {
                let block = index * LEAF_BLOCKS + slot as u64;
                let view = leaf.view(slot);
                if !blocks.contains(&block) || view.addr.is_none() || view.addr.device().is_some() {
                    continue;
                }
                if view.addr.slice() == to {
                    count.there += 1;
                } else if view.shared || view.patches.is_some() {
                    count.stayed += 1;
                } else {
                    found.push((block, view));
                }
            }
            if leaf.still(sequence) {
                *done = count;
                let looked = Looked { leaf, sequence, in_place, blocks: found };
                return Ok(Some(looked).filter(|looked| !looked.blocks.is_empty()));
            }
        }
        Ok(None)
    }

    /// Copies blocks to where they are to go; gives which of them could not be read: they stay for
    /// those who mend them. Their checksums go along, and tell of what was damaged before.
    fn copy_over(&self, going: &[Going]) -> (InFlight, Vec<usize>) {
        let (mut in_flight, mut unread, mut at) = (InFlight::none(), Vec::new(), 0);
        while at < going.len() {
            let count = run_of(&going[at..]);
            // keeps the blocks from being used again while they are copied
            let _pin = crossbeam_epoch::pin();
            let first = &going[at];
            match self.pool.copy_blocks(first.to, first.view.addr, count) {
                Ok(copied) => in_flight = in_flight.and(copied),
                Err(_) => unread.extend(at..at + count),
            }
            at += count;
        }
        (in_flight, unread)
    }

    /// Has a file name blocks in their new places, those that are as they were copied; gives these
    /// places.
    fn name_over(
        &self,
        inode: &Arc<Inode>,
        looked: &Looked,
        going: &[Going],
    ) -> Result<Vec<BlockAddr>> {
        let (Some(first), Some(last)) = (going.first(), going.last()) else {
            return Ok(Vec::new());
        };
        let _range = inode.ranges.lock(first.block, last.block);
        let Some(alive) = Alive::of(inode) else { return Ok(Vec::new()) };
        let (index, _) = leaf_of(first.block);
        let leaf = self.leaf(inode, index)?;
        let is_same = leaf.as_ref().is_some_and(|leaf| {
            Arc::ptr_eq(leaf, &looked.leaf)
                && leaf.still(looked.sequence)
                && leaf.still_in_place(looked.in_place)
        });
        let mut plan = Plan::default();
        let mut places = Vec::new();
        for it in going {
            if is_same || self.is_copied(inode, it)? {
                plan.push(it.block, it.to);
                places.push(it.to);
            }
        }
        self.log_moves(&alive, plan, Ok(()))?;
        // what was verified since the pool was opened is trusted, as it would be where it was
        if let Ok(Some(leaf)) = self.leaf(inode, index) {
            for it in going.iter().filter(|it| it.view.verified) {
                leaf.set_verified(leaf_of(it.block).1, it.to);
            }
        }
        Ok(places)
    }

    /// Whether a block is where it was, and what was copied. The caller holds its range.
    fn is_copied(&self, inode: &Inode, it: &Going) -> Result<bool> {
        let (was, is) = (&it.view, self.view_block(inode, it.block)?);
        if is.addr != was.addr || is.crc != was.crc || is.shared || is.patches.is_some() {
            return Ok(false);
        }
        // a checksum is no proof: a block may have changed in place
        let bytes = |addr| self.read_under(addr, None);
        Ok(matches!((bytes(it.to), bytes(is.addr)), (Ok(to), Ok(from)) if to == from))
    }
}
