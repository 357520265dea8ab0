//! Repair of a damaged pool: all that can be read comes back, the rest is told.
//!
//! The slices are mapped privately, and everything is done there with the engine's own means: the
//! readable part of the trees and of the log, values that make sense, names for what has none,
//! counts that agree, new bitmaps, new roots. Nothing that is read is overwritten: what is new lies
//! on free blocks. Then a check looks at the result. So a repair is tried out in full before a byte
//! of the pool is changed, and what it would do is known exactly: the pages that differ. They are
//! written when the caller says so, the roots last, and what was there before goes to an undo file
//! first.
//!
//! What is lost is never made up: a file's blocks that are gone read as errors, not as zeros, as
//! far as anything still says where they were.

mod counts;
mod found;
mod leaves;
mod names;
mod undo;

pub use undo::undo;

use crate::attr::Stored;
use crate::check::{self, Each, Finding};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::item::{Item, Placed};
use crate::item_decode;
use crate::types::Ino;
use found::batches;
use pool::tree::{Change, Key, Met};
use pool::{
    BlockAddr, Candidate, KIND_CHANGE, OpenOptions, Pages, Pool, Recovery, ScrubPlace, Scrubbed,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Pages whose copies are looked at in one go.
const SCRUB_PAGES: u64 = 1 << 12;

/// Changes of the trees, by slice.
type Changes = BTreeMap<(u8, Key), Change>;

/// A part of a slice's tree that cannot be read.
#[derive(Debug)]
struct Lost {
    slice: u8,
    from: Option<Key>,
    upper: Option<Key>,
    /// What the checkpoint before had there, as far as that is still to be read.
    before: Vec<(Key, Change)>,
}

/// A repair that was tried out, and can be made.
#[derive(Debug)]
pub struct Repair {
    core: Core,
    dir: PathBuf,
    changes: Changes,
    said: Vec<(String, String)>,
    lost: Vec<Lost>,
    bad: Option<Placed>,
    bad_slots: u64,
    put_aside: u64,
    report: RepairReport,
}

/// What a repair does.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// What was wrong before, as a check says it.
    pub found: Vec<Finding>,
    /// What was done about it, and what is lost.
    pub done: Vec<Finding>,
    /// What is wrong afterwards: data that is damaged stays so.
    pub left: Vec<Finding>,
    /// Inodes that are in `/lost+found` now.
    pub put_aside: u64,
    /// Pages of 4 KiB that differ afterwards, all slices together.
    pub pages: u64,
}

/// Tries out what can be done for the closed pool in `dir`, in memory: not a byte of it changes.
/// None if nothing is wrong with it.
pub fn repair(dir: &Path, each: Each<'_>) -> Result<Option<Repair>> {
    let found = match check::check_watched(dir, each) {
        Ok(report) if report.findings.is_empty() => return Ok(None),
        Ok(report) => report.findings,
        Err(error) => vec![Finding { place: "the pool".to_owned(), what: error.to_string() }],
    };
    let paths = pool::slice_paths(dir)?;
    let candidates: std::result::Result<Vec<Candidate>, pool::Error> =
        paths.iter().map(|path| Candidate::open_private(path)).collect();
    let mut repair = Repair::made(candidates?, dir, found, each)?;
    let pages = repair.changed()?.iter().map(|(_, pages)| pages.len() as u64).sum();
    repair.report.pages = pages;
    Ok(Some(repair))
}

/// Repairs a pool in memory, whatever is wrong with it.
pub fn repair_candidates(candidates: Vec<Candidate>) -> Result<RepairReport> {
    let repair = Repair::made(candidates, Path::new("memory"), Vec::new(), &mut |_, _| ())?;
    Ok(repair.report)
}

impl Repair {
    fn made(
        candidates: Vec<Candidate>,
        dir: &Path,
        found: Vec<Finding>,
        each: Each<'_>,
    ) -> Result<Repair> {
        let options = OpenOptions { salvage: true, ..OpenOptions::default() };
        let (pool, recovery) = Pool::open_candidates(candidates, &options)?;
        let mut repair = Repair {
            core: Core::new(pool),
            dir: dir.to_path_buf(),
            changes: Changes::new(),
            said: Vec::new(),
            lost: Vec::new(),
            bad: None,
            bad_slots: 0,
            put_aside: 0,
            report: RepairReport { found, ..RepairReport::default() },
        };
        repair.run(&recovery, each)?;
        Ok(repair)
    }

    /// What it does.
    pub fn report(&self) -> &RepairReport {
        &self.report
    }

    fn say(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.said.push((place.into(), what.into()));
    }

