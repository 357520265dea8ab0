//! The files of a history as a program sees them that has them mapped.
//!
//! A cell is eight words that are alike. A load takes one of them: a word is loaded at one moment,
//! a cell is not. A store stores all of them, one after the other, and ends when msync has returned
//! or when a read at the same mount has: until then others may see the cell in parts.

use std::io;
use std::os::unix::fs::FileExt;

use crate::kernel_doors::file_mapping::Mapping;
use crate::outside::{Outside, errno};
use crate::plan::{CELL_BYTES, FILE_CELLS, History};
use crate::record::{Act, Answer, runs};

/// Words of a cell.
const CELL_WORDS: usize = CELL_BYTES / 8;

/// The files, mapped.
#[derive(Debug)]
pub struct MappedFiles {
    outside: Outside,
    mappings: Vec<Mapping>,
}

impl MappedFiles {
    /// Maps files that were opened.
    pub fn map(outside: Outside) -> io::Result<MappedFiles> {
        let map = |file| Mapping::new(file, FILE_CELLS as usize * CELL_BYTES);
        let mappings = outside.files().iter().map(map).collect::<io::Result<_>>()?;
        Ok(MappedFiles { outside, mappings })
    }

    pub fn answer(&self, history: &History, act: &Act, number: u64) -> Answer {
        let made = match *act {
            Act::Load { file, at, cells } => self.load(history, (file, at, cells), number),
            Act::Store { file, at, cells, read } => {
                self.store(history, (file, at, cells), read, number)
            }
            _ => return self.outside.answer(history, act, number),
        };
        made.unwrap_or_else(|error| Answer::failed(errno(&error)))
    }

    fn load(
        &self,
        history: &History,
        (file, at, cells): (u32, u32, u32),
        number: u64,
    ) -> io::Result<Answer> {
        let mapping = &self.mappings[file as usize];
        let mut seen = Vec::with_capacity(cells as usize * CELL_BYTES);
        for cell in at as usize..(at + cells) as usize {
            let word = (cell + number as u32 as usize) % CELL_WORDS;
            let value = mapping.load(cell * CELL_BYTES + word * 8);
            seen.extend(value.to_le_bytes().repeat(CELL_WORDS));
        }
        match mapping.take_fault()? {
            true => Ok(Answer { unknown: true, ..Answer::default() }),
            false => {
                Ok(Answer { runs: Some(vec![runs(history.number, &seen)]), ..Answer::default() })
            }
        }
    }

    fn store(
        &self,
        history: &History,
        (file, at, cells): (u32, u32, u32),
        read: bool,
        number: u64,
    ) -> io::Result<Answer> {
        let mapping = &self.mappings[file as usize];
        let (offset, bytes) = (at as usize * CELL_BYTES, cells as usize * CELL_BYTES);
        for word in (offset..offset + bytes).step_by(8) {
            mapping.store(word, number);
        }
        let mut seen = vec![0; if read { bytes } else { 0 }];
        match read {
            true => {
                self.outside.files()[file as usize].read_exact_at(&mut seen, offset as u64)?;
            }
            false => mapping.sync(offset, bytes)?,
        }
        if mapping.take_fault()? {
            return Ok(Answer { unknown: true, ..Answer::default() });
        }
        Ok(Answer { runs: read.then(|| vec![runs(history.number, &seen)]), ..Answer::default() })
    }
}
