//! Private mappings: what was stored, and the medium behind it.

use crate::cpu;
use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::media::PAGE;
use crate::open::{self, MapOptions};
use crate::sysfs::Sysfs;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Of a page's entry in /proc/self/pagemap: it is in memory, or in the swap, or a file's.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
/// Pages looked up at once.
const PAGES: usize = 1 << 15;

impl Mapping {
    /// The medium behind a private mapping of `path`, or of a part of it, to be written to; the
    /// lock is the private one's, which must live on.
    pub fn behind(&self, path: &Path, options: &MapOptions) -> Result<Mapping> {
        let options = MapOptions { private: false, ..*options };
        let parts = open::open_locked(path, &options, &Sysfs::default())?;
        let whole = Mapping::from_parts(parts, cpu::chosen()?);
        if whole.len() < self.file_offset + self.len() {
            let size = whole.len();
            return Err(Error::OutOfRange { offset: self.file_offset, len: PAGE, size });
        }
        let (_, rest) = whole.split_at(self.file_offset);
        // the end of a file may lie anywhere, and there is nothing to split off
        let end = self.len().next_multiple_of(PAGE as u64);
        Ok(if end < rest.len() { rest.split_at(end).0 } else { rest })
    }

    /// Offsets of the pages of a private mapping that are not as the medium `behind` has them.
    pub fn changed_pages(&self, behind: &Mapping) -> Vec<u64> {
        let stored = self.stored_pages();
        let pages: Vec<u64> = match stored {
            Some(pages) => pages,
            None => (0..self.len()).step_by(PAGE).collect(),
        };
        let (mut own, mut other) = ([0; PAGE], [0; PAGE]);
        // behind the last whole page lies nothing
        let is_whole = |page: &u64| page + PAGE as u64 <= self.len();
        let mut differs = |page: &u64| {
            let read = self.read(*page, &mut own).is_ok();
            // what cannot be read there, and was stored here, is to be written
            read && (behind.read(*page, &mut other).is_err() || own != other)
        };
        pages.into_iter().filter(|page| is_whole(page) && differs(page)).collect()
    }

    /// The pages that are no longer the file's, where the kernel tells.
    fn stored_pages(&self) -> Option<Vec<u64>> {
        let of_file = self.private && self.file.is_some();
        let pagemap = File::open("/proc/self/pagemap").ok().filter(|_| of_file)?;
        let first = self.addresses.base().addr() / PAGE;
        let count = self.addresses.len().div_ceil(PAGE);
        let (mut pages, mut any_of_file) = (Vec::new(), false);
        let mut bytes = vec![0; PAGES * 8];
        for from in (0..count).step_by(PAGES) {
            let some = PAGES.min(count - from);
            let bytes = &mut bytes[..some * 8];
            pagemap.read_exact_at(bytes, (first + from) as u64 * 8).ok()?;
            for (page, entry) in (from..).zip(bytes.as_chunks().0) {
                let entry = u64::from_le_bytes(*entry);
                any_of_file |= entry & PRESENT != 0 && entry & OF_FILE != 0;
                if entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0 {
                    pages.push((page * PAGE) as u64);
                }
            }
        }
        // where all is in anonymous memory, as of a device's copy, all is to be compared
        any_of_file.then_some(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Domain, fence};

    #[test]
    fn what_is_stored_privately_is_seen_here_alone_until_it_is_written() {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = dir.path().join("slice");
        let before: Vec<u8> = (0..40 * PAGE).map(|at| (at / 7) as u8).collect();
        std::fs::write(&path, &before).unwrap();
        for process in [true, false] {
            let options = MapOptions { private: true, process, ..MapOptions::default() };
            let mapping = Mapping::open(&path, &options).unwrap();
            let domain = if process { Domain::Process } else { Domain::Sync };
            assert_eq!(mapping.domain(), domain);
            assert!(Mapping::open(&path, &options).is_err(), "it is locked");
            let mut byte = [0];
            for page in 0..40 {
                mapping.read(page * PAGE as u64, &mut byte).unwrap();
            }
            let _ = fence(mapping.write(3 * PAGE as u64 + 5, &[1, 2, 3]));
            let dirty = mapping.store(17 * PAGE as u64 - 1, &[77, 78]);
            let _ = fence(mapping.flush(dirty, 17 * PAGE as u64 - 1, 2));
            // the same bytes again
            let _ = fence(mapping.write(30 * PAGE as u64, &before[30 * PAGE..31 * PAGE]));
            mapping.sync().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), before);
            let behind = mapping.behind(&path, &options).unwrap();
            let pages: Vec<u64> = [3, 16, 17].map(|page| page * PAGE as u64).to_vec();
            assert_eq!(mapping.changed_pages(&behind), pages);
            let mut page = [0; PAGE];
            mapping.read(pages[0], &mut page).unwrap();
            let _ = fence(behind.write(pages[0], &page));
            behind.sync().unwrap();
            assert_eq!(mapping.changed_pages(&behind), pages[1..]);
            assert_eq!(std::fs::read(&path).unwrap()[pages[0] as usize + 6], 2);
            std::fs::write(&path, &before).unwrap();
        }
    }
}
