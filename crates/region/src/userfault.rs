//! The kernel's userfaultfd: faults of a region's pages come to a thread of this process.
//!
//! Numbers and structures are those of `linux/userfaultfd.h`.

use crate::error::{Error, Result};
use crate::source::Faults;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const UFFD_API: u64 = 0xAA;
const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
const UFFDIO_REGISTER: libc::c_ulong = 0xC020_AA00;
const UFFDIO_UNREGISTER: libc::c_ulong = 0x8010_AA01;
const UFFDIO_WAKE: libc::c_ulong = 0x8010_AA02;
const UFFDIO_COPY: libc::c_ulong = 0xC028_AA03;
/// Of `/dev/userfaultfd`: a new descriptor.
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xAA00;
const MODE_MISSING: u64 = 1;
const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
/// Memory that moves stays registered; who moves it waits until that was heard of.
const FEATURE_EVENT_REMAP: u64 = 1 << 2;
const EVENT_PAGEFAULT: u8 = 0x12;
/// Only faults of this process's own code, not of the kernel on its behalf.
const USER_MODE_ONLY: libc::c_int = 1;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Copy {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copy: i64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    more: u64,
}

/// Where faults come from.
#[derive(Debug)]
pub struct Userfault {
    descriptor: OwnedFd,
    /// Which faults it serves.
    pub way: Faults,
}

/// A descriptor that the kernel gave, if it did.
fn owned(descriptor: libc::c_long) -> Option<OwnedFd> {
    // SAFETY: the descriptor is new, and nobody else's.
    (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
}

fn by_call(mode: libc::c_int) -> Option<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | mode;
    // SAFETY: the call takes flags and nothing else.
    owned(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })
}

fn by_device() -> Option<OwnedFd> {
    let device =
        std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd").ok()?;
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: this ioctl takes flags by value, and gives a descriptor.
    let made = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW as _, flags) };
    owned(made.into())
}

impl Userfault {
    /// One that serves faults of system calls, too, if this process may have it.
    pub fn all() -> Option<Userfault> {
        by_call(0).or_else(by_device).and_then(|it| Userfault::agree(it, Faults::All, 0))
    }

    /// One that serves the program's own faults only.
    pub fn own() -> Option<Userfault> {
        by_call(USER_MODE_ONLY).and_then(|it| Userfault::agree(it, Faults::Own, 0))
    }

    /// As [`all`](Userfault::all), of memory that may move.
    pub fn all_that_moves() -> Option<Userfault> {
        let made = by_call(0).or_else(by_device);
        made.and_then(|it| Userfault::agree(it, Faults::All, FEATURE_EVENT_REMAP))
    }

    /// As [`own`](Userfault::own), of memory that may move.
    pub fn own_that_moves() -> Option<Userfault> {
        let made = by_call(USER_MODE_ONLY);
        made.and_then(|it| Userfault::agree(it, Faults::Own, FEATURE_EVENT_REMAP))
    }

    fn agree(descriptor: OwnedFd, way: Faults, more: u64) -> Option<Userfault> {
        let features = FEATURE_MISSING_SHMEM | more;
        let mut api = Api { api: UFFD_API, features, ioctls: 0 };
        // SAFETY: the structure is what this ioctl takes.
        let agreed = unsafe { libc::ioctl(descriptor.as_raw_fd(), UFFDIO_API as _, &mut api) };
        (agreed == 0).then_some(Userfault { descriptor, way })
    }

    /// From now on faults of this memory come here.
    pub fn register(&self, memory: std::ops::Range<usize>) -> Result<()> {
        let range = range(memory.start as u64, memory.len());
        let mut register = Register { range, mode: MODE_MISSING, ioctls: 0 };
        // SAFETY: the structure is what this ioctl takes, and the range is a mapping of ours.
        let done = unsafe {
            libc::ioctl(self.descriptor.as_raw_fd(), UFFDIO_REGISTER as _, &mut register)
        };
        if done == 0 { Ok(()) } else { Err(Error::kernel("UFFDIO_REGISTER")) }
    }

    /// From now on they do not.
    pub fn unregister(&self, memory: std::ops::Range<usize>) {
        let mut range = range(memory.start as u64, memory.len());
        // SAFETY: the structure is what this ioctl takes; failing is as good: the mapping goes.
        unsafe { libc::ioctl(self.descriptor.as_raw_fd(), UFFDIO_UNREGISTER as _, &mut range) };
    }

    /// Puts pages in place, all bytes of each at once, and wakes who waits for them; gives how many
    /// bytes. Fewer where a page is there already.
    pub fn copy(&self, address: u64, bytes: &[u8]) -> Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            let (dst, src) = (address + done as u64, rest.as_ptr() as u64);
            let mut copy = Copy { dst, src, len: rest.len() as u64, mode: 0, copy: 0 };
            // SAFETY: the structure is what this ioctl takes; `rest` is borrowed bytes, and the
            // kernel checks that the range is registered.
            let called =
                unsafe { libc::ioctl(self.descriptor.as_raw_fd(), UFFDIO_COPY as _, &mut copy) };
            done += copy.copy.max(0) as usize;
            if called != 0 {
                match std::io::Error::last_os_error().raw_os_error() {
                    Some(libc::EAGAIN) => {}
                    _ if done > 0 => return Ok(done),
                    Some(libc::EEXIST) => return Ok(0),
                    _ => return Err(Error::kernel("UFFDIO_COPY")),
                }
            }
        }
        Ok(done)
    }

    /// Wakes who waits for pages that are there.
    pub fn wake(&self, address: u64, bytes: usize) {
        let mut range = range(address, bytes);
        // SAFETY: the structure is what this ioctl takes; nobody waits is no error to us.
        unsafe { libc::ioctl(self.descriptor.as_raw_fd(), UFFDIO_WAKE as _, &mut range) };
    }

    /// The address of the next fault, if there is one now; who moves memory goes on.
    pub fn next(&self) -> Option<u64> {
        loop {
            let mut message = Message { event: 0, reserved: [0; 7], flags: 0, address: 0, more: 0 };
            let len = size_of::<Message>();
            let to = (&raw mut message).cast();
            // SAFETY: `to` has room for `len` bytes, any of which make a message.
            let read = unsafe { libc::read(self.descriptor.as_raw_fd(), to, len) };
            if read != len as isize {
                return None;
            }
            if message.event == EVENT_PAGEFAULT {
                return Some(message.address);
            }
        }
    }

    /// The descriptor, to wait for it to be readable.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn range(start: u64, bytes: usize) -> Range {
    Range { start, len: bytes as u64 }
}
