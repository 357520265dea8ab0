//! Making writes durable on a plain file: the `sync` domain.
//!
//! A failure is final ([`Error::Poisoned`] says why).

use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::faults::{Fault, fails};
use crate::mapping::Mapping;
use crate::state::store_fence;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::PoisonError;

impl Mapping {
    /// `sync` domain: everything written before reaches the medium. A no-op in the others.
    ///
    /// # Errors
    /// What the kernel says, the first time; `Poisoned` ever after.
    #[cfg_attr(feature = "recorder", track_caller)]
    pub fn sync(&self) -> Result<()> {
        // fdatasync writes the pages of a shared mapping too: Linux finds those stored to by the
        // dirty bits of page tables.
        if let Some(mirror) = &self.mirror {
            mirror.mapping.sync()?;
        }
        self.sync_own()
    }

    /// This copy alone.
    #[cfg_attr(feature = "recorder", track_caller)]
    pub(crate) fn sync_own(&self) -> Result<()> {
        if self.domain() != Domain::Sync || self.read_only() || self.private {
            return Ok(());
        }
        store_fence();
        if fails(Fault::Sync) {
            *self.poisoned.lock().unwrap_or_else(PoisonError::into_inner) = true;
            let source = io::Error::from_raw_os_error(libc::EIO);
            return Err(Error::Io { what: "sync the mapped file".to_owned(), source });
        }
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
            // SAFETY: it touches no memory of this process, and the descriptor is open.
            while unsafe { libc::fdatasync(file.as_raw_fd()) } != 0 {
                let source = io::Error::last_os_error();
                if source.kind() != io::ErrorKind::Interrupted {
                    *poisoned = true;
                    return Err(Error::Io { what: "sync the mapped file".to_owned(), source });
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
