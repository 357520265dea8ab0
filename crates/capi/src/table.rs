//! What callers in C have open, by number.
//!
//! A number is the place of a thing and how often that place was used: one that was closed is
//! known as such for ever. Looking one up takes no lock that others hold for long: each place has
//! its own. In a forked child the parent's things are nobody's: it gets EPERM before it takes any
//! lock, which another thread of the parent may have held when it was forked.

use crate::answer::{Answer, Errno};
use engine::Process;
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const PLACES: usize = 256;
const CHUNKS: usize = 4096;
const INDEX_BITS: u32 = 20;
const _: () = assert!(PLACES * CHUNKS == 1 << INDEX_BITS);

#[derive(Debug)]
struct Place<T> {
    /// The process that used it last; 0: none.
    process: AtomicU64,
    /// How often it was used, and what is there.
    value: RwLock<(u32, Option<Arc<T>>)>,
}

type Chunk<T> = Box<[Place<T>]>;

/// Things of one kind.
#[derive(Debug)]
pub struct Table<T> {
    chunks: [OnceLock<Chunk<T>>; CHUNKS],
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    places: Vec<u32>,
    /// Those from here on were never used.
    next: u32,
}

impl<T> Table<T> {
    /// An empty one.
    pub const fn new() -> Table<T> {
        let free = Mutex::new(Free { places: Vec::new(), next: 0 });
        Table { chunks: [const { OnceLock::new() }; CHUNKS], free }
    }

    fn place(&self, index: usize) -> Answer<&Place<T>> {
        let chunk = self.chunks.get(index / PLACES).and_then(OnceLock::get);
        let place = chunk.and_then(|chunk| chunk.get(index % PLACES)).ok_or(Errno(libc::EBADF))?;
        // ordering: it changes only where nobody has a number of this place
        match place.process.load(Ordering::Relaxed) {
            0 => Err(Errno(libc::EBADF)),
            process if process != Process::here().number() => Err(Errno(libc::EPERM)),
            _ => Ok(place),
        }
    }

    /// Adds a thing; its number is above 0.
    pub fn add(&self, value: T) -> Answer<u64> {
        let mut free = self.free.lock();
        let index = match free.places.pop() {
            Some(index) => index,
            None if (free.next as usize) < PLACES * CHUNKS => {
                free.next += 1;
                free.next - 1
            }
            None => return Err(Errno(libc::EMFILE)),
        };
        drop(free);
        let empty = || Place { process: AtomicU64::new(0), value: RwLock::new((0, None)) };
        let chunk = self.chunks[index as usize / PLACES]
            .get_or_init(|| (0..PLACES).map(|_| empty()).collect());
        let place = &chunk[index as usize % PLACES];
        place.process.store(Process::here().number(), Ordering::Relaxed);
        let mut place = place.value.write();
        place.0 += 1;
        place.1 = Some(Arc::new(value));
        Ok(u64::from(place.0) << INDEX_BITS | u64::from(index))
    }

    /// The thing of this number.
    #[inline]
    pub fn get(&self, number: u64) -> Answer<Arc<T>> {
        let place = self.place(number as usize % (1 << INDEX_BITS))?;
        let place = place.value.read();
        let is_own = u64::from(place.0) == number >> INDEX_BITS;
        place.1.clone().filter(|_| is_own).ok_or(Errno(libc::EBADF))
    }

    /// Takes a thing out.
    pub fn remove(&self, number: u64) -> Answer<Arc<T>> {
        let index = number as usize % (1 << INDEX_BITS);
        let mut place = self.place(index)?.value.write();
        let is_own = u64::from(place.0) == number >> INDEX_BITS;
        let value = if is_own { place.1.take() } else { None };
        let value = value.ok_or(Errno(libc::EBADF))?;
        // a number is never used again: this place is at its end
        if place.0 < u32::MAX >> 1 {
            self.free.lock().places.push(index as u32);
        }
        Ok(value)
    }
}
