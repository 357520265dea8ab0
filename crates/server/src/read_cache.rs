//! Pages that a process has read, in memory that the service stores and the process loads.
//!
//! A process that reads has what it read put there, and reads it there the next time, without a
//! word to anybody. Of each place there is a count; odd: it has a page. The process notes place and
//! count when it is told that a page is there, and looks at the count again when it has loaded the
//! bytes: the same count is the same page with the same bytes. It reads nothing else of this, and
//! the service reads nothing of it: what is where it knows from memory of its own.
//!
//! - A page is put there while its range of the file is held, and nobody else has a lease of it.
//!   One that the file ends in is put there while everything behind it is held and not leased, too.
//! - Its count becomes even before anybody can see a change of it, and when a lease of it begins or
//!   ends (`fs::Mapped`).
//! - What the process itself writes under a lease it heeds itself (`client/src/read_cache.rs`).
//!
//! Locks, in this order: the range of the file, the state, the room.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use fs::{Before, Error as FsError, FileSystem, Handle, Ino, Mapped};
use lanes::Reign;
use parking_lot::Mutex;
use shm::Words;

use crate::copies::{PAGE, page_by_page};
use crate::room::{Evicts, Room};

const _: () = assert!(lanes::BLOCK_BYTES == PAGE, "a page is a block");

/// The read cache of a process.
#[derive(Debug)]
pub struct ReadCache {
    counts: Words,
    memory: File,
    state: Mutex<State>,
    /// Places that it has, at most.
    places_max: usize,
    room: Arc<Room>,
    own: Weak<ReadCache>,
    /// The files that have pages here, while they are open.
    files: Mutex<HashMap<Ino, Weak<CachedFile>>>,
}

#[derive(Debug, Default)]
struct State {
    /// Where the pages of each file are.
    files: HashMap<Ino, Pages>,
    /// Places that were used so far.
    places: Vec<Place>,
    /// Those of them that are empty.
    empty: Vec<u32>,
    /// The one that is emptied next, where there is no other.
    next: u32,
}

#[derive(Debug, Default)]
struct Pages {
    places: BTreeMap<u64, u32>,
    /// The page that the file ends in, if it is here.
    tail: Option<u64>,
}

#[derive(Debug, Default)]
struct Place {
    page: Option<(Ino, u64)>,
    count: u64,
    /// Of its memory in the room; none: it has none.
    stamp: Option<u64>,
}

fn broken(what: &shm::Error) -> FsError {
    FsError::Elsewhere { errno: what.errno(), words: format!("a read cache: {what}") }
}

impl ReadCache {
    /// An empty one of so many places, and the descriptor for its process.
    pub fn new(room: &Arc<Room>, places_max: usize) -> Result<(Arc<ReadCache>, OwnedFd), FsError> {
        let (memory, theirs) = page_by_page("nearside-read-cache", wire::CACHE_BYTES as u64)?;
        let counts = Words::to_store(memory.as_fd(), wire::CACHED_PAGES);
        let counts = counts.map_err(|error| broken(&error))?;
        let cache = Arc::new_cyclic(|own| ReadCache {
            counts,
            memory,
            state: Mutex::default(),
            places_max: places_max.min(wire::CACHED_PAGES),
            room: room.clone(),
            own: own.clone(),
            files: Mutex::default(),
        });
        Ok((cache, theirs))
    }

    /// Has the file system tell of changes of this file, as long as somebody has the answer.
    pub fn file(&self, fs: &Arc<FileSystem>, handle: &Arc<Handle>) -> Option<Arc<CachedFile>> {
        let cache = self.own.upgrade()?;
        let mut files = self.files.lock();
        if let Some(file) = files.get(&handle.ino()).and_then(Weak::upgrade) {
            return Some(file);
        }
        if files.len() >= 2 * files.values().filter(|file| file.strong_count() > 0).count() + 16 {
            files.retain(|_, file| file.strong_count() > 0);
        }
        let file = Arc::new(CachedFile::new(fs, handle, cache));
        files.insert(handle.ino(), Arc::downgrade(&file));
        Some(file)
    }

