//! What the kernel keeps of files in its pages, so that no door takes back what another one
//! changed. The rule is in docs/SHARING.md, "Pages that a kernel keeps":
//!
//! - a READ that fills pages says which blocks the kernel was *given*;
//! - a change by anybody else first keeps what a given block held, its *base*; what comes back of
//!   the page is then what is different from the base, and nothing else is written;
//! - the kernel is told to drop such pages by a thread that serves nothing, and the call that made
//!   the change waits for that before it returns, where it may;
//! - what serves the kernel's own pages (to fill them, to write them back) waits for nobody.

mod base;
mod base_memory;
mod changes;
mod file;
mod notices;
mod state;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use nearside::FileSystem;
use nearside::files::{Error, Handle, Ino, Mapped, Pages, Wait, deferring_waits};
use parking_lot::{Mutex, RwLock};

use base_memory::BaseMemory;
pub(crate) use file::FilePages;
pub(crate) use notices::{Aside, AwayNotices, Notices, Tells, drop_as_told};

/// How long a call waits for a kernel to drop its pages.
pub(crate) const TOLD_MAX: Duration = Duration::from_secs(2);
/// How long a write through pages waits for its own kernel, which cannot drop a page that it keeps
/// locked for this write. Such a page is read again before it is mapped.
const OWN_MAX: Duration = Duration::from_millis(200);
/// Kernels whose waiters are counted apart; those that share a place here share the count.
const COUNTED: usize = 64;

/// How many calls wait for a kernel to drop pages. A call that holds pages of a kernel waits only
/// as long as nobody waits for that one: else each could wait for the other.
static WAITED_FOR: [AtomicUsize; COUNTED] = [const { AtomicUsize::new(0) }; COUNTED];

/// How a request of a kernel changes a file, as far as its own pages are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It writes pages back.
    Back,
    /// Its pages have the bytes, those from this offset on; it holds pages meanwhile.
    Through(u64),
    /// Past its pages.
    Past,
    /// It sets the end, and holds back its pages meanwhile.
    Cut,
}

/// What a thread serves.
#[derive(Clone, Copy, Debug)]
struct Serving {
    /// Whose request, by the number of its `KernelPages`.
    kernel: u64,
    way: Way,
    /// It may wait for the kernels of other machines.
    waits_for_away: bool,
}

thread_local! {
    static SERVING: Cell<Option<Serving>> = const { Cell::new(None) };
    /// What the request that the thread serves looks at before it is answered.
    static LOOKS: RefCell<Vec<Look>> = const { RefCell::new(Vec::new()) };
}

static NEXT_KERNEL: AtomicU64 = AtomicU64::new(1);

/// What one kernel keeps.
pub(crate) struct KernelPages {
    kernel: u64,
    is_away: bool,
    /// Nobody else changes files: the kernel knows by itself where they end.
    is_sole: bool,
    fs: Arc<FileSystem>,
    files: RwLock<HashMap<Ino, Arc<FilePages>>>,
    memory: Arc<Mutex<BaseMemory>>,
    tells: OnceLock<Arc<dyn Tells>>,
    /// Threads that serve this kernel and wait; and how many may.
    waiting: AtomicUsize,
    waiting_max: AtomicUsize,
}

impl KernelPages {
    /// Nothing is kept so far. `is_away`: by the kernel of another machine.
    pub(crate) fn new(fs: Arc<FileSystem>, is_sole: bool, is_away: bool) -> Arc<KernelPages> {
        Arc::new(KernelPages {
            // Relaxed: a number of its own is all that is asked for
            kernel: NEXT_KERNEL.fetch_add(1, Ordering::Relaxed),
            is_away,
            is_sole,
            fs,
            files: RwLock::default(),
            memory: Arc::default(),
            tells: OnceLock::new(),
            waiting: AtomicUsize::new(0),
            waiting_max: AtomicUsize::new(0),
        })
    }

    /// From now on the kernel is told by `tells`. `threads` serve it: one of them at least never
    /// waits. `noted`: memory in which the server before has noted what this one has to know.
    pub(crate) fn begin(&self, tells: Arc<dyn Tells>, threads: usize, noted: Option<shm::Area>) {
        // set once, before any request is served
        let _ = self.tells.set(tells);
        self.waiting_max.store(threads.saturating_sub(1), Ordering::Relaxed);
        let Some(area) = noted else { return };
        let (memory, found) = BaseMemory::take_over(area);
        *self.memory.lock() = memory;
        for (ino, bases) in found {
            match self.fs.open(ino) {
                Ok(handle) => self.file(&handle).go_on(bases),
                // the file is gone, and its number is never given to another one
                Err(Error::NotFound) => self.memory.lock().forget(ino, &bases),
                Err(error) => tracing::debug!(ino = ino.0, %error, "the kernel may have pages"),
            }
        }
    }

