//! Opening a pool: find its slices, take the last complete generation, read the log behind it.

use crate::addr::BlockAddr;
use crate::bitmap::bits_from_bytes;
use crate::device::{Capacity, Table};
use crate::error::{Error, Result};
use crate::fold::group_of;
use crate::lane_salvage::salvage_scan;
use crate::log::SliceLog;
use crate::mirror;
use crate::nodes::Nodes;
use crate::options::OpenOptions;
use crate::pool::{Pool, Roots};
use crate::record::Record;
use crate::root::{
    INODE_COUNTER_MAX, NUMBER_AT_OPEN_MAX, Slots, complete_generation, highest_generation,
};
use crate::salvage;
use crate::scan::{CorrectedRecord, Damage, LostStretch, SEQUENCE_GAP, Scan, scan};
use crate::slice::{Candidate, Slice};
use crate::space::Space;
use crate::state::{Left, State};
use crate::superblock::{BLOCK_BYTES, ROOT_BLOCKS};
use crate::tree::{self, Key};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the log held that no checkpoint had folded.
#[derive(Debug, Default)]
pub struct Recovery {
    /// All whole records, in the order of their stamps.
    pub records: Vec<Record>,
    /// Damage found in the log.
    pub damage: Vec<Damage>,
    /// How the pool was left.
    pub left: Option<Left>,
    /// Slices whose memory lost power with data still on its way.
    pub lost: Vec<PathBuf>,
    /// For a repair: what cannot be read of the log.
    pub stretches: Vec<LostStretch>,
    /// For a repair: records of which flipped bits were turned back.
    pub corrected: Vec<CorrectedRecord>,
    /// For a repair: the last roots are lost, and the log does not make up for them. Any file may
    /// be older than it was.
    pub roots_lost: bool,
    /// Where the log of each slice begins: the sequence number of the first chunk that no
    /// checkpoint folded.
    pub(crate) floors: Vec<u64>,
    /// Records of epochs in chunks of the log that are damaged before them.
    pub(crate) epochs_behind_damage: Vec<Record>,
}

impl Pool {
    /// Opens the pool in `dir`, each slice exclusively, and reads its log. The caller replays the
    /// records and then commits a checkpoint (unless it only looks).
    pub fn open(dir: &Path, options: &OpenOptions) -> Result<(Pool, Recovery)> {
        let open = |path: &Path| Candidate::open(path, options.read_only);
        let (candidates, notes) = crate::directory::candidates(dir, &open)?;
        let (pool, recovery) = Pool::open_candidates(candidates, options)?;
        notes.into_iter().for_each(|note| pool.note(note));
        Ok((pool, recovery))
    }

    /// Opens the pool that these slices make.
    pub fn open_candidates(
        mut candidates: Vec<Candidate>,
        options: &OpenOptions,
    ) -> Result<(Pool, Recovery)> {
        let broken = Arc::default();
        candidates.iter_mut().for_each(|candidate| candidate.mapping.break_with(&broken));
        let devices = capacity(&candidates, options)?;
        let (mut candidates, mirrors) = mirror::join(candidates, options)?;
        candidates.sort_by_key(|candidate| candidate.superblock.index.get());
        check_set(&candidates)?;
        let mut notes = Vec::new();
        let slots: Vec<Slots> =
            candidates.iter().map(|it| salvage::slots(it, options, &mut notes)).collect();
        let chosen = choose_roots(&candidates, &slots);
        let roots_lost = chosen.is_err();
        let roots = salvage::or_newest(chosen, &slots, options, &mut notes)?;
        let highest = highest_generation(&slots);
        let nodes = Nodes::new(&candidates, options)?;
        notes.extend(nodes.topology().remarks().iter().cloned());
        let mut recovery = Recovery { roots_lost, ..Recovery::default() };
        let mut slices = Vec::new();
        let mut unreadable = Vec::new();
        let (mut inodes, mut complete) = (0, 0);
        for (index, candidate) in candidates.into_iter().enumerate() {
            let found = slots[index][roots.slots[index]];
            let has_root = found.is_some();
            let none = || options.salvage.map(|_| salvage::no_root(&candidate.superblock));
            let Some(root) = found.or_else(none) else {
                return Err(Error::Slices("a root went away while it was read".to_owned()));
            };
            inodes += root.inodes.get();
            let floor = root.log_floor.get();
            let mut found = scan_copies(index as u8, &candidate, floor, options)?;
            complete = complete.max(found.generation_max);
            let sequence = found.sequence_max.max(if has_root { floor } else { 0 });
            check_numbers(index, highest.max(sequence), root.inode_next.get())?;
            let sequence_next = sequence + SEQUENCE_GAP;
            unreadable.extend(std::mem::take(&mut found.unreadable));
            recovery.add(found);
            recovery.floors.push(floor);
            let left = State::left_either(&candidate.mapping, options.boot())?;
            recovery.left = recovery.left.max(Some(left));
            notes.extend(lies_elsewhere(&candidate, options));
            recovery.lost.extend((left == Left::Lost).then(|| candidate.path.clone()));
            notes.extend(candidate.note.clone());
            let log =
                SliceLog::new(&candidate.superblock, nodes.cpus(), sequence_next, roots.generation);
            slices.push(slice_of(candidate, log, root.inode_next.get()));
        }
        let last = check_last(&roots, &slots, complete);
        recovery.roots_lost |= last.is_err();
        salvage::or_note(last, options, &mut notes)?;
        notes.extend(recovery.sort_unreadable(unreadable));
        recovery.records.sort_by_key(|r| (r.stamp, r.slice, r.lane, r.chunk, r.position));
        let parts = (slices, devices, options.clone());
        let mut pool = Pool::assemble(parts, roots, highest, nodes, notes, inodes);
        pool.mirrors = mirrors;
        pool.meet_machine();
        if pool.options().salvage.is_none() {
            pool.load_space(recovery.records.is_empty())?;
        }
        pool.tell_members()?;
        pool.settle_roots(&recovery)?;
        Ok((pool, recovery))
    }

