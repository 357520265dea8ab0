//! Correction of tree pages and roots of which all copies are damaged, for a repair.
//!
//! Two copies that are damaged in different bits make a whole one; of one copy, one flipped bit is
//! turned back. What is corrected is known to be right by the checksum that names the page.

use crate::addr::BlockAddr;
use crate::copies::Which;
use crate::crc_correction::{mixture, one_flip_back};
use crate::pool::Pool;
use crate::root::{self, SliceRoot};
use crate::slice::Candidate;
use crate::superblock::BLOCK_BYTES;
use crate::tree::{PAGE_BYTES, PagePtr};

/// Bytes of a root, and of the part that its checksum covers.
const ROOT_BYTES: usize = size_of::<SliceRoot>();
const ROOT_COVERED_BYTES: usize = 248;

impl Pool {
    /// The page that `ptr` names, made of what its damaged copies have.
    pub(crate) fn corrected_page(&self, ptr: &PagePtr) -> Option<[u8; PAGE_BYTES]> {
        let mut copies = Vec::new();
        for (addr, which) in places(ptr) {
            let mut page = [0; PAGE_BYTES];
            let named = !addr.is_none() && self.contains(addr);
            if named && self.read_copy(addr, which, &mut page).is_ok() {
                copies.push(page.to_vec());
            }
        }
        corrected(&copies, ptr.crc)?.try_into().ok()
    }
}

fn places(ptr: &PagePtr) -> impl Iterator<Item = (BlockAddr, Which)> {
    [ptr.addr, ptr.copy].into_iter().flat_map(|addr| Which::ALL.map(|which| (addr, which)))
}

/// What these damaged copies were when their checksum was `crc`.
fn corrected(copies: &[Vec<u8>], crc: u32) -> Option<Vec<u8>> {
    let pairs = copies
        .iter()
        .enumerate()
        .flat_map(|(at, first)| copies[at + 1..].iter().map(move |second| (first, second)));
    let mut mixed = pairs.filter_map(|(first, second)| mixture(first, second, crc));
    mixed.next().or_else(|| copies.iter().find_map(|copy| one_flip_back(copy, crc)))
}

/// The root of a slot all of whose copies are damaged, if it can be told what it was.
pub fn corrected_root(candidate: &Candidate, slot: usize) -> Option<SliceRoot> {
    let uuid = &candidate.superblock.slice_uuid;
    let mut copies = Vec::new();
    for mapping in candidate.mapping.copies() {
        for block in root::blocks(slot) {
            let mut bytes = [0; ROOT_BYTES];
            if mapping.read_own(block * BLOCK_BYTES, &mut bytes).is_ok() {
                copies.push(bytes.to_vec());
            }
        }
    }
    // a slot that no checkpoint has filled yet
    copies.retain(|bytes| bytes.iter().any(|byte| *byte != 0));
    let stored = |bytes: &[u8]| bytes.get(248..252)?.try_into().ok().map(u32::from_le_bytes);
    let covered: Vec<Vec<u8>> =
        copies.iter().filter_map(|it| Some(it.get(..ROOT_COVERED_BYTES)?.to_vec())).collect();
    let checksums = copies.iter().filter_map(|bytes| stored(bytes));
    let root = |crc: u32| {
        // the checksum itself may be what is damaged
        let flipped = (0..32).map(|bit| crc ^ 1 << bit);
        std::iter::once(crc).chain(flipped).find_map(|crc| {
            let whole = covered.iter().find(|it| pmem::crc_fits(pmem::crc32c(0, it), crc)).cloned();
            let mut bytes = whole.or_else(|| corrected(&covered, crc))?;
            bytes.extend(crc.to_le_bytes());
            bytes.extend([0; 4]);
            SliceRoot::decode(&bytes, uuid)
        })
    };
    let mut checksums = checksums;
    checksums.find_map(root)
}
