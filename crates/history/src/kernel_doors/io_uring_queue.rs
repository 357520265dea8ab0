//! io_uring, with one transfer at a time.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};

use crate::kernel_doors::queued_files::IoQueue;

/// A ring.
pub struct UringQueue {
    ring: IoUring,
}

impl fmt::Debug for UringQueue {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("UringQueue")
    }
}

impl UringQueue {
    /// A ring; the kernel may refuse it.
    pub fn new() -> io::Result<UringQueue> {
        Ok(UringQueue { ring: IoUring::new(4)? })
    }

    /// Submits one transfer, and waits until it is done; its memory is valid meanwhile.
    fn transfer(&mut self, entry: &squeue::Entry) -> io::Result<usize> {
        // SAFETY: the buffer lives until the transfer is done: this waits for it.
        unsafe { self.ring.submission().push(entry) }.map_err(io::Error::other)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // the kernel may still have the buffer
                Err(error) => panic!("io_uring_enter: {error}"),
            }
            let Some(done) = self.ring.completion().next() else { continue };
            return match usize::try_from(done.result()) {
                Ok(bytes) => Ok(bytes),
                Err(_) => Err(io::Error::from_raw_os_error(-done.result())),
            };
        }
    }
}

impl IoQueue for UringQueue {
    fn read(&mut self, file: BorrowedFd<'_>, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        let file = types::Fd(file.as_raw_fd());
        let read = opcode::Read::new(file, bytes.as_mut_ptr(), bytes.len() as u32);
        self.transfer(&read.offset(at).build())
    }

    fn write(&mut self, file: BorrowedFd<'_>, bytes: &[u8], at: u64) -> io::Result<usize> {
        let file = types::Fd(file.as_raw_fd());
        let write = opcode::Write::new(file, bytes.as_ptr(), bytes.len() as u32);
        self.transfer(&write.offset(at).build())
    }
}
