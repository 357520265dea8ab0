//! What this process has read, where the service put it: read again without a message.
//!
//! When the service answers a read it may say that what was read is in the read cache: in which
//! place each page is, and the count of that place, which changes before anybody can see that
//! something else is in the file (server's `read_cache.rs`). So a page is right if its count,
//! looked at behind its bytes, is the one that was told; and if that service owns the pool still:
//! it may have died while this process was stopped.
//!
//! What this process writes under leases the service does not know before it folds the lane. So
//! each page has a number here that changes when such a write of it begins; and what is told of a
//! read counts for nothing if the number has changed since it was asked for, or a write was under
//! way then. Pages share numbers, by chance. The page that a file ends in has one of its own, which
//! changes with every such write to the file: it ends elsewhere then, maybe.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use lanes::Subject;
use parking_lot::{Mutex, RwLock};
use shm::{Shared, Words};
use smallvec::SmallVec;
use wire::{CACHED_PAGES, CACHED_READ_PAGES, Reply, Request, cached_page};

use crate::{Error, Result, Session};

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Longest read that is cached, bytes.
pub const READ_MAX: usize = (CACHED_READ_PAGES as usize - 1) * PAGE as usize;
/// Reads before a cache is asked for.
const READS_FIRST: u32 = 4;
/// When there was none it is asked for again after so long.
const ASKS_AGAIN: Duration = Duration::from_secs(1);
/// How long one that was promised is waited for.
const ARRIVES: Duration = Duration::from_secs(1);
/// Numbers of pages.
const NUMBERS: usize = 1 << 14;
const SHARDS: usize = 64;
/// In a number: a write is under way; writes that began.
const UNDER_WAY: u64 = 0xFFFF;
const BEGAN: u64 = UNDER_WAY + 1;
/// Stands for the page that a file ends in.
const TAIL: u64 = u64::MAX;

/// Of a file, by inode number; and [`TAIL`], or a page whose bytes are all in the file.
type Key = (u64, u64);

/// The memory of one service.
#[derive(Debug)]
struct Memory {
    /// Which of those that this attachment had.
    number: u64,
    counts: Words,
    pages: Shared,
    subject: Subject,
}

/// What was told of a page.
#[derive(Clone, Copy, Debug)]
struct Told {
    page: u64,
    /// The memory, the place in it, and its count.
    memory: u64,
    place: u32,
    count: u64,
    /// Of the page's number, before it was asked for.
    number: u64,
    /// Its bytes.
    bytes: u32,
}

/// The read cache of an attachment.
#[derive(Debug)]
pub struct ReadCache {
    memory: ArcSwapOption<Memory>,
    shards: Box<[RwLock<HashMap<Key, Told>>]>,
    numbers: Box<[AtomicU64]>,
    /// What each place was told for last.
    owners: Mutex<Vec<Option<Key>>>,
    reads: AtomicU32,
    asked: Mutex<Option<Instant>>,
    memories: AtomicU64,
}

impl Default for ReadCache {
    fn default() -> ReadCache {
        let numbers = (0..NUMBERS).map(|_| AtomicU64::new(0)).collect();
        ReadCache {
            memory: ArcSwapOption::empty(),
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            numbers,
            owners: Mutex::default(),
            reads: AtomicU32::new(0),
            asked: Mutex::default(),
            memories: AtomicU64::new(0),
        }
    }
}

/// Mixes the bits (the finalizer of MurmurHash3).
#[inline]
fn mixed((ino, page): Key) -> u64 {
    let mut bits = ino.rotate_left(32) ^ page;
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    bits ^ (bits >> 33)
}

/// The pages of these bytes.
fn pages_of(offset: u64, len: usize) -> std::ops::RangeInclusive<u64> {
    offset / PAGE..=offset.saturating_add(len as u64 - 1) / PAGE
}

