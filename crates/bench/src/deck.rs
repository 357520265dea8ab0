//! The microbenchmark of the deck that shows vNVML: a small write to each page of a large array,
//! one transaction a write. Ours beside the schemes and libraries that promise the same, in turns.
//!
//! An array lies on files of the same file system for each of them, and was written once before.
//! A round has one turn of each, and who begins changes from round to round. LMDB and SQLite hold
//! the array as records of 4 KiB by number; they are slow, and so have a smaller array and
//! fewer writes to it.

mod peer;
mod sides;
mod softwrap;
mod table;

use crate::clock::Turn;
use crate::error::Result;
use crate::options::Options;
use crate::peer::Program;
use crate::row::Spread;
use crate::scratch::Scratch;
use crate::stats::spread;
use peer::{LMDB, LMDB_MAPPED, PMEMOBJ, SQLITE};
use serde::Serialize;
use sides::{Floor, Ours, PAGE, Scheme, Side};
pub use table::table;

/// Bytes of a write.
const UNITS: [usize; 6] = [8, 64, 256, 512, 1024, 4096];
/// Those that records are written in.
const RECORD_UNITS: [usize; 2] = [64, 4096];
/// Passes over the array.
const PASSES: [u64; 2] = [1, 16];
/// Array of those that hold records, at most.
const RECORDS_BYTES: u64 = 256 << 20;
/// Writes of a turn of theirs, at most.
const RECORD_WRITES: u64 = 16384;
/// Bytes of the array where nothing else is asked for.
const ARRAY_BYTES: u64 = 2 << 30;
/// The same for a quick look.
const QUICK_ARRAY_BYTES: u64 = 128 << 20;

/// How full our pool is where nothing else is asked for.
const FULL_PERCENT: u8 = 50;

/// What is to be measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeckOptions {
    /// Bytes of the array; `None`: 2 GiB, or 128 MiB for a quick look.
    pub array_bytes: Option<u64>,
    /// Rounds; `None`: 5, and 3 where the array is written 16 times over.
    pub rounds: Option<usize>,
    /// How full of the array our pool is, percent; `None`: half.
    pub full_percent: Option<u8>,
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// Regions of ours.
    Ours,
    /// No transactions.
    Floor,
    /// Another scheme on the same array.
    Softwrap,
    /// A library with arrays.
    Pmdk,
    /// A library with records.
    Records,
}

/// What one of them took for one size of writes.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Who.
    pub who: Who,
    /// Its name.
    pub name: String,
    /// Bytes of a write.
    pub bytes: usize,
    /// Passes over the array; records were written once, and not all of them.
    pub passes: u64,
    /// Writes of a turn.
    pub writes: u64,
    /// Time of a transaction: the caller's, and CPU time of the other threads. ns.
    pub ns: Spread,
    /// The CPU time of the other threads in the median of these, ns.
    pub background_ns: f64,
    /// Its time by ours, round by round.
    pub by_ours: Spread,
    /// Its time by the floor's, round by round.
    pub by_floor: Spread,
    /// What the project asks for: `by_ours` at least, or for ours `by_floor` at most.
    pub asked: Option<f64>,
    /// Not measured: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// What they took, and for what.
