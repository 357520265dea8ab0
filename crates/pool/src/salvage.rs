//! What a repair needs of a pool: what is left of its roots, trees from what can be read, and the
//! switch to them. The pool's memory is the repairer's own (`Candidate::open_private`).

use crate::addr::BlockAddr;
use crate::bitmap::{GROUP_BLOCKS, GROUP_BYTES, GroupBits, bits_to_bytes};
use crate::error::Result;
use crate::fold::{FoldPages, Folded, Pages, SliceBatch, group_key};
use crate::log::{CHUNK_HEADER_BYTES, ChunkHeader, SliceLog};
use crate::options::OpenOptions;
use crate::page_correction::corrected_root;
use crate::pool::{Pool, Roots};
use crate::root::{self, SliceRoot, Slots};
use crate::slice::Candidate;
use crate::space::Purpose;
use crate::superblock::Superblock;
use crate::tree::{self, Change, Key, Met, Root, walk_readable};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zerocopy::little_endian::U64;

/// Bytes of values that are put into a new tree at once.
const BATCH_BYTES: usize = 16 << 20;

/// The root slots of a slice. For a repair a root is corrected of which all copies are damaged.
pub fn slots(candidate: &Candidate, options: &OpenOptions, notes: &mut Vec<String>) -> Slots {
    let mut slots = candidate.slots();
    if options.salvage.is_none() {
        return slots;
    }
    for (number, slot) in slots.iter_mut().enumerate().filter(|(_, slot)| slot.is_none()) {
        *slot = corrected_root(candidate, number);
        if slot.is_some() {
            let path = candidate.path.display();
            notes.push(format!("{path}: flipped bits of a root were turned back"));
        }
    }
    slots
}

