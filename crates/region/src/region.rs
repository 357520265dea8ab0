//! A file, or a part of one, in the address space.

use crate::PAGE_BYTES;
use crate::error::{Error, Result};
use crate::fill::PAGES_TOGETHER;
use crate::memory::Memory;
use crate::page_states::{
    ABSENT, COLD, EVICTING, FILLING, INSTALLING, PageStates, RESIDENT, STALE, WRITING,
};
use crate::reading::Reading;
use crate::regions::{Regions, Shared, Threads};
use crate::service::ServedFile;
use crate::source::Faults;
use crate::stores::Stores;
use fs::{FILE_BYTES_MAX, FileKind, Handle, Mapped, RegionMemory};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use zerocopy::{FromBytes, IntoBytes};

/// Where the bytes of a region come from.
#[derive(Debug)]
pub enum Of {
    /// From a file of this process's pool.
    Here(Arc<Handle>),
    /// From a copy that a service keeps.
    There {
        /// Of which file.
        file: ServedFile,
        /// Its number.
        copy: u64,
    },
}

/// What of a region others know: those who fill its pages, and those who change its file.
#[derive(Debug)]
pub struct Inner {
    /// That its addresses are such: before the memory, which is dropped after it.
    _addresses: RegionMemory,
    pub(crate) memory: Memory,
    /// Where this process stores into a copy, if it may.
    pub(crate) stores: Option<Stores>,
    pub(crate) pages: PageStates,
    pub(crate) of: Of,
    /// Where in the file it begins, bytes.
    pub(crate) offset: u64,
    /// Bytes that were asked for: the last page may be longer.
    pub(crate) bytes: usize,
    /// Whether transactions may write there.
    pub(crate) is_writable: bool,
    /// Pages that are there.
    pub(crate) resident: AtomicUsize,
    pub(crate) reading: Reading,
    /// Where the evictor goes on.
    pub(crate) hand: AtomicUsize,
    /// Nobody has it any more: no page is brought for anybody.
    pub(crate) is_gone: AtomicBool,
    pub(crate) shared: Arc<Shared>,
}

/// A file, or a part of one, as memory: until it is dropped.
///
/// ```text
/// region.as_ptr()  ------>  +---------------------+
///                           | pages, brought when |   loads: plain
///                           | they are touched    |   stores: Transaction::write
///                           +---------------------+
/// ```
#[derive(Debug)]
pub struct Region {
    inner: Arc<Inner>,
    /// Serves its faults.
    threads: Arc<Threads>,
}

impl Region {
    /// Maps `bytes` bytes of a file from `offset` on, a multiple of a page. Where the file ends
    /// before, zeros are loaded; a transaction that writes there makes it longer.
    pub fn map(regions: &Regions, file: &Arc<Handle>, offset: u64, bytes: u64) -> Result<Region> {
        Region::map_as(regions, file, offset, bytes, true)
    }