#[derive(Clone, Debug, Serialize)]
pub struct Deck {
    /// Bytes of the array.
    pub array_bytes: u64,
    /// Bytes of the array of records.
    pub records_bytes: u64,
    /// Bytes of our log.
    pub log_bytes: u64,
    /// Durability domain of ours.
    pub domain: String,
    /// What the arrays lay on.
    pub medium: String,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// Those who take turns, ours first, then the floor; and the peers that are not there.
struct Sides {
    present: Vec<(Who, String, Box<dyn Side>)>,
    missing: Vec<(Who, String, String)>,
    /// Where the programs of the peers lie.
    _programs: Scratch,
}

impl Sides {
    fn new(options: &Options, full_percent: u8, deck: &mut Deck) -> Result<Sides> {
        let programs = Scratch::new(&options.disk())?;
        let bytes = deck.array_bytes;
        let ours = Ours::new(options, bytes, full_percent)?;
        let dir = ours.lab.dir().to_path_buf();
        deck.log_bytes = ours.lab.log_bytes();
        deck.domain = ours.lab.domain().to_owned();
        deck.medium = ours.lab.medium();
        let floor = Floor::new(&dir, bytes)?;
        let scheme = Scheme::new(&dir, bytes, deck.log_bytes)?;
        let present: Vec<(Who, String, Box<dyn Side>)> = vec![
            (Who::Ours, "ours".to_owned(), Box::new(ours)),
            (Who::Floor, "the floor: store and fence".to_owned(), Box::new(floor)),
            (Who::Softwrap, "SoftWrAP's scheme".to_owned(), Box::new(scheme)),
        ];
        let mut sides = Sides { present, missing: Vec::new(), _programs: programs };
        let peers: [(Who, &Program); 4] = [
            (Who::Pmdk, &PMEMOBJ),
            (Who::Records, &LMDB),
            (Who::Records, &LMDB_MAPPED),
            (Who::Records, &SQLITE),
        ];
        for (number, (who, program)) in peers.into_iter().enumerate() {
            let bytes = if who == Who::Records { deck.records_bytes } else { bytes };
            let file = dir.join(format!("peer-{number}"));
            match peer::start(program, sides._programs.path(), &file, bytes)? {
                Ok(peer) => {
                    let name = format!("{} ({})", program.name, peer.version);
                    sides.present.push((who, name, Box::new(peer)));
                }
                Err(why) => sides.missing.push((who, program.name.to_owned(), why)),
            }
        }
        Ok(sides)
    }
}

impl Drop for Sides {
    fn drop(&mut self) {
        // ours last: its directory goes with it, and the peers' files lie there
        while self.present.pop().is_some() {}
    }
}

/// One size of writes and number of passes.
#[derive(Clone, Copy, Debug)]
struct Case {
    bytes: usize,
    passes: u64,
    rounds: usize,
}

impl Case {
    fn has(&self, who: Who) -> bool {
        who != Who::Records || (self.passes == 1 && RECORD_UNITS.contains(&self.bytes))
    }

    fn writes(&self, who: Who, deck: &Deck) -> u64 {
        match who {
            Who::Records => RECORD_WRITES.min(deck.records_bytes / PAGE),
            _ => deck.array_bytes / PAGE * self.passes,
        }
    }

    /// What the project asks of the ratio.
    fn asked(&self, who: Who) -> Option<f64> {
        match (who, self.bytes) {
            (Who::Ours, 64) => Some(1.5),
            (Who::Pmdk, ..=512) => Some(3.0),
            (Who::Pmdk, 4096) => Some(2.0),
            (Who::Records, _) => Some(1.0),
            _ => None,
        }
    }

    /// All turns of a case; first of each side one that does not count, if it is the first of its
    /// size.
    fn run(&self, sides: &mut Sides, deck: &Deck) -> Result<Vec<Figure>> {
        let mut turns: Vec<Vec<Turn>> = sides.present.iter().map(|_| Vec::new()).collect();
        let here: Vec<usize> =
            (0..turns.len()).filter(|index| self.has(sides.present[*index].0)).collect();
        let mut take = |index: usize| {
            let (who, _, side) = &mut sides.present[index];
            side.turn(self.bytes, self.writes(*who, deck))
        };
        if self.passes == 1 {
            here.iter().try_for_each(|index| take(*index).map(drop))?;
        }
        for round in 0..self.rounds {
            for turn in 0..here.len() {
                let index = here[(turn + round) % here.len()];
                turns[index].push(take(index)?);
            }
        }
        let all: Vec<Figure> = here
            .iter()
            .map(|&index| self.figure(&sides.present[index], index, &turns, deck))
            .collect();
        let missing = sides.missing.iter().filter(|(who, ..)| self.has(*who));
        Ok(all.into_iter().chain(missing.map(|missing| self.skipped(missing))).collect())
    }

