//! Making writes durable on a plain file: the `sync` domain.
//!
//! A failure is final ([`Error::Poisoned`] says why).

use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::state::store_fence;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::PoisonError;

/// Offsets given to msync are multiples of it, on every page size that Linux has.
const PAGE_BYTES_MAX: usize = 64 << 10;

impl Mapping {
    /// `sync` domain: everything written before reaches the medium. A no-op in the others.
    ///
    /// # Errors
    /// What the kernel says, the first time; `Poisoned` ever after.
    pub fn sync(&self) -> Result<()> {
        // fdatasync writes the pages of a shared mapping too: Linux finds those stored to by the
        // dirty bits of page tables.
        self.sync_by("sync the mapped file", |file| {
            // SAFETY: it touches no memory of this process, and the descriptor is open.
            unsafe { libc::fdatasync(file) }
        })
    }

    /// [`sync`](Mapping::sync) of `len` bytes at `offset`, and no promise about others.
    ///
    /// # Errors
    /// `OutOfRange`, and those of `sync`.
    pub fn sync_range(&self, offset: u64, len: usize) -> Result<()> {
        let size = self.len();
        if !crate::access::within(offset, len, self.addresses.len()) {
            return Err(Error::OutOfRange { offset, len, size });
        }
        let skip = offset as usize % PAGE_BYTES_MAX;
        let start = self.addresses.base().wrapping_add(offset as usize - skip);
        self.sync_by("sync a range of the mapped file", |_| {
            // SAFETY: msync changes no byte; the range lies inside the mapping.
            unsafe { libc::msync(start.cast(), skip + len, libc::MS_SYNC) }
        })
    }

    fn sync_by(&self, what: &str, call: impl Fn(i32) -> i32) -> Result<()> {
        if self.domain() != Domain::Sync || self.read_only() {
            return Ok(());
        }
        store_fence();
        if let Some(file) = &self.file {
            let mut poisoned = self.poisoned.lock().unwrap_or_else(PoisonError::into_inner);
            if *poisoned {
                return Err(Error::Poisoned);
            }
            if !file.is_itself() {
                *poisoned = true;
                let what = "find the slice behind its descriptor, which this program closed";
                let source = io::Error::from_raw_os_error(libc::EBADF);
                return Err(Error::Io { what: what.to_owned(), source });
            }
            while call(file.as_raw_fd()) != 0 {
                let source = io::Error::last_os_error();
                if source.kind() != io::ErrorKind::Interrupted {
                    *poisoned = true;
                    return Err(Error::Io { what: what.to_owned(), source });
                }
            }
        }
        #[cfg(feature = "recorder")]
        self.record(crate::recorder::EventKind::Sync);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// A mapping whose descriptor cannot be synced: the null device answers EINVAL.
    fn unsyncable(domain: Domain) -> Mapping {
        Mapping::beside_file(4096, domain, File::open("/dev/null").unwrap())
    }

    #[test]
    fn after_a_failed_sync_every_sync_fails() {
        let mapping = unsyncable(Domain::Sync);
        let first = mapping.sync().unwrap_err();
        assert!(matches!(first, Error::Io { .. }));
        assert_eq!(first.errno(), libc::EINVAL);
        assert!(matches!(mapping.sync(), Err(Error::Poisoned)));
        // A range too, though msync of it would succeed.
        assert!(matches!(mapping.sync_range(0, 64), Err(Error::Poisoned)));
        assert_eq!(Error::Poisoned.errno(), libc::EIO);
    }

    /// A sync of whatever file has the descriptor's number now would promise what is not so.
    #[test]
    fn a_descriptor_that_another_file_took_over_is_found_out() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let number = file.as_raw_fd();
        let mapping = Mapping::beside_file(4096, Domain::Sync, file);
        mapping.sync().unwrap();
        let other = tempfile::tempfile().unwrap();
        // SAFETY: both descriptors are open, and this test's.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        let error = mapping.sync().unwrap_err();
        assert_eq!(error.errno(), libc::EBADF, "{error}");
        assert!(matches!(mapping.sync(), Err(Error::Poisoned)));
    }

    #[test]
    fn other_domains_have_nothing_to_sync() {
        for domain in [Domain::Process, Domain::CpuFlush, Domain::CpuCache] {
            unsyncable(domain).sync().unwrap();
        }
    }
}
