//! What a device has to do for a call, and who waits for it.

use locks::futex::{Condvar, Mutex};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// A transfer, or what is left of it.
#[derive(Debug)]
pub struct Part {
    pub writes: bool,
    pub offset: u64,
    /// The memory, in the order in which it lies on the device; the kernel reads this list.
    pub pieces: Vec<libc::iovec>,
    pub call: Arc<Call>,
}

impl Part {
    /// So many bytes are done; whether that was all.
    pub fn advance(&mut self, mut bytes: usize) -> bool {
        self.offset += bytes as u64;
        let whole = |piece: &&libc::iovec| {
            let is_done = piece.iov_len <= bytes;
            bytes -= if is_done { piece.iov_len } else { 0 };
            is_done
        };
        let done = self.pieces.iter().take_while(whole).count();
        self.pieces.drain(..done);
        if let Some(first) = self.pieces.first_mut() {
            // SAFETY: it has more bytes than those that are done of it.
            first.iov_base = unsafe { first.iov_base.byte_add(bytes) };
            first.iov_len -= bytes;
        }
        self.pieces.is_empty()
    }

    /// The device did so much of it, or failed; `None`: there is more to be done.
    pub fn ended(&mut self, result: io::Result<usize>) -> Option<io::Result<()>> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(Err(error)),
            // the end of the file: of a device there is more
            Ok(0) => Some(Err(io::Error::from_raw_os_error(libc::EIO))),
            Ok(bytes) => self.advance(bytes).then_some(Ok(())),
        }
    }

    /// Does all of it, and waits for the device.
    pub fn transfer(mut self, file: &File) -> io::Result<()> {
        loop {
            let (list, count) = (self.pieces.as_ptr(), self.pieces.len() as libc::c_int);
            let (fd, offset) = (file.as_raw_fd(), self.offset as libc::off_t);
            // SAFETY: the descriptor is open; each piece is memory that is lent to this part, to be
            // changed if it reads, and there are no more than the kernel takes.
            let done = unsafe {
                match self.writes {
                    true => libc::pwritev(fd, list, count, offset),
                    false => libc::preadv(fd, list, count, offset),
                }
            };
            let result = usize::try_from(done).map_err(|_| io::Error::last_os_error());
            if let Some(ended) = self.ended(result) {
                return ended;
            }
        }
    }
}

// SAFETY: the memory is the caller's, who waits until the part is done.
unsafe impl Send for Part {}

/// One call, and how much of it is not done.
#[derive(Debug)]
pub struct Call {
    left: Mutex<(usize, Option<i32>)>,
    done: Condvar,
}

impl Call {
    /// One of so many parts.
    pub fn of(parts: usize) -> Arc<Call> {
        Arc::new(Call { left: Mutex::new((parts, None)), done: Condvar::new() })
    }

    pub fn part_done(&self, errno: Option<i32>) {
        let mut left = self.left.lock();
        left.0 -= 1;
        left.1 = left.1.or(errno);
        if left.0 == 0 {
            self.done.notify_all();
        }
    }

    pub fn wait(&self) -> io::Result<()> {
        let mut left = self.left.lock();
        while left.0 > 0 {
            self.done.wait(&mut left);
        }
        left.1.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }
}
