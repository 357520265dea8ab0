//! A device that is read and written through io_uring, past the page cache where that can be, by a
//! thread on its node. Who is on that node and wants one piece of it asks the kernel himself: to
//! wake the thread, and to be woken by it, takes as long as a quarter of a read of 64 KiB.
//!
//! The kernel reads and writes callers' memory while they wait. So a call returns only when
//! everything that it handed over is done, whatever else goes wrong; and the thread ends only when
//! nothing is under way.

use crate::aligned::{Blocks, is_aligned};
use crate::part::{Call, Part};
use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::Mutex;
use pool::{BLOCK_BYTES, Device, Error, PlainDevice, Result, Scatter, Transfer, scatter_by_copy};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Transfers that are under way at one time.
const DEPTH: u32 = 128;
/// Pieces of memory that the kernel takes in one transfer.
const PIECES_MAX: usize = 1024;
/// The number of the wait that new work ends.
const BELL: u64 = u64::MAX;

/// A device.
#[derive(Debug)]
pub struct UringDevice {
    plain: PlainDevice,
    file: Arc<File>,
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
    node: Option<u32>,
    /// The node's; none, where it is not known.
    cpus: Vec<u32>,
    is_direct: bool,
}

#[derive(Debug)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// Rings when there is something in it.
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct Waiting {
    parts: VecDeque<Part>,
    stop: bool,
}

/// Opens the file past the page cache, or as it is where its file system does not know that; says
/// which.
fn direct(path: &Path, read_only: bool) -> io::Result<(File, bool)> {
    let mut options = File::options();
    options.read(true).write(!read_only);
    let direct = options.clone().custom_flags(libc::O_DIRECT).open(path);
    match direct {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            options.open(path).map(|file| (file, false))
        }
        opened => opened.map(|file| (file, true)),
    }
}

/// The node of the disk that a file or block device lies on.
fn node_of(path: &Path) -> Option<u32> {
    let meta = std::fs::metadata(path).ok()?;
    let is_disk = meta.mode() & libc::S_IFMT == libc::S_IFBLK;
    let number = if is_disk { meta.rdev() } else { meta.dev() };
    let (major, minor) = (libc::major(number), libc::minor(number));
    topology::block_node(Path::new("/sys"), major, minor)
}

impl UringDevice {
    /// Opens the file or block device at `path`; `None` where io_uring cannot be had.
    pub fn open(path: &Path, read_only: bool) -> Result<Option<UringDevice>> {
        let io = |source| Error::Io { path: path.to_path_buf(), source };
        let plain = PlainDevice::open(path, read_only)?;
        let Ok(ring) = IoUring::new(DEPTH) else { return Ok(None) };
        let (file, is_direct) = direct(path, read_only).map_err(io)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(|errno| io(errno.into()))?;
        let queue = Arc::new(Queue { waiting: Mutex::default(), bell });
        let node = node_of(path);
        let cpus = node.map_or_else(Vec::new, cpus_of);
        let file = Arc::new(file);
        let (of_worker, on) = (file.clone(), cpus.clone());
        let worker = Worker { ring, file: of_worker, queue: queue.clone(), under_way: Vec::new() };
        let run = move || {
            if !on.is_empty() {
                // where that cannot be, it runs where it is
                let _ = topology::pin_current_thread(&on);
            }
            worker.run();
        };
        let thread = std::thread::Builder::new().name("ns-tier".to_owned()).spawn(run);
        let thread = Some(thread.map_err(io)?);
        Ok(Some(UringDevice { plain, file, queue, thread, node, cpus, is_direct }))
    }

    /// Has these parts of a call done, and waits. Does not unwind: their memory is lent.
    fn make(&self, mut parts: Vec<Part>, call: &Call) -> io::Result<()> {
        let is_here = self.cpus.is_empty() || self.cpus.contains(&topology::current_cpu());
        match parts.pop() {
            None => Ok(()),
            Some(one) if parts.is_empty() && is_here => one.transfer(&self.file),
            Some(last) => {
                parts.push(last);
                self.queue.add(parts);
                call.wait()
            }
        }
    }
}

