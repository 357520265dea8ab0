//! The pages that one kernel keeps of one file.

use std::ops::{Range, RangeInclusive};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nearside::files::{BLOCK_BYTES, Before, Error, Ino};
use parking_lot::{Condvar, Mutex};

use super::base::{BLOCK, Base};
use super::base_memory::{BaseMemory, Noted};
use super::state::{Fill, Kept, State};
use super::{Tells, waited_for};

/// Bases of one file that are kept, but for those of blocks that are changed in part.
const BASES_MAX: usize = 1024;
/// Runs that the kernel is told of one by one.
const TOLD_RUNS_MAX: usize = 16;
/// How often somebody who waits looks whether he still may.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Whose pages they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(super) number: u64,
    pub(super) is_away: bool,
    pub(super) is_sole: bool,
}

/// The pages of a file.
pub(crate) struct FilePages {
    pub(crate) ino: Ino,
    pub(super) this: Weak<FilePages>,
    pub(super) kernel: Kernel,
    /// Gone with the kernel.
    pub(super) tells: Weak<dyn Tells>,
    memory: Arc<Mutex<BaseMemory>>,
    pub(super) state: Mutex<State>,
    turned: Condvar,
    /// Held by who has it told of changes.
    pub(super) telling_begins: Mutex<()>,
}

impl std::fmt::Debug for FilePages {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("FilePages").field("ino", &self.ino).finish_non_exhaustive()
    }
}

/// The blocks in which these bytes are.
pub(super) fn blocks_of(offset: u64, len: usize) -> Range<u64> {
    offset / BLOCK_BYTES..offset.saturating_add(len as u64).div_ceil(BLOCK_BYTES)
}

/// These bytes by blocks: which, where in it, and what.
pub(super) fn parts_of(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, usize, &[u8])> {
    blocks_of(offset, data.len()).map(move |block| {
        let start = (block * BLOCK_BYTES).max(offset);
        let end = ((block + 1) * BLOCK_BYTES).min(offset + data.len() as u64);
        let part = &data[(start - offset) as usize..(end - offset) as usize];
        (block, (start % BLOCK_BYTES) as usize, part)
    })
}

/// Where these blocks are, as the kernel is told: offset and length, 0 for all that follows.
fn in_bytes(run: &Range<u64>) -> (i64, i64) {
    let at = |block: u64| block.checked_mul(BLOCK_BYTES).and_then(|at| i64::try_from(at).ok());
    match (at(run.start), at(run.end)) {
        (Some(start), Some(end)) => (start, end - start),
        (Some(start), None) => (start, 0),
        (None, _) => (0, 0),
    }
}

impl FilePages {
    pub(super) fn new(
        ino: Ino,
        kernel: Kernel,
        tells: Weak<dyn Tells>,
        memory: Arc<Mutex<BaseMemory>>,
    ) -> Arc<FilePages> {
        let (state, turned, telling_begins) = Default::default();
        Arc::new_cyclic(|this| FilePages {
            ino,
            this: this.clone(),
            kernel,
            tells,
            memory,
            state,
            turned,
            telling_begins,
        })
    }

    /// A READ of these bytes begins. Calls that change them meanwhile wait for it: it may read what
    /// was before. Gives its number.
    pub(super) fn begin_fill(&self, offset: u64, len: usize) -> u64 {
        let mut state = self.state.lock();
        state.fills_begun += 1;
        let number = state.fills_begun;
        let blocks = blocks_of(offset, len);
        state.fills.insert(number, Fill { blocks, cut_from: u64::MAX });
        number
    }

    /// It is over, whether or not it gave the kernel anything.
    pub(super) fn end_fill(&self, fill: u64) {
        self.end_fill_in(&mut self.state.lock(), fill);
    }

    /// Gives where the file was cut meanwhile.
    fn end_fill_in(&self, state: &mut State, fill: u64) -> u64 {
        let ended = state.fills.remove(&fill);
        ended.map_or(u64::MAX, |fill| {
            self.turned.notify_all();
            fill.cut_from
        })
    }

    /// The kernel is given these bytes, as they are: nobody changes them meanwhile.
    pub(super) fn give(&self, fill: u64, offset: u64, len: usize) {
        let mut state = self.state.lock();
        self.end_fill_in(&mut state, fill);
        let blocks = blocks_of(offset, len);
        self.drop_bases(&mut state, &blocks);
        state.give(blocks);
    }