    /// Puts bytes of a file there, from this page on; gives places and counts of those that are
    /// there then. The last page may be a part of one, where the file ends, which is put there if
    /// it `has_end`. Their range is held.
    pub fn put(&self, ino: Ino, first: u64, bytes: &[u8], has_end: bool) -> Vec<(u32, u64)> {
        let mut state = self.state.lock();
        let mut put = Vec::with_capacity(bytes.len().div_ceil(PAGE as usize));
        for (page, data) in (first..).zip(bytes.chunks(PAGE as usize)) {
            let is_tail = data.len() < PAGE as usize;
            if is_tail && !has_end {
                break;
            }
            let index = self.place_for(&mut state, (ino, page));
            if self.memory.write_all_at(data, wire::cached_page(index) as u64).is_err() {
                // there is no memory for it now
                self.clear(&mut state, index);
                break;
            }
            if is_tail {
                state.files.entry(ino).or_default().tail = Some(page);
            }
            let place = &mut state.places[index as usize];
            place.count += 1;
            self.counts.store(index as usize, place.count);
            put.push((index, place.count));
        }
        put
    }

    /// A place for a page, with an even count, and memory.
    fn place_for(&self, state: &mut State, (ino, page): (Ino, u64)) -> u32 {
        let known = state.files.get(&ino).and_then(|pages| pages.places.get(&page)).copied();
        let index = known.unwrap_or_else(|| {
            let index = state.empty.pop().unwrap_or_else(|| self.any_place(state));
            state.files.entry(ino).or_default().places.insert(page, index);
            index
        });
        self.invalidate(state, index);
        let place = &mut state.places[index as usize];
        place.page = Some((ino, page));
        let room = || self.room.add(Weak::clone(&self.own) as Weak<dyn Evicts>, u64::from(index));
        place.stamp.get_or_insert_with(room);
        index
    }

    /// A place that was never used, or one whose page goes.
    fn any_place(&self, state: &mut State) -> u32 {
        if state.places.len() < self.places_max {
            state.places.push(Place::default());
            return state.places.len() as u32 - 1;
        }
        // all have a page
        let index = state.next;
        state.next = (index + 1) % self.places_max as u32;
        self.clear(state, index);
        state.empty.pop().unwrap_or(index)
    }

    /// What was told of a place is not so any more.
    fn invalidate(&self, state: &mut State, index: u32) {
        let place = &mut state.places[index as usize];
        if place.count % 2 == 1 {
            place.count += 1;
            self.counts.store(index as usize, place.count);
        }
    }

    /// The page of a place goes.
    fn clear(&self, state: &mut State, index: u32) {
        self.invalidate(state, index);
        let Some((ino, page)) = state.places[index as usize].page.take() else { return };
        if let Some(pages) = state.files.get_mut(&ino) {
            pages.places.remove(&page);
            pages.tail = pages.tail.filter(|tail| *tail != page);
            if pages.places.is_empty() {
                state.files.remove(&ino);
            }
        }
        state.empty.push(index);
    }

    /// These pages of a file go, and the one that it ends in if it may end elsewhere now.
    fn forget(&self, ino: Ino, pages: &RangeInclusive<u64>) {
        let mut state = self.state.lock();
        let Some(known) = state.files.get(&ino) else { return };
        let mut going: Vec<u32> =
            known.places.range(pages.clone()).map(|(_, index)| *index).collect();
        let tail = known.tail.filter(|tail| tail <= pages.end());
        going.extend(tail.and_then(|tail| known.places.get(&tail)));
        going.into_iter().for_each(|index| self.clear(&mut state, index));
    }
}