/// A write under a lease, from before it is in the lane until it is known whether it happened.
#[derive(Debug)]
pub struct Writing<'c> {
    numbers: SmallVec<[&'c AtomicU64; 4]>,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        for number in &self.numbers {
            number.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl ReadCache {
    #[inline]
    fn number(&self, key: Key) -> &AtomicU64 {
        &self.numbers[mixed(key) as usize % NUMBERS]
    }

    #[inline]
    fn shard(&self, key: Key) -> &RwLock<HashMap<Key, Told>> {
        &self.shards[(mixed(key) >> 32) as usize % SHARDS]
    }

    /// Bytes of a file are going to be written under a lease.
    pub fn write<'c>(&'c self, ino: u64, writes: &[(u64, &[u8])]) -> Writing<'c> {
        let pages = writes.iter().flat_map(|(offset, data)| pages_of(*offset, data.len()));
        let keys = std::iter::once(TAIL).chain(pages).map(|page| (ino, page));
        let numbers: SmallVec<[&AtomicU64; 4]> = keys.map(|key| self.number(key)).collect();
        for number in &numbers {
            number.fetch_add(BEGAN + 1, Ordering::SeqCst);
        }
        // ordering: it is seen by who sees the write, which is stored behind this
        fence(Ordering::SeqCst);
        Writing { numbers }
    }

    /// What was told of a page, if that may be so still.
    #[inline]
    fn told(&self, memory: &Memory, (ino, page): Key) -> Option<Told> {
        let find = |key| {
            let told = self.shard(key).read().get(&key).copied();
            told.filter(|told| {
                told.page == page && told.memory == memory.number && self.is_so(memory, ino, told)
            })
        };
        find((ino, page)).or_else(|| find((ino, TAIL)))
    }

    /// Whether nothing has become of the page so far.
    #[inline]
    fn is_so(&self, memory: &Memory, ino: u64, told: &Told) -> bool {
        let page = if told.bytes as u64 == PAGE { told.page } else { TAIL };
        memory.counts.load(told.place as usize) == told.count
            && self.number((ino, page)).load(Ordering::SeqCst) == told.number
    }

    /// Reads what is here, all of it as it was at one moment. `None`: some is not.
    pub fn read(&self, ino: u64, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        let memory = self.memory.load();
        let memory = memory.as_deref()?;
        let mut all: SmallVec<[Told; 2]> = SmallVec::new();
        let mut done = 0;
        for page in pages_of(offset, buffer.len()) {
            let told = self.told(memory, (ino, page))?;
            all.push(told);
            let from = (offset + done as u64 - page * PAGE) as usize;
            let len = (told.bytes as usize).saturating_sub(from).min(buffer.len() - done);
            memory.pages.load(cached_page(told.place) + from, &mut buffer[done..done + len]);
            done += len;
            if told.bytes as u64 != PAGE {
                break;
            }
        }
        // ordering: the bytes were loaded before
        fence(Ordering::Acquire);
        let is_so = all.iter().all(|told| self.is_so(memory, ino, told));
        (is_so && memory.subject.is_ruled()).then_some(done)
    }

    /// Nothing is here from now on.
    pub fn hide(&self) {
        self.memory.store(None);
        *self.asked.lock() = None;
        self.owners.lock().clear();
        self.shards.iter().for_each(|shard| shard.write().clear());
    }

    /// Of the pages of a read: their numbers, before it is asked for, and that of the last one if
    /// the file ends in it. `None`: one of them is being written.
    fn numbers_of(&self, ino: u64, offset: u64, len: usize) -> Option<SmallVec<[u64; 4]>> {
        let keys = pages_of(offset, len).chain([TAIL]).map(|page| (ino, page));
        let numbers = keys.map(|key| self.number(key).load(Ordering::SeqCst));
        numbers.map(|number| (number & UNDER_WAY == 0).then_some(number)).collect()
    }

    /// The service has said where pages are, from `first` on. It is this one still.
    fn note(
        &self,
        ino: u64,
        first: u64,
        numbers: &[u64],
        (places, last_bytes): (&[(u32, u64)], u32),
    ) {
        let Some((tail, numbers)) = numbers.split_last() else { return };
        let Some(memory) = self.memory.load_full() else { return };
        let mut owners = self.owners.lock();
        owners.resize(CACHED_PAGES, None);
        let count = places.len();
        for (at, (&(place, count_of), &number)) in places.iter().zip(numbers).enumerate() {
            let bytes = if at + 1 == count { last_bytes } else { PAGE as u32 };
            let Some(owner) = owners.get_mut(place as usize) else { continue };
            if bytes > PAGE as u32 {
                continue;
            }
            let page = first + at as u64;
            let is_tail = u64::from(bytes) != PAGE;
            let (key, number) = if is_tail { ((ino, TAIL), *tail) } else { ((ino, page), number) };
            let memory = memory.number;
            let told = Told { page, memory, place, count: count_of, number, bytes };
            if let Some(before) = owner.replace(key).filter(|before| *before != key) {
                let mut shard = self.shard(before).write();
                if shard.get(&before).is_some_and(|told| told.place == place) {
                    shard.remove(&before);
                }
            }
            self.shard(key).write().insert(key, told);
        }
    }
}

