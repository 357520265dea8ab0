//! Who is cold: leaves with blocks in slices are in lines, one for each slice, those that are there
//! longest first.
//!
//! A leaf that changes is listed among those that did, and dealt to the lines of the slices where
//! it has blocks before anybody looks for some (`write_back.rs`). So it is in the line of each
//! slice where it has any, or listed as changed, or in the hands of who looks: that is known, too,
//! and can be waited for. Who writes back the blocks of one slice takes leaves from its line, and
//! looks at no other blocks of theirs; so nobody waits for who writes back those of another.

use crate::types::Ino;
use locks::futex::{Condvar, Mutex};
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Duration;

/// How long a batch under way is waited for by who has others to look for.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// A leaf of a file.
pub type Place = (Ino, u64);

/// Leaves, each once.
#[derive(Debug, Default)]
pub struct Queue {
    leaves: VecDeque<Place>,
    listed: HashSet<Place>,
    /// Leaves that were taken out so far.
    taken: u64,
}

impl Queue {
    /// One more, if it is not there.
    pub fn add(&mut self, place: Place) {
        if self.listed.insert(place) {
            self.leaves.push_back(place);
        }
    }

    /// The first.
    pub fn take(&mut self) -> Option<Place> {
        let place = self.leaves.pop_front()?;
        self.listed.remove(&place);
        self.taken += 1;
        Some(place)
    }

    /// How many were taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// How many were taken when those that are there now will be.
    pub fn end(&self) -> u64 {
        self.taken + self.leaves.len() as u64
    }
}

/// The leaves with blocks in one slice.
#[derive(Debug, Default)]
pub struct Line {
    state: Mutex<State>,
    /// A batch ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: Queue,
    /// Batches that are under way, by their numbers.
    under_way: BTreeSet<u64>,
    begun: u64,
    /// Those that did not move all that they were to.
    incomplete: u64,
    /// Who wants all blocks to be written back just now.
    flushes: u32,
}

impl Line {
    /// A leaf may have blocks in this slice.
    pub fn list(&self, place: Place) {
        self.state.lock().queue.add(place);
    }

    /// The end of what is in it now, for [`Batch::take`].
    pub fn end(&self) -> u64 {
        self.state.lock().queue.end()
    }

    /// Whether all that was in it at this end was taken.
    pub fn has_passed(&self, end: u64) -> bool {
        self.state.lock().queue.taken >= end
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.state.lock().queue.leaves.is_empty()
    }

    /// Whether nothing is in it, nor in anybody's hands.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.queue.leaves.is_empty() && state.under_way.is_empty()
    }

    /// Whether a batch is under way.
    pub fn has_batch(&self) -> bool {
        !self.state.lock().under_way.is_empty()
    }

    /// Whether a batch is under way; waits for one to end, but not long.
    pub fn is_busy(&self) -> bool {
        let mut state = self.state.lock();
        let is_busy = !state.under_way.is_empty();
        if is_busy {
            self.ended.wait_for(&mut state, WAIT_MAX);
        }
        is_busy
    }

    /// Batches that did not move all that they were to.
    pub fn incomplete(&self) -> u64 {
        self.state.lock().incomplete
    }

    /// Begins a batch.
    pub fn begin(&self) -> Batch<'_> {
        let mut state = self.state.lock();
        state.begun += 1;
        let (number, takes_all) = (state.begun, state.flushes > 0);
        state.under_way.insert(number);
        Batch { line: self, number, takes_all, leaves: Vec::new(), is_whole: false }
    }

    /// Has all who write back blocks of this slice take those that are used, too, until this is
    /// dropped.
    pub fn flush(&self) -> Flush<'_> {
        self.state.lock().flushes += 1;
        Flush(self)
    }

    /// Waits until the batches that are under way have ended. The caller holds nothing.
    pub fn wait(&self) {
        let mut state = self.state.lock();
        let last = state.begun;
        while state.under_way.first().is_some_and(|number| *number <= last) {
            self.ended.wait(&mut state);
        }
    }
}

/// See [`Line::flush`].
#[derive(Debug)]
pub struct Flush<'l>(&'l Line);

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        self.0.state.lock().flushes -= 1;
    }
}

/// Leaves in the hands of who looks at their blocks, and writes some back; they return to their
/// line when it ends.
#[derive(Debug)]
pub struct Batch<'l> {
    line: &'l Line,
    number: u64,
    /// Blocks that are used are to be written back, too.
    pub takes_all: bool,
    leaves: Vec<Place>,
    is_whole: bool,
}

impl Batch<'_> {
    /// One more leaf, of those before this end.
    pub fn take(&mut self, end: u64) -> Option<Place> {
        let mut state = self.line.state.lock();
        let place = if state.queue.taken < end { state.queue.take() } else { None }?;
        self.leaves.push(place);
        Some(place)
    }

    /// The leaf that was taken last has nothing that could ever be written back, and does not
    /// return.
    pub fn forget_last(&mut self) {
        self.leaves.pop();
    }

    /// Ends it: all that it was to move is moved.
    pub fn end_whole(mut self) {
        self.is_whole = true;
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut state = self.line.state.lock();
        self.leaves.drain(..).for_each(|place| state.queue.add(place));
        state.under_way.remove(&self.number);
        state.incomplete += u64::from(!self.is_whole);
        drop(state);
        self.line.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn place(index: u64) -> Place {
        (Ino(2), index)
    }

    #[test]
    fn a_leaf_is_listed_once_and_returns_behind_the_others() {
        let line = Line::default();
        [1, 2, 1, 3].into_iter().for_each(|index| line.list(place(index)));
        let end = line.end();
        let mut batch = line.begin();
        assert_eq!(batch.take(end), Some(place(1)));
        assert_eq!(batch.take(end), Some(place(2)));
        batch.forget_last();
        line.list(place(4));
        drop(batch);
        let mut batch = line.begin();
        assert_eq!(batch.take(end), Some(place(3)));
        assert_eq!(batch.take(end), None, "the others were listed later");
        let end = line.end();
        assert_eq!([0; 3].map(|_| batch.take(end)), [Some(place(4)), Some(place(1)), None]);
    }

    #[test]
    fn a_line_is_idle_when_nobody_has_any_of_it() {
        let line = Line::default();
        assert!(line.is_idle() && !line.is_busy());
        line.list(place(1));
        assert!(!line.is_idle() && !line.is_busy());
        let mut batch = line.begin();
        batch.take(line.end());
        assert!(!line.is_idle() && line.is_busy());
        batch.forget_last();
        drop(batch);
        assert!(line.is_idle() && !line.is_busy());
    }

    #[test]
    fn who_waits_waits_for_those_that_are_under_way() {
        let line = Line::default();
        line.wait();
        let (first, flush) = (line.begin(), line.flush());
        assert!(!first.takes_all && line.begin().takes_all);
        let ends = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                line.wait();
                assert!(ends.load(Ordering::SeqCst));
            });
            (0..1000).for_each(|_| std::thread::yield_now());
            ends.store(true, Ordering::SeqCst);
            drop(first);
        });
        drop(flush);
        assert!(!line.begin().takes_all);
    }
}