    fn run(&mut self, recovery: &Recovery, each: Each<'_>) -> Result<()> {
        for note in self.core.pool.info().notes {
            self.say("superblock or root", note);
        }
        for damage in &recovery.damage {
            self.say(format!("slice {}, byte {}", damage.slice, damage.offset), &*damage.what);
        }
        let mut pages = Pages::default();
        self.take_all(recovery);
        self.read_trees(&mut pages)?;
        self.replay(recovery, &mut pages)?;
        let kept = self.tree_pages();
        let mut found = self.find(&kept);
        let before: HashMap<Ino, Stored> =
            found.inodes.iter().filter_map(|(ino, i)| Some((*ino, i.stored?))).collect();
        self.mend_inodes(&mut found);
        self.mend_leaves(&mut found, &kept);
        let names = self.mend_names(&mut found);
        self.mend_counts(&found, &names, &before);
        let used = self.count_places(&mut found);
        self.fold(&mut pages)?;
        let inodes = found.inodes.values().filter(|inode| inode.stored.is_some()).count();
        self.core.pool.install(&used, inodes as u64, &mut pages)?;
        self.mend_copies()?;
        self.report.left = check::check_core(&self.core, each).findings;
        self.report.put_aside = self.put_aside;
        let said = std::mem::take(&mut self.said);
        let done = said.into_iter().map(|(place, what)| Finding { place, what });
        self.report.done = done.collect();
        Ok(())
    }

