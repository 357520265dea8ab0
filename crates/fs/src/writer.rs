//! The threads that write back, two for each slice on its node, and those who wait for them.
//!
//! One of the two looks whether something is to be written back, and is asked for it. While more
//! than a batch is, the other one helps: so that one waits for a device while the other copies.
//!
//! How hard they try is said in `effort.rs`.
//!
//! Who found no room at all asks all of them, and goes on as soon as one has made some: a device
//! that is slow, or hangs, keeps nobody waiting who could have a block of another slice.

use crate::core::Core;
use crate::effort::{Effort, Efforts};
use crate::error::Result;
use crate::pace::Pacing;
use crate::write_back::BATCH_BLOCKS;
use locks::futex::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread sleeps between looks at how much is in use.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the threads and those who wait tell each other.
#[derive(Debug)]
pub struct Signals {
    state: Mutex<State>,
    /// By slice.
    asked: Box<[Condvar]>,
    /// By slice: who helps is to begin.
    helped: Box<[Condvar]>,
    done: Condvar,
}

#[derive(Debug)]
struct State {
    stop: bool,
    /// By slice.
    rounds: Vec<Rounds>,
}

/// The rounds of one thread.
#[derive(Debug)]
struct Rounds {
    wanted: bool,
    /// Who helps is to write back, too.
    helps: bool,
    begun: u64,
    finished: u64,
    /// Blocks that the last one moved, or why it moved none.
    last: Result<u64>,
}

impl Default for Rounds {
    fn default() -> Rounds {
        Rounds { wanted: false, helps: false, begun: 0, finished: 0, last: Ok(0) }
    }
}

impl Signals {
    /// Nobody waits yet, for so many threads.
    pub fn new(slices: usize) -> Signals {
        let rounds = (0..slices).map(|_| Rounds::default()).collect();
        Signals {
            state: Mutex::new(State { stop: false, rounds }),
            asked: (0..slices).map(|_| Condvar::new()).collect(),
            helped: (0..slices).map(|_| Condvar::new()).collect(),
            done: Condvar::new(),
        }
    }

    /// Too many blocks of a slice are in use for who writes back at leisure.
    pub fn press(&self, slice: usize) {
        // who is looking just now sees it himself, or 20 ms later
        self.asked[slice].notify_one();
    }
}

impl State {
    /// What came of the rounds up to these, if it is known: some blocks, or nothing of any.
    fn outcome(&self, targets: &[u64]) -> Option<Result<u64>> {
        let ended = || {
            let rounds = self.rounds.iter().zip(targets);
            rounds.filter(|(own, target)| own.finished >= **target).map(|(own, _)| &own.last)
        };
        if let Some(moved) = ended().find(|last| last.as_ref().is_ok_and(|moved| *moved > 0)) {
            return Some(moved.clone());
        }
        let is_over = self.stop || ended().count() == targets.len();
        is_over.then(|| ended().find(|last| last.is_err()).cloned().unwrap_or(Ok(0)))
    }
}

impl Core {
    /// Waits for blocks to be written back; gives how many were, of one slice at least. Holding no
    /// lock.
    pub fn wait_for_write_back(&self) -> Result<u64> {
        if !self.background.load(Ordering::Relaxed) {
            return self.write_back(BATCH_BLOCKS as u64);
        }
        let signals = &self.write_back.signals;
        let mut state = signals.state.lock();
        let targets: Vec<u64> = state.rounds.iter().map(|own| own.begun + 1).collect();
        loop {
            if let Some(outcome) = state.outcome(&targets) {
                return outcome;
            }
            let own = state.rounds.iter_mut().zip(&targets).zip(&signals.asked);
            for ((own, _), asked) in own.filter(|((own, target), _)| own.begun < **target) {
                own.wanted = true;
                asked.notify_one();
            }
            signals.done.wait(&mut state);
        }
    }

    /// Starts the threads that write back, if the pool has a capacity tier.
    pub fn start_writers(self: &Arc<Core>) -> Result<Vec<JoinHandle<()>>> {
        if self.tier.is_none() {
            return Ok(Vec::new());
        }
        let start = |(slice, helps): (usize, bool)| {
            let core = self.clone();
            let run = move || {
                core.move_near(slice as u8);
                if helps { core.run_helper(slice) } else { core.run_writer(slice) }
            };
            let name = if helps { "ns-helper" } else { "ns-writer" };
            crate::system::spawn(&format!("{name} {slice}"), run)
        };
        let slices = 0..self.pool.slices().len();
        slices.flat_map(|slice| [(slice, false), (slice, true)]).map(start).collect()
    }