impl Session {
    /// Reads a file that is open under this number: what was read before without asking, where
    /// nothing became of it.
    ///
    /// # Errors
    /// As [`ask`](Session::ask).
    pub fn read(
        &self,
        (file, ino): (u64, u64),
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(Reply, usize)> {
        self.check_process()?;
        let len = buffer.len() as u32;
        let plain = Request::Read { file, offset, len };
        if buffer.is_empty() || buffer.len() > READ_MAX {
            return self.ask(&plain, &[], buffer);
        }
        let cache = &self.shared.cache;
        if let Some(read) = cache.read(ino, offset, buffer) {
            return Ok((Reply::Done, read));
        }
        let numbers = match self.has_cache() {
            true => cache.numbers_of(ino, offset, buffer.len()),
            false => None,
        };
        let Some(numbers) = numbers else { return self.ask(&plain, &[], buffer) };
        let request = Request::ReadCached { file, offset, len };
        let slot = self.shared.slots.take();
        self.shared.call_then(slot, (&request, &[]), buffer, |_, reply, len| {
            if let Reply::Cached { pages, last_bytes } = &reply {
                cache.note(ino, offset / PAGE, &numbers, (pages, *last_bytes));
                return Ok(Some((Reply::Done, len)));
            }
            Ok(Some((reply, len)))
        })
    }

    /// Whether there is a read cache; it is asked for where it is time.
    fn has_cache(&self) -> bool {
        let cache = &self.shared.cache;
        if cache.memory.load().is_some() {
            return true;
        }
        // ordering: a guess
        if cache.reads.load(Ordering::Relaxed) < READS_FIRST {
            cache.reads.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let Some(mut asked) = cache.asked.try_lock() else { return false };
        if asked.is_some_and(|since| since.elapsed() < ASKS_AGAIN) {
            return false;
        }
        *asked = Some(Instant::now());
        drop(asked);
        self.new_cache().inspect_err(|error| tracing::info!("no read cache: {error}")).is_ok()
    }

    fn new_cache(&self) -> Result<()> {
        let slot = self.shared.slots.take();
        self.shared.call_then(slot, (&Request::Cache, &[]), &mut [], |connection, reply, _| {
            if reply != Reply::Done {
                return Err(Error::Nonsense("there is none"));
            }
            // it is lost with the service
            let Some(given) = connection.cache.take(&(), ARRIVES) else { return Err(Error::Lost) };
            // the service is this one still: the state is held
            let cache = &self.shared.cache;
            let number = cache.memories.fetch_add(1, Ordering::Relaxed) + 1;
            cache.memory.store(Some(Arc::new(memory(number, given)?)));
            Ok(Some(()))
        })
    }
}

/// Over what the service gave.
fn memory(number: u64, given: Vec<OwnedFd>) -> Result<Memory> {
    let [memory, word] = <[OwnedFd; 2]>::try_from(given)
        .map_err(|_| Error::Nonsense("two descriptors come with a read cache"))?;
    let counts = Words::to_load(memory.as_fd(), CACHED_PAGES).map_err(Error::shm)?;
    let pages = Shared::map_to_load(memory.as_fd()).map_err(Error::shm)?;
    let subject =
        Subject::new(&word.into()).map_err(|_| Error::Nonsense("the word of a service"))?;
    match pages.len() == wire::CACHE_BYTES {
        true => Ok(Memory { number, counts, pages, subject }),
        false => Err(Error::Nonsense("the length of a read cache")),
    }
}
