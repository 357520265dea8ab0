//! Copies of files' bytes in memory of processes that have them mapped as regions.
//!
//! Each copy is one process's, and only the service can store to it: the process has a descriptor
//! that can only be read, of memory that is the service's. What it does to it is between it and the
//! kernel, and nothing that this service looks at. Three things stay true:
//!
//! - A page that is there has what the file has: it is brought while the file's range is held, and
//!   whoever changes the file stores into it, or takes it away, before his call returns. Taking it
//!   away needs no step of the process.
//! - Pages come only when their process asks, each at once as a whole.
//! - All copies together have no more pages than is set; those that came first go first.
//!
//! Locks, in this order: the range of the file, the pages of a copy, the room.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use fs::{Error as FsError, FILE_BYTES_MAX, FileSystem, Handle, Mapped};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, Mode, SealFlags, fallocate, fchmod, fcntl_add_seals};
use rustix::io::Errno;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Pages that come at one time.
const PAGES_TOGETHER: u64 = 64;
/// Copies of one process, at most.
const OWN_MAX: usize = 256;
/// Copies of all: each takes a descriptor of the service's.
const ALL_MAX: usize = 8192;
/// Of these, copies of one user, root apart.
const OF_USER_MAX: usize = 2048;

/// What all copies share.
#[derive(Debug)]
pub struct Room {
    pages_max: usize,
    /// Pages that are there.
    present: AtomicUsize,
    stamp: AtomicU64,
    /// In the order in which they came; some are gone already.
    queue: Mutex<VecDeque<Came>>,
    /// Copies, by user.
    users: Mutex<HashMap<u32, usize>>,
}

/// A page that came: it is the one that has this stamp, or gone.
#[derive(Debug)]
struct Came {
    copy: Weak<Copy>,
    page: u64,
    stamp: u64,
}

/// One of so many copies, until it is dropped.
#[derive(Debug)]
struct Counted {
    room: Arc<Room>,
    user: u32,
}

impl Room {
    /// For pages of so many bytes.
    pub fn new(bytes: u64) -> Arc<Room> {
        Arc::new(Room {
            pages_max: usize::try_from(bytes / PAGE).unwrap_or(usize::MAX).max(1),
            present: AtomicUsize::new(0),
            stamp: AtomicU64::new(1),
            queue: Mutex::default(),
            users: Mutex::default(),
        })
    }

    /// Bytes of pages that are there.
    pub fn bytes(&self) -> u64 {
        self.present.load(Ordering::Relaxed) as u64 * PAGE
    }

    fn count(self: &Arc<Room>, user: u32) -> Option<Counted> {
        let mut users = self.users.lock();
        let (all, own) = (users.values().sum::<usize>(), users.get(&user).copied().unwrap_or(0));
        if all >= ALL_MAX || user != 0 && own >= OF_USER_MAX {
            return None;
        }
        users.insert(user, own + 1);
        Some(Counted { room: self.clone(), user })
    }

    /// Takes pages away until so many can come.
    fn make(&self, pages: usize) {
        // what is taken is noted when it comes: a few more than are set may be there for a moment
        while self.present.load(Ordering::Relaxed) + pages > self.pages_max {
            let Some(first) = self.queue.lock().pop_front() else { return };
            first.go();
        }
    }

    /// A page came. The caller has its copy's pages.
    fn add(&self, copy: Weak<Copy>, page: u64) -> u64 {
        self.present.fetch_add(1, Ordering::Relaxed);
        let stamp = self.stamp.fetch_add(1, Ordering::Relaxed);
        self.queue.lock().push_back(Came { copy, page, stamp });
        stamp
    }

    fn gone(&self, pages: usize) {
        self.present.fetch_sub(pages, Ordering::Relaxed);
    }

    /// Of pages that went by themselves the queue forgets those that came long ago.
    fn tidy(&self) {
        loop {
            let mut queue = self.queue.lock();
            if queue.len() <= self.pages_max.saturating_mul(2).saturating_add(1024) {
                return;
            }
            let first = queue.pop_front();
            drop(queue);
            if let Some(first) = first {
                first.go();
            }
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut users = self.room.users.lock();
        if let Some(count) = users.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                users.remove(&self.user);
            }
        }
    }
}

