//! What is known of the pages that a kernel keeps of a file.

use std::collections::BTreeMap;
use std::ops::Range;

use rangemap::RangeSet;

use nearside::files::BLOCK_BYTES;

use super::base::{BLOCK, Base};
use super::file::blocks_of;

/// Runs of given blocks that are told apart, at most: beyond, all between is taken for given.
const RUNS_MAX: usize = 4096;

/// A base, and where it is noted for the next server.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) base: Base,
    pub(super) noted: Option<usize>,
}

/// A READ that fills pages.
#[derive(Debug)]
pub(super) struct Fill {
    pub(super) blocks: Range<u64>,
    /// Where the file was cut meanwhile, in bytes.
    pub(super) cut_from: u64,
}

/// What is known of a file's pages; ranges are of blocks.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The kernel may have pages of these.
    pub(super) given: RangeSet<u64>,
    /// Given ones that somebody changed.
    pub(super) bases: BTreeMap<u64, Kept>,
    /// The same, but what they were nobody knows.
    pub(super) unknown: RangeSet<u64>,
    /// Whose pages are to be dropped; and what the kernel is told of now.
    pub(super) owed: RangeSet<u64>,
    pub(super) told: Option<RangeSet<u64>>,
    /// The kernel was told something since it last wrote through its pages; what it was given
    /// since it may have filled before it had what it wrote.
    pub(super) is_noticed: bool,
    pub(super) doubted: RangeSet<u64>,
    /// READs that fill pages and hold no range, by their numbers: how many began so far, and those
    /// that are under way.
    pub(super) fills_begun: u64,
    pub(super) fills: BTreeMap<u64, Fill>,
    /// Counts what was owed: all of it, up to where it is told, up to where that has been done.
    pub(super) owed_to: u64,
    pub(super) told_to: u64,
    pub(super) done_to: u64,
    /// It is on the way to whoever tells.
    pub(super) is_queued: bool,
    /// The kernel does not know the file any more.
    pub(super) is_forgotten: bool,
}

/// What two runs have in common.
pub(super) fn common(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.max(other.start)..one.end.min(other.end)
}

impl State {
    /// The kernel has filled pages of these blocks.
    pub(super) fn give(&mut self, blocks: Range<u64>) {
        if self.is_noticed && !blocks.is_empty() {
            self.doubted.insert(blocks.clone());
        }
        self.note_given(blocks);
    }

    /// The kernel has pages of these blocks.
    pub(super) fn note_given(&mut self, blocks: Range<u64>) {
        if blocks.is_empty() {
            return;
        }
        self.is_forgotten = false;
        self.given.insert(blocks);
        if let (Some(first), Some(last), true) =
            (self.given.first(), self.given.last(), self.given.len() > RUNS_MAX)
        {
            let hull = first.start..last.end;
            self.given.insert(hull);
        }
    }

    /// Runs of these blocks of which the kernel may have pages.
    pub(super) fn known_runs(&self, blocks: &Range<u64>) -> Vec<Range<u64>> {
        let told = self.told.iter().flat_map(|told| told.overlapping(blocks));
        self.given.overlapping(blocks).chain(told).map(|run| common(run, blocks)).collect()
    }

    /// Whether it is known what a block was, or that nobody knows.
    pub(super) fn is_changed(&self, block: u64) -> bool {
        self.bases.contains_key(&block) || self.unknown.contains(&block)
    }

    /// The blocks of this run that have bases.
    pub(super) fn based(&self, run: &Range<u64>) -> Vec<u64> {
        self.bases.range(run.clone()).map(|(block, _)| *block).collect()
    }

    /// What of these blocks is in both sets, and was given to the kernel again since it was told.
    pub(super) fn unknown_and_given(&self, run: &Range<u64>) -> Vec<Range<u64>> {
        let unknown = self.unknown.overlapping(run).map(|it| common(it, run));
        let both = unknown.flat_map(|unknown| {
            let given = self.given.overlapping(&unknown);
            given.map(|given| common(given, &unknown)).collect::<Vec<_>>()
        });
        both.collect()
    }

    /// A READ of these blocks that began so early, or before, is under way.
    pub(super) fn is_filling(&self, blocks: &Range<u64>, begun: u64) -> bool {
        self.fills.range(..=begun).any(|(_, fill)| !common(&fill.blocks, blocks).is_empty())
    }

    /// Until where what is owed has to be done so that pages of these blocks are gone that are to
    /// be dropped by now.
    pub(super) fn ticket_of(&self, blocks: &Range<u64>) -> Option<u64> {
        let is_told = self.told.as_ref().is_some_and(|told| told.overlaps(blocks));
        match self.owed.overlaps(blocks) {
            true => Some(self.owed_to),
            false => is_told.then_some(self.told_to),
        }
    }

    /// The kernel has no write through its pages under way, but for what is served now. Gives what
    /// was in doubt.
    pub(super) fn end_doubt(&mut self) -> RangeSet<u64> {
        self.is_noticed = self.told.is_some();
        std::mem::take(&mut self.doubted)
    }

    /// The blocks of these bytes in which the kernel may have zeros instead.
    pub(super) fn zeroed(&self, offset: u64, len: usize) -> Vec<Range<u64>> {
        let end = offset + len as u64;
        let is_zeroed = |block: u64, base: &Base| {
            base.zeros_from < BLOCK && block * BLOCK_BYTES + (base.zeros_from as u64) < end
        };
        let bases = self.bases.range(blocks_of(offset, len));
        let zeroed = bases.filter(|(block, kept)| is_zeroed(**block, &kept.base));
        zeroed.map(|(block, _)| *block..block + 1).collect()
    }

    /// Nothing is kept of the file.
    pub(super) fn is_empty(&self) -> bool {
        self.given.is_empty()
            && self.told.is_none()
            && self.bases.is_empty()
            && self.unknown.is_empty()
    }
}
