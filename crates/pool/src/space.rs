//! Free blocks of one slice, in DRAM.
//!
//! A bit per block, in groups. The tree's keyspace of free space says which *data* blocks are
//! used as of the last checkpoint; the pages of the trees themselves are found by walking them at
//! open. A group that is all free or all used has no bitmap: memory is taken for mixed groups only.
//!
//! Blocks that only a checkpoint may use are kept back, so that unlink, truncate and the
//! checkpoint itself work on a full pool.

use crate::bitmap::{GROUP_BLOCKS, GroupBits, WORDS};
use crate::withdrawn::Withdrawn;
use locks::Mutex;
use pmem::{Fault, fails};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Batches that wait to be taken whole; with more, all go back to the groups, where runs form.
const BATCHES_MAX: usize = 256;
/// Larger batches go back to the groups at once.
const BATCH_BLOCKS_MAX: usize = 256;

/// Most blocks that are kept back besides the least (256 MiB).
const RESERVE_EXTRA_MAX: u64 = 1 << 16;

/// The part of the least reserve that is lent to changes that give as much back.
const LOAN_SHARE: u64 = 8;
/// Of the least reserve, the part below which nothing is lent.
const LEAST_SHARE: u64 = 2;

/// What blocks are taken for, and so how far down the reserve may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// More data: the reserve stays.
    Data,
    /// Data that takes the place of as much, which is free soon: a part of the reserve is lent.
    Exchange,
    /// A checkpoint: it is what the reserve is for.
    Checkpoint,
}

/// A run of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First block (of the slice).
    pub first: u64,
    /// How many.
    pub count: u64,
}

#[derive(Debug)]
struct Group {
    /// None where `free` says it all: none of the group's blocks is free, or all that are data.
    used: Option<Box<GroupBits>>,
    free: u32,
}

#[derive(Debug)]
struct Groups {
    groups: Vec<Group>,
    free: u64,
    /// Where the search for free blocks goes on.
    cursor: usize,
}

/// The free blocks of one slice.
#[derive(Debug)]
pub struct Space {
    first: u64,
    end: u64,
    /// Blocks that are always kept back for checkpoints.
    reserve_min: u64,
    /// Blocks that are kept back now.
    reserve: AtomicU64,
    /// Blocks that the next checkpoint counts on.
    promised: AtomicU64,
    groups: Mutex<Groups>,
    returned: Mutex<Vec<Vec<u64>>>,
    /// Free blocks in the groups, as of the last change.
    free_hint: AtomicU64,
    freed_twice: AtomicBool,
    /// Blocks that nobody is to get any more.
    pub withdrawn: Withdrawn,
}

impl Space {
    /// Data blocks `first..end`, all free; `reserve` of them only for checkpoints.
    pub fn new(first: u64, end: u64, reserve: u64) -> Space {
        let groups = Mutex::new(Groups::all_free(first, end));
        let free_hint = AtomicU64::new(end - first);
        Space {
            first,
            end,
            reserve_min: reserve,
            reserve: AtomicU64::new(reserve),
            promised: AtomicU64::new(reserve - reserve / LOAN_SHARE),
            groups,
            returned: Mutex::default(),
            free_hint,
            freed_twice: AtomicBool::new(false),
            withdrawn: Withdrawn::default(),
        }
    }

    /// Takes all blocks as free again, before they are loaded from the trees.
    pub fn reset(&self) {
        self.returned.lock().clear();
        *self.groups.lock() = Groups::all_free(self.first, self.end);
        self.free_hint.store(self.end - self.first, Ordering::Relaxed);
    }

    /// Whether `block` is a data block of this slice.
    pub fn contains(&self, block: u64) -> bool {
        (self.first..self.end).contains(&block)
    }

    /// Data blocks in all.
    pub fn blocks(&self) -> u64 {
        self.end - self.first
    }

    /// Blocks kept back for checkpoints, now.
    pub fn reserve(&self) -> u64 {
        self.reserve.load(Ordering::Relaxed)
    }

    /// Blocks that are always kept back for checkpoints.
    pub fn reserve_min(&self) -> u64 {
        self.reserve_min
    }

    /// Blocks of the reserve that are lent, and not counted on by checkpoints.
    pub fn loan(&self) -> u64 {
        self.reserve_min / LOAN_SHARE
    }

    /// How many blocks the next checkpoint may count on: from now on, nothing is lent of those.
    pub fn promise_to_checkpoint(&self) -> u64 {
        let promised = self.reserve().min(self.free()).saturating_sub(self.loan());
        self.promised.store(promised, Ordering::Relaxed);
        promised
    }

    /// Keeps back the least only: somebody needs what is left.
    pub fn least_reserve(&self) {
        self.reserve.store(self.reserve_min, Ordering::Relaxed);
    }

