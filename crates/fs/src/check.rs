//! Check: verifies everything that a closed pool stores, and changes nothing.
//!
//! The log is replayed in memory and folded into pages in memory, so that what is checked is the
//! state that an open would recover: one tree a slice, whatever the crash left.

use crate::attr::Stored;
use crate::check_below::Below;
use crate::check_lost::{FirstNames, LostRanges};
use crate::check_places::stored_patches;
use crate::core::Core;
use crate::dir::{Dirent, cookie_base};
use crate::error::Result;
use crate::item::Placed;
use crate::keys;
use crate::leaf;
use crate::leaf_value::{self, Named, Part};
use crate::patches::Patches;
use crate::request::RequestId;
use crate::tickets;
use crate::types::{FileKind, Ino};
use pool::tree::{self, Key, Root};
use pool::{
    BLOCK_BYTES, BlockAddr, Candidate, FoldView, Folded, OpenOptions, Pages, Pool, Recovery,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// Most findings of one run: a pool with more is not helped by a longer list.
const FINDINGS_MAX: usize = 1000;

/// One thing that `check` found wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Where: a slice and byte, an inode.
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// The path of the file or directory, if it is one that has a name.
    pub path: Option<String>,
}

impl Finding {
    /// What is wrong at this place.
    pub fn new(place: impl Into<String>, what: impl Into<String>) -> Finding {
        Finding { place: place.into(), what: what.into(), path: None }
    }
}

/// What `check` saw.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Everything wrong; empty means clean.
    pub findings: Vec<Finding>,
    /// Inodes visited.
    pub inodes: u64,
    /// Data blocks whose checksums were verified.
    pub blocks: u64,
    /// Log records replayed in memory (0 after a clean close).
    pub records: u64,
    /// Requests that were done and may not be answered, apart from those in the log.
    pub requests: u64,
}

impl CheckReport {
    /// One more finding.
    pub fn add(&mut self, place: impl Into<String>, what: impl Into<String>) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding::new(place, what));
        }
    }

    /// Adds the paths of inodes to findings about them.
    pub fn add_paths(&mut self, names: &FirstNames) {
        for finding in self.findings.iter_mut().filter(|finding| finding.path.is_none()) {
            finding.path = names.path_of_place(&finding.place);
        }
    }
}

/// Is told how many bytes of data are done, of about how many.
pub type Each<'a> = &'a mut dyn FnMut(u64, u64);

/// Verifies everything that a closed pool stores; changes nothing.
pub fn check(dir: &Path) -> Result<CheckReport> {
    check_watched(dir, &mut |_, _| ())
}

/// The same, step by step.
pub fn check_watched(dir: &Path, each: Each<'_>) -> Result<CheckReport> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let (pool, recovery) = crate::away::open_pool(dir, &options)?;
    check_pool(pool, &recovery, each)
}

/// The same for slices that are mapped already, opened as `options` say, but to be read only.
pub fn check_candidates(candidates: Vec<Candidate>, options: &OpenOptions) -> Result<CheckReport> {
    let options = OpenOptions { read_only: true, ..options.clone() };
    let (pool, recovery) = Pool::open_candidates(candidates, &options)?;
    check_pool(pool, &recovery, &mut |_, _| ())
}

fn check_pool(pool: Pool, recovery: &Recovery, each: Each<'_>) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    if recovery.left < Some(pool::Left::Crashed) {
        for damage in &recovery.damage {
            let place = format!("slice {}, byte {}", damage.slice, damage.offset);
            report.add(place, damage.what.clone());
        }
    }
    let copies = pool.second_copies_read();
    for note in pool.info().notes.into_iter().filter(|note| !copies.contains(note)) {
        report.add("superblock", note);
    }
    let core = Core::new(pool);
    match core.replay(recovery) {
        Ok(records) => report.records = records,
        Err(error) => {
            report.add("log", error.to_string());
            let mut checker = Checker { core: &core, report, state: State::default(), each };
            checker.only_pages();
            return Ok(checker.report);
        }
    }
    for path in &recovery.lost {
        let what = "acknowledged calls may be missing: the memory lost power with data on its way";
        report.add(path.display().to_string(), what);
    }
    let overlays = core.take_overlays();
    let overlays = overlays.into_iter().map(|o| ((o.ino, o.block), o.patches)).collect();
    let (batch, _) = core.encode();
    core.mark_named(&batch)?;
    let mut pages = Pages::in_memory();
    let folded = match core.pool.fold(&batch, &crate::checkpoint::FileBlocks, &mut pages) {
        Ok(folded) => folded,
        Err(error) => {
            report.add("log", format!("what it holds does not fit the trees: {error}"));
            return Ok(report);
        }
    };
    let state = State { overlays, ..State::default() };
    let (mut report, ..) = checked(&core, (&folded, &pages), report, state, each);
    core.pool.second_copies_read().into_iter().for_each(|note| report.add("tree page", note));
    Ok(report)
}

