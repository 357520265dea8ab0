//! Parts of a mapping, and mirrors: what is stored to one mapping is stored to another, too.
//!
//! Both copies are written by the thread that stores, and ordered by its next fence. After a power
//! cut each may have what was in flight, or not, for itself. Reads are answered by the first copy,
//! and by the mirror where the first one's memory fails.

use crate::error::Result;
use crate::map::Addresses;
use crate::mapping::Mapping;
use crate::media::{PAGE, heals};
use crate::state::InFlight;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The second copy of a mapping.
#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) mapping: Mapping,
    /// Whether it has all that the first copy has.
    current: AtomicBool,
}

impl Mapping {
    /// The two parts before and behind `offset`, which is a multiple of a page's bytes. They share
    /// the file and its lock, and whether a store or a sync has failed.
    ///
    /// # Panics
    /// Beyond the end, and for a mapping with a mirror.
    pub fn split_at(self, offset: u64) -> (Mapping, Mapping) {
        assert!(offset <= self.len() && offset.is_multiple_of(PAGE as u64), "a place to split at");
        assert!(self.mirror.is_none(), "it is split before it has a mirror");
        let len = self.len();
        let writable = !self.read_only();
        let owner = Arc::new(self.addresses);
        let part = |from: u64, to: u64| {
            let addresses = Addresses::part(&owner, from as usize, (to - from) as usize);
            let is_direct = self.direct_len > 0;
            Mapping {
                writable_len: if writable { addresses.len() } else { 0 },
                direct_len: if is_direct { addresses.len() } else { 0 },
                addresses,
                kernels: self.kernels,
                flush: self.flush,
                domain: self.domain,
                medium: self.medium,
                backing: self.backing.clone(),
                file: self.file.clone(),
                file_offset: self.file_offset + from,
                private: self.private,
                through_file: self.through_file,
                mirror: None,
                charge: None,
                broken: self.broken.clone(),
                poisoned: self.poisoned.clone(),
                #[cfg(feature = "recorder")]
                tap: self.tap.clone(),
            }
        };
        (part(0, offset), part(offset, len))
    }

    /// From now on what is stored here is stored to `mirror`, too, at the same offsets; and what
    /// cannot be read here is read there, once the mirror is `current`: has all that is here.
    ///
    /// # Panics
    /// Where the mirror has another length, or can be written to and this cannot.
    pub fn set_mirror(&mut self, mirror: Mapping, current: bool) {
        assert!(mirror.len() == self.len() && mirror.read_only() == self.read_only());
        assert!(mirror.mirror.is_none(), "a mirror has none");
        self.direct_len = 0;
        let current = AtomicBool::new(current);
        self.mirror = Some(Box::new(Mirror { mapping: mirror, current }));
    }

    /// The mirror, if there is one that has all that is here.
    pub fn mirror(&self) -> Option<&Mapping> {
        // ordering: what was copied before it became current is seen
        let mirror = self.mirror.as_ref().filter(|it| it.current.load(Ordering::Acquire));
        mirror.map(|mirror| &mirror.mapping)
    }

    /// This copy, and the mirror if it has all that is here.
    pub fn copies(&self) -> impl Iterator<Item = &Mapping> {
        std::iter::once(self).chain(self.mirror())
    }

    /// The mirror, if there is one that does not have all that is here.
    pub fn stale_mirror(&self) -> Option<&Mapping> {
        let mirror = self.mirror.as_ref().filter(|it| !it.current.load(Ordering::Acquire));
        mirror.map(|mirror| &mirror.mapping)
    }

    /// Both copies are the same: from now on the mirror is read where this cannot be.
    pub fn mirror_is_current(&self) {
        if let Some(mirror) = &self.mirror {
            mirror.current.store(true, Ordering::Release);
        }
    }

    /// Stores to this copy and to the mirror. Where that met a page that had failed, so that zeros
    /// took the place of what was not stored, the page gets it from the other copy.
    #[inline(never)] // the long way round
    #[cfg_attr(feature = "recorder", track_caller)]
    pub(crate) fn store_to_both(&self, offset: u64, data: &[u8], past_caches: bool) {
        let range = (offset, data.len());
        let before = heals();
        self.store_to_one(offset, data, past_caches);
        let Some(mirror) = &self.mirror else { return };
        let between = heals();
        mirror.mapping.store_to_one(offset, data, past_caches);
        let after = heals();
        match (between != before, after != between && self.mirror().is_some()) {
            (true, false) if self.mirror().is_some() => self.refill(&mirror.mapping, range),
            (false, true) => mirror.mapping.refill(self, range),
            _ => {}
        }
    }

