//! Acts on files that have doors through pages.

use crate::plan::{Abilities, FILE_CELLS, LEAST_CELLS, PAGE_CELLS, file, place, transaction};
use crate::record::{Act, Part};
use crate::rng::Rng;

/// Of so many cells one is mostly left to stores by mappings: of a store and a write at one time
/// either may win byte by byte, so that such a cell can hold anything until it is changed again.
const STORED_EVERY: u32 = 8;

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

pub fn act_on_pages(rng: &mut Rng, is_alone: bool, abilities: Abilities) -> Act {
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

/// The act; of two reads one is of all of the file, so that what a copy over the file has hidden or
/// left is soon seen. Where it is not there are more orders than can be searched.
pub fn with_whole_reads(rng: &mut Rng, act: Act) -> Act {
    match act {
        Act::Read { file, .. } | Act::Size { file } if rng.one_in(2) => {
            Act::Read { file, at: 0, cells: 4 * FILE_CELLS }
        }
        act => act,
    }
}

/// Loads from regions, mostly, and transactions on one file.
pub fn act_on_region(rng: &mut Rng, is_alone: bool) -> Act {
    let file = file(rng);
    let mut part = || {
        let (at, cells) = place_beside_stores(rng);
        Part { file, at, cells }
    };
    let parts = vec![part(), part()];
    let Part { at, cells, .. } = parts[0];
    match rng.below(20) {
        0..=4 => transaction(rng, parts),
        5..=6 => Act::Transact { reads: Vec::new(), writes: vec![parts[0]] },
        7 | 8 if is_alone => Act::Write { file, at, cells },
        7..=10 => Act::Load { file, at: at / PAGE_CELLS * PAGE_CELLS, cells: PAGE_CELLS },
        11..=14 => Act::Load { file, at, cells },
        15..=17 => Act::Load { file, at: stored_place(rng).0, cells: 1 },
        18 => Act::Append { file, cells: 1 + rng.below(40) as u32 },
        _ => Act::Read { file, at, cells },
    }
}

/// A copy over a file, which ends then where files end at least, or behind that.
pub fn copy_in(rng: &mut Rng) -> Act {
    let more = rng.below(u64::from(FILE_CELLS - LEAST_CELLS)) as u32;
    Act::CopyIn { file: file(rng), cells: LEAST_CELLS + more }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    fn acts(abilities: Abilities) -> Vec<Act> {
        let mut rng = Rng::new(&[4]);
        (0..4000).map(|at| act_on_pages(&mut rng, at % 3 == 0, abilities)).collect()
    }

    fn names(acts: &[Act]) -> BTreeSet<String> {
        acts.iter().map(Act::name).collect()
    }

    #[test]
    fn a_door_through_pages_loads_and_stores_where_no_file_ends() {
        let mapped = Abilities { loads: true, stores: true, ..Abilities::default() };
        let piped = Abilities { loads: true, ..Abilities::default() };
        assert!(names(&acts(mapped)).is_superset(&["Load", "Store"].map(str::to_owned).into()));
        assert!(names(&acts(piped)).is_superset(&["Load", "Write"].map(str::to_owned).into()));
        assert!(!names(&acts(piped)).contains("Store"));
        assert_eq!(names(&acts(Abilities::default())).len(), 7);
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
    fn a_region_is_loaded_from_and_transactions_are_of_one_file() {
        let mut rng = Rng::new(&[5]);
        let acts: Vec<_> = (0..4000).map(|at| act_on_region(&mut rng, at % 3 == 0)).collect();
        let expected = ["Append", "Load", "Read", "Transact", "Write"].map(str::to_owned);
        assert_eq!(names(&acts), expected.into());
        for act in acts {
            match act {
                Act::Load { at, cells, .. } => assert!(at + cells <= FILE_CELLS),
                Act::Transact { reads, writes } => {
                    let files: BTreeSet<_> =
                        reads.iter().chain(&writes).map(|it| it.file).collect();
                    assert_eq!(files.len(), 1);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn a_copy_over_a_file_leaves_it_no_shorter_than_files_are() {
        let mut rng = Rng::new(&[6]);
        for _ in 0..1000 {
            let Act::CopyIn { cells, .. } = copy_in(&mut rng) else { panic!("another act") };
            assert!((LEAST_CELLS..FILE_CELLS).contains(&cells));
        }
    }
}
