//! The files of a history past the kernel's pages, with reads and writes by a queue of the kernel:
//! libaio's or io_uring's.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::kernel_doors::{aio_queue, io_uring_queue};
use crate::library::whole;
use crate::outside::{Outside, errno};
use crate::plan::{CELL_BYTES, History};
use crate::record::{Act, Answer, bytes, runs};

/// A queue to which reads and writes are submitted.
pub trait IoQueue: Debug {
    /// Reads at an offset, and waits until that is done.
    fn read(&mut self, file: BorrowedFd<'_>, bytes: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes at an offset, and waits until that is done.
    fn write(&mut self, file: BorrowedFd<'_>, bytes: &[u8], at: u64) -> io::Result<usize>;
}

/// The files, and a queue.
#[derive(Debug)]
pub struct QueuedFiles {
    outside: Outside,
    queue: Box<dyn IoQueue>,
}

impl QueuedFiles {
    /// With libaio.
    pub fn by_aio(outside: Outside) -> io::Result<QueuedFiles> {
        Ok(QueuedFiles { outside, queue: Box::new(aio_queue::AioQueue::new()?) })
    }

    /// With io_uring.
    pub fn by_uring(outside: Outside) -> io::Result<QueuedFiles> {
        Ok(QueuedFiles { outside, queue: Box::new(io_uring_queue::UringQueue::new()?) })
    }

    pub fn answer(&mut self, history: &History, act: &Act, number: u64) -> Answer {
        let offset = |at: u32| u64::from(at) * CELL_BYTES as u64;
        let made = match *act {
            Act::Write { file, at, cells } => {
                let file = self.outside.files()[file as usize].as_fd();
                let written = self.queue.write(file, &bytes(number, cells), offset(at));
                written.map(|written| whole(written, cells))
            }
            Act::Read { file, at, cells } => {
                let file = self.outside.files()[file as usize].as_fd();
                let mut seen = vec![0; cells as usize * CELL_BYTES];
                self.queue.read(file, &mut seen, offset(at)).map(|read| {
                    let runs = runs(history.number, &seen[..read]);
                    Answer { runs: Some(vec![runs]), ..Answer::default() }
                })
            }
            _ => return self.outside.answer(history, act, number),
        };
        made.unwrap_or_else(|error| Answer::failed(errno(&error)))
    }
}

/// An error where this kernel refuses an io_uring to this process.
pub fn io_uring() -> io::Result<()> {
    io_uring_queue::UringQueue::new().map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn both_queues_write_and_read_at_an_offset_and_tell_errors() {
        let mut queues: Vec<Box<dyn IoQueue>> = vec![Box::new(aio_queue::AioQueue::new().unwrap())];
        match io_uring_queue::UringQueue::new() {
            Ok(queue) => queues.push(Box::new(queue)),
            Err(error) => println!("no io_uring here: {error}"),
        }
        for mut queue in queues {
            let file = tempfile::tempfile().unwrap();
            assert_eq!(queue.write(file.as_fd(), b"abcdef", 10).unwrap(), 6);
            let mut seen = [0; 8];
            assert_eq!(queue.read(file.as_fd(), &mut seen, 12).unwrap(), 4);
            assert_eq!(&seen, b"cdef\0\0\0\0");
            let null = std::fs::File::open("/dev/null").unwrap();
            let error = queue.write(null.as_fd(), b"abc", 0).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        }
    }
}