    /// The same of bytes that somebody may have changed since they were read: the pages are what
    /// was read, zeros behind it, and are dropped soon.
    pub(super) fn give_as_read(&self, fill: u64, offset: u64, read: &[u8], len: usize) {
        let mut state = self.state.lock();
        let cut_from = self.end_fill_in(&mut state, fill);
        let blocks = blocks_of(offset, len);
        self.drop_bases(&mut state, &blocks);
        let skip = (offset % BLOCK_BYTES) as usize;
        for (block, from) in blocks.clone().zip((0..).step_by(BLOCK)) {
            let mut base = Base::of(&[]);
            let (at, from) = if from == 0 { (skip, 0) } else { (0, from - skip) };
            let part = read.get(from..).unwrap_or_default();
            base.put(at, &part[..part.len().min(BLOCK - at)]);
            base.may_be_zero_from(cut_from.saturating_sub(block * BLOCK_BYTES));
            self.keep(&mut state, block, base);
        }
        state.give(blocks.clone());
        self.owe_blocks(&mut state, blocks);
    }

    /// A server before gave the kernel nobody knows what; these are the bases that it left.
    pub(super) fn go_on(&self, bases: Noted) {
        let mut state = self.state.lock();
        for (block, base, place) in bases {
            state.bases.insert(block, Kept { base, noted: Some(place) });
        }
        // what it was told before nobody knows
        state.is_noticed = true;
        state.give(0..u64::MAX);
        self.owe_blocks(&mut state, 0..u64::MAX);
    }

    pub(super) fn keep(&self, state: &mut State, block: u64, base: Base) {
        let noted = self.memory.lock().note(self.ino, block, &base);
        state.bases.insert(block, Kept { base, noted });
    }

    /// Changes the bases of these blocks.
    pub(super) fn change_bases(
        &self,
        state: &mut State,
        blocks: Range<u64>,
        mut change: impl FnMut(u64, &mut Base),
    ) {
        for (block, kept) in state.bases.range_mut(blocks) {
            change(*block, &mut kept.base);
            if let Some(place) = kept.noted {
                self.memory.lock().note_again(place, &kept.base);
            }
        }
    }

    pub(super) fn drop_bases(&self, state: &mut State, blocks: &Range<u64>) {
        if blocks.is_empty() {
            return;
        }
        for block in state.based(blocks) {
            self.drop_base(state, block);
        }
        state.unknown.remove(blocks.clone());
    }

    fn drop_base(&self, state: &mut State, block: u64) {
        if let Some(Kept { noted: Some(place), .. }) = state.bases.remove(&block) {
            self.memory.lock().drop_base(place);
        }
    }

    pub(super) fn put_in(&self, state: &mut State, offset: u64, data: &[u8]) {
        for (block, at, part) in parts_of(offset, data) {
            self.change_bases(state, block..block + 1, |_, base| base.put(at, part));
        }
    }

    /// The kernel writes these bytes through its pages, which have them already, unless they were
    /// dropped.
    pub(crate) fn writes_through(&self, offset: u64, data: &[u8]) {
        self.put_maybe_in(&mut self.state.lock(), offset, data);
    }

    pub(super) fn put_maybe_in(&self, state: &mut State, offset: u64, data: &[u8]) {
        for (block, at, part) in parts_of(offset, data) {
            self.change_bases(state, block..block + 1, |_, base| base.put_maybe(at, part));
        }
    }

    /// Pages of these bytes are to be dropped; `None`: the kernel has none of them. Gives what to
    /// wait for.
    pub(super) fn owe(&self, bytes: Range<u64>) -> Option<u64> {
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        let mut state = self.state.lock();
        let is_known = !state.known_runs(&blocks).is_empty();
        is_known.then(|| self.owe_blocks(&mut state, blocks))
    }

    pub(super) fn owe_blocks(&self, state: &mut State, blocks: Range<u64>) -> u64 {
        state.owed.insert(blocks);
        state.owed_to += 1;
        self.queue(state);
        state.owed_to
    }

    fn queue(&self, state: &mut State) {
        if state.told.is_none()
            && !state.is_queued
            && let (Some(tells), Some(this)) = (self.tells.upgrade(), self.this.upgrade())
        {
            state.is_queued = true;
            tells.tell(this);
        }
    }

    /// Whether there is something to wait for so that the kernel has these blocks as they are.
    pub(super) fn is_behind(&self, blocks: &Range<u64>) -> bool {
        let state = self.state.lock();
        state.is_filling(blocks, u64::MAX) || state.ticket_of(blocks).is_some()
    }

