//! Those who take turns: each writes to the pages of its own array, one transaction a write.

use super::softwrap::Softwrap;
use crate::clock::Turn;
use crate::dice::Sources;
use crate::error::Result;
use crate::lab::{Lab, PIECE_BYTES, Shape, touched_file};
use crate::options::Options;
use pmem::Mapping;
use region::{Region, Regions, Settings};
use std::path::Path;

/// Bytes of a page of the array: each gets one write a pass.
pub const PAGE: u64 = 4096;

/// One of them.
pub trait Side {
    /// `count` transactions of `bytes` bytes, to one page after the other.
    fn turn(&mut self, bytes: usize, count: u64) -> Result<Turn>;
}

/// Times one write to each of the next `count` pages of an array that has `pages`.
fn by_page(
    pages: u64,
    next: &mut u64,
    bytes: usize,
    count: u64,
    mut write: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<Turn> {
    let mut sources = Sources::new(bytes);
    let mut page = *next;
    let turn = Turn::time(count, || {
        (0..count).try_for_each(|_| {
            write(page * PAGE, sources.turn())?;
            page = if page + 1 == pages { 0 } else { page + 1 };
            Ok(())
        })
    });
    *next = page;
    turn
}

/// A region over a file of a pool without a capacity tier.
pub struct Ours {
    region: Region,
    regions: Regions,
    next: u64,
    /// The last one: the pool goes when nobody has its regions.
    pub lab: Lab,
}

impl Ours {
    /// The file fills so much of its pool and was written once; all pages were loaded from.
    pub fn new(options: &Options, bytes: u64, full_percent: u8) -> Result<Ours> {
        let pool_bytes = (bytes * 100 / u64::from(full_percent)).next_multiple_of(PAGE);
        let lab = Lab::new(options.dir(), Shape { bytes: pool_bytes, ..Shape::usual(options) })?;
        let file = lab.create("array")?;
        let piece = vec![0x5A; PIECE_BYTES as usize];
        for at in (0..bytes).step_by(PIECE_BYTES as usize) {
            lab.fs.write(&file, at, &piece[..PIECE_BYTES.min(bytes - at) as usize])?;
        }
        lab.fs.checkpoint()?;
        let settings = Settings { memory_bytes: 2 * bytes, faults: None };
        let regions = Regions::new(&lab.fs, &settings)?;
        let region = Region::map(&regions, &file, 0, bytes)?;
        for at in (0..bytes).step_by(PAGE as usize) {
            let _: u64 = region.get(at as usize)?;
        }
        Ok(Ours { region, regions, next: 0, lab })
    }
}

impl Side for Ours {
    fn turn(&mut self, bytes: usize, count: u64) -> Result<Turn> {
        let (region, regions) = (&self.region, &self.regions);
        let pages = region.len() as u64 / PAGE;
        by_page(pages, &mut self.next, bytes, count, |at, data| {
            let mut tx = regions.begin()?;
            tx.write(region, at as usize, data)?;
            Ok(tx.commit()?)
        })
    }
}

/// No transactions: a store past the caches, and a fence.
pub struct Floor {
    array: Mapping,
    next: u64,
}

impl Floor {
    /// In a file in `dir`.
    pub fn new(dir: &Path, bytes: u64) -> Result<Floor> {
        Ok(Floor { array: touched_file(&dir.join("floor"), bytes)?, next: 0 })
    }
}

impl Side for Floor {
    fn turn(&mut self, bytes: usize, count: u64) -> Result<Turn> {
        let array = &self.array;
        by_page(array.len() / PAGE, &mut self.next, bytes, count, |at, data| {
            let _ = pmem::fence(array.write(at, data));
            Ok(())
        })
    }
}

/// SoftWrAP's scheme.
pub struct Scheme {
    array: Softwrap,
    pages: u64,
    next: u64,
    /// Bytes of the objects that its aliases stand for.
    unit: usize,
}

impl Scheme {
    /// In files in `dir`; its log is twice as long as ours, as it uses half of it.
    pub fn new(dir: &Path, bytes: u64, log_bytes: u64) -> Result<Scheme> {
        let home = touched_file(&dir.join("softwrap"), bytes)?;
        let log = touched_file(&dir.join("softwrap-log"), 2 * log_bytes)?;
        Ok(Scheme { array: Softwrap::new(home, log), pages: bytes / PAGE, next: 0, unit: 0 })
    }
}

impl Side for Scheme {
    fn turn(&mut self, bytes: usize, count: u64) -> Result<Turn> {
        if self.unit != bytes {
            self.array.retrieve();
            self.unit = bytes;
        }
        let array = &mut self.array;
        by_page(self.pages, &mut self.next, bytes, count, |at, data| {
            array.write(at, data);
            array.commit()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three passes and a half over a small array.
    fn ends_up_whole(side: &mut impl Side, bytes: usize, pages: u64) {
        assert_eq!(side.turn(bytes, pages * 7 / 2).unwrap().count, pages * 7 / 2);
    }

    #[test]
    fn every_side_writes_to_every_page() {
        let options =
            Options { dir: Some(std::env::temp_dir()), quick: true, ..Options::default() };
        let bytes = 32 << 20;
        let mut ours = Ours::new(&options, bytes, 50).unwrap();
        let dir = ours.lab.dir().to_path_buf();
        let mut floor = Floor::new(&dir, bytes).unwrap();
        let mut scheme = Scheme::new(&dir, bytes, 1 << 20).unwrap();
        for unit in [8, 4096] {
            ends_up_whole(&mut ours, unit, bytes / PAGE);
            ends_up_whole(&mut floor, unit, bytes / PAGE);
            ends_up_whole(&mut scheme, unit, bytes / PAGE);
        }
        for page in 0..bytes / PAGE {
            let mut ends = [[0u8; 8]; 3];
            let at = page * PAGE + 4096 - 8;
            ours.region.load(at as usize, &mut ends[0]).unwrap();
            floor.array.read(at, &mut ends[1]).unwrap();
            let mut whole = [0; 4096];
            scheme.array.read(page * PAGE, &mut whole).unwrap();
            ends[2].copy_from_slice(&whole[4096 - 8..]);
            assert!(ends[0] == ends[1] && ends[1] == ends[2], "page {page}: {ends:?}");
            assert_ne!(ends[0], [0x5A; 8], "page {page}");
        }
    }
}