    /// Keeps back, besides the least, a quarter of what else is free: a checkpoint may fold as much
    /// more. A slice that fills up gives it back at the next checkpoint.
    pub fn adapt_reserve(&self) {
        let extra = self.free().saturating_sub(self.reserve_min) / 4;
        self.reserve.store(self.reserve_min + extra.min(RESERVE_EXTRA_MAX), Ordering::Relaxed);
    }

    /// Free blocks, the reserve included, without those in the CPUs' caches.
    pub fn free(&self) -> u64 {
        let returned: usize = self.returned.lock().iter().map(Vec::len).sum();
        self.groups.lock().free + returned as u64
    }

    /// Whether a block was freed that was free: it had two owners.
    pub fn freed_twice(&self) -> bool {
        self.freed_twice.load(Ordering::Relaxed)
    }

    /// Whether more than the reserve is free. A hint.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.free_hint.load(Ordering::Relaxed) > self.reserve()
    }

    /// Whether none of these data blocks is used, nor kept for somebody.
    pub fn all_free(&self, blocks: Range<u64>) -> bool {
        let groups = self.groups.lock();
        let is_free = |block: u64| {
            let group = groups.groups.get((block / GROUP_BLOCKS) as usize);
            let (word, bit) = (block % GROUP_BLOCKS / 64, block % 64);
            self.contains(block)
                && group.is_some_and(|group| match &group.used {
                    Some(used) => used[word as usize] >> bit & 1 == 0,
                    None => group.free > 0,
                })
        };
        blocks.into_iter().all(is_free)
    }

    /// Takes `block` as used; false if it was already, or is none of ours.
    pub fn mark_used(&self, block: u64) -> bool {
        let mut groups = self.groups.lock();
        let taken = self.contains(block) && groups.set(self, block);
        self.free_hint.store(groups.free, Ordering::Relaxed);
        taken
    }

    /// Takes a bitmap from the tree: blocks whose bit is set are used, and those that are already
    /// are added to `twice`. False if a bit is none of a data block's.
    pub fn load_group(&self, group: u64, bits: &GroupBits, twice: &mut Vec<u64>) -> bool {
        if group >= self.end.div_ceil(GROUP_BLOCKS) {
            return false;
        }
        let (mut groups, mut used) = (self.groups.lock(), 0);
        if bits.iter().any(|word| *word != 0) {
            let own = groups.bits(self, group as usize);
            for (first, (own, word)) in (0u64..).step_by(64).zip(own.iter_mut().zip(bits)) {
                let both = (0..64).filter(|bit| *own & word & (1 << bit) != 0);
                twice.extend(both.map(|bit| group * GROUP_BLOCKS + first + bit));
                used += u64::from((word & !*own).count_ones());
                *own |= word;
            }
            groups.taken_in(group as usize, used);
        }
        self.free_hint.store(groups.free, Ordering::Relaxed);
        twice.iter().all(|block| self.contains(*block))
    }

    /// Takes up to `want` blocks in as few runs as can be had; fewer are given when fewer are free
    /// beyond what is kept back.
    pub fn take(&self, want: u64, purpose: Purpose, runs: &mut Vec<Run>) -> u64 {
        if fails(Fault::Space) || (purpose != Purpose::Checkpoint && fails(Fault::Full)) {
            return 0;
        }
        let keep = match purpose {
            Purpose::Data => self.reserve(),
            Purpose::Exchange => {
                self.promised.load(Ordering::Relaxed).max(self.reserve_min / LEAST_SHARE)
            }
            Purpose::Checkpoint => 0,
        };
        let mut groups = self.groups.lock();
        let mut left = want.min(groups.free.saturating_sub(keep));
        let mut taken = 0;
        let mut visited = 0;
        while left > 0 && visited <= groups.groups.len() {
            let cursor = groups.cursor;
            let got = groups.take_in(self, cursor, left, runs);
            taken += got;
            left -= got;
            if left > 0 {
                groups.cursor = (cursor + 1) % groups.groups.len();
                visited += 1;
            }
        }
        self.free_hint.store(groups.free, Ordering::Relaxed);
        taken
    }

    /// A batch of single blocks that came back, if one lies ready.
    pub fn take_returned(&self) -> Option<Vec<u64>> {
        if fails(Fault::Full) { None } else { self.returned.lock().pop() }
    }

    /// Gives blocks back for reuse as they are: nothing on the medium needs them any more.
    pub fn give_batch(&self, blocks: Vec<u64>) {
        if blocks.len() > BATCH_BLOCKS_MAX {
            self.give(&blocks);
        } else if !blocks.is_empty() {
            let mut returned = self.returned.lock();
            returned.push(blocks);
            let many = returned.len() > BATCHES_MAX;
            drop(returned);
            if many {
                self.settle();
            }
        }
    }

    /// Gives blocks back to their groups.
    pub fn give(&self, blocks: &[u64]) {
        let mut groups = self.groups.lock();
        for block in blocks.iter().copied().filter(|block| !self.withdrawn.has(*block)) {
            if !groups.clear(self, block) {
                // two owners let go of it: the trees were damaged before
                self.freed_twice.store(true, Ordering::Relaxed);
            }
        }
        self.free_hint.store(groups.free, Ordering::Relaxed);
    }

    /// Moves all returned batches into the groups, where runs can form again.
    pub fn settle(&self) {
        let batches = std::mem::take(&mut *self.returned.lock());
        for batch in batches {
            self.give(&batch);
        }
    }
}

