//! Memory of which each page is there or not, as a whole: for copies of files' bytes.
//!
//! A page comes when it is written to, and goes when it is punched out. Who has the memory mapped,
//! and has the kernel tell of pages that are missing, sees all of a page or none.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{FallocateFlags, Mode, fallocate, fchmod};

use crate::mapping::io;
use crate::{Error, Result, create};

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;

/// Memory of a settled size, sealed for good, that nobody can store to, nor open to be stored to,
/// but this process's user; and the descriptor for others.
fn sealed(name: &str, bytes: u64) -> Result<(File, OwnedFd)> {
    let memory = File::from(create(name, bytes)?);
    fchmod(&memory, Mode::RUSR).map_err(io("fchmod"))?;
    let place = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let theirs = File::open(place).map_err(|error| Error::io("open", error))?;
    Ok((memory, theirs.into()))
}

/// The same, of which no page is there, and each comes for itself.
pub fn page_by_page(name: &str, bytes: u64) -> Result<(File, OwnedFd)> {
    let (memory, theirs) = sealed(name, bytes)?;
    let failed = |error| Error::io("write", error);
    // where the kernel gives more than a page at a time, some would be there that nobody brought
    memory.write_all_at(&[0; PAGE_BYTES], 0).map_err(failed)?;
    let has_more = memory.metadata().map_err(failed)?.blocks() * 512 > PAGE_BYTES as u64;
    punch(&memory, 0, bytes).map_err(io("fallocate"))?;
    if has_more { Err(Error::HugePages) } else { Ok((memory, theirs)) }
}

/// Takes pages out of a memory.
pub fn punch(memory: &File, at: u64, bytes: u64) -> rustix::io::Result<()> {
    fallocate(memory, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, bytes)
}
