//! Scrub: everything that is stored is read and verified while the pool is in use, slowly enough
//! not to be in the way, and what is kept twice is repaired from its other copy: also blocks of the
//! capacity tier that lie in slices or in DRAM, too.
//!
//! Trees are gone through a few pages at a time, each time those of the last checkpoint; what is
//! not looked at because it moved meanwhile was written meanwhile. The data is verified leaf by
//! leaf, as a check of a pool in use does.

use crate::check::{CheckReport, Finding};
use crate::check_live::BATCH_LEAVES;
use crate::core::Core;
use crate::error::Result;
use crate::keys;
use crate::leaf;
use crate::system::FileSystem;
use crate::types::Ino;
use pool::{BLOCK_BYTES, ScrubPlace, Scrubbed};
use std::time::{Duration, Instant};

/// Pages of the trees that are looked at before it rests.
const PAGES: u64 = 64;
/// Longest sleep before who waits is asked whether it is to go on.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// What a scrub saw and mended.
#[derive(Clone, Debug, Default)]
pub struct ScrubReport {
    /// Pages of the trees, both copies of each verified.
    pub pages: u64,
    /// Those that have no second copy.
    pub single_pages: u64,
    /// Data blocks verified.
    pub blocks: u64,
    /// What was written again from its other copy.
    pub repaired: Vec<String>,
    /// What is damaged and stays so.
    pub findings: Vec<Finding>,
}

/// Who waits for a scrub is told how many bytes are done, of about how many, and ends it by
/// returning false.
pub type EachScrubbed<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// How fast it goes.
struct Pace<'a> {
    began: Instant,
    bytes_per_s: Option<u64>,
    done: u64,
    of: u64,
    each: EachScrubbed<'a>,
}

impl Pace<'_> {
    /// So many bytes more are done: rests as long as the rate asks for; false if it is to end.
    fn step(&mut self, bytes: u64) -> bool {
        self.done += bytes;
        self.of = self.of.max(self.done);
        loop {
            if !(self.each)(self.done, self.of) {
                return false;
            }
            let due = self.bytes_per_s.map_or(Duration::ZERO, |rate| {
                Duration::from_secs_f64(self.done as f64 / rate.max(1) as f64)
            });
            let rest = due.saturating_sub(self.began.elapsed());
            if rest.is_zero() {
                return true;
            }
            std::thread::sleep(rest.min(SLEEP_MAX));
        }
    }
}

impl FileSystem {
    /// Verifies all that is stored, at `bytes_per_s` (none: as fast as it goes), and repairs what
    /// is kept twice. None if `each` ended it.
    pub fn scrub(
        &self,
        bytes_per_s: Option<u64>,
        each: EachScrubbed<'_>,
    ) -> Result<Option<ScrubReport>> {
        let core = &*self.core;
        core.checkpoint()?;
        let (mut seen, mut data) = (Scrubbed::default(), CheckReport::default());
        let mut mended = Vec::new();
        let (all, free) = core.blocks();
        // both copies of the pages are among the blocks that are used
        let of = all.saturating_sub(free) * BLOCK_BYTES;
        let mut pace = Pace { began: Instant::now(), bytes_per_s, done: 0, of, each };
        core.pool.scrub_heads(&mut seen)?;
        let mut at = ScrubPlace::default();
        loop {
            let before = seen.pages;
            let mut leaves = Vec::new();
            let more = core.pool.scrub_pages(&mut at, PAGES, &mut seen, &mut |key, _| {
                let is_leaf = key.kind == keys::MAP && key.object != 0;
                if is_leaf && key.index <= leaf::LEAF_INDEX_MAX {
                    leaves.push((Ino(key.object), key.index));
                }
            });
            let mut goes_on = pace.step((seen.pages - before) * 2 * BLOCK_BYTES);
            for batch in leaves.chunks(BATCH_LEAVES) {
                let before = data.blocks;
                core.check_leaves(batch, &mut data, Some(&mut mended));
                goes_on = goes_on && pace.step((data.blocks - before) * BLOCK_BYTES);
                if !goes_on {
                    break;
                }
            }
            if !goes_on {
                return Ok(None);
            }
            if !more {
                break;
            }
        }
        core.copy_single_pages(&mut seen)?;
        core.pool.mended()?;
        core.pool.check_writable()?;
        seen.repaired.append(&mut mended);
        Ok(Some(report(seen, data)))
    }
}

impl Core {
    /// Gives pages that have no second copy one, as far as there is room.
    fn copy_single_pages(&self, seen: &mut Scrubbed) -> Result<()> {
        let wanted = !seen.single_keys.is_empty() && !self.pool.options().single_pages;
        if !wanted || !self.pool.has_room() {
            return Ok(());
        }
        let before = seen.single;
        self.touched.lock().append(&mut seen.single_keys);
        self.checkpoint()?;
        seen.single = self.pool.single_pages()?;
        let copied = before.saturating_sub(seen.single);
        if copied > 0 {
            let what = format!("{copied} pages of the trees had no second copy; they have one now");
            seen.repaired.push(what);
        }
        Ok(())
    }
}

fn report(seen: Scrubbed, data: CheckReport) -> ScrubReport {
    let lost = seen.lost.into_iter().map(|(place, what)| Finding::new(place, what));
    ScrubReport {
        pages: seen.pages,
        single_pages: seen.single,
        blocks: data.blocks,
        repaired: seen.repaired,
        findings: lost.chain(data.findings).collect(),
    }
}
