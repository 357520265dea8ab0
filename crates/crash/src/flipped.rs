//! Which checksums notice that a bit of a medium was lost, and what comes of one that is not looked
//! at then.

use crate::flips::{Closed, unreadable_state};
use crate::images::{Outcome, Shape};
use crate::mutant::{Mutant, Site};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Where a mirrored pool says whose files are current, in both halves of a file (docs/FORMAT.md).
const MEMBERS_LINES: [u64; 2] = [6 * 64, (6 + 256) * 64];

/// Where slices say which devices their pool has (docs/FORMAT.md).
pub const TABLE_LINES: Range<u64> = 8 * 64..9 * 64;

/// Of so many bits behind the first superblock one is flipped; odd, so that it meets each of a
/// byte.
const FLIP_EVERY: usize = 67;

/// A bit, and the checksums that do not fit when it is lost: to look at others then is no use.
type Misfits = (u64, BTreeSet<Site>);

/// A medium of which bits were flipped, each alone.
#[derive(Debug)]
pub struct Flipped {
    /// What was flipped.
    pub name: &'static str,
    of: Of,
}

#[derive(Debug)]
enum Of {
    Pool {
        pool: Box<Mutex<Closed>>,
        /// What is answered with them must be right, or an error.
        bits: Vec<Misfits>,
        /// With them it must open: another slice says the same.
        table: Vec<Misfits>,
    },
    /// Who wrote last, in the domain `sync`.
    State(BTreeSet<Site>),
}

impl Flipped {
    /// Makes them, one after the other.
    pub const ALL: [fn() -> Outcome<Flipped>; 5] = [
        || Flipped::pool("bits of a closed pool flipped", Closed::new(&Shape::SMALL)?),
        || Flipped::pool("bits of a killed pool flipped", Closed::killed(&Shape::SMALL)?),
        || Flipped::pool("bits of a mirrored pool flipped", Closed::new(&Shape::MIRRORED)?),
        || Flipped::pool("bits of a pool with a tier flipped", Closed::new(&Shape::TIERED)?),
        Flipped::state,
    ];

    fn pool(name: &'static str, pool: Closed) -> Outcome<Flipped> {
        let superblock = 0..512 * 8;
        let others = (superblock.end..pool.bits()).step_by(FLIP_EVERY);
        let members = MEMBERS_LINES.into_iter().flat_map(|line| pool.bits_of_line(line));
        let bits = pool.misfits(superblock.chain(members).chain(others));
        let table = TABLE_LINES.flat_map(|line| pool.bits_of_line(line)).step_by(FLIP_EVERY);
        let table = pool.misfits(table);
        Ok(Flipped { name, of: Of::Pool { pool: Box::new(Mutex::new(pool)), bits, table } })
    }

    fn state() -> Outcome<Flipped> {
        let name = "bits of the state flipped";
        let _ = pmem::recorder::take_compared();
        match unreadable_state(None)?.first() {
            None => Ok(Flipped { name, of: Of::State(misfits()) }),
            Some(violation) => Err(format!("without a fault:\n{violation}")),
        }
    }

    /// Whether the mutant is noticed there.
    pub fn kills(&self, mutant: Mutant) -> bool {
        let Some(site) = mutant.blind() else { return false };
        match &self.of {
            Of::State(misfits) => {
                misfits.contains(site)
                    && !unreadable_state(Some(mutant)).is_ok_and(|found| found.is_empty())
            }
            Of::Pool { pool, bits, table } => {
                // one bit of a pool is flipped at a time
                let pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
                let noticed = |all: &[Misfits]| {
                    let noticed = all.iter().filter(|(_, sites)| sites.contains(site));
                    noticed.map(|(bit, _)| *bit).collect::<Vec<_>>().into_iter()
                };
                !pool.flip(noticed(bits), Some(mutant)).violations.is_empty()
                    || !pool.opens_with_each_bit(noticed(table), Some(mutant))
            }
        }
    }
}

/// Where checksums of this thread did not fit since this was asked last.
pub fn misfits() -> BTreeSet<Site> {
    let compared = pmem::recorder::take_compared().into_iter();
    compared.filter_map(|(site, misfits)| misfits.then_some(site)).collect()
}
