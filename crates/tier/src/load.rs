//! Reading blocks of the devices into the memory of the caches.

use crate::aligned::Blocks;
use crate::frames::Frame;
use crate::page::Page;
use crate::tier::{Tier, transfer};
use pool::{BLOCK_BYTES, BlockAddr, Capacity, Result, Transfer};
use std::sync::Arc;

/// A block that is to be read, and its memory.
pub struct Load {
    pub addr: BlockAddr,
    /// Under which its cache is told what came of it.
    pub number: u64,
    pub frame: Frame,
}

/// Reads that are under way: whatever happens, nobody waits for them for ever.
struct Loads<'t> {
    tier: &'t Tier,
    left: Vec<Load>,
}

impl Drop for Loads<'_> {
    fn drop(&mut self) {
        for load in &self.left {
            self.tier.cache(load.addr).loaded(load.addr, load.number, None);
        }
    }
}

impl Tier {
    /// A read that this call has to make: it gets memory in any case.
    pub fn to_load(&self, addr: BlockAddr, number: u64) -> Load {
        let frame = self.cache(addr).frame().unwrap_or_else(Frame::on_heap);
        Load { addr, number, frame }
    }

    /// Makes these reads, and holds the pages for this thread.
    pub fn load(&self, devices: &[Capacity], mut wanted: Vec<Load>) -> Result<()> {
        wanted.sort_unstable_by_key(|load| load.addr);
        let mut loads = Loads { tier: self, left: wanted };
        while let Some(first) = loads.left.first().map(|load| load.addr) {
            // all that one device has is asked of it at once: it reads side by side
            let of_device = |load: &&Load| load.addr.device() == first.device();
            let count = loads.left.iter().take_while(of_device).count();
            fill(devices, &mut loads.left[..count])?;
            self.was_read(count as u64);
            for Load { addr, number, frame } in loads.left.drain(..count) {
                let page = Arc::new(Page::new(frame));
                self.cache(addr).loaded(addr, number, Some(&page));
                self.hold(addr, page);
            }
        }
        Ok(())
    }
}

/// Reads blocks of one device, in the order in which they lie there, in one call. One block goes to
/// its frame by itself; neighbours are one transfer, which frames anywhere in memory cannot take.
fn fill(devices: &[Capacity], loads: &mut [Load]) -> Result<()> {
    let Some(first) = loads.first().map(|load| load.addr) else { return Ok(()) };
    let is_next = |one: &Load, next: &Load| one.addr.bits() + 1 == next.addr.bits();
    let together = loads.chunk_by(is_next).map(<[Load]>::len).filter(|len| *len > 1);
    let mut blocks = Blocks::new(together.sum());
    let (mut rest, mut transfers) = (blocks.bytes_mut(), Vec::new());
    for run in loads.chunk_by_mut(is_next) {
        let (block, len) = (run[0].addr.block(), run.len());
        let into = match run {
            [load] => load.frame.bytes_mut(),
            _ => rest.split_off_mut(..len * BLOCK_BYTES as usize).unwrap_or_default(),
        };
        transfers.push(Transfer::Read(block, into));
    }
    transfer(devices, first, &mut transfers)?;
    let mut read = blocks.bytes().chunks_exact(BLOCK_BYTES as usize);
    let runs = loads.chunk_by_mut(is_next).filter(|run| run.len() > 1);
    for (load, bytes) in runs.flatten().zip(&mut read) {
        load.frame.bytes_mut().copy_from_slice(bytes);
    }
    Ok(())
}