/// Leaves whose data is to be looked at later, and the names of inodes.
pub type Later = (Vec<(Ino, u64)>, FirstNames);

/// Verifies what these trees hold; gives what is needed to look at data later.
pub fn checked(
    core: &Core,
    (folded, pages): (&Folded, &Pages),
    report: CheckReport,
    state: State,
    each: Each<'_>,
) -> (CheckReport, Later) {
    let view = FoldView::new(&core.pool, pages);
    let mut checker = Checker { core, report, state, each };
    checker.trees(&view, folded);
    checker.names();
    checker.places();
    checker.space(&view, folded);
    let Checker { mut report, state, .. } = checker;
    report.add_paths(&state.first_names);
    (report, (state.leaves.unwrap_or_default(), state.first_names))
}

/// What the trees said about one inode.
#[derive(Default)]
pub struct Seen {
    /// Its attributes.
    pub stored: Option<Stored>,
    /// Entries that name it.
    pub names: u32,
    /// Of a directory: entries.
    pub entries: u64,
    /// Of a directory: entries that are directories.
    pub subdirectories: u32,
    /// Of a file: blocks.
    pub blocks: u64,
    /// Of a symbolic link: bytes of the target.
    pub symlink_bytes: u64,
    /// Parts of extended attributes.
    pub xattr_parts: BTreeMap<u64, Vec<u8>>,
    /// Of a directory: where its name is.
    pub named_by: Option<Ino>,
}

/// Where a block is that may have several places.
#[derive(Default)]
pub struct Places {
    /// Slots that name it.
    pub found: u64,
    /// References that are counted.
    pub counted: u64,
    /// A file that has it.
    pub ino: Option<Ino>,
}

/// What a check has seen.
#[derive(Default)]
pub struct State {
    /// By inode.
    pub inodes: BTreeMap<Ino, Seen>,
    /// Inodes that the trees list as open without a name.
    pub orphans: HashSet<Ino>,
    /// Requests that the trees remember.
    pub requests: HashSet<RequestId>,
    /// Who owns each block that has one place.
    pub owners: HashMap<u64, Ino>,
    /// The others: their places and their references.
    pub shared: BTreeMap<BlockAddr, Places>,
    /// What the log holds to be put into blocks.
    pub overlays: HashMap<(Ino, u64), Arc<Patches>>,
    /// Entries of directories.
    pub entries: Vec<(Ino, Dirent)>,
    /// Of a pool in use: the leaves whose data is to be looked at later; none: at once.
    pub leaves: Option<Vec<(Ino, u64)>>,
    /// Blocks on devices that are to be verified together.
    pub below: Vec<Below>,
    /// What lay in pages that cannot be read.
    pub lost: LostRanges,
    /// Names of inodes, for findings.
    pub first_names: FirstNames,
}

/// The tree of one slice.
pub type Tree<'t> = (&'t FoldView<'t>, &'t Root);

/// A check under way.
pub struct Checker<'c> {
    /// The engine over the pool, its log replayed.
    pub core: &'c Core,
    /// What was found so far.
    pub report: CheckReport,
    /// What was seen so far.
    pub state: State,
    /// See [`Each`].
    pub each: Each<'c>,
}

