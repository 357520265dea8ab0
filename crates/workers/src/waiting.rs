//! A call that waits for its workers, and what it does when they do not come.

use crate::bell::sleep_at;
use crate::request::{Piece, Task};
use crate::slots::{Job, SLEEPS};
use crate::sync::{AtomicU32, Ordering, spin_loop};
use crate::workers::{Shared, kind_index};
use pmem::InFlight;
use std::time::{Duration, Instant};

/// Looks between two looks at the clock.
const LOOKS: u32 = 32;

/// A job that workers may be at.
pub(crate) struct Waiting<'w> {
    pub shared: &'w Shared,
    pub job: &'w Job<'w>,
    pub theirs: &'w [Piece<'w>],
}

impl Waiting<'_> {
    /// Puts requests for all pieces in the rings, and wakes each slice's workers once. Gives, a bit
    /// each, the pieces that found no place.
    pub fn ask(&self, task: &mut Task<'_>) -> u64 {
        let (mut end, mut without_place) = (0, 0);
        let kind = kind_index(task.kind());
        for (index, piece) in self.theirs.iter().enumerate() {
            let request = task.request(piece, self.job.id(index), &mut end);
            let slice = self.shared.slices.get(usize::from(piece.slice));
            if !slice.is_some_and(|slice| slice.queues[kind].ring.put(&request.encode())) {
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
        let mut in_flight = InFlight::none();
        let mut progress = self.progress();
        let limit = self.shared.patience;
        let mut patience = Instant::now() + limit;
        while !self.spin() {
            self.sleep(limit);
            let now = self.progress();
            if now != progress {
                (progress, patience) = (now, Instant::now() + limit);
            } else if Instant::now() >= patience {
                self.give_up();
                in_flight = in_flight.and(self.help(task, failed, u64::MAX));
            }
        }
        in_flight
    }

    /// True when the job is over, looked at for as long as sleeping and waking would take.
    fn spin(&self) -> bool {
        let began = Instant::now();
        loop {
            for _ in 0..LOOKS {
                if self.job.is_over() {
                    return true;
                }
                spin_loop();
            }
            if began.elapsed() >= self.shared.spin() {
                return false;
            }
        }
    }

    fn sleep(&self, limit: Duration) {
        let left: &AtomicU32 = &self.job.slot().left;
        // ordering: Acquire pairs with the workers' Release, as in `is_over`
        let seen = left.fetch_or(SLEEPS, Ordering::Acquire) | SLEEPS;
        if seen != SLEEPS {
            sleep_at(left, seen, Some(limit));
        }
    }

    /// Requests that the job's slices have served so far.
    fn progress(&self) -> u64 {
        let slices = self.theirs.iter().map(|piece| usize::from(piece.slice));
        let of =
            |slice: usize| Some(self.shared.slices.get(slice)?.progress.load(Ordering::Relaxed));
        slices.filter_map(of).fold(0, u64::wrapping_add)
    }

    /// The slices' workers serve nobody: callers are to know.
    #[cold]
    fn give_up(&self) {
        for piece in self.theirs {
            if let Some(slice) = self.shared.slices.get(usize::from(piece.slice)) {
                slice.stalled.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Copies what no worker has of these, a bit each.
    pub fn help(
        &self,
        task: &mut Task<'_>,
        failed: &mut pmem::Result<()>,
        pieces: u64,
    ) -> InFlight {
        let mut in_flight = InFlight::none();
        for (index, piece) in self.theirs.iter().enumerate() {
            if pieces >> index & 1 == 1 && self.job.claim(index) {
                in_flight = in_flight.and(copy_own(task, std::slice::from_ref(piece), failed));
                self.job.slot().finished(index as u16, true);
            }
        }
        in_flight
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
