//! Regions of a pool that another process owns: its service keeps a copy of the file's bytes for
//! this process, which loads from it and cannot store to it. (Over a network the copy is in memory
//! of this process, and changes as the service says. Here that is all the same.)
//!
//! What the service changes there, this process sees at once. A page that the service took away, or
//! never brought, faults; the service is asked for it, and who waits is woken. Nothing is known
//! here of which pages are there. One thread hears of faults and does nothing else, so that it
//! never waits for a service that has died; others ask.

use crate::PAGE_BYTES;
use crate::error::{Error, Result};
use crate::fill::PAGES_TOGETHER;
use crate::memory::{Memory, new_object};
use crate::page_states::{ABSENT, RESIDENT};
use crate::region::{Inner, Of, Region};
use crate::regions::{Regions, Shared};
use crate::stores::{Stores, can_store};
use fs::FILE_BYTES_MAX;
use locks::futex::{Condvar, Mutex};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::any::Any;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Bytes of a file.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'d> {
    /// The file.
    pub file: &'d ServedFile,
    /// Where.
    pub offset: u64,
    /// The bytes.
    pub data: &'d [u8],
}

/// How far files had changed when something was read: numbers that grow before a change of what
/// was read of the file can be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Whose numbers they are.
    pub service: u64,
    /// Of each file before it was read.
    pub before: Vec<u64>,
    /// And behind.
    pub after: Vec<u64>,
}

/// Shows a copy to those who load from a region.
pub trait Shows: Debug + Send + Sync {
    /// From now on loads go to this memory; `None`: there is none now, and who loads waits.
    fn show(&self, memory: Option<OwnedFd>);

    /// Whether this process can store into the memory that was given.
    fn can_store(&self) -> bool;

    /// Stores bytes of the file that this process has committed by itself, where pages are that
    /// have them. One stores at a time, and nothing is brought meanwhile.
    fn store(&self, offset: u64, data: &[u8]);

    /// These pages are going to be there, perhaps: whoever has them brought says so before.
    fn expect(&self, page: u64, pages: u64);
}

/// The service of a pool.
pub trait Service: Debug + Send + Sync {
    /// Has a copy made of bytes of a file, and gives its number and memory to `make`, once at most.
    /// What that makes is shown other memory when the service has died and the next one is there.
    fn map(
        &self,
        file: &ServedFile,
        bytes: (u64, u64),
        make: &mut dyn FnMut(u64, OwnedFd) -> Result<Weak<dyn Shows>>,
    ) -> Result<()>;

    /// Ends a copy.
    fn unmap(&self, copy: u64);

    /// Brings pages of a copy, so many at most; the first one is there then, for a moment at least.
    fn fill(&self, copy: u64, page: u64, pages: usize) -> Result<()>;

    /// Reads bytes that are committed; gives how many there are before the file's end.
    fn read(&self, file: u64, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Reads bytes of several places at one moment, one behind the other: of each its file, where,
    /// and how many. Zeros behind a file's end. `files` are those of them, and others: of each is
    /// said whether it changes.
    fn read_together(
        &self,
        places: &[(u64, u64, usize)],
        files: &[u64],
        buffer: &mut [u8],
    ) -> Result<Seen>;

    /// Makes writes happen in one step, durably, if all is there that is expected.
    fn commit(&self, writes: &[Bytes<'_>], expected: &[Bytes<'_>]) -> Result<()>;
}

/// A file that the service has open for this process.
#[derive(Clone, Debug)]
pub struct ServedFile {
    /// Its number.
    pub number: u64,
    /// Of its inode.
    pub ino: u64,
    /// Keeps it open.
    pub open: Arc<dyn Any + Send + Sync>,
}

/// What fault threads wait for.
#[derive(Debug)]
pub struct Desk {
    /// Ends the thread that hears of faults.
    bell: OwnedFd,
    faults: Mutex<VecDeque<usize>>,
    comes: Condvar,
    is_ended: AtomicBool,
}

impl Desk {
    pub fn new() -> Result<Desk> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(|errno| Error::of_kernel("eventfd", &errno.into()))?;
        let (faults, comes) = (Mutex::default(), Condvar::new());
        Ok(Desk { bell, faults, comes, is_ended: AtomicBool::new(false) })
    }

    /// Ends all threads.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        let _faults = self.faults.lock();
        self.comes.notify_all();
    }

    /// Hears of faults until it is to stop.
    pub fn hear(&self, shared: &Shared) {
        while !self.is_ended.load(Ordering::SeqCst) {
            let mut sources = [
                PollFd::from_borrowed_fd(shared.faults.descriptor(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN),
            ];
            // whatever it says, both are looked at
            let _ = poll(&mut sources, None);
            while let Some(address) = shared.faults.next() {
                if !shared.lay_aside(address as usize) {
                    self.faults.lock().push_back(address as usize);
                    self.comes.notify_one();
                }
            }
        }
    }

    /// Has pages brought until it is to stop.
    pub fn serve(&self, shared: &Shared) {
        loop {
            let mut faults = self.faults.lock();
            let address = loop {
                if self.is_ended.load(Ordering::SeqCst) {
                    return;
                }
                match faults.pop_front() {
                    Some(address) => break address,
                    None => self.comes.wait(&mut faults),
                }
            };
            drop(faults);
            match shared.find(address) {
                Some(region) => region.ask_for((address - region.addresses().start) / PAGE_BYTES),
                // it went meanwhile
                None => shared.faults.let_go(address),
            }
        }
    }
}