    /// Where a machine is played, its memory makes accesses wait from now on.
    fn meet_machine(&mut self) {
        let Some(emulated) = self.options().emulated.clone() else { return };
        for index in 0..self.slices.len() as u8 {
            if let Some(node) = self.nodes().of(index) {
                self.slices[usize::from(index)].mapping.set_charge(emulated.memory(node));
            }
        }
    }

    /// Takes the free space from the trees of the last checkpoint. Nothing may be allocated.
    ///
    /// A block that a change freed after the cut of a checkpoint may have become a page of that
    /// very checkpoint: until the next one it is both, a page and a data block that the log says is
    /// free. So that is damage only where no log follows (`strict`).
    pub fn load_space(&self, strict: bool) -> Result<()> {
        let roots = self.roots();
        self.slices.iter().for_each(|slice| slice.space.reset());
        self.devices.iter().for_each(|device| device.space.reset());
        let mut pages = 0;
        for root in roots.trees.iter().chain(&roots.spaces) {
            let mut clash: Option<BlockAddr> = None;
            tree::walk_pointers(self, root, &mut |ptr, _level| {
                pages += 1;
                for addr in ptr.blocks() {
                    let slice = self.slices.get(usize::from(addr.slice()));
                    if !slice.is_some_and(|slice| slice.space.mark_used(addr.block())) {
                        clash = Some(addr);
                    }
                }
                Ok(())
            })?;
            if let Some(addr) = clash {
                return Err(two_owners(addr));
            }
        }
        self.tree_pages.store(pages, Ordering::Relaxed);
        for index in 0..self.slices.len() {
            let (mut wrong, mut pages) = (None, Vec::new());
            let (from, to) = (Key::MIN, Key::MAX);
            tree::scan(self, &roots.spaces[index], from, to, |key, value| {
                let space = group_of(self, index, &key).and_then(|first| self.space_of(first));
                let fine = bits_from_bytes(value)
                    .zip(space)
                    .is_some_and(|(bits, space)| space.load_group(key.index, &bits, &mut pages));
                if !fine {
                    wrong = Some(key.index);
                }
                Ok(fine)
            })?;
            if let Some(group) = wrong {
                let what = format!("the free-space bitmap of group {group} makes no sense");
                return Err(Error::Damaged { slice: index as u32, offset: 0, what });
            }
            if let Some(block) = pages.first().filter(|_| strict) {
                return Err(two_owners(BlockAddr::new(index as u8, *block)));
            }
        }
        Ok(())
    }
}

fn slice_of(candidate: Candidate, log: SliceLog, inode_next: u64) -> Slice {
    Slice {
        path: candidate.path,
        mirror: candidate.mirror,
        space: Arc::new(new_space(&candidate.superblock)),
        log,
        superblock: candidate.superblock,
        mapping: candidate.mapping,
        inode_next: AtomicU64::new(inode_next),
    }
}

/// The devices of the pool that these slices make, of those that were found.
fn capacity(candidates: &[Candidate], options: &OpenOptions) -> Result<Vec<Capacity>> {
    if !candidates.iter().any(|candidate| candidate.superblock.has_capacity()) {
        return Ok(Vec::new());
    }
    let read = |it: &Candidate| Table::read(&it.mapping, &it.superblock.pool_uuid);
    match candidates.iter().find_map(read) {
        Some(table) => table.join(&options.devices),
        None => Err(Error::Device(
            "the table of the capacity tier's devices is damaged in all slices".to_owned(),
        )),
    }
}

/// What is said of a slice of the `sync` domain that was left open on another medium.
fn lies_elsewhere(candidate: &Candidate, options: &OpenOptions) -> Option<String> {
    let boot = options.boot();
    let mut copies = candidate.mapping.copies();
    copies.any(|copy| State::is_elsewhere(copy, boot)).then(|| {
        format!(
            "{} was left open on another medium: this is a copy or a snapshot, or its disk was \
             away; what was not synced is not there",
            candidate.path.display()
        )
    })
}