    /// The same; where it is not `writable`, transactions only read there.
    pub fn map_as(
        regions: &Regions,
        file: &Arc<Handle>,
        offset: u64,
        bytes: u64,
        is_writable: bool,
    ) -> Result<Region> {
        regions.check_process()?;
        let end = offset.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX && bytes > 0);
        let Some(_) = end else { return Err(Error::Length) };
        if !offset.is_multiple_of(PAGE_BYTES as u64) {
            return Err(Error::Alignment);
        }
        let fs = regions.fs().ok_or(Error::OtherPool)?;
        if fs.getattr(file.ino())?.kind != FileKind::File {
            return Err(Error::Kind);
        }
        let len = usize::try_from(bytes).map_err(|_| Error::Length)?;
        let is_guarded = regions.shared().faults.way() == Faults::Signals;
        let memory = Memory::new(len.next_multiple_of(PAGE_BYTES), is_guarded)?;
        let of = Of::Here(file.clone());
        let inner = Arc::new(Inner::new(regions, (memory, None), of, (offset, len), is_writable));
        let mapped: Arc<dyn Mapped> = inner.clone();
        // before the first page is brought: no change is missed
        fs.tell(file, &mapped);
        if let Err(error) = inner.shared.add(&inner) {
            fs.tell_no_more(file, &mapped);
            return Err(error);
        }
        Ok(Region::of(inner, regions.threads().clone()))
    }

    pub(crate) fn of(inner: Arc<Inner>, threads: Arc<Threads>) -> Region {
        Region { inner, threads }
    }

    /// Where its first byte is. Loads from there up to its end are plain loads: they may wait for
    /// pages that are not there yet, and see what is committed, each aligned word of eight bytes at
    /// once. Nobody may store there: that ends the process.
    pub fn as_ptr(&self) -> *const u8 {
        self.inner.memory.start().as_ptr()
    }

    /// Its length, bytes.
    pub fn len(&self) -> usize {
        self.inner.bytes
    }

    /// Never: a region has at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Where in the file it begins, bytes.
    pub fn offset(&self) -> u64 {
        self.inner.offset
    }

    /// Pages of it that are in DRAM; none are counted here of what a service keeps.
    pub fn resident_pages(&self) -> usize {
        // ordering: a count for people
        self.inner.resident.load(Ordering::Relaxed)
    }

    /// Loads the bytes at `offset` of the region. They are committed, but not of one moment where
    /// they are more than an aligned word: [`Transaction::read`](crate::Transaction::read) is.
    ///
    /// # Errors
    /// Bytes outside of the region; of more than a page, bytes that cannot be read, where they are
    /// not brought: as a load of one page, bringing has no answer then but a signal.
    #[inline]
    pub fn load(&self, offset: usize, buffer: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buffer.len());
        end.filter(|end| *end <= self.len()).ok_or(Error::Outside)?;
        self.check_process()?;
        if buffer.len() <= PAGE_BYTES {
            self.inner.memory.load(offset, buffer);
            return Ok(());
        }
        self.load_many(offset, buffer)
    }

    /// Loads from several pages. This thread brings those that are not there itself, or reads past
    /// the region.
    fn load_many(&self, offset: usize, buffer: &mut [u8]) -> Result<()> {
        const PIECE_BYTES: usize = (PAGES_TOGETHER - 1) * PAGE_BYTES;
        for (piece, at) in buffer.chunks_mut(PIECE_BYTES).zip((offset..).step_by(PIECE_BYTES)) {
            let pages = at / PAGE_BYTES..(at + piece.len()).div_ceil(PAGE_BYTES);
            if let Of::There { .. } = self.inner.of {
                // who is there may have gone: then the load has it brought
                if !pages.clone().all(|page| self.inner.pages.get(page) == RESIDENT) {
                    // where that fails, a load says so
                    let _ = self.inner.bring_copy(pages.start, pages.len());
                }
                self.inner.memory.load(at, piece);
            } else if self.inner.is_to_be_passed(&pages) {
                self.inner.load_past(at, piece)?;
            } else {
                self.inner.bring_all(pages, self.threads.waiting());
                self.inner.memory.load(at, piece);
            }
        }
        Ok(())
    }

    /// Loads a value from `offset` of the region; see [`load`](Region::load).
    #[inline]
    pub fn get<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T> {
        let mut value = T::new_zeroed();
        self.load(offset, value.as_mut_bytes())?;
        Ok(value)
    }

    /// An error in a forked child: the region is its parent's.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        self.inner.shared.check_process()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            return;
        }
        self.inner.is_gone.store(true, Ordering::Relaxed);
        match (&self.inner.of, self.inner.shared.fs(), self.inner.shared.service()) {
            (Of::Here(file), Some(fs), _) => {
                let mapped: Arc<dyn Mapped> = self.inner.clone();
                fs.tell_no_more(file, &mapped);
            }
            (Of::There { copy, .. }, _, Some(service)) => service.unmap(*copy),
            _ => {}
        }
        // a transaction that is not ended keeps the mapping: nobody is to load zeros, or what was,
        // and nobody who waits for a page now, and is woken when its faults are not served any more
        self.inner.memory.close();
        self.inner.shared.remove(&self.inner);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // ordering: counts
        self.shared.gone(self, self.resident.load(Ordering::Relaxed));
    }
}

impl Inner {
    /// Of this memory, which begins at `offset` of the file and has `bytes` bytes of it.
    pub(crate) fn new(
        regions: &Regions,
        (memory, stores): (Memory, Option<Stores>),
        of: Of,
        (offset, bytes): (u64, usize),
        is_writable: bool,
    ) -> Inner {
        let pages = memory.len() / PAGE_BYTES;
        Inner {
            _addresses: RegionMemory::new(memory.addresses()),
            pages: PageStates::new(pages),
            memory,
            stores,
            of,
            offset,
            bytes,
            is_writable,
            resident: AtomicUsize::new(0),
            reading: Reading::default(),
            hand: AtomicUsize::new(0),
            is_gone: AtomicBool::new(false),
            shared: regions.shared().clone(),
        }
    }

