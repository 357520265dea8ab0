//! All workers of a pool, and how a call uses them.

use crate::bell::{Bell, time_to_wake};
use crate::gauge::Gauge;
use crate::queue::Queue;
use crate::request::{Piece, Task, are_apart};
use crate::slots::{PIECES_MAX, Slots};
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::waiting::{Waiting, copy_back, copy_own};
use crate::worker;
use parking_lot::Mutex;
use placement::{Kind, Side};
use pmem::InFlight;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Calls that wait at one time; one that finds no place copies for itself.
const JOBS: u16 = 512;
/// How long a caller waits before it looks whether its workers make any progress.
pub const PATIENCE: Duration = Duration::from_millis(20);
/// How long threads spin at least and at most, whatever was measured.
const SPIN: [Duration; 2] = [Duration::from_micros(2), Duration::from_micros(50)];

/// What a worker meets before it serves a request: for who tests what happens when one dies or is
/// stopped.
pub type Trouble = Arc<dyn Fn() + Send + Sync>;

/// A machine that is played: workers are not pinned, but pass for being there, and nobody spins.
#[derive(Clone)]
pub struct Played {
    /// Seconds at hand for one of its seconds.
    pub stretch: f64,
    /// Waits for as long as a request takes to come to a worker.
    pub hand_over: Arc<dyn Fn() + Send + Sync>,
}

/// The workers of one slice.
#[derive(Clone, Debug, Default)]
pub struct SliceSettings {
    /// CPUs that they run on.
    pub cpus: Vec<u32>,
    /// How many there are.
    pub workers: u16,
    /// What its memory likes: of reads, and of writes.
    pub sides: [Side; 2],
}

/// How workers are set up.
#[derive(Clone, Default)]
pub struct Settings {
    /// By slice.
    pub slices: Vec<SliceSettings>,
    /// How long a caller waits for workers that make no progress before it copies for itself; none:
    /// 20 ms.
    pub patience: Option<Duration>,
    /// What workers meet before each request.
    pub trouble: Option<Trouble>,
    /// The CPUs are of a machine that is played.
    pub played: Option<Played>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("slices", &self.slices).finish_non_exhaustive()
    }
}

/// What one worker did and does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seat {
    /// Requests that it served.
    pub served: u64,
    /// How often it died of one, and was there again.
    pub deaths: u64,
    /// For how long it has been at the present one.
    pub busy: Option<Duration>,
}

/// What the workers of a slice did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SliceStats {
    /// Each worker; none before the first request.
    pub seats: Vec<Seat>,
    /// Bytes that they read and wrote.
    pub bytes: [u64; 2],
    /// Turns of threads that read and that write, now.
    pub active: [u32; 2],
    /// How many there are; `u32::MAX`: any number.
    pub limits: [u32; 2],
    /// Workers that sleep, for nobody asks them.
    pub asleep: u32,
    /// Callers were left waiting, and copied for themselves; until a worker serves again.
    pub stalled: bool,
}

#[derive(Debug, Default)]
pub(crate) struct SeatState {
    served: AtomicU64,
    deaths: AtomicU64,
    /// When the present request was taken, us since the workers were made; 0: there is none.
    since: AtomicU64,
}

impl SeatState {
    pub(crate) fn begin(&self, epoch: Instant) {
        self.since.store(micros(epoch).max(1), Ordering::Relaxed);
    }

    pub(crate) fn end(&self, died: bool) {
        self.served.fetch_add(1, Ordering::Relaxed);
        self.deaths.fetch_add(u64::from(died), Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
    }

    fn seat(&self, epoch: Instant) -> Seat {
        let since = Some(self.since.load(Ordering::Relaxed)).filter(|since| *since > 0);
        let busy = since.map(|since| micros(epoch).saturating_sub(since));
        Seat {
            served: self.served.load(Ordering::Relaxed),
            deaths: self.deaths.load(Ordering::Relaxed),
            busy: busy.map(Duration::from_micros),
        }
    }
}

pub(crate) fn micros(epoch: Instant) -> u64 {
    epoch.elapsed().as_micros() as u64
}

/// A slice, as its workers see it.
#[derive(Debug)]
pub(crate) struct SliceWork {
    pub cpus: Vec<u32>,
    pub queues: [Queue; 2],
    pub bell: Arc<Bell>,
    pub seats: Box<[SeatState]>,
}

/// What workers and callers share.
pub(crate) struct Shared {
    pub slices: Box<[SliceWork]>,
    pub slots: Slots,
    pub ending: AtomicBool,
    pub began: Instant,
    /// How long to spin before sleeping, ns.
    spin: AtomicU64,
    pub patience: Duration,
    trouble: Option<Trouble>,
    pub played: Option<Played>,
}

impl Shared {
    /// How long to spin before sleeping.
    pub(crate) fn spin(&self) -> Duration {
        Duration::from_nanos(self.spin.load(Ordering::Relaxed))
    }

