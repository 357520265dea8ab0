//! Blocks between owners: caches of free blocks by CPU, and blocks that readers may still hold.
//!
//! A block is used again only when
//! - the record that freed it is durable: `retire` is called after that record's fence;
//! - no reader's epoch holds it: a batch passes through `crossbeam_epoch`;
//! - in the `sync` domain, the epoch of syncs in which it was freed is closed.
//!
//! That its *writer's* record may be the unsealed last one of its lane needs no wait: recovery
//! takes such a record as complete without looking at its blocks when a complete record with a
//! higher stamp replaced any block of it (`fs`'s replay), and only such a record frees a block.
//!
//! Checked by loom: `tests/loom_reclaim.rs`.

use crate::addr::{BlockAddr, Extent};
use crate::error::{Error, Result};
use crate::space::{Purpose, Run, Space};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, epoch, recent_cpu, sleep, yield_now};
use crossbeam_utils::CachePadded;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Account;
use topology::place_of;

/// Blocks that go through an epoch together.
const BATCH_BLOCKS: usize = 64;
/// How long `gather` waits for readers, in rounds, most of them of 100 us: while the caller holds
/// locks, and when it holds none.
const GATHER_ROUNDS_LOCKED: u32 = 128;
const GATHER_ROUNDS: u32 = 2000;
/// The first rounds only yield.
const GATHER_ROUNDS_SHORT: u32 = 64;
/// Most free blocks in one CPU's cache after a refill.
const CACHE_BLOCKS: u64 = 64;

#[derive(Debug)]
struct CpuBlocks {
    /// Free blocks, by slice.
    free: Vec<Vec<u64>>,
    /// Freed by durable records, not yet given to an epoch.
    retired: Vec<BlockAddr>,
}

/// Blocks between owners.
#[derive(Debug)]
pub struct Reclaim {
    spaces: Vec<Arc<Space>>,
    /// Those of the capacity tier's devices.
    below: Vec<Arc<Space>>,
    cpus: Box<[CachePadded<Mutex<CpuBlocks>>]>,
    /// Blocks that wait for readers.
    waiting: AtomicU64,
    /// The same for each slice, and behind these for each device. Nobody waits for what they say
    /// but who looks again soon, so they are in no model.
    waiting_in: Box<[Account]>,
    /// `sync` domain: blocks that wait for the open epoch to close; `None` in the other domains.
    open_epoch: Option<Mutex<Vec<BlockAddr>>>,
}

/// Whether all of these lie on one slice or device. Without an early end it is a vector's loop.
fn are_together(blocks: &[BlockAddr]) -> bool {
    let slice = blocks.first().map_or(0, |addr| addr.slice());
    blocks.iter().fold(true, |all, addr| all & (addr.slice() == slice))
}

/// Takes up to so many blocks, each of which has the address that its number says.
fn take_from(
    space: &Space,
    want: u64,
    purpose: Purpose,
    addr: impl Fn(u64) -> BlockAddr,
    extents: &mut Vec<Extent>,
) -> u64 {
    let mut runs: Vec<Run> = Vec::new();
    let taken = space.take(want, purpose, &mut runs);
    extents.extend(runs.iter().map(|run| Extent { addr: addr(run.first), count: run.count }));
    taken
}

impl Reclaim {
    pub(crate) fn new(
        spaces: Vec<Arc<Space>>,
        below: Vec<Arc<Space>>,
        cpus: usize,
        synced: bool,
    ) -> Reclaim {
        let none = || CpuBlocks { free: vec![Vec::new(); spaces.len()], retired: Vec::new() };
        let cpus = (0..cpus.max(1)).map(|_| CachePadded::new(Mutex::new(none()))).collect();
        let open_epoch = synced.then(Mutex::default);
        let waiting_in = (0..spaces.len() + below.len()).map(|_| Account::new(0)).collect();
        Reclaim { spaces, below, cpus, waiting: AtomicU64::new(0), waiting_in, open_epoch }
    }

    /// Where what is kept for each slice, and behind these for each device, has a block's.
    fn place(&self, addr: BlockAddr) -> usize {
        match addr.device() {
            Some(device) => self.spaces.len() + device,
            None => usize::from(addr.slice()),
        }
    }

    fn waiting_in(&self, addr: BlockAddr) -> &Account {
        &self.waiting_in[self.place(addr)]
    }

    #[inline]
    fn cpu(&self) -> &Mutex<CpuBlocks> {
        &self.cpus[place_of(recent_cpu() as usize, self.cpus.len())]
    }

    /// The free blocks of the slice or device of a block that somebody owned.
    fn space(&self, addr: BlockAddr) -> &Space {
        match addr.device() {
            Some(device) => &self.below[device],
            None => &self.spaces[usize::from(addr.slice())],
        }
    }

    /// Up to `count` blocks of a device, in as few extents as can be had.
    pub fn take_below(&self, device: usize, count: u64, extents: &mut Vec<Extent>) -> u64 {
        let Some(space) = self.below.get(device) else { return 0 };
        space.settle();
        take_from(space, count, Purpose::Data, |it| BlockAddr::on_device(device, it), extents)
    }

