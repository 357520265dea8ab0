//! Many runs at once, on as many CPUs as there are.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::outcome::Outcome;
use crate::run::run;
use crate::setting::{Refused, Setting};

/// Runs all of these; what came of each, in their order.
pub fn run_all(settings: &[Setting]) -> Result<Vec<Outcome>, Refused> {
    each(settings, run).into_iter().collect()
}

/// Does it with each of these; what came of it, in their order.
pub fn each<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let go_on = || {
            loop {
                // ordering: each number is for one of them, and that is all
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(it) = all.get(number) else { return };
                let came = work(it);
                done.lock().unwrap_or_else(PoisonError::into_inner).push((number, came));
            }
        };
        (0..threads).for_each(|_| {
            scope.spawn(go_on);
        });
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, came)| came).collect()
}
