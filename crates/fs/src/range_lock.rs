//! Locks on ranges of one file's blocks, for writers. Readers take none, but for those that found
//! no quiet moment, and those who keep what they read, who do not wait for it.
//!
//! Who is alone takes one word, with one atomic instruction. Who is not queues under a mutex; the
//! queue is fair: a request waits for every earlier one that it overlaps, granted or not. Memory is
//! used only for ranges that are held or waited for.
//!
//! Checked by loom: `tests/loom_range_lock.rs`.

use crate::sync::{AtomicU64, Condvar, Mutex, Ordering};

/// The word's range is held.
const HELD: u64 = 1 << 63;
/// The queue is not empty: no range is taken by the word alone.
pub const QUEUED: u64 = 1 << 62;
/// The word's range: blocks after the first, and above them the first.
const MORE_BITS: u32 = 24;
const FIRST_BITS: u32 = 38;
/// So many blocks after the first: all of them, as an append takes.
const TO_THE_END: u64 = (1 << MORE_BITS) - 1;

/// Ticket of the range that the word holds.
const WORD: u64 = u64::MAX;

#[derive(Debug)]
struct Range {
    first: u64,
    last: u64,
    ticket: u64,
}

#[derive(Debug, Default)]
struct Queue {
    /// In the order of arrival.
    ranges: Vec<Range>,
    next: u64,
    waiters: u32,
}

/// The range locks of one file.
#[derive(Debug, Default)]
pub struct RangeLock {
    /// 0: nobody holds or waits for anything.
    word: AtomicU64,
    queue: Mutex<Queue>,
    released: Condvar,
}

/// A range, held.
#[derive(Debug)]
pub struct RangeGuard<'l> {
    lock: &'l RangeLock,
    ticket: u64,
}

/// The word that holds the range, if one can.
#[inline]
pub fn encode(first: u64, last: u64) -> Option<u64> {
    let more = if last == u64::MAX { TO_THE_END } else { last.wrapping_sub(first) };
    let fits = more <= TO_THE_END && first >> FIRST_BITS == 0;
    fits.then_some(HELD | first << MORE_BITS | more)
}

/// Whether the range that the word holds overlaps `first..=last`.
pub fn overlaps(word: u64, first: u64, last: u64) -> bool {
    let own_first = (word & !(HELD | QUEUED)) >> MORE_BITS;
    // what takes exactly so many blocks is taken for all of them: it excludes more, never less
    let own_last = match word & TO_THE_END {
        TO_THE_END => u64::MAX,
        more => own_first + more,
    };
    word & HELD != 0 && own_first <= last && first <= own_last
}

impl RangeLock {
    /// Locks the blocks `first..=last` against every other range that overlaps them.
    #[inline]
    pub fn lock(&self, first: u64, last: u64) -> RangeGuard<'_> {
        // ordering: Acquire, so that what the last holder did is seen
        let alone = encode(first, last).is_some_and(|word| {
            self.word.compare_exchange(0, word, Ordering::Acquire, Ordering::Relaxed).is_ok()
        });
        if alone { RangeGuard { lock: self, ticket: WORD } } else { self.lock_queued(first, last) }
    }

    /// The same where nobody has a block of it, or wants one; else nothing.
    pub fn try_lock(&self, first: u64, last: u64) -> Option<RangeGuard<'_>> {
        // ordering: as in `lock`
        let alone = encode(first, last).is_some_and(|word| {
            self.word.compare_exchange(0, word, Ordering::Acquire, Ordering::Relaxed).is_ok()
        });
        if alone {
            return Some(RangeGuard { lock: self, ticket: WORD });
        }
        let mut queue = self.queue.lock();
        // ordering: as in `lock_queued`
        let word = self.word.fetch_or(QUEUED, Ordering::Acquire);
        let ticket = queue.next;
        if overlaps(word, first, last) || queue.blocked(first, last, ticket) {
            if queue.ranges.is_empty() {
                // ordering: under the mutex, and nothing was done
                self.word.fetch_and(!QUEUED, Ordering::Release);
            }
            return None;
        }
        queue.next += 1;
        queue.ranges.push(Range { first, last, ticket });
        Some(RangeGuard { lock: self, ticket })
    }

    /// Whether nobody holds or waits for anything, and nothing is kept.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.queue.lock().ranges.is_empty() && self.word.load(Ordering::Acquire) == 0
    }

    /// How many wait.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.queue.lock().waiters as usize
    }

    #[cold]
    fn lock_queued(&self, first: u64, last: u64) -> RangeGuard<'_> {
        let mut queue = self.queue.lock();
        // ordering: Acquire pairs with the holder's Release. From now on the holder lets go under
        // the mutex, so that the wait below misses nothing.
        let mut word = self.word.fetch_or(QUEUED, Ordering::Acquire);
        let ticket = queue.next;
        queue.next += 1;
        queue.ranges.push(Range { first, last, ticket });
        while overlaps(word, first, last) || queue.blocked(first, last, ticket) {
            queue.waiters += 1;
            self.released.wait(&mut queue);
            queue.waiters -= 1;
            word = self.word.load(Ordering::Acquire);
        }
        RangeGuard { lock: self, ticket }
    }

    /// Lets go of what the word holds, where somebody queues.
    #[cold]
    fn unlock_word(&self) {
        let queue = self.queue.lock();
        // ordering: Release hands on what the holder did. The queue's owner may be gone already.
        let left = if queue.ranges.is_empty() { 0 } else { QUEUED };
        self.word.store(left, Ordering::Release);
        let waiters = queue.waiters > 0;
        drop(queue);
        if waiters {
            self.released.notify_all();
        }
    }

    #[cold]
    fn unlock_queued(&self, ticket: u64) {
        let mut queue = self.queue.lock();
        if let Some(index) = queue.ranges.iter().position(|range| range.ticket == ticket) {
            queue.ranges.remove(index);
        }
        if queue.ranges.is_empty() {
            // ordering: Release hands on what all holders before did, ordered by the mutex
            self.word.fetch_and(!QUEUED, Ordering::Release);
        }
        let waiters = queue.waiters > 0;
        drop(queue);
        if waiters {
            self.released.notify_all();
        }
    }
}

impl Queue {
    #[inline]
    fn blocked(&self, first: u64, last: u64, ticket: u64) -> bool {
        self.ranges
            .iter()
            .take_while(|range| range.ticket != ticket)
            .any(|range| range.first <= last && first <= range.last)
    }
}

impl Drop for RangeGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.ticket != WORD {
            return self.lock.unlock_queued(self.ticket);
        }
        // no range but the word's was let in by the word: its bits are as this guard set them
        let word = self.lock.word.load(Ordering::Relaxed);
        // ordering: Release hands on what the holder did
        let freed = word & QUEUED == 0
            && self
                .lock
                .word
                .compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed)
                .is_ok();
        if !freed {
            self.lock.unlock_word();
        }
    }
}
