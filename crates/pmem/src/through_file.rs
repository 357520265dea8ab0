//! Stores to a plain file in the `sync` domain, made by writing to the file.
//!
//! A mapping and its file show the same pages, so readers of the mapping see what is written, and
//! a sync writes it out. To store to the mapping instead would cost
//! - a page fault for the first store to each page after each sync;
//! - writing out the whole folio that the page belongs to, where the page cache has large ones: a
//!   store makes all of it dirty, a write only the blocks that it is about. One 4 KiB store and its
//!   sync took 325 us so on ext4 (Linux 6.18), and a write and its sync 55 us;
//! - at each sync, finding the dirty pages in the page tables, and telling the other CPUs.

use crate::domain::Domain;
use crate::error::Error;
use crate::faults::{Fault, fails};
use crate::mapping::Mapping;
use crate::state::fence;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

/// Bytes that `settle` writes with one call.
const SETTLE_BYTES: usize = 1 << 20;

/// Whether this process may write a file of this length. A write past a limit raises SIGXFSZ, a
/// store to a mapping does not: who lowers the limit later must not be surprised.
pub(crate) fn allowed(len: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the structure in, or fails.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    known && limit.rlim_cur >= len
}

/// Writes the data; where the kernel takes no more, the bytes written and why.
pub(crate) fn write_at(file: &File, offset: u64, data: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut done = 0;
    while done < data.len() {
        if fails(Fault::Write) {
            return Err((done, io::Error::from_raw_os_error(libc::EIO)));
        }
        let len = if fails(Fault::Short) { (data.len() - done).div_ceil(2) } else { data.len() };
        let piece = &data[done..data.len().min(done + len)];
        match file.write_at(piece, offset + done as u64) {
            Ok(0) => return Err((done, ErrorKind::WriteZero.into())),
            Ok(written) => done += written,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err((done, error)),
        }
    }
    Ok(())
}

impl Mapping {
    /// `sync` domain: writes zeros over a part of the file, so that the file system has given it
    /// its blocks for good. Nothing to do in the others.
    ///
    /// # Errors
    /// What the kernel says: unlike a store, a format can still be refused where a file system does
    /// not keep the space that it set aside.
    pub fn settle(&self, offset: u64, len: usize) -> crate::Result<()> {
        if let Some(mirror) = &self.mirror {
            mirror.mapping.settle(offset, len)?;
        }
        let Some(file) = self.file.as_ref().filter(|_| self.through_file) else {
            if self.domain() == Domain::Sync {
                let _ = fence(self.zero(offset, len));
            }
            return Ok(());
        };
        let zeros = vec![0; len.min(SETTLE_BYTES)];
        for at in (0..len).step_by(SETTLE_BYTES) {
            let piece = &zeros[..SETTLE_BYTES.min(len - at)];
            write_at(file, self.file_offset + offset + at as u64, piece).map_err(
                |(_, source)| Error::Io {
                    what: "write zeros over the log's area".to_owned(),
                    source,
                },
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc32c;
    use std::os::fd::{AsRawFd, FromRawFd};

    const BYTES: usize = 64 << 10;

    fn torn_apart(file: File, domain: Domain) -> Mapping {
        Mapping::beside_file(BYTES, domain, file)
    }

    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES as u64).unwrap();
        file
    }

    /// Every kind of store, each to a place of its own, and what is there afterwards.
    fn stores(mapping: &Mapping) -> Vec<(u64, Vec<u8>)> {
        let data: Vec<u8> = (0..4096).map(|at| at as u8 | 1).collect();
        let odd = &data[..1001];
        let _ = fence(mapping.write(4096, &data));
        let _ = fence(mapping.write(8193, odd));
        let (in_flight, crc) = mapping.write_crc(12288, &data);
        let (odd_in_flight, odd_crc) = mapping.write_crc(16385, odd);
        let _ = fence(in_flight.and(odd_in_flight));
        assert_eq!((crc, odd_crc), (crc32c(0, &data), crc32c(0, odd)));
        let dirty = mapping.store(20481, odd);
        let _ = fence(mapping.flush(dirty, 20481, odd.len()));
        let deferred = mapping.store_deferred(24577, odd);
        let _ = fence(mapping.flush_deferred(vec![deferred]).0);
        let (whole, odd) = (data.clone(), odd.to_vec());
        let places = [(4096, whole.clone()), (8193, odd.clone()), (12288, whole)];
        places.into_iter().chain([16385, 20481, 24577].map(|at| (at, odd.clone()))).collect()
    }

    fn in_memory(mapping: &Mapping, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        mapping.read(offset, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn stores_of_the_sync_domain_go_through_the_file() {
        let (theirs, ours) = (file(), file());
        let mapping = torn_apart(theirs.try_clone().unwrap(), Domain::Sync);
        for (offset, bytes) in stores(&mapping) {
            let mut found = vec![0; bytes.len()];
            theirs.read_exact_at(&mut found, offset).unwrap();
            assert_eq!(found, bytes, "at {offset} of the file");
            assert!(in_memory(&mapping, offset, bytes.len()).iter().all(|byte| *byte == 0));
        }
        let mapping = torn_apart(ours.try_clone().unwrap(), Domain::Process);
        for (offset, bytes) in stores(&mapping) {
            let mut found = vec![1; bytes.len()];
            ours.read_exact_at(&mut found, offset).unwrap();
            assert!(found.iter().all(|byte| *byte == 0), "at {offset} of the file");
            assert_eq!(in_memory(&mapping, offset, bytes.len()), bytes);
        }
    }

    #[test]
    fn what_the_file_does_not_take_is_stored_to_the_mapping() {
        let mapping = torn_apart(File::open("/dev/null").unwrap(), Domain::Sync);
        assert!(mapping.through_file);
        for (offset, bytes) in stores(&mapping) {
            assert_eq!(in_memory(&mapping, offset, bytes.len()), bytes);
        }
    }

    /// A file that takes bytes up to `len` and none behind.
    fn of_fixed_length(len: u64) -> File {
        // SAFETY: the name ends with a zero byte; the descriptor is new.
        let file = unsafe {
            let number = libc::memfd_create(c"nearside".as_ptr(), libc::MFD_ALLOW_SEALING);
            assert!(number >= 0);
            File::from_raw_fd(number)
        };
        file.set_len(len).unwrap();
        // SAFETY: it touches no memory of this process.
        let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_GROW) };
        assert_eq!(sealed, 0);
        file
    }

    #[test]
    fn what_the_file_takes_no_more_of_is_stored_behind_what_it_took() {
        let file = of_fixed_length(8192);
        let mapping = torn_apart(file.try_clone().unwrap(), Domain::Sync);
        let data: Vec<u8> = (0..8192u32).map(|at| (at % 251) as u8 + 1).collect();
        let _ = fence(mapping.write(4096, &data));
        let mut found = vec![0; 4096];
        file.read_exact_at(&mut found, 4096).unwrap();
        assert_eq!(found, data[..4096], "in the file");
        assert!(in_memory(&mapping, 4096, 4096).iter().all(|byte| *byte == 0));
        assert_eq!(in_memory(&mapping, 8192, 4096), data[4096..], "in memory");
        assert!(mapping.settle(4096, 4096).is_ok());
        assert!(matches!(mapping.settle(4096, 8192), Err(Error::Io { .. })));
    }

    #[test]
    fn a_limit_below_the_files_length_keeps_stores_on_the_mapping() {
        assert!(allowed(0));
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel fills the structure in.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) }, 0);
        if limit.rlim_cur < u64::MAX {
            assert!(!allowed(limit.rlim_cur + 1));
        }
    }
}
