//! All regions of one pool in this process: who serves their faults, and how much DRAM they take.

use crate::asked::Asked;
use crate::error::{Error, Result};
use crate::fill::Waiting;
use crate::memory::Memory;
use crate::region::Inner;
use crate::service::{Desk, Service};
use crate::source::{Faults, Source};
use crate::{evict, fill};
use fs::{Caller, FileSystem};
use parking_lot::{Mutex, RwLock};
use pmem::Process;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Threads that serve faults: as many can wait for devices.
const THREADS: usize = 4;
/// Pages that are brought ahead at one time, at most: 2 MiB.
const WINDOW_PAGES_MAX: usize = 512;
/// Regions are nearly full where less than one page in so many has room: more than goes at a time.
const NEARLY_SHARE: usize = 16;
/// DRAM for pages of regions where nothing else is asked for.
const MEMORY_BYTES: u64 = 1 << 30;

/// How regions are served.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// DRAM for pages of regions, bytes.
    pub memory_bytes: u64,
    /// Which way faults are to come; `None`: the best that this process may have.
    pub faults: Option<Faults>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { memory_bytes: MEMORY_BYTES, faults: None }
    }
}

/// What regions take.
#[derive(Clone, Copy, Debug)]
pub struct RegionsInfo {
    /// How many there are.
    pub regions: usize,
    /// Bytes of DRAM in pages of them, and in those that are being brought.
    pub resident_bytes: u64,
    /// Most bytes that they may take, but for one page of each thread that serves faults.
    pub memory_bytes: u64,
    /// How faults come.
    pub faults: Faults,
    /// Loads that waited for a page to be brought.
    pub waits: u64,
    /// Bytes of pages that were brought, those that nobody waited for among them.
    pub brought_bytes: u64,
    /// Bytes of pages that were taken away to make room.
    pub evicted_bytes: u64,
    /// Bytes of absent pages that were read for who loaded from several pages at once, and that
    /// were not brought: others would have had to go for them.
    pub passed_bytes: u64,
}

/// What was done for regions, all of them.
#[derive(Debug, Default)]
pub struct Counts {
    pub(crate) waits: AtomicU64,
    pub(crate) brought: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) passed: AtomicU64,
}

/// Where the pool is.
#[derive(Debug)]
enum Backing {
    /// In this process.
    Here(Arc<FileSystem>),
    /// With a service.
    There(Arc<dyn Service>),
}

/// What all regions of a pool share.
#[derive(Debug)]
pub struct Shared {
    backing: Backing,
    pub(crate) faults: Source,
    /// By their first address.
    regions: RwLock<BTreeMap<usize, Arc<Inner>>>,
    /// By the first address where it is stored to, those of which that may fault.
    stores: RwLock<BTreeMap<usize, Arc<Inner>>>,
    /// Pages of all of them that are there, or have room to come.
    taken: AtomicUsize,
    pub(crate) pages_max: usize,
    pub(crate) asked: Asked,
    pub(crate) counts: Counts,
    /// Which of this process's pages were loaded from; nothing, where the kernel does not tell it:
    /// a process that gave up its user may not look.
    pub(crate) pagemap: Option<File>,
    /// One takes pages away at a time; the number of the region where it goes on.
    pub(crate) evicting: Mutex<usize>,
    process: Process,
}

/// The threads that serve faults; they end when nobody has any of the regions.
#[derive(Debug)]
pub struct Threads {
    /// A forked child has the descriptor, but not the threads.
    process: Process,
    waiting: Arc<Waiting>,
    /// Of regions that a service keeps.
    desk: Option<Arc<Desk>>,
    all: Mutex<Vec<JoinHandle<()>>>,
}

/// The regions of one pool.
#[derive(Clone, Debug)]
pub struct Regions {
    shared: Arc<Shared>,
    threads: Arc<Threads>,
    /// Whose commits they are; none: somebody's with all rights.
    pub(crate) caller: Option<Arc<Caller>>,
}

impl Regions {
    /// Regions of the files of `fs`: none yet.
    pub fn new(fs: &Arc<FileSystem>, settings: &Settings) -> Result<Regions> {
        Regions::over(Backing::Here(fs.clone()), Source::new(settings.faults)?, settings)
    }

    /// Regions of files that a service has open for this process: none yet. How much memory they
    /// take is the service's to say.
    pub fn served(service: &Arc<dyn Service>, settings: &Settings) -> Result<Regions> {
        let faults = Source::served(settings.faults)?;
        Regions::over(Backing::There(service.clone()), faults, settings)
    }