    fn figure(
        &self,
        (who, name, _): &(Who, String, Box<dyn Side>),
        index: usize,
        turns: &[Vec<Turn>],
        deck: &Deck,
    ) -> Figure {
        let of = |turns: &[Turn]| turns.iter().map(Turn::whole_ns).collect::<Vec<_>>();
        let times = of(&turns[index]);
        let by = |other: usize| {
            let pairs = times.iter().zip(of(&turns[other]));
            spread(&pairs.map(|(time, other)| time / other).collect::<Vec<_>>())
        };
        let background: Vec<f64> = turns[index].iter().map(Turn::background_ns).collect();
        Figure {
            who: *who,
            name: name.clone(),
            bytes: self.bytes,
            passes: self.passes,
            writes: self.writes(*who, deck),
            ns: spread(&times),
            background_ns: spread(&background).median,
            by_ours: by(0),
            by_floor: by(1),
            asked: self.asked(*who),
            skipped: None,
        }
    }

    fn skipped(&self, (who, name, why): &(Who, String, String)) -> Figure {
        Figure {
            who: *who,
            name: name.clone(),
            bytes: self.bytes,
            passes: self.passes,
            writes: 0,
            ns: Spread::default(),
            background_ns: 0.0,
            by_ours: Spread::default(),
            by_floor: Spread::default(),
            asked: None,
            skipped: Some(why.clone()),
        }
    }
}

/// Measures, and shows the figures of each size as soon as they are there.
///
/// # Errors
/// What the engine, the kernel or a peer's program said.
pub fn deck(
    options: &Options,
    asked: &DeckOptions,
    show: &mut dyn FnMut(&Deck, &[Figure]),
) -> Result<Deck> {
    let usual = if options.quick { QUICK_ARRAY_BYTES } else { ARRAY_BYTES };
    let array_bytes = asked.array_bytes.unwrap_or(usual).next_multiple_of(PAGE);
    let mut deck = Deck {
        array_bytes,
        records_bytes: RECORDS_BYTES.min(array_bytes),
        log_bytes: 0,
        domain: String::new(),
        medium: String::new(),
        figures: Vec::new(),
    };
    let full_percent = asked.full_percent.unwrap_or(FULL_PERCENT);
    let mut sides = Sides::new(options, full_percent, &mut deck)?;
    for bytes in UNITS {
        for passes in PASSES {
            let usual = if passes == 1 && !options.quick { 5 } else { 3 };
            let case = Case { bytes, passes, rounds: asked.rounds.unwrap_or(usual).max(1) };
            let figures = case.run(&mut sides, &deck)?;
            show(&deck, &figures);
            deck.figures.extend(figures);
        }
    }
    Ok(deck)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_array_has_a_figure_for_each() {
        let options =
            Options { dir: Some(std::env::temp_dir()), quick: true, ..Options::default() };
        let asked =
            DeckOptions { array_bytes: Some(32 << 20), rounds: Some(1), full_percent: Some(90) };
        let mut blocks = 0;
        let deck = deck(&options, &asked, &mut |_, _| blocks += 1).unwrap();
        assert_eq!(blocks, UNITS.len() * PASSES.len());
        let of = |who| deck.figures.iter().filter(move |figure| figure.who == who);
        for who in [Who::Ours, Who::Floor, Who::Softwrap, Who::Pmdk] {
            assert_eq!(of(who).count(), UNITS.len() * PASSES.len(), "{who:?}");
        }
        assert_eq!(of(Who::Records).count(), 3 * RECORD_UNITS.len());
        let measured = deck.figures.iter().filter(|figure| figure.skipped.is_none());
        assert!(measured.clone().all(|figure| figure.ns.median > 0.0 && figure.writes > 0));
        assert!(of(Who::Ours).all(|figure| figure.by_ours.median == 1.0));
        assert!(of(Who::Floor).all(|figure| figure.by_floor.median == 1.0));
    }
}
