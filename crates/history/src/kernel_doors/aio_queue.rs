//! libaio, by its system calls.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::kernel_doors::queued_files::IoQueue;

/// `IOCB_CMD_PREAD` and `IOCB_CMD_PWRITE` of linux/aio_abi.h.
const READ: u16 = 0;
const WRITE: u16 = 1;

/// `struct iocb` of linux/aio_abi.h, on a little-endian machine.
#[repr(C)]
#[derive(Default)]
struct ControlBlock {
    data: u64,
    key: u32,
    flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    more_flags: u32,
    event_file: u32,
}

/// `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    block: u64,
    result: i64,
    more_result: i64,
}

/// A context of libaio, for one call at a time.
#[derive(Debug)]
pub struct AioQueue {
    context: libc::c_ulong,
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl AioQueue {
    /// A context.
    pub fn new() -> io::Result<AioQueue> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel stores the context's number to a word of this frame.
        checked(unsafe { libc::syscall(libc::SYS_io_setup, 4, &raw mut context) })?;
        Ok(AioQueue { context })
    }

    /// Submits one transfer, and waits until it is done; `memory` is valid for it meanwhile.
    fn transfer(&mut self, mut block: ControlBlock) -> io::Result<usize> {
        let mut blocks = [&raw mut block];
        let mut event = Event::default();
        // SAFETY: the block and its buffer live until the transfer is done: this waits for it.
        checked(unsafe {
            libc::syscall(libc::SYS_io_submit, self.context, 1_i64, blocks.as_mut_ptr())
        })?;
        loop {
            let none = std::ptr::null_mut::<libc::timespec>();
            // SAFETY: the kernel stores one event to this frame.
            let got = checked(unsafe {
                let event = &raw mut event;
                libc::syscall(libc::SYS_io_getevents, self.context, 1_i64, 1_i64, event, none)
            });
            match got {
                Ok(1) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // the kernel may still have the buffer
                Err(error) => panic!("io_getevents: {error}"),
            }
        }
        match usize::try_from(event.result) {
            Ok(bytes) => Ok(bytes),
            Err(_) => Err(io::Error::from_raw_os_error(-event.result as i32)),
        }
    }
}

fn control_block(opcode: u16, file: BorrowedFd<'_>, memory: (u64, usize), at: u64) -> ControlBlock {
    ControlBlock {
        opcode,
        file: file.as_raw_fd() as u32,
        buffer: memory.0,
        bytes: memory.1 as u64,
        offset: at as i64,
        ..ControlBlock::default()
    }
}

impl IoQueue for AioQueue {
    fn read(&mut self, file: BorrowedFd<'_>, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        let memory = (bytes.as_mut_ptr() as u64, bytes.len());
        self.transfer(control_block(READ, file, memory, at))
    }

    fn write(&mut self, file: BorrowedFd<'_>, bytes: &[u8], at: u64) -> io::Result<usize> {
        let memory = (bytes.as_ptr() as u64, bytes.len());
        self.transfer(control_block(WRITE, file, memory, at))
    }
}

impl Drop for AioQueue {
    fn drop(&mut self) {
        // SAFETY: no transfer is under way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