impl Region {
    /// Maps `bytes` bytes of a file that the service of a pool has open for this process, as
    /// [`map_as`](Region::map_as) does one of this process's own pool.
    pub fn map_served(
        regions: &Regions,
        file: &ServedFile,
        offset: u64,
        bytes: u64,
        is_writable: bool,
    ) -> Result<Region> {
        regions.check_process()?;
        let service = regions.service().ok_or(Error::OtherPool)?;
        let end = offset.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX && bytes > 0);
        let Some(_) = end else { return Err(Error::Length) };
        if !offset.is_multiple_of(PAGE_BYTES as u64) {
            return Err(Error::Alignment);
        }
        let len = usize::try_from(bytes).map_err(|_| Error::Length)?;
        let mut made = None;
        service.map(file, (offset, bytes), &mut |copy, object| {
            let pages_len = len.next_multiple_of(PAGE_BYTES);
            let memory = Memory::of_copy(&object, pages_len)?;
            let stores = can_store(&object)
                .then(|| Stores::new(object, pages_len, &regions.shared().faults))
                .transpose()?;
            let of = Of::There { file: file.clone(), copy };
            let place = (offset, len);
            let region = Inner::new(regions, (memory, stores), of, place, is_writable);
            let inner = Arc::new(region);
            inner.shared.add(&inner)?;
            let threads = regions.threads().clone();
            let region = made.insert(Region::of(inner, threads));
            let shows: Arc<dyn Shows> = region.inner().clone();
            Ok(Arc::downgrade(&shows))
        })?;
        made.ok_or(Error::Length)
    }
}

impl Shows for Inner {
    fn show(&self, memory: Option<OwnedFd>) {
        if self.is_gone.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.try_show(memory) {
            // loads would see what is no longer so
            tracing::error!("a region cannot be shown other memory: {error}");
            self.memory.close();
        }
    }

    fn can_store(&self) -> bool {
        self.stores.is_some()
    }

    fn store(&self, offset: u64, data: &[u8]) {
        let Some(stores) = &self.stores else { return };
        self.each_page(offset, data.len() as u64, &mut |page, place, from, part| {
            if self.pages.get(page) == ABSENT {
                return;
            }
            match stores.store(place, &data[from..from + part], &self.shared.faults) {
                Ok(true) => {}
                // until it is brought
                Ok(false) => self.pages.set(page, ABSENT),
                Err(error) => {
                    // what is stored from now on would not be seen
                    tracing::error!("a region cannot be stored to any more: {error}");
                    self.memory.close();
                }
            }
        });
    }

    fn expect(&self, page: u64, pages: u64) {
        let end = page.saturating_add(pages).min(self.pages.len() as u64);
        (page..end).for_each(|page| self.pages.set(page as usize, RESIDENT));
    }
}

impl Inner {
    fn try_show(&self, memory: Option<OwnedFd>) -> Result<()> {
        let object = match memory {
            Some(object) => object,
            // of which no page will ever be there
            None => new_object(self.memory.len())?,
        };
        let new = Memory::of_copy(&object, self.memory.len())?;
        // from the moment on at which loads go there
        self.shared.faults.register(new.addresses())?;
        if let Some(stores) = &self.stores {
            // before the first page is brought: what is stored there is what is loaded
            stores.become_of(Stores::new(object, self.memory.len(), &self.shared.faults)?)?;
        }
        self.memory.become_of(new)?;
        self.shared.faults.wake(&self.memory, 0, self.memory.len());
        Ok(())
    }

    /// A store to this place waits for a page.
    pub(crate) fn lay_aside(&self, stores: &Stores, at: usize) {
        let page = at / PAGE_BYTES;
        if let Err(error) = stores.lay_aside(page) {
            // the page comes, and has what nobody brought: nobody is to load from there
            tracing::error!("a region cannot be stored to any more: {error}");
            self.memory.close();
            self.shared.faults.unregister(stores.addresses());
        }
        let start = stores.addresses().start + page * PAGE_BYTES;
        self.shared.faults.wake_at(start..start + PAGE_BYTES);
    }

    /// A service's copy: which.
    fn copy(&self) -> Option<(&Arc<dyn Service>, u64)> {
        match (self.shared.service(), &self.of) {
            (Some(service), Of::There { copy, .. }) => Some((service, *copy)),
            _ => None,
        }
    }

    /// Somebody waits for a page.
    fn ask_for(&self, page: usize) {
        // ordering: counts for people
        self.shared.counts.waits.fetch_add(1, Ordering::Relaxed);
        let wanted = self.reading.next(page, 1, PAGES_TOGETHER);
        let pages = if wanted.pages.start == page { wanted.pages.len() } else { 1 };
        let at = page * PAGE_BYTES;
        match self.bring_copy(page, pages) {
            // who waits for the others has faults of his own
            Ok(()) => self.shared.faults.wake(&self.memory, at, PAGE_BYTES),
            Err(_) if self.is_gone.load(Ordering::Relaxed) => {
                self.shared.faults.wake(&self.memory, at, PAGE_BYTES);
            }
            Err(error) => {
                tracing::error!("a page of a region cannot be brought: {error}");
                self.shared.faults.refuse(&self.memory, at);
            }
        }
    }

    /// Brings pages of a copy.
    pub(crate) fn bring_copy(&self, page: usize, pages: usize) -> Result<()> {
        let Some((service, copy)) = self.copy() else { return Err(Error::OtherPool) };
        let pages = pages.clamp(1, PAGES_TOGETHER);
        service.fill(copy, page as u64, pages)?;
        // ordering: a count for people
        self.shared.counts.brought.fetch_add(pages as u64, Ordering::Relaxed);
        Ok(())
    }
}
