//! On which slices the blocks of a file lie.
//!
//! A stripe's slice follows from the file's number and the stripe's place in the file, never from
//! what was written when: a file that is written backwards, or has holes, lies as one that was
//! written in order. What lies near its writer (small files, layout `near`) follows the writer.
//! Only a full slice spills. What is there already stays where it is until it is written anew, or
//! moves to its readers (`migrator.rs`); then it stays there when it is written anew.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::keys::{counter_of, home};
use crate::leaves::leaf_of;
use crate::types::Ino;
use pool::{BlockAddr, Extent, Pool};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::Ordering;

/// Where new blocks of a file go; a directory's is what is made in it begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Layout {
    /// The first stripe near its writer, so that small files lie whole on the writer's node; what
    /// follows in stripes over all slices.
    #[default]
    Auto,
    /// Near whoever writes.
    Near,
    /// All of it in stripes, the first on a slice that the file's number says.
    Stripe,
    /// On this node, as the kernel numbers nodes (virtual ones: from 0).
    Node(u16),
}

const NEAR: u32 = 1;
const STRIPE: u32 = 2;
const NODE: u32 = 3;
const KIND_BITS: u32 = 8;

impl Layout {
    /// As it is stored: the kind, and above it the node.
    pub(crate) fn code(self) -> u32 {
        match self {
            Layout::Auto => 0,
            Layout::Near => NEAR,
            Layout::Stripe => STRIPE,
            Layout::Node(node) => NODE | u32::from(node) << KIND_BITS,
        }
    }

    /// The layout with this code, if there is one.
    pub(crate) fn from_code(code: u32) -> Option<Layout> {
        match (code & ((1 << KIND_BITS) - 1), u16::try_from(code >> KIND_BITS).ok()?) {
            (0, 0) => Some(Layout::Auto),
            (NEAR, 0) => Some(Layout::Near),
            (STRIPE, 0) => Some(Layout::Stripe),
            (NODE, node) => Some(Layout::Node(node)),
            _ => None,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Auto => write!(f, "auto"),
            Layout::Near => write!(f, "near"),
            Layout::Stripe => write!(f, "stripe"),
            Layout::Node(node) => write!(f, "node:{node}"),
        }
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Layout> {
        let bad = Error::Invalid("a layout is auto, near, stripe or node:K");
        match text {
            "auto" => Ok(Layout::Auto),
            "near" => Ok(Layout::Near),
            "stripe" => Ok(Layout::Stripe),
            _ => match text.strip_prefix("node:") {
                Some(node) => node.parse().map(Layout::Node).map_err(|_| bad),
                None => Err(bad),
            },
        }
    }
}

/// How stripes lie over a pool's slices.
#[derive(Debug)]
pub struct Stripes {
    /// Blocks of a stripe, as a power of two.
    shift: u32,
    slices: u64,
    /// Steps from one stripe's slice to the next one's: each takes in all slices before it comes
    /// back to the first.
    steps: Vec<u64>,
}

impl Stripes {
    /// Those of this pool.
    pub fn of(pool: &Pool) -> Stripes {
        let blocks = pool.slices().first().map_or(1, |slice| slice.superblock.stripe());
        Stripes::new(blocks, pool.slices().len() as u64)
    }

    fn new(blocks: u32, slices: u64) -> Stripes {
        let coprime = |step: &u64| gcd(*step, slices) == 1;
        let steps = (1..slices.max(2)).filter(coprime).collect();
        Stripes { shift: blocks.trailing_zeros(), slices: slices.max(1), steps }
    }

    /// Bytes of a stripe.
    pub fn bytes(&self) -> u64 {
        pool::BLOCK_BYTES << self.shift
    }

