//! Writing back all that can lie on the capacity tier, for who asks for it.
//!
//! What was written before a flush begins is on the tier when it ends, whoever moved it there. The
//! gate is closed for a moment, so that every change before has listed its leaf, and all leaves
//! that are listed are dealt. Then, slice by slice: batches that are under way may let blocks off,
//! so they are waited for, and their leaves are in the line again; from then on everybody takes all
//! blocks of a leaf, until the line was gone through once. What others have in their hands then is
//! waited for once more.

use crate::error::Result;
use crate::system::FileSystem;
use crate::write_back::BATCH_BLOCKS;
use pmem::Domain;
use pool::BLOCK_BYTES;
use tier::Tier;

/// Blocks that are moved between two looks whether to go on.
const LOOK_BLOCKS: u64 = 4 * BATCH_BLOCKS as u64;
/// How often a line is gone through again, of which something was left: it changed while it was
/// moved, or the device failed.
const ROUNDS_MAX: u32 = 8;

/// How far a flush is, and who is told.
struct Progress<'e> {
    moved: u64,
    told: u64,
    /// About how many blocks are to be moved.
    of: u64,
    each: &'e mut dyn FnMut(u64, u64) -> bool,
}

impl Progress<'_> {
    /// Whether to go on.
    fn tell(&mut self) -> bool {
        self.told = self.moved;
        (self.each)(self.moved * BLOCK_BYTES, self.of.max(self.moved) * BLOCK_BYTES)
    }

    /// So many more blocks are moved; whether to go on.
    fn add(&mut self, blocks: u64) -> bool {
        self.moved += blocks;
        self.moved - self.told < LOOK_BLOCKS || self.tell()
    }
}

impl FileSystem {
    /// Moves all blocks to the capacity tier that can be there, as far as it has room; gives how
    /// many it moved. What was written before is there when it returns, and nowhere else but in
    /// clean copies.
    pub fn write_back_all(&self) -> Result<u64> {
        Ok(self.write_back_watched(&mut |_, _| true)?.unwrap_or_default())
    }

    /// The same. `each` is told how many bytes are moved, of about how many, and ends it by
    /// returning false: then it gives nothing, and what was moved stays so.
    pub fn write_back_watched(
        &self,
        each: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<u64>> {
        let core = &self.core;
        core.pool.check_writable()?;
        let of = core.tier_stats().map_or(0, |stats| stats.slice_blocks_used);
        let mut progress = Progress { moved: 0, told: 0, of, each };
        if !progress.tell() {
            return Ok(None);
        }
        let Some(tier) = &core.tier else { return Ok(Some(0)) };
        match core.pool.domain() {
            // what small writes left in the log is written to its blocks
            Domain::Sync => core.wait_for_checkpoint()?,
            _ => drop(core.pool.close_gate()),
        }
        core.deal_all()?;
        for slice in 0..core.write_back.slices.len() {
            if !self.flush(tier, slice, &mut progress)? {
                return Ok(None);
            }
        }
        Ok(Some(progress.moved))
    }

    /// Moves all blocks of a slice; false if that is not to go on.
    fn flush(&self, tier: &Tier, slice: usize, progress: &mut Progress<'_>) -> Result<bool> {
        let line = &self.core.write_back.slices[slice].line;
        let _all = line.flush();
        line.wait();
        for _ in 0..ROUNDS_MAX {
            let (incomplete, end) = (line.incomplete(), line.end());
            while let Some(done) = self.core.write_batch(tier, slice, end)? {
                if !progress.add(done) {
                    return Ok(false);
                }
                if done == 0 && self.core.is_full_below() {
                    return Ok(true);
                }
            }
            line.wait();
            if line.incomplete() == incomplete {
                break;
            }
        }
        Ok(true)
    }
}
