//! What a history is, as its seed and number give it.

use serde::{Deserialize, Serialize};

use crate::page_acts::{act_on_pages, act_on_region, copy_in, with_whole_reads};
use crate::record::{Act, Part};
use crate::rng::Rng;
use crate::wrong_caller::Mutant;

/// Bytes of a cell, the unit that calls write: eight words that are alike.
pub const CELL_BYTES: usize = 64;
/// Cells of a page.
pub const PAGE_CELLS: u32 = 64;
/// Cells that calls touch, append apart: four pages.
pub const FILE_CELLS: u32 = 4 * PAGE_CELLS;
/// Where a file ends at least that has doors through pages: mappings store before it, for what they
/// store behind an end has no defined meaning.
pub const LEAST_CELLS: u32 = 2 * PAGE_CELLS;
/// Files of a history.
pub const FILES: u32 = 2;
/// Names of a history.
pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// How long one mode lasts: one caller alone, or all at once.
const SLOT_NS: u64 = 2_000_000;
/// Nobody calls anew so long after the beginning.
pub const LENGTH_NS: u64 = 1_000_000_000;

/// What a history is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Bytes and sizes of two files.
    Data,
    /// The same, and transactions over both.
    Transactions,
    /// Bytes of two files at all doors, also those that go through a kernel's pages. No file ends
    /// before `LEAST_CELLS`.
    Pages,
    /// Names of one directory, with links and no renames at the mount.
    Links,
    /// The same with renames and without links. At the mount they replace nothing: the kernel looks
    /// up both names one after the other, and does nothing where it found one inode.
    Renames,
}

/// Who owns the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostKind {
    /// A process that calls by itself, too, with a service and a mount.
    Owner,
    /// `nearside serve --mount`, with a keeper.
    Serve,
}

/// What the callers are told of a history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct History {
    /// Its number.
    pub number: u32,
    /// See there.
    pub kind: Kind,
    /// Of all histories.
    pub seed: u64,
    /// When it begins.
    pub start_ns: u64,
    /// Calls of each caller.
    pub calls: u32,
    /// Callers that take part: those with a lower number.
    pub callers: u32,
    /// Mappings are stored to. Where they are not, `nearside cp` copies over files, which end where
    /// they begin for a moment.
    pub stores: bool,
    /// Where calls are written down.
    pub records: std::path::PathBuf,
    /// All is over, and each reads what is there in the end.
    pub is_final: bool,
    /// What the caller of this number does wrong.
    pub mutant: Option<(Mutant, u32)>,
}

impl History {
    /// Its directory in the pool, from the root.
    pub fn dir(&self) -> String {
        format!("h{}", self.number)
    }

    /// A file of it, from the root.
    pub fn file(&self, file: u32) -> String {
        format!("h{}/f{file}", self.number)
    }

    /// Which caller is alone now, if any; and until when.
    pub fn alone(&self, now: u64) -> (Option<u32>, u64) {
        let slot = now.saturating_sub(self.start_ns) / SLOT_NS;
        let mut rng = Rng::new(&[self.seed, self.number.into(), slot]);
        let alone = rng.one_in(2).then(|| rng.below(self.callers.into()) as u32);
        (alone, self.start_ns + (slot + 1) * SLOT_NS)
    }

    /// The next act of a caller, alone or not.
    pub fn act(&self, rng: &mut Rng, is_alone: bool, abilities: Abilities) -> Act {
        match self.kind {
            Kind::Links | Kind::Renames => self.act_on_names(rng, abilities),
            Kind::Transactions if abilities.transacts => act_in_transaction(rng),
            Kind::Pages if abilities.copies => {
                Act::Copy { file: file(rng), at: 0, cells: FILE_CELLS }
            }
            Kind::Pages if abilities.copies_in => copy_in(rng),
            Kind::Pages if abilities.transacts => act_on_region(rng, is_alone),
            Kind::Pages if self.stores => act_on_pages(rng, is_alone, abilities),
            Kind::Pages => {
                let abilities = Abilities { stores: false, ..abilities };
                let act = act_on_pages(rng, is_alone, abilities);
                with_whole_reads(rng, act)
            }
            Kind::Data | Kind::Transactions => act_on_data(rng, is_alone),
        }
    }

    /// What is read of it in the end.
    pub fn last_acts(&self, abilities: Abilities) -> Vec<Act> {
        match self.kind {
            Kind::Pages if abilities.copies => {
                (0..FILES).map(|file| Act::Copy { file, at: 0, cells: FILE_CELLS }).collect()
            }
            // another caller of its process reads them
            Kind::Pages if abilities.copies_in => Vec::new(),
            Kind::Pages if abilities.loads => {
                (0..FILES).map(|file| Act::Load { file, at: 0, cells: LEAST_CELLS }).collect()
            }
            Kind::Data | Kind::Transactions | Kind::Pages => (0..FILES)
                .flat_map(|file| {
                    [Act::Size { file }, Act::Read { file, at: 0, cells: 4 * FILE_CELLS }]
                })
                .collect(),
            Kind::Links | Kind::Renames => {
                NAMES.iter().map(|name| Act::Lookup { name: (*name).to_owned() }).collect()
            }
        }
    }