    /// Gives the pages of a range what another copy has there.
    #[cold]
    #[cfg_attr(feature = "recorder", track_caller)]
    fn refill(&self, other: &Mapping, (offset, len): (u64, usize)) {
        let page_bytes = PAGE as u64;
        let mut page = [0; PAGE];
        let first = offset - offset % page_bytes;
        for at in (first..offset + len as u64).step_by(PAGE) {
            let part = PAGE.min((self.len() - at) as usize);
            if other.read_own(at, &mut page[..part]).is_ok() {
                let _ = self.write_own(at, &page[..part]);
            }
        }
    }

    /// Makes `len` bytes at `offset` of the mirror what is here, if they are not. Nobody stores
    /// there meanwhile, or it is to be called again.
    ///
    /// # Errors
    /// `OutOfRange`, `Media`.
    #[cfg_attr(feature = "recorder", track_caller)]
    pub fn copy_to_mirror(&self, offset: u64, len: usize) -> Result<Option<InFlight>> {
        let Some(mirror) = &self.mirror else { return Ok(None) };
        let (mut here, mut there) = (vec![0; len], vec![0; len]);
        self.read_own(offset, &mut here)?;
        let same = mirror.mapping.read(offset, &mut there).is_ok() && here == there;
        Ok((!same).then(|| mirror.mapping.write(offset, &here)))
    }
}