/// The roots, or for who repairs each slice's newest, where the slices have none in common.
pub fn or_newest(
    roots: Result<Roots>,
    slots: &[Slots],
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Roots> {
    match roots {
        Err(error) if options.salvage.is_some() => {
            notes.push(error.to_string());
            Ok(newest_roots(slots))
        }
        roots => roots,
    }
}

/// An error is a note for who repairs.
pub fn or_note(checked: Result<()>, options: &OpenOptions, notes: &mut Vec<String>) -> Result<()> {
    match checked {
        Err(error) if options.salvage.is_some() => {
            notes.push(error.to_string());
            Ok(())
        }
        checked => checked,
    }
}

fn newest_roots(slots: &[Slots]) -> Roots {
    let mut roots =
        Roots { generation: 0, trees: Vec::new(), spaces: Vec::new(), slots: Vec::new() };
    for slots in slots {
        let generation = |slot: usize| slots[slot].map_or(0, |root| root.generation.get());
        let slot = usize::from(generation(1) > generation(0));
        let trees = slots[slot].and_then(|root| root.trees().ok());
        let (tree, space) = trees.unwrap_or((Root::EMPTY, Root::EMPTY));
        roots.generation = roots.generation.max(generation(slot));
        roots.trees.push(tree);
        roots.spaces.push(space);
        roots.slots.push(slot);
    }
    roots
}

/// The root of a slice that has none. Of its log nobody knows what the trees have: it is left.
pub fn no_root(superblock: &Superblock) -> SliceRoot {
    let mut root = SliceRoot::new(superblock.slice_uuid);
    root.log_floor = U64::new(u64::MAX);
    root.inode_next = U64::new(1);
    root
}

impl Pool {
    /// Calls `meet` with all that can be read of a slice's main tree from a key on, and what
    /// cannot, until it says false.
    pub fn readable(&self, slice: usize, from: Key, meet: &mut dyn FnMut(Met<'_>) -> bool) {
        let roots = self.roots();
        if let Some(root) = roots.trees.get(slice) {
            walk_readable(self, root, from, meet);
        }
    }

    /// The same for its main tree of the checkpoint before, if its root is still there: pages of it
    /// may have been used again.
    pub fn readable_before(&self, slice: usize, from: Key, meet: &mut dyn FnMut(Met<'_>) -> bool) {
        let slots = self.roots().slots.clone();
        let (Some(slice), Some(slot)) = (self.slices.get(slice), slots.get(slice)) else { return };
        let blocks = root::blocks(1 - slot);
        let mut places = slice.mapping.copies().flat_map(|copy| blocks.map(|block| (copy, block)));
        let read = |(copy, block)| SliceRoot::read(copy, block, &slice.superblock.slice_uuid);
        let root = places.find_map(read);
        if let Some((tree, _)) = root.and_then(|root| root.trees().ok()) {
            walk_readable(self, &tree, from, meet);
        }
    }

    /// The same for all of its free-space tree.
    pub fn readable_space(&self, slice: usize, meet: &mut dyn FnMut(Met<'_>) -> bool) {
        let roots = self.roots();
        if let Some(root) = roots.spaces.get(slice) {
            walk_readable(self, root, Key::MIN, meet);
        }
    }

    /// Takes a block as used, if it is one of this pool; false if it was used already.
    pub fn take(&self, addr: BlockAddr) -> bool {
        !addr.is_none() && self.space_of(addr).is_some_and(|space| space.mark_used(addr.block()))
    }

    /// Takes a block that nobody has.
    pub fn take_any(&self) -> Option<BlockAddr> {
        self.slices.iter().zip(0u8..).find_map(|(slice, index)| {
            let mut runs = Vec::with_capacity(1);
            slice.space.take(1, Purpose::Checkpoint, &mut runs);
            runs.first().map(|run| BlockAddr::new(index, run.first))
        })
    }

    /// A tree of all that can be read of a slice's main tree, and of these entries, which it lost.
    pub fn rebuilt(
        &self,
        slice: usize,
        before: &[(Key, Change)],
        pages: &mut Pages,
    ) -> Result<Root> {
        let (mut tree, mut failed) = (Root::EMPTY, None);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut put = |batch: &mut Vec<(Key, Change)>| {
            let mut store = FoldPages { pool: self, slice: slice as u8, pages };
            match tree::apply(&mut store, &tree, batch, &[], &mut |_, _, _| {}) {
                Ok(root) => tree = root,
                Err(error) => failed = Some(error),
            }
            batch.clear();
        };
        self.readable(slice, Key::MIN, &mut |met| {
            if let Met::Entry(key, value) = met {
                batch.push((key, Change::Put(value.to_vec())));
                bytes += value.len();
            }
            if bytes >= BATCH_BYTES {
                put(&mut batch);
                bytes = 0;
            }
            true
        });
        put(&mut batch);
        batch.extend_from_slice(before);
        put(&mut batch);
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(tree),
        }
    }

    /// A slice's main tree with these changes; all of it can be read.
    pub fn changed(&self, slice: usize, batch: &SliceBatch, pages: &mut Pages) -> Result<Root> {
        let roots = self.roots();
        let tree = roots.trees.get(slice).copied().unwrap_or(Root::EMPTY);
        let mut store = FoldPages { pool: self, slice: slice as u8, pages };
        Ok(tree::apply(&mut store, &tree, &batch.changes, &batch.ranges, &mut |_, _, _| {})?)
    }

    /// Goes on with these main trees.
    pub fn use_trees(&self, trees: Vec<Root>) {
        let roots = Roots { trees, ..Roots::clone(&self.roots()) };
        self.roots.store(Arc::new(roots));
    }

    /// Writes roots of the main trees as they are, of which these data blocks are all that are
    /// used; nothing of the log counts any more.
    pub fn install(
        &self,
        used: &BTreeSet<BlockAddr>,
        inodes: u64,
        pages: &mut Pages,
    ) -> Result<()> {
        let mut spaces = Vec::new();
        for slice in 0..self.slices.len() {
            let changes = bitmaps(self, slice, used);
            let mut store = FoldPages { pool: self, slice: slice as u8, pages };
            let empty = Root::EMPTY;
            spaces.push(tree::apply(&mut store, &empty, &changes, &[], &mut |_, _, _| {})?);
        }
        let folded = Folded { trees: self.roots().trees.clone(), spaces };
        // the roots say how much is free
        self.slices.iter().for_each(|slice| slice.space.reset());
        used.iter().for_each(|addr| {
            self.take(*addr);
        });
        for root in folded.trees.iter().chain(&folded.spaces) {
            tree::walk_pointers(self, root, &mut |ptr, _| {
                ptr.blocks().for_each(|addr| {
                    self.take(addr);
                });
                Ok(())
            })?;
        }
        let closed = self.close_gate();
        let cut = self.cut(&closed, inodes);
        self.switch(&cut, &folded, pages)?;
        self.void_chunks(self.roots().generation);
        self.write_state(false)
    }

    /// Takes away the headers of chunks that know of a later checkpoint than this one: of one that
    /// is lost, or that never was.
    fn void_chunks(&self, generation: u64) {
        for slice in &self.slices {
            let chunk_bytes = slice.superblock.chunk_bytes.get();
            let chunks = slice.superblock.log_bytes.get() / u64::from(chunk_bytes);
            for index in 0..chunks as u32 {
                let offset = SliceLog::chunk_offset(index, chunk_bytes);
                let (mut bytes, uuid) = ([0; CHUNK_HEADER_BYTES], &slice.superblock.slice_uuid);
                if slice.mapping.read(offset, &mut bytes).is_err() {
                    continue;
                }
                let header = ChunkHeader::decode(&bytes, uuid);
                let header = header.or_else(|| ChunkHeader::corrected(&bytes, uuid));
                if header.is_some_and(|header| header.generation.get() > generation) {
                    let written = slice.mapping.write(offset, &[0; CHUNK_HEADER_BYTES]);
                    let _ = pmem::fence(written);
                }
            }
        }
    }
}

/// The values of a slice's free-space tree.
fn bitmaps(pool: &Pool, slice: usize, used: &BTreeSet<BlockAddr>) -> Vec<(Key, Change)> {
    let mut groups: BTreeMap<Key, Box<GroupBits>> = BTreeMap::new();
    for addr in used.iter().filter(|addr| pool.home_of(**addr) == slice) {
        let bits = groups.entry(group_key(*addr));
        let bits = bits.or_insert_with(|| Box::new([0; GROUP_BYTES / 8]));
        let bit = (addr.block() % GROUP_BLOCKS) as usize;
        bits[bit / 64] |= 1 << (bit % 64);
    }
    let put = |(key, bits): (Key, Box<GroupBits>)| (key, Change::Put(bits_to_bytes(&bits)));
    groups.into_iter().map(put).collect()
}
