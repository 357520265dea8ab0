//! Where a file has data and where it has holes.

use crate::clock;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::keys;
use crate::leaf::{LEAF_BLOCKS, LEAF_INDEX_MAX};
use crate::leaves::leaf_of;
use crate::types::{Attr, FileKind};
use pool::BLOCK_BYTES;
use std::sync::atomic::Ordering;

impl Core {
    /// First data or hole at or after `offset`.
    pub fn seek(&self, inode: &Inode, offset: u64, data: bool) -> Result<u64> {
        let size = inode.size.load(Ordering::Acquire);
        if offset >= size {
            return Err(Error::NoSuchRange);
        }
        let last = (size - 1) / BLOCK_BYTES;
        let mut block = offset / BLOCK_BYTES;
        while block <= last {
            let (index, slot) = leaf_of(block);
            let found = match self.leaf(inode, index)? {
                Some(leaf) => leaf.find(slot, data),
                None if data => None,
                None => Some(slot),
            };
            if let Some(found) = found {
                let at = (index * LEAF_BLOCKS + found as u64) * BLOCK_BYTES;
                if at < size {
                    return Ok(at.max(offset));
                }
                break;
            }
            block = self.next_leaf(inode, index, data)? * LEAF_BLOCKS;
        }
        if data { Err(Error::NoSuchRange) } else { Ok(size) }
    }

    /// Makes the attributes of an inode what is shown: later changes have later times, and there is
    /// at least one sector where there is data. Some of a file may lie over blocks that it does not
    /// have, in the log and the tree, and programs that copy take a file with a size and no sector
    /// for one hole.
    #[inline(always)] // on the way of every stat, whose instructions are counted
    pub fn show(&self, inode: &Inode, attr: &mut Attr) {
        clock::shown(attr.changed.0);
        if attr.sectors == 0 && attr.size > 0 && attr.kind == FileKind::File {
            self.show_data_over_holes(inode, attr);
        }
    }

    #[cold]
    #[inline(never)]
    fn show_data_over_holes(&self, inode: &Inode, attr: &mut Attr) {
        // what cannot be read may be data
        let is_hole = matches!(self.seek(inode, 0, true), Err(Error::NoSuchRange));
        attr.sectors = u64::from(!is_hole);
    }

    /// The leaf to look at after `index`: when data is sought, the next that exists.
    fn next_leaf(&self, inode: &Inode, index: u64, data: bool) -> Result<u64> {
        if data { self.first_leaf(inode, index + 1) } else { Ok(index + 1) }
    }

    /// The first leaf from `from` on that exists; past every file's end, if there is none.
    pub fn first_leaf(&self, inode: &Inode, from: u64) -> Result<u64> {
        let mut next = inode.map.first_from(from).unwrap_or(LEAF_INDEX_MAX + 1);
        if next == from {
            return Ok(next);
        }
        for kind in [keys::MAP, keys::PATCH] {
            let unit = if kind == keys::MAP { 1 } else { LEAF_BLOCKS };
            let (low, high) = keys::from_index(inode.ino, kind, from * unit);
            self.pool.scan(keys::home(inode.ino), low, high, &mut |key, _| {
                if inode.map.in_tree(key.index / unit) {
                    next = next.min(key.index / unit);
                }
                false
            })?;
        }
        Ok(next)
    }
}
