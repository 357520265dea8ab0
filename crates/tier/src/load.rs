//! Reading blocks of the devices into the memory of the caches.

use crate::frames::Frame;
use crate::page::Page;
use crate::tier::{Tier, scatter};
use pool::{BlockAddr, Capacity, Result, Scatter};
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

/// Reads blocks of one device, in the order in which they lie there, in one call: neighbours
/// together, and each straight into its frame.
fn fill(devices: &[Capacity], loads: &mut [Load]) -> Result<()> {
    let Some(first) = loads.first().map(|load| load.addr) else { return Ok(()) };
    let runs = loads.chunk_by_mut(|one, next| one.addr.bits() + 1 == next.addr.bits());
    let mut runs: Vec<Scatter<'_>> = runs
        .map(|run| Scatter {
            block: run[0].addr.block(),
            into: run.iter_mut().map(|load| load.frame.bytes_mut()).collect(),
        })
        .collect();
    scatter(devices, first, &mut runs)
}
