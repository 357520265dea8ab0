//! Threads that serve long calls: how many there are, and that none is left when the service ends.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// How many there are.
#[derive(Clone, Debug, Default)]
pub struct SlowThreads(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    threads: Mutex<usize>,
    none: Condvar,
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub struct SlowThread(SlowThreads);

impl SlowThreads {
    /// One more, if that is no more than so many.
    pub fn begin(&self, most: usize) -> Option<SlowThread> {
        let mut threads = self.0.threads.lock();
        (*threads < most).then(|| {
            *threads += 1;
            SlowThread(self.clone())
        })
    }

    /// Waits until there is none.
    pub fn wait_for_the_last(&self) {
        self.0.none.wait_while(&mut self.0.threads.lock(), |threads| *threads > 0);
    }
}

impl Drop for SlowThread {
    fn drop(&mut self) {
        let Count { threads, none } = &*self.0.0;
        let mut threads = threads.lock();
        *threads -= 1;
        if *threads == 0 {
            none.notify_all();
        }
    }
}