/// Makes what was stored before to these mappings and their mirrors durable, each file once.
///
/// # Errors
/// As [`Mapping::sync`].
#[cfg_attr(feature = "recorder", track_caller)]
pub fn sync_all<'a>(mappings: impl Iterator<Item = &'a Mapping>) -> Result<()> {
    let mut done: Vec<&Mapping> = Vec::new();
    for mapping in mappings {
        let copies = [Some(mapping), mapping.mirror.as_ref().map(|mirror| &mirror.mapping)];
        for copy in copies.into_iter().flatten() {
            let is_done = |other: &&Mapping| Arc::ptr_eq(&other.poisoned, &copy.poisoned);
            if !done.iter().any(is_done) {
                copy.sync_own()?;
                done.push(copy);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Domain, Error, MapOptions, fence};
    use std::path::PathBuf;

    const HALF: usize = 8 * PAGE;

    /// Two files of two halves each.
    fn files() -> (tempfile::TempDir, [PathBuf; 2]) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        paths.iter().for_each(|path| std::fs::write(path, vec![0; 2 * HALF]).unwrap());
        (dir, paths)
    }

    /// The first half of the first file, with its mirror in the second half of the other.
    fn mirrored(paths: &[PathBuf; 2], process: bool, current: bool) -> Mapping {
        let options = MapOptions { process, ..MapOptions::default() };
        let [a, b] = paths.each_ref().map(|path| Mapping::open(path, &options).unwrap());
        let (mut first, _) = a.split_at(HALF as u64);
        first.set_mirror(b.split_at(HALF as u64).1, current);
        first
    }

    #[test]
    fn every_kind_of_store_goes_to_both_copies() {
        for process in [true, false] {
            let (_dir, paths) = files();
            let mapping = mirrored(&paths, process, true);
            let expected = if process { Domain::Process } else { Domain::Sync };
            assert_eq!((mapping.len(), mapping.domain()), (HALF as u64, expected));
            let data: Vec<u8> = (0..PAGE).map(|at| at as u8 | 1).collect();
            let _ = fence(mapping.write(PAGE as u64, &data));
            let (in_flight, crc) = mapping.write_crc(2 * PAGE as u64 + 3, &data[..1001]);
            assert_eq!(crc, crate::crc32c(0, &data[..1001]));
            let dirty = mapping.store(3 * PAGE as u64 + 1, &data[..77]);
            let flushed = mapping.flush(dirty, 3 * PAGE as u64 + 1, 77);
            let deferred = mapping.store_deferred(4 * PAGE as u64 + 9, &data[..99]);
            let (deferred, _) = mapping.flush_deferred(vec![deferred]);
            let dirty = mapping.store_u64(5 * PAGE as u64, 0x0102_0304_0506_0708);
            let word = mapping.flush(dirty, 5 * PAGE as u64, 8);
            let _ = fence(in_flight.and(flushed).and(deferred).and(word));
            mapping.sync().unwrap();
            let [a, b] = paths.each_ref().map(|path| std::fs::read(path).unwrap());
            assert_eq!(a[..HALF], b[HALF..]);
            assert_eq!(a[..HALF], mapping.copy_image());
            assert!(a[HALF..].iter().chain(&b[..HALF]).all(|byte| *byte == 0));
            assert_eq!(a.iter().filter(|byte| **byte != 0).count(), PAGE + 1001 + 77 + 99 + 8);
        }
    }

    #[test]
    fn what_fails_in_the_first_copy_is_read_in_a_mirror_that_is_current() {
        let (_dir, paths) = files();
        let mapping = mirrored(&paths, true, false);
        let data = [9; PAGE];
        let _ = fence(mapping.write(3 * PAGE as u64, &data));
        std::fs::File::options().write(true).open(&paths[0]).unwrap().set_len(0).unwrap();
        let (at, mut read) = (3 * PAGE as u64, [0; PAGE]);
        assert!(mapping.mirror().is_none() && mapping.stale_mirror().is_some());
        assert!(matches!(mapping.read(at, &mut read), Err(Error::Media { .. })));
        mapping.mirror_is_current();
        assert!(mapping.mirror().is_some() && mapping.stale_mirror().is_none());
        mapping.read(at, &mut read).unwrap();
        assert_eq!(read, data);
        let crc = crate::crc32c(0, &data);
        assert_eq!(mapping.read_crc(at, &mut read).unwrap(), crc);
        assert_eq!(mapping.read_u64(at).unwrap(), u64::from_le_bytes([9; 8]));
        // what is to be compared with this copy is not answered by the other
        assert!(matches!(mapping.crc(at, PAGE), Err(Error::Media { .. })));
        let difference = mapping.crc_difference(at, &[1; 8], PAGE - 8);
        assert!(matches!(difference, Err(Error::Media { .. })));
        assert!(matches!(mapping.read_own(at, &mut read), Err(Error::Media { .. })));
        assert!(matches!(mapping.read(HALF as u64, &mut read), Err(Error::OutOfRange { .. })));
    }

    #[test]
    fn a_mirror_is_made_what_the_first_copy_is_where_it_is_not() {
        let (_dir, paths) = files();
        let mapping = mirrored(&paths, false, false);
        let _ = fence(mapping.write_own(PAGE as u64, &[5; 2 * PAGE]));
        let mut copied = Vec::new();
        for at in (0..HALF).step_by(PAGE) {
            copied.extend(mapping.copy_to_mirror(at as u64, PAGE).unwrap().map(|copied| {
                let _ = fence(copied);
                at / PAGE
            }));
        }
        assert_eq!(copied, [1, 2]);
        mapping.sync().unwrap();
        let [a, b] = paths.each_ref().map(|path| std::fs::read(path).unwrap());
        assert_eq!(a[..HALF], b[HALF..]);
        assert_eq!(b[HALF + PAGE..HALF + 3 * PAGE], [5; 2 * PAGE]);
    }

    /// Two slices, each with its mirror in the file of the other.
    #[test]
    #[cfg(feature = "recorder")]
    fn a_file_is_synced_once_whatever_parts_of_it_are_in_use() {
        use crate::recorder::{Event, EventKind, Recorder};
        #[derive(Default)]
        struct Syncs(std::sync::Mutex<Vec<u32>>);
        impl Recorder for Syncs {
            fn event(&self, event: Event<'_>) {
                if event.kind == EventKind::Sync {
                    self.0.lock().unwrap().push(event.mapping);
                }
            }
        }
        let (_dir, paths) = files();
        let syncs = Arc::new(Syncs::default());
        let [a, b] = [0, 1].map(|id| {
            let mapping = Mapping::open(&paths[id], &MapOptions::default()).unwrap();
            mapping.set_id(id as u32);
            mapping.set_recorder(Some(syncs.clone()));
            mapping.split_at(HALF as u64)
        });
        let ((mut first, second_mirror), (mut second, first_mirror)) = (a, b);
        first.set_mirror(first_mirror, true);
        second.set_mirror(second_mirror, true);
        sync_all([&first, &second].into_iter()).unwrap();
        assert_eq!(*syncs.0.lock().unwrap(), [0, 1]);
    }

    #[test]
    fn parts_of_a_file_keep_its_lock_until_the_last_is_gone() {
        let (_dir, paths) = files();
        let (a, b) =
            Mapping::open(&paths[0], &MapOptions::default()).unwrap().split_at(PAGE as u64);
        assert_eq!((a.len(), b.len()), (PAGE as u64, 15 * PAGE as u64));
        drop(a);
        assert!(Mapping::open(&paths[0], &MapOptions::default()).is_err(), "it is locked");
        drop(b);
        Mapping::open(&paths[0], &MapOptions::default()).unwrap();
    }
}