    /// The thread that helps another one to write back blocks of a slice, until `stop_write_back`.
    fn run_helper(&self, slice: usize) {
        let signals = &self.write_back.signals;
        let mut goes_on = false;
        loop {
            let mut state = signals.state.lock();
            state.rounds[slice].helps &= goes_on;
            while !state.rounds[slice].helps && !state.stop {
                signals.helped[slice].wait(&mut state);
            }
            if state.stop {
                return;
            }
            drop(state);
            // what goes wrong the other one meets, too, and tells of
            let moved = self.write_back_of(slice, BATCH_BLOCKS as u64).unwrap_or(0);
            goes_on = moved >= BATCH_BLOCKS as u64 && self.is_dirty(slice);
        }
    }

    /// Has the thread run on a slice's node; where that cannot be, it runs where it is.
    pub fn move_near(&self, slice: u8) {
        let cpus = self.pool.nodes().cpus_near(slice);
        if self.pool.options().emulated.is_some() {
            cpus.first().into_iter().for_each(|cpu| topology::assume_cpu(*cpu));
        } else if let Err(error) = topology::pin_current_thread(cpus) {
            tracing::warn!("who works for slice {slice} runs anywhere: {error}");
        }
    }

    /// The thread that writes back blocks of a slice, until `stop_write_back`.
    fn run_writer(&self, slice: usize) {
        let signals = &self.write_back.signals;
        let mut goes_on = false;
        let mut efforts = Efforts::default();
        loop {
            self.tend_copies(slice);
            let mut state = signals.state.lock();
            if !goes_on && !state.rounds[slice].wanted && !state.stop {
                signals.asked[slice].wait_for(&mut state, LOOK_EVERY);
            }
            if state.stop {
                return;
            }
            let is_wanted = std::mem::take(&mut state.rounds[slice].wanted);
            drop(state);
            goes_on = match efforts.next(self, slice, is_wanted, Instant::now()) {
                Effort::None => {
                    self.write_back.set_pace(slice, Pacing::Off);
                    false
                }
                Effort::Leisure => self.write_at_leisure(slice, &mut efforts),
                Effort::Full => self.run_round(slice),
            };
        }
    }

    /// Writes back a batch of those that nobody used since the last pass; whether to go on.
    fn write_at_leisure(&self, slice: usize, efforts: &mut Efforts) -> bool {
        self.write_back.signals.state.lock().rounds[slice].helps = false;
        self.write_back.set_pace(slice, Pacing::Watched);
        self.write_pass(slice, efforts, Instant::now()).unwrap_or_else(|error| {
            tracing::error!("writing back to the capacity tier: {error}");
            false
        })
    }

    /// Writes back all that can be, and tells those who wait; whether to go on at once.
    fn run_round(&self, slice: usize) -> bool {
        let signals = &self.write_back.signals;
        let last = self.write_round(slice);
        let mut state = signals.state.lock();
        let is_idle = last.as_ref().map_or(true, |moved| *moved == 0);
        // a round that moved less has looked at all of them, twice: the next one has time
        let goes_on = last.as_ref().is_ok_and(|moved| *moved >= BATCH_BLOCKS as u64);
        let own = &mut state.rounds[slice];
        (own.finished, own.last) = (own.begun, last);
        signals.done.notify_all();
        if !is_idle || state.stop {
            return goes_on;
        }
        // nothing can be moved now: not to be looked for without a pause, but for that of who helps
        drop(state);
        if self.write_back.slices[slice].line.is_busy() {
            return true;
        }
        let mut state = signals.state.lock();
        if !state.stop {
            signals.asked[slice].wait_for(&mut state, LOOK_EVERY);
        }
        false
    }

    fn write_round(&self, slice: usize) -> Result<u64> {
        let signals = &self.write_back.signals;
        let mut state = signals.state.lock();
        state.rounds[slice].begun += 1;
        state.rounds[slice].helps = self.is_dirty(slice);
        if state.rounds[slice].helps {
            signals.helped[slice].notify_one();
        }
        drop(state);
        self.write_back.set_pace(slice, Pacing::On);
        let last = self.write_back_of(slice, BATCH_BLOCKS as u64);
        if let Err(error) = &last {
            tracing::error!("writing back to the capacity tier: {error}");
        }
        let moves =
            *last.as_ref().unwrap_or(&0) > 0 || self.write_back.slices[slice].line.has_batch();
        // only where there is something that could be waited for
        let pacing = if moves && self.is_dirty(slice) { Pacing::On } else { Pacing::Off };
        self.write_back.set_pace(slice, pacing);
        last
    }

    /// Ends the threads that write back.
    pub fn stop_write_back(&self) {
        let signals = &self.write_back.signals;
        signals.state.lock().stop = true;
        for thread in signals.asked.iter().chain(&signals.helped) {
            thread.notify_all();
        }
        signals.done.notify_all();
    }
}
