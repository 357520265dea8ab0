//! Where blocks that have several places have moved to: so that the others who name such a block
//! name the one on the tier then, and it is not written there again for each.
//!
//! When the last place of one that moved is gone, it may stay as a clean copy (`clean.rs`).
//!
//! Known in DRAM only, for as long as both live: what is forgotten costs a block of the tier for
//! each place, and nothing else. A block on the tier lives while its count is not none, and is
//! forgotten before it is free. So under the lock of these, one that is known and has a count is
//! the one that was meant.

use crate::core::Core;
use crate::error::Result;
use crate::inode::Inode;
use crate::moves::{Alive, Plan};
use parking_lot::Mutex;
use pool::BlockAddr;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most blocks that are remembered: 64 GiB of them.
const TWINS_MAX: usize = 1 << 24;

#[derive(Debug, Default)]
struct Pairs {
    below: HashMap<BlockAddr, BlockAddr>,
    above: HashMap<BlockAddr, BlockAddr>,
}

/// Shared blocks in slices, with what is the same on the tier.
#[derive(Debug, Default)]
pub struct Twins {
    pairs: Mutex<Pairs>,
    /// There were some.
    any: AtomicBool,
}

impl Twins {
    /// Whether the block lies on the tier, too.
    pub fn has(&self, addr: BlockAddr) -> bool {
        self.any.load(Ordering::Acquire) && self.pairs.lock().below.contains_key(&addr)
    }

    /// The first of each pair lies where the second is, too. Before either can be freed.
    pub fn remember(&self, twins: &[(BlockAddr, BlockAddr)]) {
        if twins.is_empty() {
            return;
        }
        let mut pairs = self.pairs.lock();
        self.any.store(true, Ordering::Release);
        for (near, far) in twins {
            if pairs.below.len() >= TWINS_MAX {
                return;
            }
            if let Some(before) = pairs.below.insert(*near, *far) {
                pairs.above.remove(&before);
            }
            pairs.above.insert(*far, *near);
        }
    }

    /// These blocks are about to be free.
    pub fn forget(&self, addrs: &[BlockAddr]) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let Pairs { below, above } = &mut *self.pairs.lock();
        for addr in addrs {
            let (own, other) = match addr.device() {
                None => (&mut *below, &mut *above),
                Some(_) => (&mut *above, &mut *below),
            };
            if let Some(twin) = own.remove(addr) {
                other.remove(&twin);
            }
        }
    }
}

impl Core {
    /// Has a file name shared blocks where they lie on the tier; gives how many.
    pub fn move_to_twins(&self, inode: &Arc<Inode>, blocks: &[u64]) -> Result<u64> {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Ok(0) };
        let _range = inode.ranges.lock(*first, *last);
        let Some(alive) = Alive::of(inode) else { return Ok(0) };
        let mut plan = Plan::default();
        let planned = self.plan_twins(inode, blocks, &mut plan);
        self.log_moves(&alive, plan, planned)
    }

    /// Keeps blocks of slices that nobody names any more as clean copies of those on the tier that
    /// are the same, while there is room; the others stay in `last`.
    ///
    /// Who frees such a block of the tier has it forgotten here first, and lets go of its copy
    /// then: he finds one that was kept before.
    pub fn keep_twins(&self, last: &mut Vec<BlockAddr>) {
        let twins = &self.references.twins;
        let Some(tier) = self.tier.as_ref().filter(|_| twins.any.load(Ordering::Acquire)) else {
            return;
        };
        let mut kept = HashSet::new();
        for own in last.chunk_by(|one, next| one.slice() == next.slice()) {
            if own[0].device().is_some() || self.is_crowded(own[0].slice()) {
                continue;
            }
            let Pairs { below, above } = &mut *twins.pairs.lock();
            for near in own {
                let Some(far) = below.get(near).copied() else { continue };
                if tier.keep(far, *near) {
                    below.remove(near);
                    above.remove(&far);
                    kept.insert(*near);
                }
            }
        }
        last.retain(|addr| !kept.contains(addr));
    }

    fn plan_twins(&self, inode: &Inode, blocks: &[u64], plan: &mut Plan) -> Result<()> {
        for block in blocks {
            let is = self.view_block(inode, *block)?;
            if is.shared
                && is.patches.is_none()
                && let Some(far) = self.refer_to_twin(is.addr)?
            {
                plan.push_borrowed(*block, far);
            }
        }
        Ok(())
    }

    /// The block on the tier that is the same as this shared one, with one more reference counted.
    pub fn refer_to_twin(&self, near: BlockAddr) -> Result<Option<BlockAddr>> {
        let pairs = self.references.twins.pairs.lock();
        let Some(far) = pairs.below.get(&near).copied() else { return Ok(None) };
        Ok(self.refer_again(far)?.then_some(far))
    }
}