impl Checker<'_> {
    /// A value of a slice's main tree.
    pub fn value(&mut self, slice: u8, key: &Key, value: &[u8], tree: Tree<'_>) {
        if (key.object, key.kind) == (0, keys::TICKET) {
            return self.ticket(slice, key, value);
        }
        if (key.object, key.kind) == (0, keys::REFERENCES) {
            return self.counted(slice, key, value);
        }
        if key.object == 0 {
            let known = tickets::decode_orphan(value).is_some();
            let fine = key.kind == keys::ORPHAN && keys::home(Ino(key.index)) == slice;
            if !(fine && known) {
                self.report.add(format!("slice {slice}, tree"), format!("{key:?} makes no sense"));
            }
            self.state.orphans.insert(Ino(key.index));
            return;
        }
        let ino = Ino(key.object);
        let fine = keys::home(ino) == slice && self.inode_value(ino, key, value, tree).is_some();
        if !fine {
            self.report.add(inode_place(ino), format!("{key:?} holds a value that makes no sense"));
        }
    }

    fn inode_value(&mut self, ino: Ino, key: &Key, value: &[u8], tree: Tree<'_>) -> Option<()> {
        let seen = self.state.inodes.entry(ino).or_default();
        match key.kind {
            keys::INODE if key.index == 0 => seen.stored = Some(Stored::decode(value)?),
            keys::MAP => {
                if key.index > leaf::LEAF_INDEX_MAX {
                    return None;
                }
                let named = leaf_value::decode(value)?;
                seen.blocks += named.len() as u64;
                if let Some(leaves) = &mut self.state.leaves {
                    leaves.push((ino, key.index));
                }
                let patches = stored_patches(ino, key.index, tree);
                for named in named {
                    let block = key.index * leaf::LEAF_BLOCKS + named.slot as u64;
                    let over = self.state.overlays.get(&(ino, block)).cloned();
                    let over = over.or_else(|| patches.get(&block).cloned());
                    self.block(ino, block, named, over);
                }
            }
            keys::PATCH => {
                if key.index / leaf::LEAF_BLOCKS > leaf::LEAF_INDEX_MAX {
                    return None;
                }
                Patches::decode(value)?;
            }
            keys::DIRENT => {
                let entry = Dirent::decode(value)?;
                seen.entries += 1;
                seen.subdirectories += u32::from(entry.kind == FileKind::Directory);
                if cookie_base(&self.core.hash_key, entry.name.bytes()) != key.index & !255 {
                    return None;
                }
                self.state.entries.push((ino, entry));
            }
            keys::XATTR => {
                seen.xattr_parts.insert(key.index, value.to_vec());
            }
            keys::SYMLINK => seen.symlink_bytes += value.len() as u64,
            _ => return None,
        }
        Some(())
    }

    fn block(&mut self, ino: Ino, block: u64, named: Named, patches: Option<Arc<Patches>>) {
        let Placed { addr, crc } = named.placed;
        let file_place = format!("inode {}, file offset {}", ino.0, block * BLOCK_BYTES);
        if !self.core.pool.contains(addr) {
            return self.report.add(file_place, "names a block that the pool does not have");
        }
        if named.part == Part::Shared {
            let places = self.state.shared.entry(addr).or_default();
            places.found += 1;
            places.ino = Some(ino);
        } else if let Some(other) = self.state.owners.insert(addr.bits(), ino) {
            let other = if other.0 == 0 { "the trees".into() } else { inode_place(other) };
            self.report
                .add(addr.place(), format!("belongs to {} and to {other}", inode_place(ino)));
        }
        if named.part == Part::Reserved {
            if patches.is_some() {
                self.report.add(file_place, "is overlaid, but not written");
            }
            return;
        }
        if self.state.leaves.is_some() {
            return;
        }
        self.report.blocks += 1;
        self.tell();
        if addr.device().is_some() {
            return self.verify_later(Below { place: file_place, addr, patches, crc });
        }
        if let Some(what) = self.core.check_copies(addr, patches.as_deref(), crc) {
            self.report.add(file_place, what);
        }
    }

    /// The free-space bitmaps against the owners.
    pub fn space(&mut self, view: &FoldView<'_>, folded: &Folded) {
        let lost = (self.state.lost.any(), self.state.lost.any_space());
        let mut data: HashSet<u64> =
            self.state.owners.iter().filter(|(_, ino)| ino.0 != 0).map(|(addr, _)| *addr).collect();
        data.extend(self.state.shared.keys().map(|addr| addr.bits()));
        for (slice, root) in folded.spaces.iter().enumerate() {
            let mut wrong = Vec::new();
            let scanned = tree::scan(view, root, Key::MIN, Key::MAX, |key, value| {
                let Some(first) = pool::group_of(&self.core.pool, slice, &key) else {
                    let what = format!("{key:?} makes no sense");
                    self.report.add(format!("slice {slice}, free-space tree"), what);
                    return Ok(true);
                };
                for (byte, bits) in value.iter().enumerate() {
                    for bit in (0..8).filter(|bit| bits & (1 << bit) != 0) {
                        let block = first.block() + byte as u64 * 8 + bit;
                        let addr = BlockAddr::new(first.slice(), block);
                        if !data.remove(&addr.bits()) {
                            wrong.push(addr);
                        }
                    }
                }
                Ok(true)
            });
            // a page that cannot be read was told
            if let Err(error) = scanned.map_err(|error| error.to_string())
                && !lost.1
            {
                self.report.add(format!("slice {slice}, free-space tree"), error);
            }
            for addr in wrong.into_iter().filter(|_| !lost.0) {
                self.report.add(addr.place(), "is marked as used, but nobody owns it");
            }
        }
        for addr in data.into_iter().filter_map(BlockAddr::from_bits).filter(|_| !lost.1) {
            self.report.add(addr.place(), "has an owner, but is marked as free");
        }
    }
}

/// An inode, for a finding.
pub fn inode_place(ino: Ino) -> String {
    format!("inode {}", ino.0)
}
