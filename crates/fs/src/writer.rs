//! The thread that writes back, and those who wait for it.

use crate::core::Core;
use crate::error::Result;
use crate::write_back::BATCH_BLOCKS;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the thread sleeps between looks at how much is in use.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the thread and those who wait tell each other.
#[derive(Debug, Default)]
pub struct Signals {
    state: Mutex<State>,
    asked: Condvar,
    done: Condvar,
}

#[derive(Debug)]
struct State {
    wanted: bool,
    stop: bool,
    begun: u64,
    finished: u64,
    /// Blocks that the last round moved, or why it moved none.
    last: Result<u64>,
}

impl Default for State {
    fn default() -> State {
        State { wanted: false, stop: false, begun: 0, finished: 0, last: Ok(0) }
    }
}

impl Core {
    /// Waits for blocks to be written back; gives how many were. Holding no lock.
    pub fn wait_for_write_back(&self) -> Result<u64> {
        if !self.background.load(Ordering::Relaxed) {
            return self.write_back(BATCH_BLOCKS as u64);
        }
        let mut signal = self.write_back.signals.state.lock();
        let target = signal.begun + 1;
        while signal.finished < target && !signal.stop {
            signal.wanted = true;
            self.write_back.signals.asked.notify_one();
            self.write_back.signals.done.wait(&mut signal);
        }
        signal.last.clone()
    }

    /// The thread that writes back, until `stop_write_back`.
    pub fn run_write_back(&self) {
        loop {
            self.tend_copies();
            let mut signal = self.write_back.signals.state.lock();
            if !signal.wanted && !signal.stop {
                self.write_back.signals.asked.wait_for(&mut signal, LOOK_EVERY);
            }
            if signal.stop {
                return;
            }
            let is_wanted = std::mem::take(&mut signal.wanted);
            if !is_wanted && !self.is_dirty() {
                continue;
            }
            self.write_back.pace.set(true);
            signal.begun += 1;
            let own = signal.begun;
            drop(signal);
            let last = self.write_back(BATCH_BLOCKS as u64);
            if let Err(error) = &last {
                tracing::error!("writing back to the capacity tier: {error}");
            }
            let moved = *last.as_ref().unwrap_or(&0);
            if moved == 0 || !self.is_dirty() {
                // nothing that anybody could wait for
                self.write_back.pace.set(false);
            }
            let mut signal = self.write_back.signals.state.lock();
            (signal.finished, signal.last) = (own, last);
            self.write_back.signals.done.notify_all();
            if moved == 0 && !signal.stop {
                // nothing can be moved now: not to be looked for without a pause
                self.write_back.signals.asked.wait_for(&mut signal, LOOK_EVERY);
            }
        }
    }

    /// Ends the thread that writes back.
    pub fn stop_write_back(&self) {
        self.write_back.signals.state.lock().stop = true;
        self.write_back.signals.asked.notify_all();
        self.write_back.signals.done.notify_all();
    }
}