    /// These bytes are to be stored to soon.
    #[inline]
    pub(crate) fn expect_store(&self, at: usize, len: usize) {
        match &self.stores {
            Some(stores) => stores.expect(at),
            None => self.memory.expect_store(at, len),
        }
    }

    /// The number of its file's inode.
    #[inline]
    pub(crate) fn ino(&self) -> u64 {
        match &self.of {
            Of::Here(file) => file.ino().0,
            Of::There { file, .. } => file.ino,
        }
    }

    /// The file, if it is of this process's pool.
    #[inline]
    pub(crate) fn here(&self) -> Result<&Arc<Handle>> {
        match &self.of {
            Of::Here(file) => Ok(file),
            Of::There { .. } => Err(Error::OtherPool),
        }
    }

    /// The file, if a service has it open.
    pub(crate) fn served(&self) -> Result<&ServedFile> {
        match &self.of {
            Of::There { file, .. } => Ok(file),
            Of::Here(_) => Err(Error::OtherPool),
        }
    }

    /// Its number.
    pub(crate) fn there(&self) -> Result<u64> {
        self.served().map(|file| file.number)
    }

    /// Reads of the file without waiting for who changes it: for who brings pages.
    pub(crate) fn read_file(
        &self,
        offset: u64,
        buffer: &mut [u8],
        waits: &mut dyn FnMut(),
    ) -> fs::Result<()> {
        match (self.shared.fs(), &self.of) {
            (Some(fs), Of::Here(file)) => fs.read_unlocked(file, offset, buffer, waits),
            _ => Err(fs::Error::Unsupported("bringing pages that a service keeps")),
        }
    }

    /// The addresses that it takes.
    pub(crate) fn addresses(&self) -> std::ops::Range<usize> {
        self.memory.addresses()
    }

    /// Whether the page is there; then it is this thread's, until it is made RESIDENT or ABSENT. If
    /// it is on its way, it is brought again. The caller has published what changed of it, and has
    /// its range.
    fn seize(&self, page: usize) -> bool {
        loop {
            let state = self.pages.get(page);
            match state {
                ABSENT | STALE => return false,
                FILLING if self.pages.change(page, FILLING, STALE) => return false,
                RESIDENT | COLD if self.pages.change(page, state, WRITING) => return true,
                INSTALLING | EVICTING => std::thread::yield_now(),
                _ => {}
            }
        }
    }

    /// Takes a page away that is this thread's.
    pub(crate) fn take_away(&self, page: usize) {
        if let Err(error) = self.memory.drop_pages(page * PAGE_BYTES, PAGE_BYTES) {
            // it would show what is no longer so
            panic!("a page of a region cannot be taken away: {error}");
        }
        self.shared.gone(self, 1);
        self.pages.set(page, ABSENT);
    }

    /// Calls `each` with the part of these bytes of the file in each page of the region: the page,
    /// where in the region, and where in the bytes.
    pub(crate) fn each_page(
        &self,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(usize, usize, usize, usize),
    ) {
        let end = offset.saturating_add(len).min(self.offset + self.memory.len() as u64);
        let mut at = offset.max(self.offset);
        while at < end {
            let place = (at - self.offset) as usize;
            let part = (PAGE_BYTES - place % PAGE_BYTES).min((end - at) as usize);
            each(place / PAGE_BYTES, place, (at - offset) as usize, part);
            at += part as u64;
        }
    }
}

impl Mapped for Inner {
    fn is_told_before(&self) -> bool {
        false
    }

    fn written(&self, offset: u64, data: &[u8]) {
        self.each_page(offset, data.len() as u64, &mut |page, place, from, part| {
            if self.seize(page) {
                self.memory.store(place, &data[from..from + part]);
                self.pages.set(page, RESIDENT);
            }
        });
    }

    fn changed(&self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let mut page = (offset.max(self.offset) - self.offset) as usize / PAGE_BYTES;
        // a range may be of all that a file can have: only what is kept is looked at
        while let Some(known) = self.pages.next_known(page) {
            if self.offset + (known * PAGE_BYTES) as u64 >= end {
                return;
            }
            if self.seize(known) {
                self.take_away(known);
            }
            page = known + 1;
        }
    }
}