    /// The slice of a block, among `slices` of which the file's first stripe lies on one.
    fn slice(&self, ino: Ino, first: u64, block: u64) -> u8 {
        let counter = counter_of(ino);
        let step = self.steps[(counter % self.steps.len() as u64) as usize];
        let stripe = (block >> self.shift) % self.slices;
        ((first + stripe * step) % self.slices) as u8
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Core {
    /// The slice that a new block of a file is to lie on.
    #[inline(always)] // on the way of the commonest write
    pub fn slice_of(&self, inode: &Inode, block: u64) -> u8 {
        match self.pool.slices().len() {
            1 => 0,
            _ => self.spread(inode, block),
        }
    }

    #[inline(never)]
    fn spread(&self, inode: &Inode, block: u64) -> u8 {
        let near = self.pool.near_slice();
        let (ino, stripes) = (inode.ino, &self.stripes);
        let home = u64::from(home(ino));
        match inode.layout() {
            Layout::Near => self.unless_full(inode, near),
            Layout::Stripe => stripes.slice(ino, home + counter_of(ino), block),
            Layout::Node(node) => match self.pool.nodes().slices_on(u32::from(node)) {
                // the pool may have come from a machine with more nodes
                [] => stripes.slice(ino, home, block),
                [one] => *one,
                many => many[(block >> stripes.shift) as usize % many.len()],
            },
            Layout::Auto => match self.moved_to(inode, block) {
                Some(slice) => slice,
                None if block >> stripes.shift == 0 => self.unless_full(inode, near),
                None => stripes.slice(ino, home, block),
            },
        }
    }

    /// Where a block is that has moved to its readers.
    fn moved_to(&self, inode: &Inode, block: u64) -> Option<u8> {
        // ordering: who comes just before writes where it is written without
        if !inode.moved.load(Ordering::Relaxed) {
            return None;
        }
        let (index, slot) = leaf_of(block);
        let addr = inode.map.cached(index)?.view(slot).addr;
        (!addr.is_none() && addr.device().is_none()).then(|| addr.slice())
    }

    /// This slice, or one that is idle beside it where its memory has no time left.
    fn unless_full(&self, inode: &Inode, near: u8) -> u8 {
        let known = self.observer.known().filter(|known| known.is_full(near));
        let used = known.filter(|known| known.levers_of(inode).data == placement::Lever::On);
        used.and_then(|known| known.idler_than(near)).unwrap_or(near)
    }

    /// Blocks for these of a file, in their order; they are added to `extents`, too. All or
    /// nothing.
    pub fn take_placed(
        &self,
        inode: &Inode,
        blocks: &[u64],
        extents: &mut Vec<Extent>,
    ) -> pool::Result<Vec<BlockAddr>> {
        if self.pool.slices().len() == 1 {
            let from = extents.len();
            self.pool.reclaim().allocate(blocks.len() as u64, 0, extents)?;
            return Ok(extents[from..].iter().flat_map(Extent::blocks).collect());
        }
        let wanted: Vec<u8> = blocks.iter().map(|block| self.slice_of(inode, *block)).collect();
        let reclaim = self.pool.reclaim();
        let mut addrs = vec![BlockAddr::NONE; blocks.len()];
        let mut given = Vec::new();
        let mut first = 0;
        while let Some(slice) = wanted.get(first).copied() {
            let mine = || (first..wanted.len()).filter(|index| wanted[*index] == slice);
            let mut own = Vec::new();
            if let Err(error) = reclaim.allocate(mine().count() as u64, slice, &mut own) {
                reclaim.give_extents(&mut given);
                return Err(error);
            }
            for (index, addr) in mine().zip(own.iter().flat_map(Extent::blocks)) {
                addrs[index] = addr;
            }
            given.append(&mut own);
            // the next slice that nothing was taken from yet
            while addrs.get(first).is_some_and(|addr| !addr.is_none()) {
                first += 1;
            }
        }
        extents.append(&mut given);
        Ok(addrs)
    }

    /// An error if new blocks cannot be laid so.
    pub fn check_layout(&self, layout: Layout) -> Result<()> {
        match layout {
            Layout::Node(node) if self.pool.nodes().slices_on(u32::from(node)).is_empty() => {
                Err(Error::Invalid("no slice of the pool lies on that node"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
