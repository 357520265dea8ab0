//! The thread that makes checkpoints, and those who wait for one.

use crate::change_dues::ChangeDues;
use crate::core::Core;
use crate::error::Result;
use locks::futex::{Condvar, Mutex};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long an epoch of the `sync` domain stays open at most.
const EPOCH_AGE_MAX: Duration = Duration::from_secs(5);

/// What the thread and those who wait tell each other.
#[derive(Debug, Default)]
pub struct Signals {
    state: Mutex<State>,
    asked: Condvar,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    wanted: bool,
    stop: bool,
    /// Checkpoints begun, and the last one that ended.
    begun: u64,
    finished: u64,
}

impl Core {
    /// Wakes the background thread, if there is one.
    #[cold]
    pub fn ask_for_checkpoint(&self) {
        if self.background.load(Ordering::Relaxed) {
            // how much of the log is in use is to be looked at from now on
            self.dues.add(ChangeDues::LOG);
            let mut signal = self.signals.state.lock();
            if !signal.wanted {
                signal.wanted = true;
                self.signals.asked.notify_one();
            }
        }
    }

    /// Returns after a checkpoint that began after the call. Holding no lock.
    pub fn wait_for_checkpoint(&self) -> Result<()> {
        if !self.background.load(Ordering::Relaxed) {
            return self.checkpoint();
        }
        let mut signal = self.signals.state.lock();
        let target = signal.begun + 1;
        while signal.finished < target && !signal.stop {
            signal.wanted = true;
            self.signals.asked.notify_one();
            self.signals.done.wait(&mut signal);
        }
        drop(signal);
        Ok(self.pool.check_writable()?)
    }

    /// The background thread: a checkpoint whenever one is asked for, until `stop_background`.
    pub fn run_background(&self) {
        loop {
            self.note_time();
            let mut signal = self.signals.state.lock();
            let mut late = false;
            while !signal.wanted && !signal.stop && !late {
                late = self.signals.asked.wait_for(&mut signal, EPOCH_AGE_MAX).timed_out();
            }
            if signal.stop {
                return;
            }
            if !signal.wanted {
                drop(signal);
                if let Err(error) = self.sync() {
                    tracing::error!("background sync: {error}");
                }
                continue;
            }
            signal.wanted = false;
            signal.begun += 1;
            let own = signal.begun;
            drop(signal);
            if let Err(error) = self.checkpoint() {
                tracing::error!("checkpoint: {error}");
            }
            self.signals.state.lock().finished = own;
            self.signals.done.notify_all();
        }
    }

    /// Ends the background thread.
    pub fn stop_background(&self) {
        self.background.store(false, Ordering::Relaxed);
        self.signals.state.lock().stop = true;
        self.signals.asked.notify_all();
        self.signals.done.notify_all();
    }
}
