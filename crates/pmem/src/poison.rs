//! Memory errors made on purpose, by the kernel's own means (tests).

use crate::mapping::Mapping;
use std::io;

/// userfaultfd(2): flags, requests and their arguments.
const USER_MODE_ONLY: i32 = 1;
const MODE_MISSING: u64 = 1;
const FEATURE_POISON: u64 = 1 << 14;
const API: u64 = 0xAA;
const REQUEST_API: u64 = request(0x3F, 24);
const REQUEST_REGISTER: u64 = request(0x00, 32);
const REQUEST_POISON: u64 = request(0x08, 32);

/// A request that reads and writes so many bytes.
const fn request(number: u64, bytes: u64) -> u64 {
    3 << 30 | bytes << 16 | API << 8 | number
}

impl Mapping {
    /// From now on every load from these pages of a shared mapping is an uncorrectable memory
    /// error (`UFFDIO_POISON`, Linux 6.6). Whole pages.
    pub fn poison(&self, offset: u64, len: usize) -> io::Result<()> {
        let start = self.addresses.base().addr() as u64 + offset;
        let page = crate::media::PAGE as u64;
        assert!(crate::access::within(offset, len, self.addresses.len()), "inside the mapping");
        assert!(start.is_multiple_of(page) && (len as u64).is_multiple_of(page), "whole pages");
        // SAFETY: it makes a descriptor; the requests below read and write arrays of their size;
        // what is not mapped any more after madvise is mapped again, from the file, when loaded.
        unsafe {
            let descriptor = libc::syscall(
                libc::SYS_userfaultfd,
                libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY,
            );
            let descriptor = i32::try_from(check(descriptor)?).map_err(io::Error::other)?;
            let mut api = [API, FEATURE_POISON, 0];
            check(libc::ioctl(descriptor, REQUEST_API, api.as_mut_ptr()).into())?;
            let mut register = [start, len as u64, MODE_MISSING, 0];
            check(libc::ioctl(descriptor, REQUEST_REGISTER, register.as_mut_ptr()).into())?;
            check(libc::madvise(start as *mut _, len, libc::MADV_DONTNEED).into())?;
            let mut poison = [start, len as u64, 0, 0];
            check(libc::ioctl(descriptor, REQUEST_POISON, poison.as_mut_ptr()).into())?;
            // it stays open: whoever closes it takes the errors away
        }
        Ok(())
    }
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
