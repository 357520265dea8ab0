//! One worker: takes requests of its slice, copies, counts down, sleeps.

use crate::bell::{Sleep, wake_up};
use crate::queue::Queue;
use crate::request::{BLOCK_BYTES, Request};
use crate::sync::{Ordering, spin_loop};
use crate::workers::{Shared, SliceWork};
use placement::Kind;
use pmem::InFlight;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// How long a worker that must not work, since enough others do, waits at most before it looks
/// again: who gives its turns back rings.
const BLOCKED: Duration = Duration::from_micros(100);
/// The same where a machine is played, in its time.
const BLOCKED_PLAYED: Duration = Duration::from_micros(20);
/// Looks at the rings between two looks at the clock.
const LOOKS: u32 = 64;

/// The life of worker `seat` of slice `index`.
pub(crate) fn run(shared: &Shared, index: usize, seat: usize) {
    let slice = &shared.slices[index];
    if shared.played.is_some() {
        topology::assume_cpu(slice.cpus[seat % slice.cpus.len().max(1)]);
    } else if let Err(error) = topology::pin_current_thread(&slice.cpus) {
        tracing::warn!("a worker of slice {index} runs anywhere: {error}");
    }
    let mut first = Kind::Write;
    while !shared.ending.load(Ordering::Acquire) {
        // reads and writes take turns
        first = if first == Kind::Write { Kind::Read } else { Kind::Write };
        if slice.serve(shared, seat, first) {
            continue;
        }
        if slice.can_work() {
            // whoever puts a request there is in the middle of it, or another worker was faster
            std::thread::yield_now();
        } else if !spin(shared, slice) {
            let _wants = [slice.queues[0].want(), slice.queues[1].want()];
            slice.bell.sleep(|| match () {
                () if shared.ending.load(Ordering::Acquire) || slice.can_work() => Sleep::Not,
                () if slice.has_work() => Sleep::AtMost(shared.blocked()),
                () => Sleep::UntilItRings,
            });
        }
    }
}

/// Looks for work for as long as sleeping and waking would take; true if there is some.
fn spin(shared: &Shared, slice: &SliceWork) -> bool {
    let began = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if slice.can_work() {
                return true;
            }
            spin_loop();
        }
        if began.elapsed() >= shared.spin() || shared.ending.load(Ordering::Relaxed) {
            return false;
        }
    }
}

impl Shared {
    /// How long a worker that must not work waits before it looks again.
    fn blocked(&self) -> Duration {
        let played = self.played.as_ref();
        played.map_or(BLOCKED, |played| BLOCKED_PLAYED.mul_f64(played.stretch).max(BLOCKED))
    }
}

impl SliceWork {
    /// Whether somebody's request waits.
    pub(crate) fn has_work(&self) -> bool {
        self.queues.iter().any(|queue| !queue.rings.is_empty())
    }

    /// Whether a request waits that may be served now.
    fn can_work(&self) -> bool {
        self.queues.iter().any(Queue::can_work)
    }

    /// Serves one request, of the first kind if there is one; false if none may be served.
    fn serve(&self, shared: &Shared, seat: usize, first: Kind) -> bool {
        let order = if first == Kind::Read { [0, 1] } else { [1, 0] };
        // while this one is at the first kind, somebody else is to be at the other
        let other = &self.queues[order[1]];
        if other.gauge.is_wanted() && other.can_work() && self.queues[order[0]].can_work() {
            self.bell.ring(1);
        }
        order.into_iter().any(|kind| self.serve_one(shared, seat, &self.queues[kind]))
    }

    fn serve_one(&self, shared: &Shared, seat: usize, queue: &Queue) -> bool {
        if queue.rings.is_empty() {
            return false;
        }
        let Some((mut at_work, is_long)) = queue.turn() else { return false };
        let Some(words) = queue.rings.take(is_long) else { return false };
        let seat = &self.seats[seat];
        seat.begin(shared.began);
        let request = Request::decode(&words);
        at_work.set(queue.side.turns(request.len as u64));
        // the turns that this worker had before may be more than it has now
        if queue.gauge.is_wanted() && queue.can_work() {
            self.bell.ring(1);
        }
        // a worker that dies, or is stopped, leaves the piece to its caller
        let hindered = catch_unwind(AssertUnwindSafe(|| shared.meet_trouble()));
        let claimed = hindered.is_ok().then(|| shared.slots.claim(request.id));
        let Some(slot) = claimed.flatten() else {
            queue.served();
            seat.end(hindered.is_err());
            return true;
        };
        let began = Instant::now();
        let copied = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the piece is claimed, by this thread alone, and the job is not over before
            // `finished` says that this piece is: until then its caller waits, and the task's
            // borrow goes on.
            unsafe { request.copy() }
        }));
        let died = copied.is_err();
        let copied = copied.ok().and_then(Result::ok);
        let is_copied = copied.is_some();
        // durable before anybody is told
        let _clean = pmem::fence(copied.unwrap_or_else(InFlight::none));
        // this worker looks for the next one itself
        at_work.leave();
        if is_copied {
            if shared.played.is_none() {
                queue.pace(request.len, began.elapsed());
            }
            queue.bytes.fetch_add(request.len as u64, Ordering::Relaxed);
        }
        queue.served();
        seat.end(died);
        if slot.finished(request.id.piece, is_copied) {
            wake_up(&slot.left, 1);
        }
        true
    }
}

impl Queue {
    /// So many bytes took so long: callers are to know about how long they wait.
    fn pace(&self, bytes: usize, took: Duration) {
        let blocks = bytes.div_ceil(BLOCK_BYTES).max(1) as u64;
        let now = took.as_nanos() as u64 / blocks;
        // ordering: a guess; one that is lost makes it no worse
        let before = self.block_ns.load(Ordering::Relaxed);
        self.block_ns.store((before * 7 + now) / 8, Ordering::Relaxed);
    }

    /// A request is out of the way, whoever copied: callers who were left waiting ask again.
    fn served(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }
}
