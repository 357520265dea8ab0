//! Writing back all that can lie on the capacity tier, for who asks for it.

use crate::error::Result;
use crate::system::FileSystem;
use crate::write_back::BATCH_BLOCKS;
use pool::BLOCK_BYTES;

/// Blocks that are moved between two looks whether to go on.
const LOOK_BLOCKS: u64 = 4 * BATCH_BLOCKS as u64;

impl FileSystem {
    /// Moves all blocks to the capacity tier that can be there, as far as it has room; gives how
    /// many it moved.
    pub fn write_back_all(&self) -> Result<u64> {
        self.core.write_back(u64::MAX)
    }

    /// The same. `each` is told how many bytes are moved, of about how many, and ends it by
    /// returning false: then it gives nothing, and what was moved stays so.
    pub fn write_back_watched(
        &self,
        each: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<u64>> {
        self.core.pool.check_writable()?;
        let of = self.core.tier_stats().map_or(0, |stats| stats.slice_blocks_used);
        let mut moved = 0;
        while each(moved * BLOCK_BYTES, of.max(moved) * BLOCK_BYTES) {
            let more = self.core.write_back(LOOK_BLOCKS)?;
            moved += more;
            // what others write meanwhile is not waited for
            if more < LOOK_BLOCKS || moved >= of {
                return Ok(Some(moved));
            }
        }
        Ok(None)
    }
}
