//! Copies of files' bytes in memory of processes that have them mapped as regions.
//!
//! Each copy is one process's, of memory that is the service's. Who is of another user than the
//! service has a descriptor that can only be read; who is of its own could store there in any case,
//! and does: what he writes under leases (`leases.rs`) he stores himself. Nobody else loads from
//! there, this service neither. Three things stay true:
//!
//! - A page that is there has what the file has: it is brought while the file's range is held, and
//!   whoever changes the file stores into it, or takes it away, before his call returns. Taking it
//!   away needs no step of the process. Where a lease of it begins, and where it ends, it goes;
//!   what somebody else has a lease of is not brought before that has ended.
//! - Pages come only when their process asks, each at once as a whole.
//! - All copies together have no more pages than is set; those that came first go first.
//!
//! Locks, in this order: the range of the file, the pages of a copy, the room.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Weak};

use fs::{Blocks, Error as FsError, FILE_BYTES_MAX, FileSystem, Handle, Mapped};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, Mode, fallocate, fchmod};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::room::{Counted, Evicts, Room};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Pages that come at one time.
const PAGES_TOGETHER: u64 = 64;
/// Copies of one process, at most.
const OWN_MAX: usize = 256;

/// A copy of a file's bytes, or of a part of them, for one process.
#[derive(Debug)]
pub struct Copy {
    memory: File,
    handle: Arc<Handle>,
    /// Where in the file it begins.
    offset: u64,
    /// Whole pages.
    count: u64,
    /// Those that are there, with their stamps.
    pages: Mutex<BTreeMap<u64, u64>>,
    room: Arc<Room>,
    own: Weak<Copy>,
    _counted: Counted,
}

fn io(what: &str, errno: Errno) -> FsError {
    FsError::Elsewhere {
        errno: errno.raw_os_error(),
        words: format!("a copy for a process: {what}"),
    }
}

pub fn failed(what: &str, error: &std::io::Error) -> FsError {
    io(what, Errno::from_io_error(error).unwrap_or(Errno::IO))
}

/// Memory of a settled size, sealed for good, that nobody can store to, nor open to be stored to,
/// but this service's user; and the descriptor for others.
fn sealed(name: &str, bytes: u64) -> Result<(File, OwnedFd), FsError> {
    let made = shm::create(name, bytes);
    let memory =
        File::from(made.map_err(|error| FsError::Elsewhere {
            errno: error.errno(),
            words: error.to_string(),
        })?);
    fchmod(&memory, Mode::RUSR).map_err(|errno| io("fchmod", errno))?;
    let place = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let theirs = File::open(place).map_err(|error| failed("open", &error))?;
    Ok((memory, theirs.into()))
}

/// The same, of which no page is there, and each comes for itself.
pub fn page_by_page(name: &str, bytes: u64) -> Result<(File, OwnedFd), FsError> {
    let (memory, theirs) = sealed(name, bytes)?;
    let failed = |error| failed("write", &error);
    // where the kernel gives more than a page at a time, some would be there that nobody brought
    memory.write_all_at(&[0; PAGE as usize], 0).map_err(failed)?;
    let has_more = memory.metadata().map_err(failed)?.blocks() * 512 > PAGE;
    punch(&memory, 0, bytes).map_err(|errno| io("fallocate", errno))?;
    match has_more {
        true => Err(FsError::Unsupported(
            "regions of attached processes, where shared memory comes in huge pages \
             (transparent_hugepage/shmem_enabled)",
        )),
        false => Ok((memory, theirs)),
    }
}

/// Takes pages out of a memory.
pub fn punch(memory: &File, at: u64, bytes: u64) -> rustix::io::Result<()> {
    fallocate(memory, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, bytes)
}

