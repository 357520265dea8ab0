//! Copies of files' bytes in memory of processes that have them mapped as regions.
//!
//! Each copy is one process's, of memory that is the service's. Who is of another user than the
//! service has a descriptor that can only be read; who is of its own could store there in any case,
//! and does: what he writes under leases (`leases.rs`) he stores himself. Nobody else loads from
//! there, this service neither. The memory of who comes over a network is its own; the service says
//! by its stream what becomes of it ([`Place`]). Three things stay true:
//!
//! - A page that is there has what the file has: it is brought while the file's range is held, and
//!   whoever changes the file stores into it, or takes it away, before his call returns. Taking it
//!   away needs no step of the process. (Over a network it is said before that, and done when the
//!   process reads on.) Where a lease of it begins, and where it ends, it goes; what somebody else
//!   has a lease of is not brought before that has ended.
//! - Pages come only when their process asks, each at once as a whole.
//! - All copies together have no more pages than is set; those that came first go first.
//!
//! Locks, in this order: the range of the file, the pages of a copy, the room.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};

use fs::{Blocks, Error as FsError, FILE_BYTES_MAX, FileSystem, Handle, Mapped};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::place::Place;
use crate::room::{Counted, Evicts, Room};
use crate::stream::Stream;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Pages that come at one time.
const PAGES_TOGETHER: u64 = 64;
/// Copies of one process, at most.
const OWN_MAX: usize = 256;
const HUGE_PAGES: &str = "regions of attached processes, where shared memory comes in huge pages \
                          (transparent_hugepage/shmem_enabled)";