/// CPUs that serve a node, as the kernel numbers nodes.
fn cpus_of(node: u32) -> Vec<u32> {
    let Ok(machine) = topology::Topology::system() else { return Vec::new() };
    let index = machine.node_of_kernel_id(node);
    index.map_or_else(Vec::new, |index| machine.cpus(index).to_vec())
}

impl Queue {
    fn add(&self, parts: Vec<Part>) {
        let mut waiting = self.waiting.lock();
        let was_empty = waiting.parts.is_empty();
        waiting.parts.extend(parts);
        drop(waiting);
        if was_empty {
            self.ring();
        }
    }

    /// The bell has been heard.
    fn hush(&self) {
        // nothing to be read: it was heard already
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    fn ring(&self) {
        // no room for one more: it rings
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

impl Device for UringDevice {
    fn bytes(&self) -> u64 {
        self.plain.bytes()
    }

    fn transfer(&self, transfers: &mut [Transfer<'_>]) -> io::Result<()> {
        // what does not lie as the device likes it goes by a detour
        let mut detours: Vec<Option<Blocks>> = transfers
            .iter()
            .map(|transfer| {
                let (bytes, writes) = match transfer {
                    Transfer::Read(_, bytes) => (&**bytes, false),
                    Transfer::Write(_, bytes) => (*bytes, true),
                };
                (!is_aligned(bytes)).then(|| {
                    let mut blocks = Blocks::new(bytes.len().div_ceil(BLOCK_BYTES as usize));
                    if writes {
                        blocks.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
                    }
                    blocks
                })
            })
            .collect();
        let call = Call::of(transfers.len());
        let mut parts = Vec::with_capacity(transfers.len());
        for (transfer, detour) in transfers.iter_mut().zip(&mut detours) {
            let (block, writes, memory, len) = match transfer {
                Transfer::Read(at, bytes) => (*at, false, bytes.as_mut_ptr(), bytes.len()),
                Transfer::Write(at, bytes) => (*at, true, bytes.as_ptr().cast_mut(), bytes.len()),
            };
            let (memory, len) = match detour {
                Some(blocks) => (blocks.bytes_mut().as_mut_ptr(), blocks.bytes().len()),
                None => (memory, len),
            };
            let offset = block * BLOCK_BYTES;
            let pieces = vec![libc::iovec { iov_base: memory.cast(), iov_len: len }];
            parts.push(Part { writes, offset, pieces, call: call.clone() });
        }
        self.make(parts, &call)?;
        for (transfer, detour) in transfers.iter_mut().zip(&detours) {
            if let (Transfer::Read(_, bytes), Some(blocks)) = (transfer, detour) {
                bytes.copy_from_slice(&blocks.bytes()[..bytes.len()]);
            }
        }
        Ok(())
    }

    fn scatter(&self, runs: &mut [Scatter<'_>]) -> io::Result<()> {
        if !runs.iter().all(|run| run.into.iter().all(|piece| is_aligned(piece))) {
            // what does not lie as the device likes it goes by a detour
            return scatter_by_copy(self, runs);
        }
        let parts = runs.iter().map(|run| run.into.len().div_ceil(PIECES_MAX));
        let call = Call::of(parts.sum());
        let mut parts = Vec::new();
        for run in runs {
            let mut offset = run.block * BLOCK_BYTES;
            for pieces in run.into.chunks_mut(PIECES_MAX) {
                let piece = |piece: &mut &mut [u8]| libc::iovec {
                    iov_base: piece.as_mut_ptr().cast(),
                    iov_len: piece.len(),
                };
                let pieces: Vec<_> = pieces.iter_mut().map(piece).collect();
                let bytes: usize = pieces.iter().map(|piece| piece.iov_len).sum();
                parts.push(Part { writes: false, offset, pieces, call: call.clone() });
                offset += bytes as u64;
            }
        }
        self.make(parts, &call)
    }

    fn sync(&self) -> io::Result<()> {
        self.plain.sync()
    }

    fn node(&self) -> Option<u32> {
        self.node
    }

    fn path(&self) -> String {
        self.plain.path()
    }

    fn access(&self) -> &'static str {
        if self.is_direct { "io_uring, direct" } else { "io_uring, page cache" }
    }
}

impl Drop for UringDevice {
    fn drop(&mut self) {
        self.queue.waiting.lock().stop = true;
        self.queue.ring();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// The thread of a device.
struct Worker {
    ring: IoUring,
    file: Arc<File>,
    queue: Arc<Queue>,
    /// Parts that the kernel has, by their number.
    under_way: Vec<Option<Part>>,
}

impl Worker {
    fn run(mut self) {
        let mut listens = false;
        loop {
            let mut more = self.take();
            for part in more.drain(..) {
                self.start(part);
            }
            if !listens {
                listens = self.listen();
            }
            let is_idle = self.under_way.iter().all(Option::is_none);
            if is_idle && self.queue.waiting.lock().stop {
                return;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => continue,
                Err(error) => self.fail_waiting(&error),
            }
            listens &= !self.finish();
        }
    }

    /// Takes as much out of the queue as there is room for.
    fn take(&mut self) -> Vec<Part> {
        let busy = self.under_way.iter().filter(|part| part.is_some()).count();
        // one entry is the bell's
        let room = (DEPTH as usize - 1).saturating_sub(busy);
        let mut waiting = self.queue.waiting.lock();
        let count = room.min(waiting.parts.len());
        waiting.parts.drain(..count).collect()
    }

    fn start(&mut self, part: Part) {
        let number = match self.under_way.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.under_way.push(None);
                self.under_way.len() - 1
            }
        };
        let file = types::Fd(self.file.as_raw_fd());
        let entry = match &part.pieces[..] {
            [piece] => {
                let (memory, len) = (piece.iov_base.cast(), piece.iov_len.min(1 << 30) as u32);
                match part.writes {
                    true => opcode::Write::new(file, memory, len).offset(part.offset).build(),
                    false => opcode::Read::new(file, memory, len).offset(part.offset).build(),
                }
            }
            pieces => {
                let (list, count) = (pieces.as_ptr(), pieces.len() as u32);
                opcode::Readv::new(file, list, count).offset(part.offset).build()
            }
        };
        self.under_way[number] = Some(part);
        self.push(&entry.user_data(number as u64), number);
    }

    fn push(&mut self, entry: &squeue::Entry, number: usize) {
        // SAFETY: the memory belongs to a call that waits until this part is done; the list of its
        // pieces to the part, which stays among those under way so long.
        let pushed = unsafe { self.ring.submission().push(entry) };
        if pushed.is_err()
            && let Some(part) = self.under_way[number].take()
        {
            // it has as many entries as can be under way
            part.call.part_done(Some(libc::EIO));
        }
    }

    /// Has the bell end the next wait.
    fn listen(&mut self) -> bool {
        let bell: RawFd = self.queue.bell.as_raw_fd();
        let entry = opcode::PollAdd::new(types::Fd(bell), libc::POLLIN as u32).build();
        // SAFETY: this entry names no memory.
        unsafe { self.ring.submission().push(&entry.user_data(BELL)) }.is_ok()
    }

    /// Ends what the kernel has done; whether the bell rang.
    fn finish(&mut self) -> bool {
        let done: Vec<(u64, i32)> =
            self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        let mut rang = false;
        for (number, result) in done {
            if number == BELL {
                self.queue.hush();
                rang = true;
            } else if let Some(part) =
                self.under_way.get_mut(number as usize).and_then(Option::take)
            {
                self.ended(part, result);
            }
        }
        rang
    }

    fn ended(&mut self, mut part: Part, result: i32) {
        let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        match part.ended(result) {
            None => self.start(part),
            Some(ended) => {
                let errno = ended.err().map(|error| error.raw_os_error().unwrap_or(libc::EIO));
                part.call.part_done(errno);
            }
        }
    }

    /// The kernel takes nothing: what waits fails, and what it has is waited for.
    fn fail_waiting(&mut self, error: &io::Error) {
        let errno = Some(error.raw_os_error().unwrap_or(libc::EIO));
        for part in self.take() {
            part.call.part_done(errno);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
