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
//! What is lost is never made up: a file's blocks that are gone read as errors, not as zeros. A
//! file that may have been changed by what is lost reads as an error in its place. What is known of
//! it is put aside in `/lost+found/older` (`put_aside.rs`).

mod counts;
mod doubtful_replay;
mod doubts;
mod found;
mod leaves;
mod lost_records;
mod names;
mod older_values;
mod put_aside;
mod read;
mod undo;

pub use undo::undo;

use crate::attr::Stored;
use crate::check::{self, Each, Finding};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::item::Placed;
use crate::second_copy::WRITTEN_AGAIN;
use crate::types::Ino;
use doubts::{ChangeTime, Doubts};
use found::batches;
use lost_records::makes_sense;
use pool::tree::{Change, Key, Met};
use pool::{
    BlockAddr, Candidate, Device, OpenOptions, Pages, Pool, Recovery, ScrubPlace, Scrubbed, Slice,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// Pages whose copies are looked at in one go.
const SCRUB_PAGES: u64 = 1 << 12;

/// How a note ends that says that a page was corrected.
const TURNED_BACK: &str = "flipped bits of it were turned back";

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

/// A copy of a slice, and what is to be written to it.
struct Changed<'r> {
    slice: &'r Slice,
    /// The slice whose file it lies in.
    file: u32,
    copy: &'r pmem::Mapping,
    behind: pmem::Mapping,
    /// The pages that differ.
    pages: Vec<u64>,
}

/// What a page of a slice belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Heads,
    Log,
    Data,
}

impl Part {
    fn of(slice: &Slice, page: u64) -> Part {
        let block = page / pool::BLOCK_BYTES;
        if block < pool::LOG_BLOCK {
            Part::Heads
        } else if block < slice.superblock.data_block_first() {
            Part::Log
        } else {
            Part::Data
        }
    }
}

/// A repair that was tried out, and can be made.
#[derive(Debug)]
pub struct Repair {
    core: Core,
    changes: Changes,
    said: Vec<(String, String)>,
    lost: Vec<Lost>,
    /// Slices whose main tree is to be made anew.
    rebuild: BTreeSet<u8>,
    /// Inodes whose attributes are the checkpoint before's, or made up: they do not say how much
    /// there was.
    unsure: BTreeSet<Ino>,
    /// Files of which more is lost than is marked.
    unmarked: BTreeSet<Ino>,
    /// Blocks of files that were reserved twice, and are no longer.
    blocks_dropped: HashMap<Ino, u64>,
    /// Entries of directories that are the checkpoint before's.
    older_entries: HashSet<(Ino, u64)>,
    /// What cannot be vouched for.
    doubts: Doubts,
    /// The last roots are lost: any file may be older than it was.
    roots_lost: bool,
    /// Where the copies of files in doubt are.
    copy_names: HashMap<Ino, String>,
    bad: Option<Placed>,
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
        Err(error) => vec![Finding::new("the pool", error.to_string())],
    };
    let (candidates, _) = pool::candidates(dir, &Candidate::open_private)?;
    let devices = tier::open_devices(dir, true)?;
    let mut repair = Repair::made((candidates, devices), found, each)?;
    repair.report.pages = pages_of(&repair.changed()?);
    Ok(Some(repair))
}

