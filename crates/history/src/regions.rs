//! Transactions on regions: the files of a history, mapped.

use nearside::{Isolation, Pool, Region, RegionError};

use crate::library::Library;
use crate::plan::{CELL_BYTES, FILE_CELLS, History, Kind};
use crate::record::{Act, Answer, bytes, runs};

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
            Kind::Transactions => library.files().iter().filter_map(map).collect(),
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
        if !matches!(act, Act::Transact { .. }) {
            return self.library.answer(history, act, number);
        }
        match self.transact(history, act, number) {
            Ok(answer) => answer,
            Err(nearside::Error::Region(error)) if error.is_conflict() => {
                Answer { conflict: true, ..Answer::default() }
            }
            Err(error) => Answer::failed(error.errno()),
        }
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
