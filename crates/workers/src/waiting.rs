//! A call that waits for its workers, and what it does when they do not come.

use crate::bell::sleep_at;
use crate::request::{BLOCK_BYTES, Piece, Task};
use crate::slots::{Job, SLEEPS};
use crate::sync::{AtomicU32, Ordering, spin_loop};
use crate::workers::Shared;
use pmem::InFlight;
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// Looks between two looks at the clock.
const LOOKS: u32 = 32;
/// So many times as long as it waits for progress, it waits at all for a piece to be begun.
const PATIENCES: u32 = 10;
/// Longest time that a caller keeps a CPU that nobody else wants.
const YIELDS_MAX: Duration = Duration::from_millis(1);

/// A job that workers may be at.
pub(crate) struct Waiting<'w> {
    pub shared: &'w Shared,
    pub job: &'w Job<'w>,
    pub theirs: &'w [Piece<'w>],
    /// The queue of each slice.
    pub kind: usize,
}

impl Waiting<'_> {
    /// Puts requests for all pieces in the rings, and wakes each slice's workers once. Gives, a bit
    /// each, the pieces that found no place.
    pub fn ask(&self, task: &mut Task<'_>) -> u64 {
        let (mut end, mut without_place) = (0, 0);
        for (index, piece) in self.theirs.iter().enumerate() {
            let request = task.request(piece, self.job.id(index), &mut end);
            let slice = self.shared.slices.get(usize::from(piece.slice));
            if !slice.is_some_and(|slice| slice.queues[self.kind].rings.put(&request)) {
                without_place |= 1 << index;
            }
        }
        for (index, piece) in self.theirs.iter().enumerate() {
            let before = &self.theirs[..index];
            if before.iter().all(|it| it.slice != piece.slice)
                && let Some(slice) = self.shared.slices.get(usize::from(piece.slice))
            {
                let count = self.theirs.iter().filter(|it| it.slice == piece.slice).count();
                slice.bell.ring(count as u32);
            }
        }
        without_place
    }

    /// Waits until all pieces are done. Where workers make no progress, copies what none has yet.
    pub fn end(&self, task: &mut Task<'_>, failed: &mut pmem::Result<()>) -> InFlight {
        if self.spin() {
            return InFlight::none();
        }
        let mut in_flight = InFlight::none();
        let limit = self.shared.patience;
        let began = Instant::now();
        let (mut seen, mut since) = (self.progress(), began);
        loop {
            self.sleep(limit);
            if self.spin() {
                return in_flight;
            }
            if began.elapsed() >= PATIENCES * limit {
                // others go on, and a piece of this one does not: a worker took it and is stopped
                let all = 0..self.theirs.len();
                let helped = all.filter_map(|piece| self.help(task, failed, piece));
                in_flight = helped.fold(in_flight, InFlight::and);
            }
            let now = self.progress();
            let stalled = seen.iter().filter(|it| now.contains(it)).copied();
            let stalled: SmallVec<[(u8, u64); 8]> = stalled.collect();
            if stalled.is_empty() {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() >= limit {
                in_flight = in_flight.and(self.give_up(task, failed, &stalled));
                (seen, since) = (now, Instant::now());
            }
        }
    }

    /// True when the job is over, looked at for as long as sleeping and waking would take; and
    /// then, while others who want the CPU get it, for twice as long as copying would have kept it
    /// busy.
    fn spin(&self) -> bool {
        let began = Instant::now();
        let spin = self.shared.spin();
        let copying = (2 * self.time_to_copy()).min(YIELDS_MAX);
        loop {
            for _ in 0..LOOKS {
                if self.job.is_over() {
                    return true;
                }
                spin_loop();
            }
            let spent = began.elapsed();
            if spent >= spin {
                if spent >= copying {
                    return false;
                }
                std::thread::yield_now();
            }
        }
    }

    /// About how long it takes to copy what is left to the workers, for one of them.
    fn time_to_copy(&self) -> Duration {
        let nanos = self.theirs.iter().map(|piece| {
            let slice = self.shared.slices.get(usize::from(piece.slice));
            let queue = slice.map(|slice| &slice.queues[self.kind]);
            let block_ns = queue.map_or(0, |queue| queue.block_ns.load(Ordering::Relaxed));
            block_ns * piece.len.div_ceil(BLOCK_BYTES) as u64
        });
        Duration::from_nanos(nanos.sum())
    }

    fn sleep(&self, limit: Duration) {
        let left: &AtomicU32 = &self.job.slot().left;
        // ordering: Acquire pairs with the workers' Release, as in `is_over`
        let seen = left.fetch_or(SLEEPS, Ordering::Acquire) | SLEEPS;
        if seen != SLEEPS {
            sleep_at(left, seen, Some(limit));
        }
    }

    /// The job's slices, and how many requests each has served so far.
    fn progress(&self) -> SmallVec<[(u8, u64); 8]> {
        let mut progress: SmallVec<[(u8, u64); 8]> = SmallVec::new();
        for piece in self.theirs {
            if progress.iter().all(|(slice, _)| *slice != piece.slice)
                && let Some(slice) = self.shared.slices.get(usize::from(piece.slice))
            {
                let queue = &slice.queues[self.kind];
                progress.push((piece.slice, queue.progress.load(Ordering::Relaxed)));
            }
        }
        progress
    }

    /// These slices' workers served nobody since: copies what they have not begun. Callers are to
    /// know of it until what is left in the rings is out of the way.
    #[cold]
    fn give_up(
        &self,
        task: &mut Task<'_>,
        failed: &mut pmem::Result<()>,
        stalled: &[(u8, u64)],
    ) -> InFlight {
        let mut in_flight = InFlight::none();
        for (index, piece) in self.theirs.iter().enumerate() {
            let stalled = stalled.iter().find(|(slice, _)| *slice == piece.slice);
            if let Some((_, progress)) = stalled
                && let Some(written) = self.help(task, failed, index)
            {
                in_flight = in_flight.and(written);
                // its request is still in the ring, or in a worker's hand
                if let Some(slice) = self.shared.slices.get(usize::from(piece.slice)) {
                    slice.queues[self.kind].stall(*progress, self.shared.began);
                }
            }
        }
        in_flight
    }

    /// Copies a piece, if no worker has it.
    pub fn help(
        &self,
        task: &mut Task<'_>,
        failed: &mut pmem::Result<()>,
        piece: usize,
    ) -> Option<InFlight> {
        if !self.job.claim(piece) {
            return None;
        }
        let written = copy_back(task, &self.theirs[piece..=piece], failed);
        self.job.slot().finished(piece as u16, true);
        Some(written)
    }
}

impl Drop for Waiting<'_> {
    /// However the call ends, nobody uses what its task borrowed any more.
    fn drop(&mut self) {
        while !self.job.is_over() {
            // a caller that panics: what nobody has is nobody's from now on
            for index in 0..self.theirs.len() {
                if self.job.claim(index) {
                    self.job.slot().finished(index as u16, false);
                }
            }
            std::thread::yield_now();
        }
    }
}

/// The caller copies these, which were for workers.
pub(crate) fn copy_back(
    task: &mut Task<'_>,
    pieces: &[Piece<'_>],
    failed: &mut pmem::Result<()>,
) -> InFlight {
    pieces.iter().for_each(|piece| task.take_back(piece));
    copy_own(task, pieces, failed)
}

/// The caller copies these.
pub(crate) fn copy_own(
    task: &mut Task<'_>,
    pieces: &[Piece<'_>],
    failed: &mut pmem::Result<()>,
) -> InFlight {
    let mut in_flight = InFlight::none();
    for piece in pieces {
        match task.copy(piece) {
            Ok(written) => in_flight = in_flight.and(written),
            Err(error) => *failed = Err(error),
        }
    }
    in_flight
}