    /// The kernel had this file open before this server was: it may have any of its pages.
    pub(crate) fn may_have_all(&self, handle: &Handle) {
        self.file(handle).go_on(Vec::new());
    }

    /// Who keeps track of this file, which tells it of changes from now on. At a pool's only door
    /// the kernel may have any pages of it by then: it is told to drop them.
    pub(crate) fn file(&self, handle: &Handle) -> Arc<FilePages> {
        let ino = handle.ino();
        let known = self.files.read().get(&ino).cloned();
        let file = known.unwrap_or_else(|| {
            let mut files = self.files.write();
            let make = || {
                let memory = self.memory.clone();
                memory.lock().watch(ino);
                let file = FilePages::new(ino, self.about(), self.tells(), memory);
                if self.is_sole {
                    file.go_on(Vec::new());
                }
                file
            };
            files.entry(ino).or_insert_with(make).clone()
        });
        self.have_told(handle, &file);
        file
    }

    fn tells(&self) -> Weak<dyn Tells> {
        let none: Weak<dyn Tells> = Weak::<Notices>::new();
        self.tells.get().map_or(none, Arc::downgrade)
    }

    fn about(&self) -> file::Kernel {
        file::Kernel { number: self.kernel, is_away: self.is_away, is_sole: self.is_sole }
    }

    /// The same where it has to be kept track of from the first page on. At a pool's only door that
    /// is after the first write past pages: till then the kernel knows of all changes by itself.
    fn tracked(&self, handle: &Handle) -> Option<Arc<FilePages>> {
        if self.is_sole { self.known(handle) } else { Some(self.file(handle)) }
    }

    /// A request of this kernel is about to write past its pages.
    pub(crate) fn writes_past(&self, handle: &Handle) {
        if self.is_sole {
            self.file(handle);
        }
    }

    /// The kernel writes these bytes through its pages.
    pub(crate) fn writes_through(&self, handle: &Handle, offset: u64, data: &[u8]) {
        if let Some(file) = self.tracked(handle) {
            file.writes_through(offset, data);
        }
    }

    /// Writes pages of the kernel's back.
    pub(crate) fn write_back(
        &self,
        handle: &Handle,
        offset: u64,
        data: &[u8],
    ) -> Result<(), nearside::files::Error> {
        match self.tracked(handle) {
            Some(file) => self.fs.write_pages(handle, offset, data, &*file),
            None => self.fs.write_pages(handle, offset, data, &Unchanged),
        }
    }

    /// The same, if the kernel was given something of it.
    pub(crate) fn known(&self, handle: &Handle) -> Option<Arc<FilePages>> {
        let file = self.files.read().get(&handle.ino()).cloned()?;
        self.have_told(handle, &file);
        Some(file)
    }

    /// An inode that went out of memory and came back tells nobody.
    fn have_told(&self, handle: &Handle, file: &Arc<FilePages>) {
        let mapped: Arc<dyn Mapped> = file.clone();
        if !self.fs.is_told(handle, &mapped) {
            let _one = file.telling_begins.lock();
            if !self.fs.is_told(handle, &mapped) {
                self.fs.tell(handle, &mapped);
            }
        }
    }