    fn over(backing: Backing, faults: Source, settings: &Settings) -> Result<Regions> {
        let pages_max = ((settings.memory_bytes / crate::PAGE_BYTES as u64) as usize).max(64);
        let shared = Arc::new(Shared {
            backing,
            faults,
            regions: RwLock::default(),
            stores: RwLock::default(),
            taken: AtomicUsize::new(0),
            pages_max,
            asked: Asked::new(pages_max),
            counts: Counts::default(),
            pagemap: File::open("/proc/self/pagemap").ok(),
            evicting: Mutex::new(0),
            process: Process::here(),
        });
        let threads = Threads::start(&shared)?;
        Ok(Regions { shared, threads: Arc::new(threads), caller: None })
    }

    /// The same, whose commits are this caller's.
    pub fn for_caller(self, caller: Option<Arc<Caller>>) -> Regions {
        Regions { caller, ..self }
    }

    /// The file system, if it is this process's.
    #[inline]
    pub fn fs(&self) -> Option<&Arc<FileSystem>> {
        self.shared.fs()
    }

    /// The service, if there is one.
    pub(crate) fn service(&self) -> Option<&Arc<dyn Service>> {
        self.shared.service()
    }

    /// What they take.
    pub fn info(&self) -> RegionsInfo {
        let shared = &self.shared;
        let page_bytes = crate::PAGE_BYTES as u64;
        RegionsInfo {
            regions: shared.regions.read().len(),
            // ordering: counts for people
            resident_bytes: shared.taken.load(Ordering::Relaxed) as u64 * page_bytes,
            memory_bytes: shared.pages_max as u64 * page_bytes,
            faults: shared.faults.way(),
            waits: shared.counts.waits.load(Ordering::Relaxed),
            brought_bytes: shared.counts.brought.load(Ordering::Relaxed) * page_bytes,
            evicted_bytes: shared.counts.evicted.load(Ordering::Relaxed) * page_bytes,
            passed_bytes: shared.counts.passed.load(Ordering::Relaxed) * page_bytes,
        }
    }

    /// The region that has this address, and where in it that is.
    pub(crate) fn find(&self, address: usize) -> Option<(Arc<Inner>, usize)> {
        let region = self.shared.find(address)?;
        let at = address - region.addresses().start;
        (at < region.bytes).then_some((region, at))
    }

    /// An error in a forked child: it has neither the pool nor the threads.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        self.shared.check_process()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn threads(&self) -> &Arc<Threads> {
        &self.threads
    }
}

