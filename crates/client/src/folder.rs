//! A thread that has a lane folded when it fills, so that who writes need not wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};

use crate::Result;
use crate::session::spawned;

/// What the thread and those who wake it share.
#[derive(Debug, Default)]
struct State {
    /// It is to fold, or does.
    is_wanted: AtomicBool,
    is_ended: AtomicBool,
}

/// Wakes the thread.
#[derive(Clone, Debug)]
pub struct Wakes {
    state: Arc<State>,
    thread: Thread,
}

impl Wakes {
    /// Has the lane folded soon.
    pub fn wake(&self) {
        // ordering: a hint; who finds the lane filling next looks again
        let is_wanted = self.state.is_wanted.load(Ordering::Relaxed);
        // ordering: the thread that is woken sees it
        if !is_wanted && !self.state.is_wanted.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}

/// The thread; it ends with this.
#[derive(Debug)]
pub struct Folder {
    wakes: Wakes,
    thread: Option<JoinHandle<()>>,
}

impl Folder {
    /// Starts it; `fold` has the lane folded.
    pub fn start(fold: impl Fn() -> Result<()> + Send + 'static) -> Result<Folder> {
        let state = Arc::<State>::default();
        let theirs = state.clone();
        let thread = spawned("ns-folder", move || {
            // ordering: what was stored before it was woken is seen
            while !theirs.is_ended.load(Ordering::Acquire) {
                if !theirs.is_wanted.load(Ordering::Acquire) {
                    std::thread::park();
                    continue;
                }
                let folded = fold();
                // ordering: it is wanted again by who stores after this
                theirs.is_wanted.store(false, Ordering::Release);
                if let Err(error) = folded {
                    // who writes finds out when the lane is full
                    tracing::debug!("not folded: {error}");
                }
            }
        })?;
        let wakes = Wakes { state, thread: thread.thread().clone() };
        Ok(Folder { wakes, thread: Some(thread) })
    }

    /// For who stores.
    pub fn wakes(&self) -> Wakes {
        self.wakes.clone()
    }

    /// A forked child's: the thread is not here.
    pub fn forget(mut self) {
        std::mem::forget(self.thread.take());
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // ordering: the thread that is woken sees it
        self.wakes.state.is_ended.store(true, Ordering::Release);
        thread.thread().unpark();
        // it asks nobody any more
        let _ = thread.join();
    }
}
