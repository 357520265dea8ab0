//! What a history is, as its seed and number give it.

use serde::{Deserialize, Serialize};

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
/// Of so many cells one is mostly left to stores by mappings: of a store and a write at one time
/// either may win byte by byte, so that such a cell can hold anything until it is changed again.
const STORED_EVERY: u32 = 8;
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
    /// Mappings are stored to.
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
            Kind::Pages => act_on_pages(rng, is_alone, self.allowed(abilities)),
            Kind::Data | Kind::Transactions => act_on_data(rng, is_alone),
        }
    }

    fn allowed(&self, abilities: Abilities) -> Abilities {
        Abilities { stores: abilities.stores && self.stores, ..abilities }
    }

    /// What is read of it in the end.
    pub fn last_acts(&self, abilities: Abilities) -> Vec<Act> {
        match self.kind {
            Kind::Pages if abilities.copies => {
                (0..FILES).map(|file| Act::Copy { file, at: 0, cells: FILE_CELLS }).collect()
            }
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
}

fn file(rng: &mut Rng) -> u32 {
    rng.below(FILES.into()) as u32
}

/// A place: a cell, a page, a few cells over the end of a page, pages, anything.
fn place(rng: &mut Rng) -> (u32, u32) {
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

/// A place that is small and touches no cell for stores, mostly; or any.
fn place_beside_stores(rng: &mut Rng) -> (u32, u32) {
    if rng.one_in(4) {
        return place(rng);
    }
    let group = rng.below(u64::from(FILE_CELLS / STORED_EVERY)) as u32 * STORED_EVERY;
    let skip = rng.below(3) as u32;
    (group + skip, 1 + rng.below(u64::from(STORED_EVERY - 1 - skip)) as u32)
}

/// A place for stores.
fn stored_place(rng: &mut Rng) -> (u32, u32) {
    match rng.below(4) {
        0 => {
            let cells = 1 + rng.below(4) as u32;
            (rng.below(u64::from(LEAST_CELLS - cells)) as u32, cells)
        }
        _ => {
            let group = rng.below(u64::from(LEAST_CELLS / STORED_EVERY)) as u32;
            (group * STORED_EVERY + STORED_EVERY - 1, 1)
        }
    }
}

fn act_on_pages(rng: &mut Rng, is_alone: bool, abilities: Abilities) -> Act {
    let file = file(rng);
    let (at, cells) = place_beside_stores(rng);
    match rng.below(20) {
        0..=6 if abilities.stores => {
            let (at, cells) = stored_place(rng);
            Act::Store { file, at, cells, read: rng.one_in(3) }
        }
        0..=6 if abilities.loads => Act::Write { file, at, cells },
        7..=18 if abilities.loads => match rng.below(4) {
            0 => Act::Load { file, at: at / PAGE_CELLS * PAGE_CELLS, cells: PAGE_CELLS },
            1 => Act::Load { file, at, cells },
            _ => Act::Load { file, at: stored_place(rng).0, cells: 1 },
        },
        0..=11 if is_alone => Act::Write { file, at, cells },
        0..=6 => Act::Write { file, at, cells },
        7..=12 => Act::Read { file, at, cells },
        13..=14 => Act::Append { file, cells: 1 + rng.below(40) as u32 },
        15 => {
            let more = rng.below(u64::from(FILE_CELLS - LEAST_CELLS)) as u32;
            Act::Truncate { file, cells: LEAST_CELLS + more }
        }
        16 => Act::Punch { file, at, cells },
        17..=18 => Act::Size { file },
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
                Kind::Data | Kind::Pages => 7,
                Kind::Transactions => 1,
                Kind::Links => 5,
                Kind::Renames => 5,
            };
            assert_eq!(names.len(), expected, "{names:?}");
        }
    }

    #[test]
    fn a_door_through_pages_loads_and_stores_where_no_file_ends() {
        let acts = |abilities: Abilities| {
            let mut rng = Rng::new(&[4]);
            let act = |at| history(Kind::Pages).act(&mut rng, at % 3 == 0, abilities);
            (0..4000).map(act).collect::<Vec<_>>()
        };
        let names = |abilities| -> std::collections::BTreeSet<_> {
            acts(abilities).iter().map(Act::name).collect()
        };
        let mapped = Abilities { loads: true, stores: true, ..Abilities::default() };
        assert!(names(mapped).is_superset(&["Load", "Store"].map(str::to_owned).into()));
        let piped = Abilities { loads: true, ..Abilities::default() };
        assert!(names(piped).is_superset(&["Load", "Write"].map(str::to_owned).into()));
        assert!(!names(piped).contains("Store"));
        assert_eq!(names(Abilities::default()).len(), 7);
        for act in acts(mapped) {
            match act {
                Act::Store { at, cells, .. } => assert!(at + cells <= LEAST_CELLS),
                Act::Load { at, cells, .. } => assert!(at + cells <= FILE_CELLS),
                Act::Truncate { cells, .. } => assert!(cells >= LEAST_CELLS),
                _ => {}
            }
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