    /// Reads what fills pages of the kernel, and notes that it has them.
    pub(crate) fn read(
        &self,
        handle: &Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, nearside::files::Error> {
        let len = buffer.len();
        let file = loop {
            if let Some(file) = self.tracked(handle) {
                break file;
            }
            let bytes = self.fs.read(handle, offset, buffer)?;
            // who begins to keep track of it after this has the kernel drop what comes of it
            if self.known(handle).is_none() {
                return Ok(bytes);
            }
        };
        /// Whatever becomes of the READ, changes wait for it no more.
        struct Ends<'f>(&'f FilePages, u64);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.end_fill(self.1);
            }
        }
        let fill = file.begin_fill(offset, len);
        let _ends = Ends(&file, fill);
        let mut is_given = false;
        let mut give = |_: &[u8]| {
            is_given = true;
            file.give(fill, offset, len);
        };
        let bytes = self.fs.read_and_take(handle, offset, buffer, &mut give)?;
        if !is_given {
            file.give_as_read(fill, offset, &buffer[..bytes], len);
        }
        Ok(bytes)
    }

    /// Serves a request of this kernel that changes a file so, and waits before it is answered, as
    /// far as it may.
    pub(crate) fn changing<T>(&self, way: Way, change: impl FnOnce() -> T) -> T {
        struct Ends(Option<Serving>);
        impl Drop for Ends {
            fn drop(&mut self) {
                SERVING.set(self.0);
            }
        }
        let serving = Serving { kernel: self.kernel, way, waits_for_away: !self.is_away };
        let (changed, mut waits) = {
            let _ends = Ends(SERVING.replace(Some(serving)));
            deferring_waits(change)
        };
        waits.extend(LOOKS.take().into_iter().filter_map(|look| look()));
        self.wait_for(waits);
        changed
    }

    /// Waits until other kernels have dropped what became old by changes before, as far as that may
    /// be waited for.
    pub(crate) fn keeping_up(&self, handle: &Handle) {
        let waits = self.changing(Way::Past, || self.fs.keeping_up(handle));
        self.wait_for(waits);
    }

    fn wait_for(&self, waits: Vec<Wait>) {
        if !waits.is_empty() && self.may_wait() {
            waits.into_iter().for_each(|wait| wait());
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether one more thread may wait; it says when it does not any more.
    fn may_wait(&self) -> bool {
        if self.is_away {
            // a worker serves others meanwhile; those whom it waits for are not served by it
            self.waiting.fetch_add(1, Ordering::SeqCst);
            return true;
        }
        let most = self.waiting_max.load(Ordering::Relaxed);
        let more = |waiting| (waiting < most).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Has the kernel send what was stored to its pages of these bytes. False: not all of it came
    /// in time, or it cannot be waited for. Another machine's requests that ask for this are served
    /// by threads of their own.
    pub(crate) fn settle_stores(&self, handle: &Handle, bytes: Range<u64>) -> bool {
        let file = match self.is_sole {
            true => self.file(handle),
            false => match self.known(handle) {
                Some(file) => file,
                None => return true,
            },
        };
        let Some(ticket) = file.owe(bytes) else { return true };
        self.may_wait() && {
            let has_come = file.wait(ticket, TOLD_MAX, || false);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            has_come
        }
    }

    /// The kernel does not know this inode any more, unless it met it again meanwhile.
    pub(crate) fn forget(&self, ino: Ino) {
        /// The table has it, and the inode that tells it.
        const AT_REST: usize = 2;
        if !self.files.read().contains_key(&ino) {
            return;
        }
        let mut files = self.files.write();
        let is_at_rest = |file: &Arc<FilePages>| Arc::strong_count(file) <= AT_REST && file.leave();
        if !files.get(&ino).is_some_and(is_at_rest) {
            return;
        }
        let Some(file) = files.remove(&ino) else { return };
        drop(files);
        self.memory.lock().unwatch(ino);
        self.tell_no_more(file);
    }

    fn tell_no_more(&self, file: Arc<FilePages>) {
        // an inode that is gone tells nobody
        if let Ok(handle) = self.fs.open(file.ino) {
            let mapped: Arc<dyn Mapped> = file;
            self.fs.tell_no_more(&handle, &mapped);
        }
    }

    /// A write that this kernel is answered for was made by the server before.
    pub(crate) fn came_back(&self, handle: &Handle, offset: u64, data: &[u8]) {
        if let Some(file) = self.known(handle) {
            self.changing(Way::Through(offset), || file.came_back(offset, data));
        }
    }
}

impl Drop for KernelPages {
    fn drop(&mut self) {
        // an inode that is gone may have one of the files still
        self.memory.lock().let_go();
        let files = std::mem::take(self.files.get_mut());
        files.into_values().for_each(|file| self.tell_no_more(file));
    }
}

/// Pages of a file that nobody else changes.
struct Unchanged;

impl Pages for Unchanged {
    fn is_changed(&self, _block: u64) -> bool {
        false
    }

    fn merge(&self, _block: u64, _at: usize, _pages: &[u8], _now: &mut [u8]) {}

    fn taken(&self, _offset: u64, _data: &[u8]) {}

    fn left(&self, _offset: u64, _data: &[u8], _end: u64) {}
}

/// Says, when a change has been made, whether there is something to wait for.
type Look = Box<dyn FnOnce() -> Option<Wait>>;

/// The request that this thread serves looks at this before it is answered.
fn look_before_answer(look: Look) {
    LOOKS.with_borrow_mut(|looks| looks.push(look));
}

/// How many calls wait for a kernel.
fn waited_for(kernel: u64) -> &'static AtomicUsize {
    &WAITED_FOR[(kernel % COUNTED as u64) as usize]
}

#[cfg(test)]
mod tests;