    fn act_on_names(&self, rng: &mut Rng, abilities: Abilities) -> Act {
        let name = |rng: &mut Rng| NAMES[rng.below(NAMES.len() as u64) as usize].to_owned();
        let links = self.kind == Kind::Links;
        match rng.below(20) {
            0..=2 => Act::Create { name: name(rng) },
            3..=5 => Act::Unlink { name: name(rng) },
            6..=9 if links => Act::Link { from: name(rng), to: name(rng) },
            6..=8 | 10 if abilities.is_library => Act::Rename { from: name(rng), to: name(rng) },
            6..=10 if !links => Act::Move { from: name(rng), to: name(rng) },
            _ => Act::Lookup { name: name(rng) },
        }
    }
}

/// What a door can do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Abilities {
    /// Each of its calls is one of the engine's.
    pub is_library: bool,
    /// Transactions.
    pub transacts: bool,
    /// Loads through a kernel's pages.
    pub loads: bool,
    /// Stores by a mapping.
    pub stores: bool,
    /// Copies of files, and nothing else.
    pub copies: bool,
    /// Copies over files, and nothing else.
    pub copies_in: bool,
}

pub(crate) fn file(rng: &mut Rng) -> u32 {
    rng.below(FILES.into()) as u32
}

/// A place: a cell, a page, a few cells over the end of a page, pages, anything.
pub(crate) fn place(rng: &mut Rng) -> (u32, u32) {
    let page = rng.below(u64::from(FILE_CELLS / PAGE_CELLS)) as u32 * PAGE_CELLS;
    match rng.below(10) {
        0..=2 => (rng.below(FILE_CELLS.into()) as u32, 1),
        3..=4 => (page, PAGE_CELLS),
        5 => (page.max(PAGE_CELLS) - 3, 6),
        6..=7 => (page / 2, 2 * PAGE_CELLS),
        _ => {
            let at = rng.below(FILE_CELLS.into()) as u32;
            (at, 1 + rng.below(u64::from(FILE_CELLS - at)) as u32)
        }
    }
}

fn act_on_data(rng: &mut Rng, is_alone: bool) -> Act {
    let file = file(rng);
    let (at, cells) = place(rng);
    if is_alone {
        // small ones, which go through a lane
        let page = at / PAGE_CELLS * PAGE_CELLS;
        return match rng.below(10) {
            0..=4 => Act::Write { file, at, cells: 1 },
            5..=7 => Act::Write { file, at: page, cells: PAGE_CELLS },
            8 => Act::Read { file, at: page, cells: PAGE_CELLS },
            _ => Act::Read { file, at: 0, cells: FILE_CELLS },
        };
    }
    match rng.below(40) {
        0..=13 => Act::Write { file, at, cells },
        14..=25 => Act::Read { file, at, cells },
        26..=28 => Act::Append { file, cells: 1 + rng.below(40) as u32 },
        29..=31 => Act::Truncate { file, cells: rng.below(FILE_CELLS.into()) as u32 },
        32..=33 => Act::Punch { file, at, cells },
        34..=38 => Act::Size { file },
        _ => Act::Sync { file },
    }
}

fn act_in_transaction(rng: &mut Rng) -> Act {
    // in one file: what a process may commit under its leases
    let first = file(rng);
    let other = if rng.one_in(2) { first } else { 1 - first };
    let mut part = |file| {
        let (at, cells) = place(rng);
        Part { file, at, cells }
    };
    let parts = vec![part(first), part(other)];
    transaction(rng, parts)
}

/// A transaction that writes in two places, reads them, or does both.
pub(crate) fn transaction(rng: &mut Rng, parts: Vec<Part>) -> Act {
    match rng.below(3) {
        0 => Act::Transact { reads: Vec::new(), writes: parts },
        1 => Act::Transact { reads: parts, writes: Vec::new() },
        _ => {
            let (reads, writes) = parts.split_at(1);
            Act::Transact { reads: reads.to_vec(), writes: writes.to_vec() }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn history(kind: Kind) -> History {
        History {
            number: 7,
            kind,
            seed: 1,
            start_ns: 0,
            calls: 1,
            callers: 4,
            stores: true,
            records: Default::default(),
            is_final: false,
            mutant: None,
        }
    }

    #[test]
    fn a_seed_gives_the_same_acts_again_and_all_kinds_of_them() {
        for kind in [Kind::Data, Kind::Pages, Kind::Transactions, Kind::Links, Kind::Renames] {
            let abilities = Abilities { is_library: true, transacts: true, ..Abilities::default() };
            let acts = || {
                let mut rng = Rng::new(&[1, 2]);
                let act = |at| history(kind).act(&mut rng, at % 3 == 0, abilities);
                (0..2000).map(act).collect::<Vec<_>>()
            };
            let names: std::collections::BTreeSet<_> = acts().iter().map(Act::name).collect();
            assert_eq!(acts(), acts());
            let expected = match kind {
                Kind::Data => 7,
                Kind::Transactions => 1,
                Kind::Pages | Kind::Links | Kind::Renames => 5,
            };
            assert_eq!(names.len(), expected, "{names:?}");
        }
    }

    #[test]
    fn nobody_renames_at_the_mount_where_there_are_links() {
        let mut rng = Rng::new(&[3]);
        for _ in 0..2000 {
            let act = history(Kind::Links).act(&mut rng, false, Abilities::default());
            assert!(!matches!(act, Act::Rename { .. }));
        }
    }

    #[test]
    fn somebody_is_alone_half_of_the_time() {
        let history = history(Kind::Data);
        let alone = (0..1000).filter(|slot| history.alone(slot * SLOT_NS).0.is_some()).count();
        assert!((400..600).contains(&alone), "{alone}");
    }
}