    /// Waits until pages of these blocks are gone which were to be dropped when this began, or
    /// which a READ that had begun gave the kernel; at most so long, and until `gives_up` says that
    /// nobody may wait. False: it was not in time.
    pub(super) fn wait_for_blocks(
        &self,
        blocks: &Range<u64>,
        most: Duration,
        gives_up: impl Fn() -> bool,
    ) -> bool {
        let late = Instant::now() + most;
        let mut state = self.state.lock();
        let begun = state.fills_begun;
        while state.is_filling(blocks, begun) {
            if Instant::now() >= late || gives_up() {
                return false;
            }
            self.turned.wait_for(&mut state, LOOK_EVERY);
        }
        let ticket = state.ticket_of(blocks);
        drop(state);
        ticket.is_none_or(|ticket| self.wait(ticket, most, gives_up))
    }

    /// Waits until what was owed then has been dropped, or `gives_up` says that nobody may wait.
    /// False: it was not in time.
    pub(super) fn wait(&self, ticket: u64, most: Duration, gives_up: impl Fn() -> bool) -> bool {
        let late = Instant::now() + most;
        let waiters = waited_for(self.kernel.number);
        waiters.fetch_add(1, Ordering::SeqCst);
        let mut state = self.state.lock();
        while state.done_to < ticket
            && self.tells.strong_count() > 0
            && Instant::now() < late
            && !gives_up()
        {
            self.turned.wait_for(&mut state, LOOK_EVERY);
        }
        waiters.fetch_sub(1, Ordering::SeqCst);
        state.done_to >= ticket
    }

    /// What the kernel is to be told now, in bytes: offset and length, 0 for all that follows.
    pub(super) fn begin(&self) -> Vec<(i64, i64)> {
        let mut state = self.state.lock();
        state.is_queued = false;
        if state.told.is_some() || state.owed.is_empty() {
            return Vec::new();
        }
        let told = std::mem::take(&mut state.owed);
        told.iter().for_each(|run| state.given.remove(run.clone()));
        let runs = match (told.first(), told.last()) {
            (Some(first), Some(last)) if told.len() > TOLD_RUNS_MAX => {
                vec![in_bytes(&(first.start..last.end))]
            }
            _ => told.iter().map(in_bytes).collect(),
        };
        state.told = Some(told);
        state.told_to = state.owed_to;
        state.is_noticed = true;
        runs
    }

    /// The kernel has dropped what it was told to; what it was given meanwhile it has. True: it
    /// has nothing of a file that it does not know any more.
    pub(super) fn end(&self) -> bool {
        let mut state = self.state.lock();
        let Some(told) = state.told.take() else { return false };
        for run in told.iter() {
            for block in state.based(run) {
                match state.given.contains(&block) {
                    true => state.owed.insert(block..block + 1),
                    false => self.drop_base(&mut state, block),
                }
            }
            let stays = state.unknown_and_given(run);
            state.unknown.remove(run.clone());
            for run in stays {
                state.unknown.insert(run.clone());
                state.owed.insert(run);
            }
        }
        state.done_to = state.told_to;
        if !state.owed.is_empty() {
            self.queue(&mut state);
        }
        self.turned.notify_all();
        state.is_forgotten && state.is_empty()
    }

    /// What the kernel was to be told and did not hear: it is told anew.
    pub(super) fn tell_again(&self) {
        let mut state = self.state.lock();
        if let Some(told) = state.told.take() {
            for run in told {
                state.given.insert(run.clone());
                state.owed.insert(run);
            }
            self.queue(&mut state);
        }
    }

    /// The kernel does not know the file any more. False: it may have pages of it all the same,
    /// having met it again; it is told to drop them.
    pub(super) fn leave(&self) -> bool {
        let mut state = self.state.lock();
        if state.is_empty() {
            return true;
        }
        if !std::mem::replace(&mut state.is_forgotten, true) {
            self.owe_blocks(&mut state, 0..u64::MAX);
        }
        false
    }

    /// Keeps what the given ones of these blocks held, if there are any. Those between the first
    /// and the last are changed whole.
    pub(super) fn keep_before(
        &self,
        state: &mut State,
        blocks: &RangeInclusive<u64>,
        before: &Before<'_>,
    ) -> Result<bool, Error> {
        let (first, last) = (*blocks.start(), *blocks.end());
        let runs = state.known_runs(&(first..last.saturating_add(1)));
        // pages behind the end hold nothing that somebody may have stored there before
        let end = before.size().div_ceil(BLOCK_BYTES);
        for run in &runs {
            let mut block = run.start;
            while block < run.end.min(end) {
                let is_edge = block == first || block == last;
                if !is_edge && state.bases.len() >= BASES_MAX {
                    break;
                }
                if !state.is_changed(block) {
                    let mut bytes = vec![0; BLOCK];
                    before.read(block, &mut bytes)?;
                    self.keep(state, block, Base::of(&bytes));
                }
                block += 1;
            }
            if block < run.end {
                state.unknown.insert(block..run.end);
            }
        }
        Ok(!runs.is_empty())
    }
}
