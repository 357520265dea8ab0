//! Check of a pool that is in use.
//!
//! What the trees say is checked as of a checkpoint that begins with the check: an epoch is pinned,
//! so that no page of it is used again meanwhile. Blocks change in place, so what lies in them is
//! compared with the checksums of now: leaf by leaf, under the lock of the leaf's range, while its
//! writers wait for the moment that it takes to read half a megabyte; they never wait for a device
//! (`check_below.rs`). What was made since is not
//! looked at: it is not older than the check.

use crate::check::{CheckReport, Each, Later, State, checked};
use crate::core::Core;
use crate::error::Result;
use crate::inode::Inode;
use crate::leaf::LEAF_BLOCKS;
use crate::leaves::leaf_of;
use crate::read_block::damaged_block;
use crate::second_copy::{Copies, one_copy};
use crate::slot::SlotView;
use crate::system::FileSystem;
use pool::{BLOCK_BYTES, Folded, Pages};

/// Leaves whose data is verified before it rests.
pub const BATCH_LEAVES: usize = 4;
/// How often trees are looked at in which something is wrong.
const LOOKS: usize = 3;

impl FileSystem {
    /// Verifies what the pool stores while it is in use. `each` is told how many bytes of data are
    /// done, of how many; it ends the check by returning false.
    pub fn check(&self, each: &mut dyn FnMut(u64, u64) -> bool) -> Result<Option<CheckReport>> {
        let core = &*self.core;
        let (mut report, mut later) = (CheckReport::default(), Later::default());
        for _ in 0..LOOKS {
            if !core.pool.read_only() {
                core.checkpoint()?;
            }
            (report, later) = core.check_trees();
            // a block that was freed while a checkpoint was made may be a page of it and, until the
            // next one, belong to its file, too
            if report.findings.is_empty() || core.pool.read_only() {
                break;
            }
        }
        let (leaves, names) = later;
        let leaf_bytes = LEAF_BLOCKS * BLOCK_BYTES;
        let of = leaves.len() as u64 * leaf_bytes;
        for (done, batch) in (0..).step_by(BATCH_LEAVES).zip(leaves.chunks(BATCH_LEAVES)) {
            if !each(done * leaf_bytes, of) {
                return Ok(None);
            }
            core.check_leaves(batch, &mut report, None);
        }
        each(of, of);
        report.add_paths(&names);
        Ok(Some(report))
    }
}

impl Core {
    /// Checks the trees of the last checkpoint; gives the leaves whose data is to be looked at.
    fn check_trees(&self) -> (CheckReport, Later) {
        // the pages, and the blocks that they name, are not used again before it ends
        let _pin = crossbeam_epoch::pin();
        let state = State { leaves: Some(Vec::new()), ..State::default() };
        self.check_roots(state, &mut |_, _| ())
    }

    /// Checks the trees of an engine whose log is empty, and that nobody else has.
    pub(crate) fn check_all(&self, each: Each<'_>) -> CheckReport {
        self.check_roots(State::default(), each).0
    }

    fn check_roots(&self, state: State, each: Each<'_>) -> (CheckReport, Later) {
        let roots = self.pool.roots();
        let folded = Folded { trees: roots.trees.clone(), spaces: roots.spaces.clone() };
        let pages = Pages::in_memory();
        checked(self, (&folded, &pages), CheckReport::default(), state, each)
    }

    /// Verifies the data of a leaf in slices, in all copies; what lies on devices is for `later`.
    /// With `mended` damaged copies are written again from whole ones, and told there; without it
    /// they are findings.
    pub(crate) fn check_leaf(
        &self,
        inode: &Inode,
        index: u64,
        report: &mut CheckReport,
        mended: &mut Option<&mut Vec<String>>,
        later: &mut dyn FnMut(u64, SlotView),
    ) {
        let first = index * LEAF_BLOCKS;
        let _range = inode.ranges.lock(first, first + LEAF_BLOCKS - 1);
        // not before the lock: who waits must not keep blocks from being used again
        let _pin = crossbeam_epoch::pin();
        for block in first..first + LEAF_BLOCKS {
            let place = || format!("inode {}, file offset {}", inode.ino.0, block * BLOCK_BYTES);
            let view = match self.view_block(inode, block) {
                Ok(view) => view,
                // the leaf as a whole: once is enough
                Err(error) => return report.add(place(), error.to_string()),
            };
            if view.addr.is_none() {
                continue;
            }
            report.blocks += 1;
            if view.addr.device().is_some() {
                later(block, view);
                continue;
            }
            let patches = view.patches.as_deref();
            let verify = |mend| self.verify_copies(view.addr, patches, view.crc, mend);
            let mut verified = verify(false);
            if let (Ok(Copies::Damaged(..)), true) = (&verified, mended.is_some()) {
                // who reads it meanwhile reads again
                let (index, _) = leaf_of(block);
                let leaf = inode.map.cached(index);
                let _lock = leaf.as_ref().and_then(|leaf| leaf.lock());
                verified = verify(true);
            }
            match verified {
                Ok(Copies::Whole) => {}
                Ok(Copies::Damaged(..)) if self.unsettled.lock().contains(&view.addr) => {}
                Ok(Copies::Damaged(which, true)) => {
                    mended.iter_mut().for_each(|told| told.push(one_copy(view.addr, which)));
                }
                Ok(Copies::Damaged(which, false)) => {
                    report.add(place(), one_copy(view.addr, which))
                }
                Ok(Copies::Lost) => {
                    report.add(place(), damaged_block(inode, block, view.addr).to_string());
                }
                Err(error) => report.add(place(), error.to_string()),
            }
        }
    }
}
