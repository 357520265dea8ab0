//! The thread that keeps frames of one cache free, so that a call which misses a block seldom has
//! to make room itself.
//!
//! It sleeps until somebody who took a frame left few, makes room in the whole cache, and sleeps
//! again. What it does callers do as well, where it is late or not there at all.

use crate::cache::Cache;
use locks::futex::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Wakes the evictor of a cache.
#[derive(Debug, Default)]
pub struct Bell {
    /// Whether somebody listens.
    is_heard: AtomicBool,
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct State {
    wanted: bool,
    stop: bool,
}

impl Bell {
    /// Few frames are free.
    pub fn ring(&self) {
        // ordering: who misses the beginning rings with the next frame
        if !self.is_heard.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.wanted, true) {
            self.rung.notify_one();
        }
    }

    fn stop(&self) {
        self.state.lock().stop = true;
        self.rung.notify_one();
    }

    /// Waits until it rings; false: it is over.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.wanted && !state.stop {
            self.rung.wait(&mut state);
        }
        state.wanted = false;
        !state.stop
    }
}

/// An evictor; it ends when this is dropped.
#[derive(Debug)]
pub struct Evictor {
    cache: Arc<Cache>,
    thread: Option<JoinHandle<()>>,
}

impl Evictor {
    /// Starts that of a cache, on these CPUs; on any if there are none.
    pub fn start(cache: &Arc<Cache>, name: String, cpus: Vec<u32>) -> io::Result<Evictor> {
        let own = cache.clone();
        let run = move || {
            if !cpus.is_empty() {
                // where that cannot be, it runs where it is
                let _ = topology::pin_current_thread(&cpus);
            }
            while own.bell().wait() {
                own.make_room();
            }
        };
        let thread = Some(std::thread::Builder::new().name(name).spawn(run)?);
        cache.bell().is_heard.store(true, Ordering::Relaxed);
        Ok(Evictor { cache: cache.clone(), thread })
    }
}

impl Drop for Evictor {
    fn drop(&mut self) {
        self.cache.bell().stop();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