impl Copy {
    /// One of which no page is there, and the descriptor for its process.
    fn new(
        fs: &FileSystem,
        handle: &Arc<Handle>,
        (offset, bytes): (u64, u64),
        (room, counted): (&Arc<Room>, Counted),
    ) -> Result<(Arc<Copy>, OwnedFd), FsError> {
        let end = offset.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX && bytes > 0);
        if end.is_none() || !offset.is_multiple_of(PAGE) {
            return Err(FsError::Invalid("a copy is of whole pages of a file"));
        }
        let count = bytes.div_ceil(PAGE);
        let (memory, theirs) = page_by_page("nearside-copy", count * PAGE)?;
        let copy = Arc::new_cyclic(|own| Copy {
            memory,
            handle: handle.clone(),
            offset,
            count,
            pages: Mutex::default(),
            room: room.clone(),
            own: own.clone(),
            _counted: counted,
        });
        let mapped: Arc<dyn Mapped> = copy.clone();
        fs.tell(handle, &mapped);
        Ok((copy, theirs))
    }

    /// Nobody has it any more.
    fn end(self: &Arc<Copy>, fs: &FileSystem) {
        let mapped: Arc<dyn Mapped> = self.clone();
        fs.tell_no_more(&self.handle, &mapped);
    }

    /// Brings pages, so many at most. `close` keeps others from leasing blocks as long as its
    /// answer lives: what they write there would not be told.
    fn fill<C>(
        &self,
        fs: &FileSystem,
        (first, pages): (u64, u64),
        close: impl FnOnce(&Blocks) -> C,
    ) -> Result<(), FsError> {
        let end = first.saturating_add(pages.clamp(1, PAGES_TOGETHER)).min(self.count);
        if first >= end {
            return Err(FsError::Invalid("a page that a copy has not"));
        }
        let count = (end - first) as usize;
        self.room.make(count);
        let mut buffer = vec![0; count * PAGE as usize];
        let offset = self.offset + first * PAGE;
        let blocks = offset / PAGE..=(offset / PAGE + (end - first) - 1);
        let _closed = close(&Blocks { ino: self.handle.ino(), blocks });
        let mut failed = None;
        fs.copy_out(&self.handle, offset, &mut buffer, &mut |bytes| {
            failed = self.put(first, bytes).err();
        })?;
        self.room.tidy();
        failed.map_or(Ok(()), Err)
    }

    /// Puts pages in place that are not there. Their range of the file is held.
    fn put(&self, first: u64, bytes: &[u8]) -> Result<(), FsError> {
        let mut pages = self.pages.lock();
        for (page, data) in (first..).zip(bytes.chunks(PAGE as usize)) {
            if pages.contains_key(&page) {
                continue;
            }
            if let Err(error) = self.memory.write_all_at(data, page * PAGE) {
                // whatever there is of it is not what the file has
                self.punch(page);
                return Err(io("write", Errno::from_io_error(&error).unwrap_or(Errno::IO)));
            }
            let stamp = self.room.add(self.own.clone(), page);
            pages.insert(page, stamp);
        }
        Ok(())
    }

    fn take_away(&self, pages: &mut BTreeMap<u64, u64>, page: u64) {
        if pages.remove(&page).is_some() {
            self.punch(page);
            self.room.gone(1);
        }
    }

    fn punch(&self, page: u64) {
        if let Err(error) = punch(&self.memory, page * PAGE, PAGE) {
            // nobody but this service can seal the memory, or make it another one
            tracing::error!("a page of a process's copy cannot be taken away: {error}");
        }
    }

    /// The pages in which these bytes of the file lie.
    fn pages_of(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        let end = offset.saturating_add(len).saturating_sub(self.offset);
        let first = offset.saturating_sub(self.offset) / PAGE;
        first.min(self.count)..end.div_ceil(PAGE).min(self.count)
    }
}