/// A copy of a file's bytes, or of a part of them, for one process.
#[derive(Debug)]
pub struct Copy {
    place: Place,
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

fn too_many() -> FsError {
    io("there are as many as there may be", Errno::MFILE)
}

pub fn failed(what: &str, error: &std::io::Error) -> FsError {
    io(what, Errno::from_io_error(error).unwrap_or(Errno::IO))
}

/// Memory of which no page is there, and each comes for itself, and the descriptor for others.
pub fn page_by_page(name: &str, bytes: u64) -> Result<(File, OwnedFd), FsError> {
    shm::page_by_page(name, bytes).map_err(|error| match error {
        shm::Error::HugePages => FsError::Unsupported(HUGE_PAGES),
        error => FsError::Elsewhere { errno: error.errno(), words: error.to_string() },
    })
}

impl Copy {
    /// One of which no page is there; `make` makes the place for so many.
    fn new(
        fs: &FileSystem,
        handle: &Arc<Handle>,
        (offset, bytes): (u64, u64),
        (room, counted): (&Arc<Room>, Counted),
        make: impl FnOnce(u64) -> Result<Place, FsError>,
    ) -> Result<Arc<Copy>, FsError> {
        let end = offset.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX && bytes > 0);
        if end.is_none() || !offset.is_multiple_of(PAGE) {
            return Err(FsError::Invalid("a copy is of whole pages of a file"));
        }
        let count = bytes.div_ceil(PAGE);
        let place = make(count)?;
        let copy = Arc::new_cyclic(|own| Copy {
            place,
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
        Ok(copy)
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
        if let Place::There(stream, copy) = &self.place {
            // also those that it had: it may have let go of them
            stream.put_pages(*copy, first, bytes);
        }
        for (page, data) in (first..).zip(bytes.chunks(PAGE as usize)) {
            if pages.contains_key(&page) {
                continue;
            }
            if let Place::Here(memory) = &self.place
                && let Err(error) = memory.write_all_at(data, page * PAGE)
            {
                // whatever there is of it is not what the file has
                self.place.punch(&(page..page + 1));
                return Err(io("write", Errno::from_io_error(&error).unwrap_or(Errno::IO)));
            }
            let stamp = self.room.add(self.own.clone(), page);
            pages.insert(page, stamp);
        }
        Ok(())
    }

    /// Pages that are there go.
    fn take_away(&self, pages: &mut BTreeMap<u64, u64>, run: Range<u64>) {
        run.clone().for_each(|page| _ = pages.remove(&page));
        self.room.gone((run.end - run.start) as usize);
        self.place.punch(&run);
    }

    /// Those of these pages that are there, in runs.
    fn runs(pages: &BTreeMap<u64, u64>, range: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for page in pages.range(range).map(|(page, _)| *page) {
            match runs.last_mut() {
                Some(run) if run.end == page => run.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        runs
    }

    /// The pages in which these bytes of the file lie.
    fn pages_of(&self, offset: u64, len: u64) -> Range<u64> {
        let end = offset.saturating_add(len).saturating_sub(self.offset);
        let first = offset.saturating_sub(self.offset) / PAGE;
        first.min(self.count)..end.div_ceil(PAGE).min(self.count)
    }
}

impl Mapped for Copy {
    fn is_told_before(&self) -> bool {
        false
    }

    fn written(&self, offset: u64, data: &[u8]) {
        let mut pages = self.pages.lock();
        let range = self.pages_of(offset, data.len() as u64);
        if range.is_empty() {
            return;
        }
        for run in Copy::runs(&pages, range) {
            let (start, end) = (self.offset + run.start * PAGE, self.offset + run.end * PAGE);
            let (low, high) = (start.max(offset), end.min(offset + data.len() as u64));
            let part = &data[(low - offset) as usize..(high - offset) as usize];
            if !self.place.store(low - self.offset, part) {
                self.take_away(&mut pages, run);
            }
        }
    }

    fn changed(&self, offset: u64, len: u64) {
        let mut pages = self.pages.lock();
        let range = self.pages_of(offset, len);
        if range.is_empty() {
            return;
        }
        for run in Copy::runs(&pages, range) {
            self.take_away(&mut pages, run);
        }
    }

    fn heeds_leases(&self) -> bool {
        true
    }
}

impl Evicts for Copy {
    fn evict(&self, page: u64, stamp: u64) {
        let mut pages = self.pages.lock();
        if pages.get(&page) == Some(&stamp) {
            self.take_away(&mut pages, page..page + 1);
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
        let mut theirs = None;
        let make = |pages| {
            let (memory, for_others) = page_by_page("nearside-copy", pages * PAGE)?;
            theirs = Some(match user == 0 || user == geteuid().as_raw() {
                // he could open it so himself, and then stores what he writes under leases
                true => memory.try_clone().map_err(|error| failed("dup", &error))?.into(),
                false => for_others,
            });
            Ok(Place::Here(memory))
        };
        let copy = Copy::new(fs, handle, bytes, (&self.room, self.count(user)?), make)?;
        let given = self.enter(number, &copy).and_then(|()| {
            let Some(theirs) = theirs else { return Ok(()) };
            let given = give(theirs.as_fd()).map_err(|error| failed("sendmsg", &error));
            given.inspect_err(|_| drop(self.take(number)))
        });
        given.inspect_err(|_| copy.end(fs))
    }

    /// Makes one of this number with the process at the other end of this stream.
    pub fn map_there(
        &self,
        fs: &FileSystem,
        (number, user): (u64, u32),
        handle: &Arc<Handle>,
        bytes: (u64, u64),
        stream: &Arc<Stream>,
    ) -> Result<(), FsError> {
        let make = |_| Ok(Place::There(stream.clone(), number));
        let copy = Copy::new(fs, handle, bytes, (&self.room, self.count(user)?), make)?;
        self.enter(number, &copy).inspect_err(|_| copy.end(fs))
    }

    fn count(&self, user: u32) -> Result<Counted, FsError> {
        self.room.count(user).ok_or_else(too_many)
    }

    fn enter(&self, number: u64, copy: &Arc<Copy>) -> Result<(), FsError> {
        match &mut *self.all.lock() {
            None => Err(io("the process has ended", Errno::NOTCONN)),
            Some(all) if all.len() >= OWN_MAX => Err(too_many()),
            Some(all) if all.contains_key(&number) => {
                Err(FsError::Invalid("a copy of this number is there"))
            }
            Some(all) => {
                all.insert(number, copy.clone());
                Ok(())
            }
        }
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