    /// Takes all blocks that anything readable names: nothing of that is overwritten.
    fn take_all(&mut self, recovery: &Recovery) {
        let mut taken: Vec<BlockAddr> = Vec::new();
        let (mut said, mut lost) = (Vec::new(), Vec::new());
        for slice in 0..self.core.pool.slices().len() {
            let mut meet = |met: Met<'_>, main: bool| {
                match met {
                    Met::Page(ptr, _) => taken.extend(ptr.blocks()),
                    Met::Entry(key, value) if main && key.kind == crate::keys::MAP => {
                        let named = crate::leaf_value::decode(value).unwrap_or_default();
                        taken.extend(named.iter().map(|named| named.placed.addr));
                    }
                    Met::Entry(..) => {}
                    Met::Lost(page) => {
                        // it may be of use to somebody yet
                        taken.extend(page.ptr.blocks());
                        let tree = if main { "tree" } else { "free-space tree" };
                        said.push((format!("slice {slice}, {tree}"), page.why.to_string()));
                        if main {
                            let (from, upper) = (page.from, page.upper);
                            let before = self.before(slice, from, upper);
                            lost.push(Lost { slice: slice as u8, from, upper, before });
                        }
                    }
                }
                true
            };
            self.core.pool.readable(slice, Key::MIN, &mut |met| meet(met, true));
            self.core.pool.readable_space(slice, &mut |met| meet(met, false));
        }
        for record in recovery.records.iter().filter(|record| record.kind == KIND_CHANGE) {
            for item in item_decode::decode(&record.payload).into_iter().flatten() {
                match item {
                    Item::Write { placed, .. } => taken.extend(placed.iter().map(|p| p.addr)),
                    Item::Inline { placed, .. } => taken.push(placed.addr),
                    Item::Reserve { runs, .. } => {
                        for run in runs {
                            let blocks = run.blocks.min(1 << 32);
                            let addr = |block| BlockAddr::from_bits(run.addr.bits() + block);
                            taken.extend((0..blocks).map_while(addr));
                        }
                    }
                    _ => {}
                }
            }
        }
        self.said.extend(said);
        for (key, change) in lost.iter().flat_map(|lost| &lost.before) {
            if let (crate::keys::MAP, Change::Put(value)) = (key.kind, change) {
                let named = crate::leaf_value::decode(value).unwrap_or_default();
                taken.extend(named.iter().map(|named| named.placed.addr));
            }
        }
        self.lost = lost;
        taken.into_iter().for_each(|addr| {
            self.core.pool.take(addr);
        });
    }

    /// What the checkpoint before had between two keys.
    fn before(&self, slice: usize, from: Option<Key>, upper: Option<Key>) -> Vec<(Key, Change)> {
        let mut before = Vec::new();
        self.core.pool.readable_before(slice, from.unwrap_or(Key::MIN), &mut |met| match met {
            Met::Entry(key, _) if upper.is_some_and(|upper| key >= upper) => false,
            Met::Entry(key, value) => {
                before.push((key, Change::Put(value.to_vec())));
                true
            }
            _ => true,
        });
        before
    }

    /// Makes all main trees readable: those that are not are made anew of what is.
    fn read_trees(&mut self, pages: &mut Pages) -> Result<()> {
        let mut trees = self.core.pool.roots().trees.clone();
        let mut before: BTreeMap<u8, Vec<(Key, Change)>> = BTreeMap::new();
        for lost in &mut self.lost {
            before.entry(lost.slice).or_default().append(&mut lost.before);
        }
        for (slice, mut before) in before {
            before.sort_unstable_by_key(|(key, _)| *key);
            before.dedup_by_key(|(key, _)| *key);
            if !before.is_empty() {
                let what = format!(
                    "{} entries of what is lost are taken from the checkpoint before: they may be \
                     older than what was there",
                    before.len()
                );
                self.say(format!("slice {slice}, tree"), what);
            }
            let slice = usize::from(slice);
            trees[slice] = self.core.pool.rebuilt(slice, &before, pages)?;
        }
        self.core.pool.use_trees(trees);
        Ok(())
    }

    /// Folds what the log holds.
    fn replay(&mut self, recovery: &Recovery, pages: &mut Pages) -> Result<()> {
        let mut left_out = Vec::new();
        if let Err(error) = self.core.load_tickets() {
            left_out.push(error.to_string());
        }
        let mut tell = |what: String| left_out.push(what);
        self.core.replay_readable(recovery, &mut tell);
        for what in left_out {
            self.say("log", format!("left out: {what}"));
        }
        self.core.settle_overlays();
        let (batch, _) = self.core.encode();
        self.core.mark_named(&batch)?;
        let trees: Result<Vec<_>> = (0..batch.len())
            .map(|slice| Ok(self.core.pool.changed(slice, &batch[slice], pages)?))
            .collect();
        self.core.pool.use_trees(trees?);
        Ok(())
    }

    /// Folds what was mended.
    fn fold(&mut self, pages: &mut Pages) -> Result<()> {
        let slices = self.core.pool.slices().len();
        let batch = batches(std::mem::take(&mut self.changes), slices);
        let trees: Result<Vec<_>> = (0..slices)
            .map(|slice| Ok(self.core.pool.changed(slice, &batch[slice], pages)?))
            .collect();
        self.core.pool.use_trees(trees?);
        Ok(())
    }

    /// Second copies, too.
    fn mend_copies(&mut self) -> Result<()> {
        let (mut seen, mut at) = (Scrubbed::default(), ScrubPlace::default());
        self.core.pool.scrub_heads(&mut seen)?;
        while self.core.pool.scrub_pages(&mut at, SCRUB_PAGES, &mut seen, &mut |_, _| ()) {}
        for repaired in seen.repaired {
            self.say("a copy", format!("written again: {repaired}"));
        }
        Ok(())
    }

    /// Pages of the main trees as they are now.
    fn tree_pages(&self) -> HashSet<BlockAddr> {
        let mut pages = HashSet::new();
        for slice in 0..self.core.pool.slices().len() {
            self.core.pool.readable(slice, Key::MIN, &mut |met| {
                if let Met::Page(ptr, _) = met {
                    pages.extend(ptr.blocks());
                }
                true
            });
        }
        pages
    }

    /// The media behind the slices, and the pages of each that differ.
    fn changed(&self) -> Result<Vec<(pmem::Mapping, Vec<u64>)>> {
        let mut changed = Vec::new();
        for slice in self.core.pool.slices() {
            let process = slice.superblock.domain == pmem::Domain::Process as u8;
            let options = pmem::MapOptions { process, ..pmem::MapOptions::default() };
            let behind = slice.mapping.behind(&slice.path, &options).map_err(pool::Error::from)?;
            let pages = slice.mapping.changed_pages(&behind);
            changed.push((behind, pages));
        }
        Ok(changed)
    }

    /// Makes it: saves what is there to `undo`, a new file, and then writes the pages, the roots
    /// last.
    pub fn write(self, undo: &Path) -> Result<()> {
        let changed = self.changed()?;
        undo::save(undo, &self.core.pool, &changed)?;
        let slices = self.core.pool.slices();
        for heads in [false, true] {
            for (slice, (behind, pages)) in slices.iter().zip(&changed) {
                let head = |page: &&u64| **page < pool::LOG_BLOCK * pool::BLOCK_BYTES;
                let mut written = pmem::InFlight::none();
                for page in pages.iter().filter(|page| head(page) == heads) {
                    let mut bytes = [0; undo::PAGE];
                    slice.mapping.read(*page, &mut bytes).map_err(pool::Error::from)?;
                    written = written.and(behind.write(*page, &bytes));
                }
                let _ = pmem::fence(written);
                behind.sync().map_err(pool::Error::from)?;
                if behind.broken() {
                    return Err(Error::Damaged("the memory fails where it is written".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// The pool.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}