    /// Up to so many blocks of this slice alone.
    pub fn take_on(&self, slice: u8, count: u64, extents: &mut Vec<Extent>) -> u64 {
        self.take_all(usize::from(slice), count, Purpose::Data, extents)
    }

    /// The same for any purpose.
    fn take_all(&self, slice: usize, want: u64, purpose: Purpose, to: &mut Vec<Extent>) -> u64 {
        let taken = self.take(slice, want, purpose, to);
        if taken == want {
            return taken;
        }
        // what came back lies ready for single blocks: better that than another slice
        self.spaces[slice].settle();
        taken + self.take(slice, want - taken, purpose, to)
    }

    /// One block, on slice `near` if it has any.
    #[inline(always)] // on the way of the commonest write, whose instructions are counted
    pub fn allocate_one(&self, near: u8) -> Result<BlockAddr> {
        if pmem::fails(pmem::Fault::Full) {
            return Err(Error::NoSpace);
        }
        let mut cpu = self.cpu().lock();
        let free = &mut cpu.free[usize::from(near)];
        if let Some(block) = free.pop() {
            return Ok(BlockAddr::new(near, block));
        }
        self.refill(free, near);
        if let Some(block) = free.pop() {
            return Ok(BlockAddr::new(near, block));
        }
        drop(cpu);
        let mut extents = Vec::with_capacity(1);
        self.allocate(1, near, &mut extents)?;
        extents.first().map(|extent| extent.addr).ok_or(Error::NoSpace)
    }

    fn refill(&self, free: &mut Vec<u64>, near: u8) {
        let space = &self.spaces[usize::from(near)];
        if !space.has_room() {
            // what came back may be what the reserve lent
            space.settle();
        } else if let Some(batch) = space.take_returned() {
            *free = batch;
            return;
        }
        // a small share of what is left, so that no CPU sits on blocks that another needs
        let want = (space.free() / (4 * self.cpus.len() as u64)).clamp(1, CACHE_BLOCKS);
        let mut runs = Vec::new();
        space.take(want, Purpose::Data, &mut runs);
        // popped from the back: descending, so that they are given out in ascending order
        free.extend(runs.iter().flat_map(|run| run.first..run.first + run.count));
        free.reverse();
    }

    /// `count` blocks in as few extents as can be had, on `near` first, then on the others.
    /// All or nothing.
    pub fn allocate(&self, count: u64, near: u8, extents: &mut Vec<Extent>) -> Result<()> {
        if count == 0 || self.allocate_for(count, near, Purpose::Data, extents) {
            return Ok(());
        }
        self.gather(GATHER_ROUNDS_LOCKED);
        match self.allocate_for(count, near, Purpose::Data, extents) {
            true => Ok(()),
            false => Err(Error::NoSpace),
        }
    }

    /// The same for blocks that take the places of as many others, on a full pool: some of what is
    /// kept back for checkpoints is lent to them.
    pub fn exchange(&self, count: u64, near: u8, extents: &mut Vec<Extent>) -> Result<()> {
        if self.allocate_for(count, near, Purpose::Exchange, extents) {
            return Ok(());
        }
        let loan: u64 = self.spaces.iter().map(|space| space.loan()).sum();
        Err(if count <= loan { Error::Lent } else { Error::NoSpace })
    }

    /// The same for one block.
    pub fn exchange_one(&self, near: u8) -> Result<BlockAddr> {
        let mut extents = Vec::with_capacity(1);
        self.exchange(1, near, &mut extents)?;
        extents.first().map(|extent| extent.addr).ok_or(Error::NoSpace)
    }

    fn allocate_for(
        &self,
        count: u64,
        near: u8,
        purpose: Purpose,
        extents: &mut Vec<Extent>,
    ) -> bool {
        let mut left = count;
        let slices = self.spaces.len();
        for step in 0..slices {
            let slice = (usize::from(near) + step) % slices;
            left -= match step == 0 && slices > 1 {
                true => self.take_all(slice, left, purpose, extents),
                false => self.take(slice, left, purpose, extents),
            };
            if left == 0 {
                return true;
            }
        }
        self.give_extents(extents);
        false
    }

    fn take(&self, slice: usize, want: u64, purpose: Purpose, extents: &mut Vec<Extent>) -> u64 {
        take_from(&self.spaces[slice], want, purpose, |it| BlockAddr::new(slice as u8, it), extents)
    }

    /// Gives back blocks that nothing on the medium names: a change that did not happen.
    pub fn give_extents(&self, extents: &mut Vec<Extent>) {
        for extent in extents.drain(..) {
            let blocks: Vec<u64> = extent.blocks().map(|addr| addr.block()).collect();
            self.space(extent.addr).give(&blocks);
        }
    }

    /// Gives back one such block.
    pub fn give_one(&self, addr: BlockAddr) {
        self.space(addr).give(&[addr.block()]);
    }

