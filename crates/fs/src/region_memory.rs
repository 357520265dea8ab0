//! Memory of this process whose pages are brought when they are touched: regions, of any pool.
//!
//! A call must not read its caller's bytes from there while it holds anything. To bring a page the
//! file is read, which waits for leaves that a change holds; the bytes change as soon as the file
//! does; and the kernel does not wait for such pages in every way. So they are copied before the
//! call takes anything. Nor may anybody store there, so that nothing is read to there.

use crate::commit::{Expected, Write};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::system::FileSystem;
use crate::types::ATOMIC_WRITE_BYTES_MAX;
use arc_swap::ArcSwapOption;
use pmem::Process;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Those of a process.
#[derive(Debug)]
struct Ranges {
    /// A forked child has none of its parent's: the kernel leaves them out of it.
    process: Process,
    /// First address and end of each, ascending.
    all: Vec<(usize, usize)>,
}

/// Who looks takes no lock, as every call does; nor does who changes them, that no child may find
/// it locked for ever.
static RANGES: ArcSwapOption<Ranges> = ArcSwapOption::const_empty();
/// All that there ever were lie between these: most bytes of callers do not.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Changes the list.
fn change(act: impl Fn(&mut Vec<(usize, usize)>)) {
    RANGES.rcu(|before| {
        let own = before.as_deref().filter(|ranges| ranges.process.is_here());
        let mut all = own.map_or_else(Vec::new, |ranges| ranges.all.clone());
        act(&mut all);
        all.sort_unstable();
        Some(Arc::new(Ranges { process: Process::here(), all }))
    });
}

/// Addresses that are a region's, until it is dropped: before they are anything else's.
#[derive(Debug)]
pub struct RegionMemory {
    start: usize,
    /// Who noted them.
    process: Process,
}

impl RegionMemory {
    /// Notes them.
    pub fn new(addresses: Range<usize>) -> RegionMemory {
        change(|ranges| ranges.push((addresses.start, addresses.end)));
        // ordering: who is given an address of the region comes after this
        LOWEST.fetch_min(addresses.start, Ordering::Release);
        HIGHEST.fetch_max(addresses.end, Ordering::Release);
        RegionMemory { start: addresses.start, process: Process::here() }
    }
}

impl Drop for RegionMemory {
    fn drop(&mut self) {
        if self.process.is_here() {
            change(|ranges| ranges.retain(|(start, _)| *start != self.start));
        }
    }
}

/// Whether any of these bytes lies in a region of this process.
#[inline]
pub fn is_region_memory(bytes: &[u8]) -> bool {
    // ordering: see `new`
    let start = bytes.as_ptr() as usize;
    start < HIGHEST.load(Ordering::Acquire)
        && start + bytes.len() > LOWEST.load(Ordering::Acquire)
        && lies_in_region(bytes)
}

#[cold]
fn lies_in_region(bytes: &[u8]) -> bool {
    let start = bytes.as_ptr() as usize;
    let end = start + bytes.len();
    let ranges = RANGES.load();
    let own = ranges.as_deref().filter(|ranges| ranges.process.is_here());
    let Some(Ranges { all, .. }) = own else { return false };
    // regions do not overlap: of those that begin before the end, the last one ends last
    let before = all.partition_point(|(from, _)| *from < end);
    before.checked_sub(1).and_then(|last| all.get(last)).is_some_and(|(_, stop)| *stop > start)
}

/// Bytes that lie in no region: these, or a copy of them.
#[inline]
pub fn outside(bytes: &[u8]) -> Cow<'_, [u8]> {
    match is_region_memory(bytes) {
        true => Cow::Owned(bytes.to_vec()),
        false => Cow::Borrowed(bytes),
    }
}

/// An error where this is memory that nobody may store to.
#[inline]
pub fn check_buffer(buffer: &[u8]) -> Result<()> {
    if is_region_memory(buffer) { Err(Error::RegionMemory) } else { Ok(()) }
}

impl Core {
    /// A write of bytes of which some lie in a region: no more of them are copied at one time than
    /// are atomic.
    #[cold]
    pub fn write_region_memory(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let mut done = 0;
        for piece in data.chunks(ATOMIC_WRITE_BYTES_MAX) {
            let copy = outside(piece);
            match self.write(inode, offset + done as u64, &copy) {
                Ok(written) => done += written,
                Err(Error::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
            if !done.is_multiple_of(ATOMIC_WRITE_BYTES_MAX) {
                break;
            }
        }
        Ok(done)
    }
}

impl FileSystem {
    /// A transaction with bytes of which some lie in regions.
    #[cold]
    pub(crate) fn commit_region_memory(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
    ) -> Result<()> {
        let data: Vec<_> = writes.iter().map(|it| outside(it.data)).collect();
        let writes: Vec<_> =
            writes.iter().zip(&data).map(|(it, data)| Write { data, ..*it }).collect();
        let data: Vec<_> = expected.iter().map(|it| outside(it.data)).collect();
        let expected: Vec<_> =
            expected.iter().zip(&data).map(|(it, data)| Expected { data, ..*it }).collect();
        self.commit(&writes, &expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_touch_a_region_are_found_and_its_neighbours_are_not() {
        let memory = vec![0u8; 4096];
        let start = memory.as_ptr() as usize;
        let near = RegionMemory::new(start + 100..start + 200);
        let far = RegionMemory::new(start + 300..start + 400);
        let found = |range: Range<usize>| is_region_memory(&memory[range]);
        for inside in [100..200, 0..101, 199..300, 150..160, 0..4096, 250..301, 399..500] {
            assert!(found(inside.clone()), "{inside:?}");
        }
        for outside in [0..100, 200..300, 400..4096, 250..251] {
            assert!(!found(outside.clone()), "{outside:?}");
        }
        assert!(matches!(outside(&memory[0..150]), Cow::Owned(_)));
        assert!(matches!(outside(&memory[0..100]), Cow::Borrowed(_)));
        assert_eq!(check_buffer(&memory[300..]).unwrap_err().errno(), libc::EFAULT);
        drop(near);
        assert!(!found(100..200) && found(300..301));
        drop(far);
        assert!(!found(0..4096));
    }
}