impl Mapped for Copy {
    fn written(&self, offset: u64, data: &[u8]) {
        let mut pages = self.pages.lock();
        let range = self.pages_of(offset, data.len() as u64);
        if range.is_empty() {
            return;
        }
        let there: Vec<u64> = pages.range(range).map(|(page, _)| *page).collect();
        for run in there.chunk_by(|page, next| page + 1 == *next) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let (start, end) = (self.offset + first * PAGE, self.offset + (last + 1) * PAGE);
            let (low, high) = (start.max(offset), end.min(offset + data.len() as u64));
            let part = &data[(low - offset) as usize..(high - offset) as usize];
            if self.memory.write_all_at(part, low - self.offset).is_err() {
                run.iter().for_each(|page| self.take_away(&mut pages, *page));
            }
        }
    }

    fn changed(&self, offset: u64, len: u64) {
        let mut pages = self.pages.lock();
        let range = self.pages_of(offset, len);
        if range.is_empty() {
            return;
        }
        let there: Vec<u64> = pages.range(range).map(|(page, _)| *page).collect();
        there.into_iter().for_each(|page| self.take_away(&mut pages, page));
    }

    fn heeds_leases(&self) -> bool {
        true
    }
}

impl Evicts for Copy {
    fn evict(&self, page: u64, stamp: u64) {
        let mut pages = self.pages.lock();
        if pages.get(&page) == Some(&stamp) {
            self.take_away(&mut pages, page);
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.room.gone(self.pages.get_mut().len());
    }
}

/// The copies of a session.
#[derive(Debug)]
pub struct Copies {
    room: Arc<Room>,
    /// None: the session has ended.
    all: Mutex<Option<HashMap<u64, Arc<Copy>>>>,
}

impl Copies {
    /// None so far.
    pub fn new(room: Arc<Room>) -> Copies {
        Copies { room, all: Mutex::new(Some(HashMap::new())) }
    }

    /// Makes one of this number; `give` gives its descriptor to the process.
    pub fn map(
        &self,
        fs: &FileSystem,
        (number, user): (u64, u32),
        handle: &Arc<Handle>,
        bytes: (u64, u64),
        give: impl FnOnce(BorrowedFd<'_>) -> std::io::Result<()>,
    ) -> Result<(), FsError> {
        let too_many = || io("there are as many as there may be", Errno::MFILE);
        let counted = self.room.count(user).ok_or_else(too_many)?;
        let (copy, mut theirs) = Copy::new(fs, handle, bytes, (&self.room, counted))?;
        if user == 0 || user == geteuid().as_raw() {
            // he could open it so himself, and then stores what he writes under leases
            theirs = copy.memory.try_clone().map_err(|error| failed("dup", &error))?.into();
        }
        let entered = match &mut *self.all.lock() {
            None => Err(io("the process has ended", Errno::NOTCONN)),
            Some(all) if all.len() >= OWN_MAX => Err(too_many()),
            Some(all) if all.contains_key(&number) => {
                Err(FsError::Invalid("a copy of this number is there"))
            }
            Some(all) => {
                all.insert(number, copy.clone());
                Ok(())
            }
        };
        let given = entered.and_then(|()| {
            let given = give(theirs.as_fd()).map_err(|error| failed("sendmsg", &error));
            given.inspect_err(|_| drop(self.take(number)))
        });
        given.inspect_err(|_| copy.end(fs))
    }

    /// What it shares with all others.
    pub fn room(&self) -> &Arc<Room> {
        &self.room
    }

    fn take(&self, number: u64) -> Option<Arc<Copy>> {
        self.all.lock().as_mut().and_then(|all| all.remove(&number))
    }

    /// Brings pages of a copy.
    pub fn fill<C>(
        &self,
        fs: &FileSystem,
        number: u64,
        (first, pages): (u64, u32),
        close: impl FnOnce(&Blocks) -> C,
    ) -> Result<(), FsError> {
        let copy = self.all.lock().as_ref().and_then(|all| all.get(&number).cloned());
        let copy = copy.ok_or(FsError::Invalid("a copy of this number is not there"))?;
        copy.fill(fs, (first, u64::from(pages)), close)
    }

    /// Ends a copy.
    pub fn unmap(&self, fs: &FileSystem, number: u64) {
        if let Some(copy) = self.take(number) {
            copy.end(fs);
        }
    }

    /// The session ends, and all its copies.
    pub fn end(&self, fs: &FileSystem) {
        let all = self.all.lock().take().unwrap_or_default();
        all.into_values().for_each(|copy| copy.end(fs));
    }
}

#[cfg(test)]
#[path = "copies_tests.rs"]
mod tests;