impl Came {
    /// It goes, if it is there still.
    fn go(&self) {
        if let Some(copy) = self.copy.upgrade() {
            let mut pages = copy.pages.lock();
            if pages.get(&self.page) == Some(&self.stamp) {
                copy.take_away(&mut pages, self.page);
            }
        }
    }
}

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

/// Memory that nobody can store to, nor open to be stored to, but this service's user; and the
/// descriptor for others.
fn memory(bytes: u64) -> Result<(File, OwnedFd), FsError> {
    let made = shm::create("nearside-copy", bytes);
    let memory =
        File::from(made.map_err(|error| FsError::Elsewhere {
            errno: error.errno(),
            words: error.to_string(),
        })?);
    fchmod(&memory, Mode::RUSR).map_err(|errno| io("fchmod", errno))?;
    fcntl_add_seals(&memory, SealFlags::SEAL).map_err(|errno| io("F_ADD_SEALS", errno))?;
    let place = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let failed =
        |error: std::io::Error| io("open", Errno::from_io_error(&error).unwrap_or(Errno::IO));
    let theirs = File::open(place).map_err(failed)?;
    // where the kernel gives more than a page at a time, some would be there that nobody brought
    memory.write_all_at(&[0; PAGE as usize], 0).map_err(failed)?;
    let has_more = memory.metadata().map_err(failed)?.blocks() * 512 > PAGE;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&memory, flags, 0, bytes).map_err(|errno| io("fallocate", errno))?;
    match has_more {
        true => Err(FsError::Unsupported(
            "regions of attached processes, where shared memory comes in huge pages \
             (transparent_hugepage/shmem_enabled)",
        )),
        false => Ok((memory, OwnedFd::from(theirs))),
    }
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
        let (memory, theirs) = memory(count * PAGE)?;
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

    /// Brings pages, so many at most.
    fn fill(&self, fs: &FileSystem, first: u64, pages: u64) -> Result<(), FsError> {
        let end = first.saturating_add(pages.clamp(1, PAGES_TOGETHER)).min(self.count);
        if first >= end {
            return Err(FsError::Invalid("a page that a copy has not"));
        }
        let count = (end - first) as usize;
        self.room.make(count);
        let mut buffer = vec![0; count * PAGE as usize];
        let offset = self.offset + first * PAGE;
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
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = fallocate(&self.memory, flags, page * PAGE, PAGE) {
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
        for page in self.pages_of(offset, data.len() as u64) {
            if !pages.contains_key(&page) {
                continue;
            }
            let start = self.offset + page * PAGE;
            let (low, high) = (start.max(offset), (start + PAGE).min(offset + data.len() as u64));
            let part = &data[(low - offset) as usize..(high - offset) as usize];
            if self.memory.write_all_at(part, low - self.offset).is_err() {
                self.take_away(&mut pages, page);
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
        let (copy, theirs) = Copy::new(fs, handle, bytes, (&self.room, counted))?;
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
            let failed = |error| io("sendmsg", Errno::from_io_error(&error).unwrap_or(Errno::IO));
            give(theirs.as_fd()).map_err(failed).inspect_err(|_| drop(self.take(number)))
        });
        given.inspect_err(|_| copy.end(fs))
    }

    fn take(&self, number: u64) -> Option<Arc<Copy>> {
        self.all.lock().as_mut().and_then(|all| all.remove(&number))
    }

    /// Brings pages of a copy.
    pub fn fill(
        &self,
        fs: &FileSystem,
        number: u64,
        (first, pages): (u64, u32),
    ) -> Result<(), FsError> {
        let copy = self.all.lock().as_ref().and_then(|all| all.get(&number).cloned());
        let copy = copy.ok_or(FsError::Invalid("a copy of this number is not there"))?;
        copy.fill(fs, first, u64::from(pages))
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
