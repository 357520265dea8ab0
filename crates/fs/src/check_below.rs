//! Check, last part: data on the capacity tier. Many blocks of a device are read in one call, side
//! by side, and nobody holds a lock meanwhile.
//!
//! In a pool in use, what was read may be old when it is compared, under the range's lock, with
//! the checksum of now. What does not fit is read once more, with others, and is damaged only if
//! it is the same block under the same checksum then.
//!
//! Scrub writes a block that is damaged on its device to another place, if there is a whole copy in
//! a slice or in DRAM. It moves as any block does (`moves.rs`): a crash leaves it where it was.

use crate::check::{CheckReport, Checker, inode_place};
use crate::cold::ColdLeaf;
use crate::core::Core;
use crate::error::Error;
use crate::inode::Inode;
use crate::patches::Patches;
use crate::read_block::damaged_block;
use crate::slot::SlotView;
use crate::types::Ino;
use pool::{BLOCK_BYTES, BlockAddr};
use std::sync::Arc;
use tier::ReadBlocks;

/// Blocks that are read together.
const BATCH_BLOCKS: usize = 512;
/// How often a block is looked at that changes each time.
const LOOKS: usize = 3;

/// A block on a device that the trees name.
pub struct Below {
    /// Where it is in a file, for a finding.
    pub place: String,
    /// Where it lies.
    pub addr: BlockAddr,
    /// What overlays it.
    pub patches: Option<Arc<Patches>>,
    /// The checksum of what is seen.
    pub crc: u32,
}

/// A block on a device that did not fit, or was not read, when it was looked at.
pub struct Late {
    /// The file.
    pub inode: Arc<Inode>,
    /// Which block of it.
    pub block: u64,
    /// Its slot then.
    pub view: SlotView,
}

/// Whether what was read is what is to be seen, or why it could not be read; `None`: it was not
/// asked for.
fn fits(
    read: &ReadBlocks,
    addr: BlockAddr,
    patches: Option<&Patches>,
    crc: u32,
) -> Option<Result<bool, String>> {
    let block = match read.get(addr)? {
        Ok(block) => block,
        Err(error) => return Some(Err(error.to_string())),
    };
    let found = match patches {
        None => pmem::crc32c(0, block),
        Some(patches) => {
            let mut seen = *block;
            patches.apply(0, &mut seen);
            pmem::crc32c(0, &seen)
        }
    };
    Some(Ok(pmem::crc_fits(found, crc)))
}

impl Checker<'_> {
    /// Verifies a block together with others, at the latest when all trees were seen.
    pub fn verify_later(&mut self, below: Below) {
        self.state.below.push(below);
        if self.state.below.len() >= BATCH_BLOCKS {
            self.verify_below();
        }
    }

    /// Verifies those that wait for it.
    pub fn verify_below(&mut self) {
        let wanted = std::mem::take(&mut self.state.below);
        let read = self.core.read_below(wanted.iter().map(|below| below.addr));
        for Below { place, addr, patches, crc } in wanted {
            match fits(&read, addr, patches.as_deref(), crc) {
                Some(Ok(true)) => {}
                Some(Err(error)) => self.report.add(place, error),
                _ => self.report.add(place, format!("the data at {} is damaged", addr.place())),
            }
        }
    }
}

impl Core {
    /// Reads blocks of devices past all caches. The caller holds no lock.
    fn read_below(&self, addrs: impl Iterator<Item = BlockAddr>) -> ReadBlocks {
        ReadBlocks::of(self.pool.devices(), addrs.collect())
    }

    /// Verifies the data of some leaves, in all copies. With `mended` what is damaged and has a
    /// whole copy is written again, and told there; without it that is a finding.
    pub(crate) fn check_leaves(
        &self,
        leaves: &[(Ino, u64)],
        report: &mut CheckReport,
        mut mended: Option<&mut Vec<String>>,
    ) {
        let (mut found, mut told) = (Vec::new(), None);
        for (ino, index) in leaves {
            match self.inode(*ino) {
                Ok(inode) => found.push((inode, *index)),
                // removed since
                Err(Error::NotFound) => {}
                // once for all leaves of the file
                Err(_) if told == Some(*ino) => {}
                Err(error) => {
                    report.add(inode_place(*ino), error.to_string());
                    told = Some(*ino);
                }
            }
        }
        // what is wrong with a leaf is told where it is looked at
        let views = found.iter().filter_map(|(inode, index)| self.views_of(inode, *index).ok());
        let read = self.read_below(views.flatten().map(|view| view.addr).filter(is_below));
        let mut late = Vec::new();
        for (inode, index) in &found {
            let mut later = |block, view: SlotView| {
                let fits = fits(&read, view.addr, view.patches.as_deref(), view.crc);
                if !matches!(fits, Some(Ok(true))) {
                    late.push(Late { inode: inode.clone(), block, view });
                }
            };
            self.check_leaf(inode, *index, report, &mut mended, &mut later);
        }
        for _ in 0..LOOKS {
            let read = self.read_below(late.iter().map(|it| it.view.addr));
            late.retain_mut(|it| self.changed_again(it, &read, report, &mut mended));
        }
    }

    /// Looks at a block once more that was read anew; whether it is another one now.
    fn changed_again(
        &self,
        late: &mut Late,
        read: &ReadBlocks,
        report: &mut CheckReport,
        mended: &mut Option<&mut Vec<String>>,
    ) -> bool {
        let place = format!("inode {}, file offset {}", late.inode.ino.0, late.block * BLOCK_BYTES);
        let range = late.inode.ranges.lock(late.block, late.block);
        let view = match self.view_block(&late.inode, late.block) {
            Ok(view) => view,
            Err(error) => {
                report.add(place, error.to_string());
                return false;
            }
        };
        if !is_below(&view.addr) {
            // it was written since
            return false;
        }
        let was = std::mem::replace(&mut late.view, view);
        let view = &late.view;
        if (was.addr, was.crc) != (view.addr, view.crc) {
            return true;
        }
        let wrong = match fits(read, view.addr, view.patches.as_deref(), view.crc) {
            Some(Ok(true)) => return false,
            Some(Err(error)) => error,
            _ => {
                self.withdraw(view.addr);
                damaged_block(&late.inode, late.block, view.addr).to_string()
            }
        };
        drop(range);
        match mended {
            Some(told) if self.move_copy(late) => {
                let at = view.addr.place();
                told.push(format!("{at}: damaged; written to another place from a whole copy"));
            }
            _ => report.add(place, wrong),
        }
        false
    }

    /// Has a block that is damaged on its device lie elsewhere, if there is a whole copy of it.
    fn move_copy(&self, late: &Late) -> bool {
        let Some(tier) = &self.tier else { return false };
        let view = &late.view;
        let copy = self.read_under(view.addr, view.patches.as_deref());
        let Some(copy) = copy.ok().filter(|it| pmem::crc_fits(pmem::crc32c(0, it), view.crc))
        else {
            return false;
        };
        let cold = ColdLeaf::of_block(late.inode.clone(), late.block, view.clone());
        match self.move_batch(tier, &[cold], &copy) {
            Ok(moved) => moved == 1,
            Err(error) => {
                let place = view.addr.place();
                tracing::warn!("cannot write a copy of the damaged block at {place}: {error}");
                false
            }
        }
    }
}

fn is_below(addr: &BlockAddr) -> bool {
    addr.device().is_some()
}