/// The log of a slice, from both of its copies.
fn scan_copies(
    index: u8,
    candidate: &Candidate,
    floor: u64,
    options: &OpenOptions,
) -> Result<Scan> {
    let Candidate { mapping, superblock, .. } = candidate;
    if let Some(probe) = options.salvage {
        return Ok(salvage_scan(index, mapping, superblock, (floor, probe)));
    }
    let first = scan(index, mapping, superblock, floor)?;
    Ok(match mapping.mirror() {
        Some(mirror) => first.with(scan(index, mirror, superblock, floor)?),
        None => first,
    })
}

fn two_owners(addr: BlockAddr) -> Error {
    Error::Damaged {
        slice: u32::from(addr.slice()),
        offset: addr.block() * BLOCK_BYTES,
        what: "a tree page lies on a block that has another owner".to_owned(),
    }
}

impl Recovery {
    /// Chunks that cannot be read are damage, unless the pool was closed: then they are notes.
    fn sort_unreadable(&mut self, unreadable: Vec<Damage>) -> Vec<String> {
        if self.left > Some(Left::Closed) {
            self.damage.extend(unreadable);
            return Vec::new();
        }
        if self.records.is_empty() {
            // the log counts no more
            self.stretches.clear();
        }
        let note = |Damage { slice, offset, what, .. }| {
            format!("slice {slice}, byte {offset}: {what}; nothing is lost, as the pool was closed")
        };
        unreadable.into_iter().map(note).collect()
    }

    fn add(&mut self, found: Scan) {
        self.records.extend(found.records);
        self.damage.extend(found.damage);
        self.epochs_behind_damage.extend(found.epochs_behind_damage);
        self.stretches.extend(found.lost);
        self.corrected.extend(found.corrected);
    }
}

fn new_space(superblock: &crate::superblock::Superblock) -> Space {
    let reserve = (superblock.data_blocks() / 32).clamp(24, 16_384);
    Space::new(superblock.data_block_first(), superblock.data_block_end(), reserve)
}

fn check_set(candidates: &[Candidate]) -> Result<()> {
    let Some(first) = candidates.first() else {
        return Err(Error::Slices("there are none".to_owned()));
    };
    for candidate in candidates {
        if candidate.superblock.pool_uuid != first.superblock.pool_uuid {
            return Err(Error::Slices(format!(
                "{} and {} belong to different pools; keep each pool's slices in a directory of \
                 their own",
                first.path.display(),
                candidate.path.display()
            )));
        }
    }
    let expected = first.superblock.slices.get();
    for index in 0..expected {
        match candidates.iter().filter(|c| c.superblock.index.get() == index).count() {
            1 => {}
            0 => {
                return Err(Error::Slices(format!(
                    "slice {index} of {expected} is missing; put it back into the directory"
                )));
            }
            _ => return Err(Error::twice(index as usize)),
        }
    }
    if candidates.len() as u32 != expected {
        return Err(Error::Slices("there are more slices than the pool has".to_owned()));
    }
    Ok(())
}

fn choose_roots(candidates: &[Candidate], slots: &[Slots]) -> Result<Roots> {
    let Some((generation, chosen)) = complete_generation(slots) else {
        return Err(Error::Damaged {
            slice: 0,
            offset: ROOT_BLOCKS[0] * BLOCK_BYTES,
            what: "the slices' roots have no generation in common".to_owned(),
        });
    };
    let mut roots =
        Roots { generation, trees: Vec::new(), spaces: Vec::new(), slots: chosen.clone() };
    for (index, slot) in chosen.iter().enumerate().take(candidates.len()) {
        if let Some(root) = &slots[index][*slot] {
            let (tree, space) = root.trees()?;
            roots.trees.push(tree);
            roots.spaces.push(space);
        }
    }
    Ok(roots)
}

/// Numbers from which a pool can go on counting.
fn check_numbers(slice: usize, highest: u64, inode: u64) -> Result<()> {
    if highest < NUMBER_AT_OPEN_MAX && inode < INODE_COUNTER_MAX {
        return Ok(());
    }
    Err(Error::Damaged {
        slice: slice as u32,
        offset: ROOT_BLOCKS[0] * BLOCK_BYTES,
        what: "the roots or the log count further than any pool has".to_owned(),
    })
}

/// The log must not know of a later checkpoint than the roots: the log behind that one's root has
/// been used again, and the root is lost.
fn check_last(roots: &Roots, slots: &[Slots], complete: u64) -> Result<()> {
    let last = roots.generation;
    if complete <= last {
        return Ok(());
    }
    let has = |slots: &Slots| slots.iter().flatten().any(|r| r.generation.get() == complete);
    let slice = slots.iter().position(|slots| !has(slots)).unwrap_or(0);
    Err(Error::Damaged {
        slice: slice as u32,
        offset: ROOT_BLOCKS[1 - roots.slots.get(slice).map_or(0, |slot| slot & 1)] * BLOCK_BYTES,
        what: format!(
            "the root of checkpoint {complete} is lost; checkpoint {last} is whole, but part of \
             what came after it is no longer in the log"
        ),
    })
}
