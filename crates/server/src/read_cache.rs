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

use std::collections::HashMap;
use std::fs::File;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use fs::{Error as FsError, FileSystem, Handle, Ino, Mapped};
use lanes::Reign;
use parking_lot::Mutex;
use shm::{Shared, Words};

use crate::copies::{PAGE, sealed};
use crate::room::{Counted, Evicts, Room};

/// Pages of one process's, at most.
const PLACES: usize = wire::CACHED_PAGES;
const _: () = assert!(lanes::BLOCK_BYTES == PAGE, "a page is a block");

/// The read cache of a process.
#[derive(Debug)]
pub struct ReadCache {
    counts: Words,
    pages: Shared,
    state: Mutex<State>,
    room: Arc<Room>,
    own: Weak<ReadCache>,
    _counted: Counted,
}

#[derive(Debug, Default)]
struct State {
    index: HashMap<(Ino, u64), u32>,
    /// The page that a file ends in, if it is here.
    tails: HashMap<Ino, u64>,
    /// Places that were used so far.
    places: Vec<Place>,
    /// Those of them that are empty.
    empty: Vec<u32>,
    /// The one that is emptied next, where there is no other.
    next: u32,
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
    /// An empty one, and the descriptor for its process.
    pub fn new(room: &Arc<Room>, counted: Counted) -> Result<(Arc<ReadCache>, OwnedFd), FsError> {
        let (memory, theirs): (File, OwnedFd) =
            sealed("nearside-read-cache", wire::CACHE_BYTES as u64)?;
        let counts = Words::to_store(memory.as_fd(), PLACES).map_err(|error| broken(&error))?;
        let pages = Shared::map(memory.as_fd()).map_err(|error| broken(&error))?;
        let cache = Arc::new_cyclic(|own| ReadCache {
            counts,
            pages,
            state: Mutex::default(),
            room: room.clone(),
            own: own.clone(),
            _counted: counted,
        });
        Ok((cache, theirs))
    }

    /// Puts bytes of a file there, from this page on; gives places and counts. The last page may be
    /// a part of one, where the file ends, which is put there if it `has_end`. Their range is held.
    pub fn put(&self, ino: Ino, first: u64, bytes: &[u8], has_end: bool) -> Vec<(u32, u64)> {
        let mut state = self.state.lock();
        let mut put = Vec::with_capacity(bytes.len().div_ceil(PAGE as usize));
        for (page, data) in (first..).zip(bytes.chunks(PAGE as usize)) {
            let is_tail = data.len() < PAGE as usize;
            if is_tail && !has_end {
                break;
            }
            let index = self.place_for(&mut state, (ino, page));
            if is_tail {
                state.tails.insert(ino, page);
            }
            self.pages.store(wire::cached_page(index), data);
            let place = &mut state.places[index as usize];
            place.count += 1;
            self.counts.store(index as usize, place.count);
            put.push((index, place.count));
        }
        put
    }

    /// A place for a page, with an even count, and memory.
    fn place_for(&self, state: &mut State, page: (Ino, u64)) -> u32 {
        let index = match state.index.get(&page) {
            Some(index) => *index,
            None => {
                let index = state.empty.pop().unwrap_or_else(|| self.any_place(state));
                state.index.insert(page, index);
                index
            }
        };
        self.invalidate(state, index);
        let place = &mut state.places[index as usize];
        place.page = Some(page);
        let own = || Weak::clone(&self.own) as Weak<dyn Evicts>;
        place.stamp = Some(match place.stamp {
            None => self.room.add(own(), u64::from(index)),
            Some(_) => self.room.renew(own(), u64::from(index)),
        });
        index
    }

    /// A place that was never used, or one whose page goes.
    fn any_place(&self, state: &mut State) -> u32 {
        if state.places.len() < PLACES {
            state.places.push(Place::default());
            return state.places.len() as u32 - 1;
        }
        // all have a page
        let index = state.next;
        state.next = (index + 1) % PLACES as u32;
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
        state.index.remove(&(ino, page));
        if state.tails.get(&ino) == Some(&page) {
            state.tails.remove(&ino);
        }
        state.empty.push(index);
    }

    /// These pages of a file go, and the one that it ends in if it may end elsewhere now.
    fn forget(&self, ino: Ino, pages: &RangeInclusive<u64>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut going: Vec<u32> =
            match pages.end().checked_sub(*pages.start()).filter(|n| *n < state.index.len() as u64)
            {
                Some(_) => pages
                    .clone()
                    .filter_map(|page| state.index.get(&(ino, page)).copied())
                    .collect(),
                None => state
                    .index
                    .iter()
                    .filter(|((of, page), _)| *of == ino && pages.contains(page))
                    .map(|(_, index)| *index)
                    .collect(),
            };
        let tail = state.tails.get(&ino).filter(|tail| *tail <= pages.end());
        going.extend(tail.and_then(|tail| state.index.get(&(ino, *tail))));
        going.into_iter().for_each(|index| self.clear(state, index));
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
        if let Err(error) = self.pages.discard(wire::cached_page(index as u32), PAGE as usize) {
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
    pub fn new(fs: &Arc<FileSystem>, handle: &Arc<Handle>, cache: &Arc<ReadCache>) -> CachedFile {
        let told: Arc<dyn Mapped> = Arc::new(Told { ino: handle.ino(), cache: cache.clone() });
        fs.tell(handle, &told);
        CachedFile { fs: fs.clone(), handle: handle.clone(), cache: cache.clone(), told }
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
    fn changes(&self, blocks: &RangeInclusive<u64>) {
        self.cache.forget(self.ino, blocks);
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