impl Shared {
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.process.is_here() { Ok(()) } else { Err(Error::Forked) }
    }

    #[inline]
    pub(crate) fn fs(&self) -> Option<&Arc<FileSystem>> {
        match &self.backing {
            Backing::Here(fs) => Some(fs),
            Backing::There(_) => None,
        }
    }

    pub(crate) fn service(&self) -> Option<&Arc<dyn Service>> {
        match &self.backing {
            Backing::There(service) => Some(service),
            Backing::Here(_) => None,
        }
    }

    pub(crate) fn add(&self, region: &Arc<Inner>) -> Result<()> {
        // whoever faults there finds it
        self.regions.write().insert(region.addresses().start, region.clone());
        if let Some(stores) = &region.stores {
            self.stores.write().insert(stores.addresses().start, region.clone());
        }
        self.faults.register(region.addresses()).inspect_err(|_| self.remove(region))
    }

    pub(crate) fn remove(&self, region: &Arc<Inner>) {
        self.faults.unregister(region.addresses());
        self.regions.write().remove(&region.addresses().start);
        if let Some(stores) = &region.stores {
            self.faults.unregister(stores.addresses());
            // who hears of faults must not be the last who has it
            let removed = self.stores.write().remove(&stores.addresses().start);
            drop(removed);
        }
    }

    /// Somebody stores at this address, to a page that is not there; false: nobody does.
    pub(crate) fn lay_aside(&self, address: usize) -> bool {
        let regions = self.stores.read();
        let before = regions.range(..=address).next_back();
        let region = before.and_then(|(_, region)| Some((region, region.stores.as_ref()?)));
        let Some((region, stores)) = region else { return false };
        let is_there = stores.addresses().contains(&address);
        if is_there {
            region.lay_aside(stores, address - stores.addresses().start);
        }
        is_there
    }

    /// The region with this address in its memory.
    pub(crate) fn find(&self, address: usize) -> Option<Arc<Inner>> {
        let regions = self.regions.read();
        let (_, region) = regions.range(..=address).next_back()?;
        region.addresses().contains(&address).then(|| region.clone())
    }

    /// The region that comes at or behind this place in the order of their addresses, counted
    /// round.
    pub(crate) fn nth(&self, number: usize) -> Option<Arc<Inner>> {
        let regions = self.regions.read();
        let count = regions.len();
        if count == 0 { None } else { regions.values().nth(number % count).cloned() }
    }

    /// Puts pages in place that are not there, all bytes of each at once for whoever loads from
    /// them; gives how many bytes.
    pub(crate) fn put(&self, memory: &Memory, at: usize, bytes: &[u8]) -> Result<usize> {
        match &self.faults {
            Source::Userfault(userfault) => {
                userfault.copy(memory.start().as_ptr() as u64 + at as u64, bytes)
            }
            Source::Signals(_) => {
                // nobody can look at them before they are whole
                memory.store(at, bytes);
                self.show(memory, at, bytes.len()).map(|()| bytes.len())
            }
        }
    }

    /// Shows pages of guarded memory that are there.
    pub(crate) fn show(&self, memory: &Memory, at: usize, bytes: usize) -> Result<()> {
        memory.show(at, bytes).or_else(|_| {
            // the other regions have too many mappings
            self.regions.read().values().try_for_each(|region| region.memory.hide_all())?;
            memory.show(at, bytes)
        })
    }

    /// Takes room for so many pages, or for fewer where there is less: but for one at least, as
    /// somebody waits for it. Gives for how many.
    pub(crate) fn take_room(&self, pages: usize) -> usize {
        if self.too_many(pages) > 0 {
            evict::make_room(self, pages);
        }
        let room = |taken: usize| self.pages_max.saturating_sub(taken).clamp(1, pages);
        let take = |taken: usize| Some(taken + room(taken));
        // ordering: a count
        let order = Ordering::Relaxed;
        self.taken.fetch_update(order, order, take).map_or(1, room)
    }

    /// Gives back room that pages did not come to.
    pub(crate) fn give_back(&self, pages: usize) {
        self.taken.fetch_sub(pages, Ordering::Relaxed);
    }

    /// Pages went.
    pub(crate) fn gone(&self, region: &Inner, pages: usize) {
        let count = |now: usize| Some(now.saturating_sub(pages));
        let order = Ordering::Relaxed;
        let before = region.resident.fetch_update(order, order, count).unwrap_or(0);
        self.give_back(before.min(pages));
    }

    /// Pages that are brought ahead at one time: the most that pay, and few of those that may be
    /// there, as others are to stay.
    pub(crate) fn window_pages(&self) -> usize {
        WINDOW_PAGES_MAX.min(self.pages_max / 8)
    }

    /// Whether others go, or soon have to, where so many pages come.
    pub(crate) fn is_nearly_full(&self, pages: usize) -> bool {
        self.too_many(pages + self.pages_max / NEARLY_SHARE) > 0
    }

    /// Pages that are to go before so many can come.
    pub(crate) fn too_many(&self, more: usize) -> usize {
        (self.taken.load(Ordering::Relaxed) + more).saturating_sub(self.pages_max)
    }
}

impl Threads {
    /// What they wait for.
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    fn start(shared: &Arc<Shared>) -> Result<Threads> {
        let waiting = Waiting::new(&shared.faults);
        let waiting = waiting.map_err(|errno| Error::of_kernel("epoll_ctl", &errno.into()))?;
        let process = Process::here();
        let desk = shared.service().map(|_| Desk::new()).transpose()?.map(Arc::new);
        let (waiting, all) = (Arc::new(waiting), Mutex::default());
        let threads = Threads { process, waiting, desk, all };
        if let Some(desk) = threads.desk.clone() {
            let shared = shared.clone();
            threads.spawn(move || desk.hear(&shared))?;
        }
        for _ in 0..THREADS {
            let (shared, waiting) = (shared.clone(), threads.waiting.clone());
            match threads.desk.clone() {
                Some(desk) => threads.spawn(move || desk.serve(&shared))?,
                None => threads.spawn(move || fill::serve(&shared, &waiting))?,
            }
        }
        Ok(threads)
    }

    fn spawn(&self, serve: impl FnOnce() + Send + 'static) -> Result<()> {
        let started = std::thread::Builder::new().name("ns-region".to_owned()).spawn(serve);
        let thread = started.map_err(|error| Error::of_kernel("clone", &error))?;
        self.all.lock().push(thread);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if !self.process.is_here() {
            std::mem::take(&mut *self.all.lock()).into_iter().for_each(std::mem::forget);
            return;
        }
        self.waiting.end();
        if let Some(desk) = &self.desk {
            desk.end();
        }
        for thread in std::mem::take(&mut *self.all.lock()) {
            drop(thread.join());
        }
    }
}