impl Evicts for ReadCache {
    fn evict(&self, index: u64, stamp: u64) {
        let mut state = self.state.lock();
        let Some(place) = state.places.get(index as usize) else { return };
        if place.stamp != Some(stamp) {
            return;
        }
        self.clear(&mut state, index as u32);
        state.places[index as usize].stamp = None;
        if let Err(error) = shm::punch(&self.memory, wire::cached_page(index as u32) as u64, PAGE) {
            tracing::error!("memory of a read cache cannot be given back: {error}");
        }
        self.room.gone(1);
    }
}

impl Drop for ReadCache {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.room.gone(state.places.iter().filter(|place| place.stamp.is_some()).count());
    }
}

/// Has the file system tell of changes of a file that has pages in a read cache.
#[derive(Debug)]
pub struct CachedFile {
    fs: Arc<FileSystem>,
    handle: Arc<Handle>,
    cache: Arc<ReadCache>,
    told: Arc<dyn Mapped>,
}

impl CachedFile {
    fn new(fs: &Arc<FileSystem>, handle: &Arc<Handle>, cache: Arc<ReadCache>) -> CachedFile {
        let told: Arc<dyn Mapped> = Arc::new(Told { ino: handle.ino(), cache: cache.clone() });
        fs.tell_beside_leases(handle, &told);
        CachedFile { fs: fs.clone(), handle: handle.clone(), cache, told }
    }

    /// Reads the file from this page on, and puts there what was read; gives how much that is.
    pub fn read(
        &self,
        first: u64,
        buffer: &mut [u8],
        has_end: bool,
        put: &mut Vec<(u32, u64)>,
    ) -> Result<usize, FsError> {
        self.cache.room.make(buffer.len() / PAGE as usize);
        let read = self.fs.read_and_take(&self.handle, first * PAGE, buffer, &mut |bytes| {
            *put = self.cache.put(self.handle.ino(), first, bytes, has_end);
        });
        self.cache.room.tidy();
        read
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        // nobody puts any there through this
        self.cache.forget(self.handle.ino(), &(0..=u64::MAX));
        self.fs.tell_no_more(&self.handle, &self.told);
    }
}

#[derive(Debug)]
struct Told {
    ino: Ino,
    cache: Arc<ReadCache>,
}

impl Mapped for Told {
    fn is_told_before(&self) -> bool {
        true
    }

    fn changes(&self, blocks: &RangeInclusive<u64>, _before: &Before<'_>) -> Result<(), FsError> {
        self.cache.forget(self.ino, blocks);
        Ok(())
    }

    fn written(&self, _offset: u64, _data: &[u8]) {
        // it was told of before
    }

    fn changed(&self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        if len > 0 {
            self.cache.forget(self.ino, &(offset / PAGE..=(end - 1) / PAGE));
        }
    }

    fn heeds_leases(&self) -> bool {
        true
    }
}

/// The word that goes with all read caches of a service, made with the first.
#[derive(Debug)]
pub struct Reigns {
    /// The pool's directory.
    dir: PathBuf,
    state: Mutex<ReignState>,
}

#[derive(Debug)]
enum ReignState {
    /// Nobody has a read cache.
    Before,
    Lasts(Reign),
    /// The service has ended, or there can be none.
    None,
}

impl Reigns {
    /// Of the pool in this directory.
    pub fn new(dir: &Path) -> Reigns {
        Reigns { dir: dir.to_owned(), state: Mutex::new(ReignState::Before) }
    }

    /// The word's file, to be loaded. `None`: there can be none.
    pub fn word(&self) -> Option<File> {
        let mut state = self.state.lock();
        if matches!(*state, ReignState::Before) {
            *state = match Reign::begin(&self.dir) {
                Ok(reign) => ReignState::Lasts(reign),
                Err(error) => {
                    tracing::warn!("no read caches: {error}");
                    ReignState::None
                }
            };
        }
        match &*state {
            ReignState::Lasts(reign) => reign.file().try_clone().ok(),
            _ => None,
        }
    }

    /// The service ends, and another one may own the pool soon.
    pub fn end(&self) {
        *self.state.lock() = ReignState::None;
    }
}

#[cfg(test)]
#[path = "read_cache_tests.rs"]
mod tests;