    pub(crate) fn meet_trouble(&self) {
        if let Some(trouble) = &self.trouble {
            trouble();
        }
    }
}

/// A worker's slice and seat, and its thread.
type Thread = (usize, usize, JoinHandle<()>);

/// The workers of a pool.
pub struct Workers {
    shared: Arc<Shared>,
    threads: OnceLock<Mutex<Vec<Thread>>>,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("slices", &self.shared.slices).finish_non_exhaustive()
    }
}

pub(crate) fn kind_index(kind: Kind) -> usize {
    match kind {
        Kind::Read => 0,
        Kind::Write => 1,
    }
}

impl Workers {
    /// Workers that are not started yet.
    pub fn new(settings: &Settings) -> Workers {
        let slice = |it: &SliceSettings| {
            let bell = Arc::default();
            SliceWork {
                cpus: it.cpus.clone(),
                queues: it.sides.map(|side| Queue::new(side, &bell)),
                bell,
                seats: (0..it.workers).map(|_| SeatState::default()).collect(),
            }
        };
        let shared = Shared {
            slices: settings.slices.iter().map(slice).collect(),
            slots: Slots::new(JOBS),
            ending: AtomicBool::new(false),
            began: Instant::now(),
            spin: AtomicU64::new(0),
            patience: settings.patience.unwrap_or(PATIENCE),
            trouble: settings.trouble.clone(),
            played: settings.played.clone(),
        };
        Workers { shared: Arc::new(shared), threads: OnceLock::new() }
    }

    /// How many threads work at a slice now, and may.
    #[inline]
    pub fn gauge(&self, slice: u8, kind: Kind) -> Option<&Gauge> {
        let slice = self.shared.slices.get(usize::from(slice))?;
        Some(&slice.queues[kind_index(kind)].gauge)
    }

    /// Requests that wait there before one of so many bytes.
    #[inline]
    pub fn waiting(&self, slice: u8, kind: Kind, bytes: u64) -> u64 {
        let slice = self.shared.slices.get(usize::from(slice));
        slice.map_or(0, |slice| slice.queues[kind_index(kind)].rings.before(bytes))
    }

    /// Whether callers were left waiting there, or nobody serves: then they had better copy for
    /// themselves.
    #[inline]
    pub fn is_stalled(&self, slice: u8, kind: Kind) -> bool {
        let slice = self.shared.slices.get(usize::from(slice));
        let stalled =
            |slice: &SliceWork| slice.queues[kind_index(kind)].is_stalled(self.shared.began);
        slice.is_none_or(|slice| slice.seats.is_empty() || stalled(slice))
    }

    /// Bytes that they have read and written of a slice.
    pub fn moved(&self, slice: usize) -> [u64; 2] {
        let of =
            |slice: &SliceWork| [0, 1].map(|kind| slice.queues[kind].bytes.load(Ordering::Relaxed));
        self.shared.slices.get(slice).map_or([0; 2], of)
    }

    /// What they did and do, by slice.
    pub fn stats(&self) -> Vec<SliceStats> {
        let slice = |slice: &SliceWork| SliceStats {
            seats: match self.threads.get() {
                Some(_) => slice.seats.iter().map(|seat| seat.seat(self.shared.began)).collect(),
                None => Vec::new(),
            },
            bytes: [0, 1].map(|kind| slice.queues[kind].bytes.load(Ordering::Relaxed)),
            active: [0, 1].map(|kind| slice.queues[kind].gauge.active()),
            limits: [0, 1].map(|kind| slice.queues[kind].gauge.limit()),
            asleep: slice.bell.sleepers(),
            stalled: slice.queues.iter().any(Queue::is_behind),
        };
        self.shared.slices.iter().map(slice).collect()
    }

