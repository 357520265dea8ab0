//! Memory for the pages of one cache: frames of a block each, in one mapping, on a node.
//!
//! The mapping has as many frames as the cache may ever have pages, so these never take more memory
//! than that; and less, as long as some frames were never given out. A frame has one owner at a
//! time. It comes back when he drops it.
//!
//! Two rules make that sound: the number of a frame is among the free ones or with one `Lent`,
//! never both; and whoever has a `Lent` keeps the mapping.

use crate::aligned::Block;
use parking_lot::Mutex;
use pool::BLOCK_BYTES;
use std::ffi::{c_long, c_ulong, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Nodes that the kernel numbers higher are none that it knows.
const NODE_LIMIT: u32 = 1 << 16;

/// Frames, some of them lent.
#[derive(Debug)]
pub struct Frames {
    base: NonNull<Block>,
    count: usize,
    /// Whether the kernel was told which node they are to lie on.
    is_bound: bool,
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    /// Those that came back; the next one to be lent is the last.
    back: Vec<u32>,
    /// From here on, none was ever lent.
    untouched: u32,
}

// SAFETY: the mapping belongs to no thread, and each frame of it to whoever has its number.
unsafe impl Send for Frames {}
// SAFETY: as above; the numbers of free frames are behind a lock.
unsafe impl Sync for Frames {}

impl Frames {
    /// So many, on this node if the kernel lets them lie there; fewer where it promises no memory
    /// for as many.
    pub fn new(count: usize, node: Option<u32>) -> Arc<Frames> {
        let mut count = count.min(u32::MAX as usize);
        let base = loop {
            match map(count) {
                Ok(base) => break base,
                Err(_) => count /= 2,
            }
        };
        let is_bound = count > 0 && node.is_some_and(|node| bind(base, count * BLOCK, node));
        let free = Mutex::new(Free { back: Vec::new(), untouched: 0 });
        Arc::new(Frames { base, count, is_bound, free })
    }

    /// How many there are, lent or free.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether the kernel was told which node they are to lie on.
    pub fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// How many are free.
    pub fn free(&self) -> usize {
        self.free.lock().count(self.count)
    }

    /// A frame, if one is free, and how many are free then.
    pub fn take(self: &Arc<Frames>) -> (Option<Frame>, usize) {
        let mut free = self.free.lock();
        let number = free.back.pop().or_else(|| {
            let is_there = (free.untouched as usize) < self.count;
            is_there.then(|| {
                free.untouched += 1;
                free.untouched - 1
            })
        });
        let left = free.count(self.count);
        drop(free);
        let lent = number.map(|number| Lent { of: self.clone(), number });
        (lent.map(Frame::Lent), left)
    }

    /// Gives the memory of those that are free back to the kernel.
    pub fn release(&self) {
        let mut free = self.free.lock();
        free.back.sort_unstable();
        for run in free.back.chunk_by(|one, next| one + 1 == *next) {
            let at = self.at(run[0]).as_ptr().cast::<c_void>();
            // SAFETY: these frames are free and stay it, for the list is locked: nobody has a
            // reference to them. Where the kernel does not want to, they keep what they had.
            unsafe { libc::madvise(at, run.len() * BLOCK, libc::MADV_DONTNEED) };
        }
        // the first ones are the next again
        free.back.reverse();
    }

    fn at(&self, number: u32) -> NonNull<Block> {
        assert!((number as usize) < self.count, "a frame of this mapping");
        // SAFETY: the mapping has `count` blocks.
        unsafe { self.base.add(number as usize) }
    }
}

impl Free {
    fn count(&self, of: usize) -> usize {
        of - self.untouched as usize + self.back.len()
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        if self.count > 0 {
            // SAFETY: the mapping is this one's own, and nobody has a frame of it any more.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.count * BLOCK) };
        }
    }
}

/// Memory for so many blocks, which costs none before it is touched. None: of no blocks.
fn map(count: usize) -> io::Result<NonNull<Block>> {
    if count == 0 {
        return Ok(NonNull::dangling());
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let len = count.checked_mul(BLOCK).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: a new mapping, where nothing is mapped yet.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Asks for this memory on a node, as the kernel numbers nodes, as long as there is some; whether
/// it will be so. (Containers may forbid that, and then it lies where whoever touches it runs.)
fn bind(base: NonNull<Block>, len: usize, node: u32) -> bool {
    if node >= NODE_LIMIT {
        return false;
    }
    let (word, bit) = ((node / c_ulong::BITS) as usize, node % c_ulong::BITS);
    let mut nodes: Vec<c_ulong> = vec![0; word + 1];
    nodes[word] = 1 << bit;
    // the kernel looks at one bit fewer than it is told of
    let bits = nodes.len() * c_ulong::BITS as usize + 1;
    let preferred = c_long::from(libc::MPOL_PREFERRED);
    let (at, list) = (base.as_ptr(), nodes.as_ptr());
    // SAFETY: the memory is a mapping of the caller's, and changes in nothing but where it comes
    // from; the list of nodes has as many bits as the kernel reads.
    unsafe { libc::syscall(libc::SYS_mbind, at, len, preferred, list, bits, 0 as c_long) == 0 }
}

/// A frame of a mapping, which goes back.
#[derive(Debug)]
pub struct Lent {
    of: Arc<Frames>,
    number: u32,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.of.free.lock().back.push(self.number);
    }
}

/// Memory for a block.
#[derive(Debug)]
pub enum Frame {
    /// Of the cache's own.
    Lent(Lent),
    /// Of the heap: for who must have one when all others are in use.
    Heap(Box<Block>),
}

impl Frame {
    /// One that is nobody's, all zero.
    pub fn on_heap() -> Frame {
        Frame::Heap(Box::new(Block::zeroed()))
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            // SAFETY: the mapping lives as long as `lent`, its memory has values from the first
            // moment (zeros), and who changes it has the one frame with this number for himself.
            Frame::Lent(lent) => unsafe { lent.of.at(lent.number).as_ref() }.bytes(),
            Frame::Heap(block) => block.bytes(),
        }
    }

    /// The same, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            // SAFETY: as above.
            Frame::Lent(lent) => unsafe { lent.of.at(lent.number).as_mut() }.bytes_mut(),
            Frame::Heap(block) => block.bytes_mut(),
        }
    }
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