    /// A durable record freed these blocks.
    pub fn retire(self: &Arc<Reclaim>, blocks: &[BlockAddr]) {
        let mut cpu = self.cpu().lock();
        cpu.retired.extend_from_slice(blocks);
        if cpu.retired.len() >= BATCH_BLOCKS {
            self.retire_batch(cpu);
        }
    }

    /// The same for one block.
    #[inline]
    pub fn retire_one(self: &Arc<Reclaim>, block: BlockAddr) {
        let mut cpu = self.cpu().lock();
        cpu.retired.push(block);
        if cpu.retired.len() >= BATCH_BLOCKS {
            self.retire_batch(cpu);
        }
    }

    #[cold]
    fn retire_batch(self: &Arc<Reclaim>, mut cpu: MutexGuard<'_, CpuBlocks>) {
        let batch = std::mem::replace(&mut cpu.retired, Vec::with_capacity(BATCH_BLOCKS));
        drop(cpu);
        self.pass_on(batch);
    }

    fn pass_on(self: &Arc<Reclaim>, batch: Vec<BlockAddr>) {
        match &self.open_epoch {
            Some(held) => held.lock().extend(batch),
            None => self.wait_for_readers(batch),
        }
    }

    fn wait_for_readers(self: &Arc<Reclaim>, batch: Vec<BlockAddr>) {
        if batch.is_empty() {
            return;
        }
        self.waiting.fetch_add(batch.len() as u64, Ordering::Relaxed);
        for own in batch.chunks(if are_together(&batch) { batch.len() } else { 1 }) {
            self.waiting_in(own[0]).fetch_add(own.len() as u64, Ordering::Relaxed);
        }
        let reclaim = self.clone();
        let guard = epoch::pin();
        guard.defer(move || reclaim.free(batch));
        guard.flush();
    }

    fn free(&self, mut batch: Vec<BlockAddr>) {
        let count = batch.len() as u64;
        while let Some(last) = batch.last() {
            let (last, slice) = (*last, last.slice());
            let mut rest = Vec::new();
            if !are_together(&batch) {
                rest.extend(batch.extract_if(.., |addr| addr.slice() != slice));
                // what is left would keep the memory of all of it
                batch.shrink_to_fit();
            }
            // most are of one slice: their numbers take the addresses' place in memory
            let blocks: Vec<u64> = batch.into_iter().map(BlockAddr::block).collect();
            self.waiting_in(last).fetch_sub(blocks.len() as u64, Ordering::Relaxed);
            self.space(last).give_batch(blocks);
            batch = rest;
        }
        self.waiting.fetch_sub(count, Ordering::Relaxed);
    }

    /// `sync` domain: what was freed so far belongs to the epoch that is about to close.
    pub(crate) fn take_open_epoch(&self) -> Vec<BlockAddr> {
        let mut all = self.open_epoch.as_ref().map(|held| std::mem::take(&mut *held.lock()));
        for cpu in &self.cpus {
            if let Some(all) = &mut all {
                all.append(&mut cpu.lock().retired);
            }
        }
        all.unwrap_or_default()
    }

    /// `sync` domain: the epoch in which these were freed is closed.
    pub(crate) fn epoch_closed(self: &Arc<Reclaim>, blocks: Vec<BlockAddr>) {
        self.wait_for_readers(blocks);
    }

    /// Whether there are blocks that will be free when readers have passed.
    pub fn waits_for_readers(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Blocks that are free but not in the groups: in caches, or waiting.
    pub fn held(&self) -> u64 {
        self.held_in().iter().sum()
    }

    /// The same of each slice, and behind these of each device.
    pub fn held_in(&self) -> Vec<u64> {
        let mut held: Vec<u64> =
            self.waiting_in.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        for cpu in &self.cpus {
            let cpu = cpu.lock();
            for (held, free) in held.iter_mut().zip(&cpu.free) {
                *held += free.len() as u64;
            }
            cpu.retired.iter().for_each(|addr| held[self.place(*addr)] += 1);
        }
        if let Some(epoch) = &self.open_epoch {
            epoch.lock().iter().for_each(|addr| held[self.place(*addr)] += 1);
        }
        held
    }

    /// Gathers all free blocks in the groups: the caches', and what no reader holds any more.
    pub fn gather_all(self: &Arc<Reclaim>) {
        let mut retired = Vec::new();
        for cpu in &self.cpus {
            retired.append(&mut cpu.lock().retired);
        }
        self.pass_on(retired);
        self.gather(GATHER_ROUNDS);
    }

    fn gather(&self, rounds: u32) {
        for cpu in &self.cpus {
            for (slice, space) in self.spaces.iter().enumerate() {
                let free = std::mem::take(&mut cpu.lock().free[slice]);
                space.give(&free);
            }
        }
        // epochs pass when threads pin; a few rounds are enough unless a reader is in the middle
        for round in 0..rounds {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                break;
            }
            epoch::pin().flush();
            if round < GATHER_ROUNDS_SHORT {
                yield_now();
            } else {
                sleep(std::time::Duration::from_micros(100));
            }
        }
        for space in self.spaces.iter().chain(&self.below) {
            space.settle();
        }
    }
}
