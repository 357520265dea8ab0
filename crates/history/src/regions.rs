//! Loads from regions and transactions on them: the files of a history, mapped.
//!
//! A load takes one word of a cell, at one moment. A cell is no single moment.

use nearside::{Isolation, Pool, Region, RegionError};

use crate::library::Library;
use crate::plan::{CELL_BYTES, FILE_CELLS, History, Kind};
use crate::record::{Act, Answer, bytes, runs};

/// Words of a cell.
const CELL_WORDS: usize = CELL_BYTES / 8;

/// The files of a history as regions.
#[derive(Debug)]
pub struct Mapped<'p> {
    pool: &'p Pool,
    regions: Vec<Region>,
    /// For all else.
    library: Library<'p>,
}

impl<'p> Mapped<'p> {
    /// Maps them. None: this process cannot, or there are none.
    pub fn map(pool: &'p Pool, library: Library<'p>, history: &History) -> Mapped<'p> {
        let bytes = u64::from(FILE_CELLS) * CELL_BYTES as u64;
        let map = |file| pool.map(file, 0, bytes).ok();
        let regions = match history.kind {
            Kind::Transactions | Kind::Pages => library.files().iter().filter_map(map).collect(),
            _ => Vec::new(),
        };
        Mapped { pool, regions, library }
    }

    /// Whether there are regions to transact on.
    pub fn is_mapped(&self) -> bool {
        !self.regions.is_empty() && self.regions.len() == self.library.files().len()
    }

    /// What it was made of.
    pub fn into_library(self) -> Library<'p> {
        self.library
    }

    pub fn answer(&self, history: &History, act: &Act, number: u64) -> Answer {
        let made = match *act {
            Act::Transact { .. } => self.transact(history, act, number),
            Act::Load { file, at, cells } => self.load(history, (file, at, cells), number),
            _ => return self.library.answer(history, act, number),
        };
        match made {
            Ok(answer) => answer,
            Err(nearside::Error::Region(error)) if error.is_conflict() => {
                Answer { conflict: true, ..Answer::default() }
            }
            Err(error) => Answer::failed(error.errno()),
        }
    }

    /// Loads of each cell one word: word by word, or all bytes of the cells in one call.
    fn load(
        &self,
        history: &History,
        (file, at, cells): (u32, u32, u32),
        number: u64,
    ) -> Result<Answer, nearside::Error> {
        let region = &self.regions[file as usize];
        let (at, cells) = (at as usize, cells as usize);
        let mut all = vec![0; if number.is_multiple_of(2) { cells * CELL_BYTES } else { 0 }];
        region.load(at * CELL_BYTES, &mut all).map_err(lifted)?;
        let mut seen = Vec::with_capacity(cells * CELL_BYTES);
        for cell in 0..cells {
            let word = cell * CELL_BYTES + (cell + number as usize / 2) % CELL_WORDS * 8;
            let mut value = [0; 8];
            match all.get(word..word + 8) {
                Some(bytes) => value.copy_from_slice(bytes),
                None => region.load(at * CELL_BYTES + word, &mut value).map_err(lifted)?,
            }
            seen.extend(value.repeat(CELL_WORDS));
        }
        Ok(Answer { runs: Some(vec![runs(history.number, &seen)]), ..Answer::default() })
    }

    fn transact(
        &self,
        history: &History,
        act: &Act,
        number: u64,
    ) -> Result<Answer, nearside::Error> {
        let Act::Transact { reads, writes } = act else { return Ok(Answer::default()) };
        let isolation = match (reads.is_empty(), writes.is_empty()) {
            (true, _) => Isolation::Committed,
            (false, true) => Isolation::Snapshot,
            (false, false) => Isolation::Serialisable,
        };
        let mut transaction = self.pool.begin_with(isolation)?;
        let mut seen = Vec::new();
        for part in reads {
            let mut bytes = vec![0; part.cells as usize * CELL_BYTES];
            let region = &self.regions[part.file as usize];
            let at = part.at as usize * CELL_BYTES;
            transaction.read(region, at, &mut bytes).map_err(lifted)?;
            seen.push(runs(history.number, &bytes));
        }
        for part in writes {
            let region = &self.regions[part.file as usize];
            let at = part.at as usize * CELL_BYTES;
            transaction.write(region, at, &bytes(number, part.cells)).map_err(lifted)?;
        }
        transaction.commit().map_err(lifted)?;
        Ok(Answer { runs: (!seen.is_empty()).then_some(seen), ..Answer::default() })
    }
}

fn lifted(error: RegionError) -> nearside::Error {
    error.into()
}
