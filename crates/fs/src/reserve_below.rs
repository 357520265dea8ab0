//! Space that is set aside on the capacity tier.
//!
//! A hole can be reserved on a device as well as in a slice: what is promised is that its bytes
//! have room, wherever. Nothing is written there: who writes into such a hole takes a block of a
//! slice as for any other write, and the one on the device is free then, so that a block of the
//! slices can move there. On a pool that is full, tier and all, the slices lend that one block
//! meanwhile (`Reclaim::exchange`).

use crate::clock::now;
use crate::core::Core;
use crate::error::Result;
use crate::inode::Inode;
use crate::item;
use crate::moves::Alive;
use pool::{BlockAddr, Extent, KIND_CHANGE, RecordBuffer};
use std::sync::Arc;

impl Core {
    /// Blocks to be reserved for these holes: on the tier while it has room.
    pub fn take_for_reserve(
        &self,
        inode: &Inode,
        holes: &[u64],
        extents: &mut Vec<Extent>,
    ) -> Result<Vec<BlockAddr>> {
        let below = self.take_below(None, holes.len() as u64, extents) as usize;
        let mut addrs: Vec<BlockAddr> = extents.iter().flat_map(Extent::blocks).collect();
        addrs.extend(self.take_placed(inode, &holes[below..], extents)?);
        self.count_taken(&addrs);
        Ok(addrs)
    }

    /// Reserves holes on the tier that are reserved in slices, as far as it has room, on the
    /// devices near this slice first; gives how many.
    pub fn reserve_below(
        &self,
        inode: &Arc<Inode>,
        blocks: &[u64],
        near: Option<u8>,
    ) -> Result<u64> {
        let mut extents = Vec::new();
        self.find_below(near, blocks.len() as u64, &mut extents);
        let places: Vec<BlockAddr> = extents.iter().flat_map(Extent::blocks).collect();
        let done = self.change(|| self.reserve_there(inode, blocks, &places));
        let moved = *done.as_ref().unwrap_or(&0);
        let unused = places[moved as usize..].iter();
        extents = unused.map(|addr| Extent { addr: *addr, count: 1 }).collect();
        self.pool.reclaim().give_extents(&mut extents);
        done
    }

    /// Reserves what is reserved of these blocks in slices in the first of these places; gives how
    /// many it took.
    fn reserve_there(
        &self,
        inode: &Arc<Inode>,
        blocks: &[u64],
        places: &[BlockAddr],
    ) -> Result<u64> {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Ok(0) };
        let _range = inode.ranges.lock(*first, *last);
        let Some(alive) = Alive::of(inode) else { return Ok(0) };
        let mut near = Vec::new();
        for block in blocks {
            if self.reserved(inode, *block)?.is_some() {
                near.push(*block);
            }
        }
        let (runs, _) = self.runs_of(&near, places);
        let count = runs.iter().map(|run| run.blocks).sum();
        if count == 0 {
            return Ok(0);
        }
        let mut record = RecordBuffer::new(KIND_CHANGE, now());
        item::push_reserve(&mut record, alive.inode.ino, &runs);
        let publish = |freed: &mut _| self.publish_runs(inode, &runs, freed);
        let freed = self.log_places(&alive, &mut record, publish)?;
        self.retire(&freed);
        Ok(count)
    }
}
