//! Slowing changes down: who takes what is scarce pays for it in time, all of them one after the
//! other, however many they are.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Shorter sleeps are saved up: the kernel's are not exact.
const SLEEP_MIN: Duration = Duration::from_micros(200);
/// The longest one.
pub const SLEEP_MAX: Duration = Duration::from_millis(200);

/// Who pays, and what that came to; `S` is what the price is reckoned from.
#[derive(Debug)]
pub struct Brake<S> {
    /// And when the last one who pays may go on.
    state: Mutex<(S, Instant)>,
    /// Time that was slept in all, ns.
    slept_ns: AtomicU64,
    /// How often somebody found nothing left, and waited for some.
    waits: AtomicU64,
}

impl<S: Default> Default for Brake<S> {
    fn default() -> Brake<S> {
        Brake {
            state: Mutex::new((S::default(), Instant::now())),
            slept_ns: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }
}

impl<S> Brake<S> {
    /// Sleeps for as long as the thread has to pay, behind those who came before. It holds nothing.
    pub fn pay(&self, price: impl FnOnce(&mut S, Instant) -> Duration) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let price = price(&mut state.0, now);
        state.1 = (state.1.max(now) + price).min(now + SLEEP_MAX);
        let sleep = state.1 - now;
        drop(state);
        if sleep > SLEEP_MIN {
            std::thread::sleep(sleep);
            self.slept_ns.fetch_add(now.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Time that changes were delayed in all.
    pub fn slept(&self) -> Duration {
        Duration::from_nanos(self.slept_ns.load(Ordering::Relaxed))
    }

    /// Somebody found nothing left, and waits for some.
    pub fn waits(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// How often somebody did.
    pub fn waited(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}