fn pages_of(changed: &[Changed<'_>]) -> u64 {
    changed.iter().map(|changed| changed.pages.len() as u64).sum()
}

/// Repairs a pool in memory, whatever is wrong with it.
pub fn repair_candidates(candidates: Vec<Candidate>) -> Result<RepairReport> {
    let repair = Repair::made((candidates, Vec::new()), Vec::new(), &mut |_, _| ())?;
    Ok(repair.report)
}

impl Repair {
    fn made(
        (candidates, devices): (Vec<Candidate>, Vec<Arc<dyn Device>>),
        found: Vec<Finding>,
        each: Each<'_>,
    ) -> Result<Repair> {
        let salvage = Some(makes_sense as pool::RecordProbe);
        let options = OpenOptions { salvage, devices, ..OpenOptions::default() };
        let (pool, recovery) = Pool::open_candidates(candidates, &options)?;
        let mut repair = Repair {
            core: Core::new(pool),
            changes: Changes::new(),
            said: Vec::new(),
            lost: Vec::new(),
            rebuild: BTreeSet::new(),
            unsure: BTreeSet::new(),
            unmarked: BTreeSet::new(),
            blocks_dropped: HashMap::new(),
            older_entries: HashSet::new(),
            doubts: Doubts::default(),
            roots_lost: recovery.roots_lost,
            copy_names: HashMap::new(),
            bad: None,
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
        for record in &recovery.corrected {
            let time = ChangeTime::at(record.time_ns).text();
            let what = format!("{} flipped bits of a change {time} were turned back", record.bits);
            self.say(format!("slice {}, byte {}", record.slice, record.offset), what);
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
        self.grow_older(&mut found);
        self.mend_leaves(&mut found, &kept);
        let mut names = self.mend_names(&mut found);
        self.put_doubted_aside(&mut found, &mut names);
        self.mend_counts(&found, &names, &before);
        let used = self.count_places(&mut found);
        self.fold(&mut pages)?;
        let inodes = found.inodes.values().filter(|inode| inode.stored.is_some()).count();
        self.core.pool.install(&used, inodes as u64, &mut pages)?;
        self.mend_copies()?;
        self.report.left = self.core.check_all(each).findings;
        let copies = self.core.pool.second_copies_read().into_iter();
        let is_new = |copy: &String| copy.ends_with(WRITTEN_AGAIN) || copy.ends_with(TURNED_BACK);
        for copy in copies.filter(is_new) {
            self.say("a copy", copy);
        }
        self.report.put_aside = self.put_aside;
        let said = std::mem::take(&mut self.said);
        let done = said.into_iter().map(|(place, what)| Finding::new(place, what));
        self.report.done = done.collect();
        Ok(())
    }

    /// Folds what the log holds.
    fn replay(&mut self, recovery: &Recovery, pages: &mut Pages) -> Result<()> {
        if let Err(error) = self.core.load_tickets() {
            self.say("log", format!("left out: {error}"));
        }
        self.replay_readable(recovery);
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

    /// The media behind the slices and their mirrors, and the pages of each that differ.
    fn changed(&self) -> Result<Vec<Changed<'_>>> {
        let mut changed = Vec::new();
        let slices = self.core.pool.slices();
        for (index, slice) in slices.iter().enumerate() {
            let process = slice.superblock.domain == pmem::Domain::Process as u8;
            let options = pmem::MapOptions { process, ..pmem::MapOptions::default() };
            for (path, copy) in slice.copies() {
                let behind = copy.behind(path, &options).map_err(pool::Error::from)?;
                let pages = copy.changed_pages(&behind);
                // what does not begin its file is the mirror, in that of the next slice
                let next = (index + 1) % slices.len();
                let file = if copy.file_offset() == 0 { index } else { next };
                changed.push(Changed { slice, file: file as u32, copy, behind, pages });
            }
        }
        Ok(changed)
    }

    /// Makes it: saves what is there to `undo`, a new file, and then writes the pages, those that
    /// the log lies in last and the roots before them: until those are there, nothing has changed.
    pub fn write(self, undo: &Path) -> Result<()> {
        let changed = self.changed()?;
        if pages_of(&changed) != self.report.pages {
            let what =
                "a slice was changed or cut while the repair was tried out: nothing was written";
            return Err(Error::Damaged(what.to_owned()));
        }
        undo::save(undo, &self.core.pool, &changed)?;
        for part in [Part::Data, Part::Heads, Part::Log] {
            for Changed { slice, copy, behind, pages, .. } in &changed {
                let mut written = pmem::InFlight::none();
                for page in pages.iter().filter(|page| Part::of(slice, **page) == part) {
                    let mut bytes = [0; undo::PAGE];
                    copy.read_own(*page, &mut bytes).map_err(pool::Error::from)?;
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
}