impl Groups {
    fn all_free(first: u64, end: u64) -> Groups {
        let groups = (0..end.div_ceil(GROUP_BLOCKS))
            .map(|group| Group { used: None, free: data_blocks(group, first, end) });
        Groups { groups: groups.collect(), free: end - first, cursor: 0 }
    }

    fn bits(&mut self, space: &Space, group: usize) -> &mut GroupBits {
        let Group { used, free } = &mut self.groups[group];
        used.get_or_insert_with(|| {
            if *free == 0 {
                return Box::new([u64::MAX; WORDS]);
            }
            // blocks of the group that are outside the slice's data are never free
            let mut bits = Box::new([u64::MAX; WORDS]);
            let start = group as u64 * GROUP_BLOCKS;
            let first = space.first.clamp(start, start + GROUP_BLOCKS) - start;
            let end = space.end.clamp(start, start + GROUP_BLOCKS) - start;
            (first..end).for_each(|bit| bits[bit as usize / 64] &= !(1 << (bit % 64)));
            bits
        })
    }

    fn set(&mut self, space: &Space, block: u64) -> bool {
        let (group, bit) = ((block / GROUP_BLOCKS) as usize, block % GROUP_BLOCKS);
        let word = &mut self.bits(space, group)[bit as usize / 64];
        if *word & (1 << (bit % 64)) != 0 {
            return false;
        }
        *word |= 1 << (bit % 64);
        self.taken_in(group, 1);
        true
    }

    /// `count` blocks of `group` are used that were free.
    fn taken_in(&mut self, group: usize, count: u64) {
        self.groups[group].free -= count as u32;
        self.free -= count;
        if self.groups[group].free == 0 {
            self.groups[group].used = None;
        }
    }

    fn clear(&mut self, space: &Space, block: u64) -> bool {
        if !space.contains(block) {
            return false;
        }
        let (group, bit) = ((block / GROUP_BLOCKS) as usize, block % GROUP_BLOCKS);
        if self.groups[group].used.is_none() && self.groups[group].free != 0 {
            return false;
        }
        let word = &mut self.bits(space, group)[bit as usize / 64];
        let was = *word & (1 << (bit % 64)) != 0;
        *word &= !(1 << (bit % 64));
        if was {
            self.free += 1;
            let Group { used, free } = &mut self.groups[group];
            *free += 1;
            if *free == data_blocks(group as u64, space.first, space.end) {
                *used = None;
            }
        }
        was
    }

    fn take_in(&mut self, space: &Space, group: usize, want: u64, runs: &mut Vec<Run>) -> u64 {
        if self.groups[group].free == 0 {
            return 0;
        }
        let base = group as u64 * GROUP_BLOCKS;
        let bits = self.bits(space, group);
        let mut taken = 0;
        'words: for (index, word) in bits.iter_mut().enumerate() {
            while *word != u64::MAX {
                let first = word.trailing_ones();
                let free = (*word >> first).trailing_zeros().min(64 - first);
                let count = u64::from(free).min(want - taken);
                let mask = if count == 64 { u64::MAX } else { ((1 << count) - 1) << first };
                *word |= mask;
                push_run(runs, base + index as u64 * 64 + u64::from(first), count);
                taken += count;
                if taken == want {
                    break 'words;
                }
            }
        }
        self.taken_in(group, taken);
        taken
    }
}

/// Blocks of `group` that lie in `first..end`.
fn data_blocks(group: u64, first: u64, end: u64) -> u32 {
    let low = (group * GROUP_BLOCKS).max(first);
    let high = ((group + 1) * GROUP_BLOCKS).min(end);
    high.saturating_sub(low) as u32
}

fn push_run(runs: &mut Vec<Run>, first: u64, count: u64) {
    match runs.last_mut() {
        Some(last) if last.first + last.count == first => last.count += count,
        _ => runs.push(Run { first, count }),
    }
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