    /// Copies all of a task: `theirs` by the workers of their slices, `own` by the caller
    /// meanwhile. The pieces of each lie in the buffer one behind the other. What workers wrote is
    /// fenced; what the caller wrote is in flight. An error is one of a piece that is to be read.
    ///
    /// `then` is called when the caller has done its own share, before it waits: whoever waits must
    /// not hold what others need to come to an end, as a turn at a slice.
    pub fn copy(
        &self,
        task: &mut Task<'_>,
        theirs: &[Piece<'_>],
        own: &[Piece<'_>],
        then: impl FnOnce(),
    ) -> pmem::Result<InFlight> {
        assert!(are_apart(theirs, own), "pieces do not overlap");
        let mut in_flight = InFlight::none();
        let (mut failed, mut then, mut own) = (Ok(()), Some(then), own);
        if theirs.is_empty() {
            in_flight = copy_own(task, own, &mut failed);
        }
        for some in theirs.chunks(PIECES_MAX) {
            let more = self.copy_some(task, some, std::mem::take(&mut own), &mut then, &mut failed);
            in_flight = in_flight.and(more);
        }
        failed.map(|()| in_flight)
    }

    fn copy_some(
        &self,
        task: &mut Task<'_>,
        theirs: &[Piece<'_>],
        own: &[Piece<'_>],
        then: &mut Option<impl FnOnce()>,
        failed: &mut pmem::Result<()>,
    ) -> InFlight {
        self.start();
        let hint = topology::recent_cpu() as usize * 7;
        let Some(job) = self.shared.slots.begin(theirs.len(), hint) else {
            let done = copy_back(task, theirs, failed).and(copy_own(task, own, failed));
            then.take().into_iter().for_each(|then| then());
            return done;
        };
        // who has a share of its own is at it meanwhile
        if let Some(played) = self.shared.played.as_ref().filter(|_| own.is_empty()) {
            (played.hand_over)();
        }
        // From here on workers may use what the task borrowed: nothing returns before the end.
        let kind = kind_index(task.kind());
        let waiting = Waiting { shared: &self.shared, job: &job, theirs, kind };
        let without_place = waiting.ask(task);
        let mut done = copy_own(task, own, failed);
        then.take().into_iter().for_each(|then| then());
        for piece in (0..theirs.len()).filter(|piece| without_place >> piece & 1 == 1) {
            done = waiting.help(task, failed, piece).into_iter().fold(done, InFlight::and);
        }
        let helped = waiting.end(task, failed);
        drop(waiting);
        // what workers could not copy
        let mut again = InFlight::none();
        for piece in (0..theirs.len()).filter(|piece| job.failed(*piece)) {
            again = again.and(copy_back(task, &theirs[piece..=piece], failed));
        }
        done.and(helped).and(again)
    }

    fn start(&self) {
        self.threads.get_or_init(|| {
            let spin = match &self.shared.played {
                Some(_) => Duration::ZERO,
                None => measured_spin(&self.shared.slices),
            };
            self.shared.spin.store(spin.as_nanos() as u64, Ordering::Relaxed);
            let mut threads = Vec::new();
            for (index, slice) in self.shared.slices.iter().enumerate() {
                for seat in 0..slice.seats.len() {
                    let shared = self.shared.clone();
                    let name = format!("worker {index}.{seat}");
                    let thread = std::thread::Builder::new().name(name);
                    match thread.spawn(move || worker::run(&shared, index, seat)) {
                        Ok(thread) => threads.push((index, seat, thread)),
                        // callers find out that nobody serves, and copy for themselves
                        Err(error) => tracing::warn!("a worker cannot be started: {error}"),
                    }
                }
            }
            Mutex::new(threads)
        });
    }
}

/// How long to spin: measured by a thread of its own, as it is moved between CPUs.
fn measured_spin(slices: &[SliceWork]) -> Duration {
    let mut cpus: Vec<u32> = slices.iter().flat_map(|slice| slice.cpus.clone()).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let measure = std::thread::Builder::new().spawn(move || time_to_wake(&cpus));
    let measured = measure.ok().and_then(|thread| thread.join().ok()).unwrap_or_default();
    match measured {
        Duration::ZERO => measured,
        measured => measured.clamp(SPIN[0], SPIN[1]),
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Release);
        for slice in &self.shared.slices {
            slice.bell.ring(u32::MAX >> 1);
        }
        let threads = self.threads.take().map(Mutex::into_inner).unwrap_or_default();
        for (slice, seat, thread) in threads {
            // one that is stopped in the middle holds nothing that anybody waits for
            let busy = || self.shared.slices[slice].seats[seat].seat(self.shared.began).busy;
            while !thread.is_finished() && busy().is_none_or(|busy| busy < PATIENCE) {
                std::thread::sleep(Duration::from_micros(50));
            }
            if thread.is_finished() {
                drop(thread.join());
            }
        }
    }
}
