//! How many threads run on some CPUs: by what the system says of each CPU's time, looked at when it
//! is asked for and the last look is old, and by those who have come since.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use topology::CpuTime;

/// How old a look may be.
const OLD: Duration = Duration::from_millis(100);

/// What runs on CPUs.
#[derive(Debug, Default)]
pub struct Pressure(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    looked: Option<Instant>,
    /// What had passed of each CPU's time then.
    times: HashMap<u32, CpuTime>,
    /// The part of the time for which each was busy before that.
    busy: HashMap<u32, f32>,
    /// Threads that have come since, by the first CPU of those where they are.
    came: HashMap<u32, u32>,
}

impl Pressure {
    /// About how many threads run on these CPUs, or want to; too many where somebody else asks
    /// just now.
    pub fn running(&self, cpus: &[u32]) -> u32 {
        // who looks just now is not waited for: what is held meanwhile others wait for
        let Some(mut state) = self.0.try_lock() else { return u32::MAX };
        if state.looked.is_none_or(|looked| looked.elapsed() >= OLD) {
            state.look();
        }
        let busy: f32 = cpus.iter().filter_map(|cpu| state.busy.get(cpu)).sum();
        let came = cpus.first().and_then(|cpu| state.came.get(cpu)).copied();
        (busy.round() as u32).saturating_add(came.unwrap_or(0))
    }

    /// One more has come to these CPUs.
    pub fn comes(&self, cpus: &[u32]) {
        if let Some(first) = cpus.first() {
            *self.0.lock().came.entry(*first).or_default() += 1;
        }
    }
}

impl State {
    /// What is not known is not busy: a system that tells nothing keeps nobody from moving.
    fn look(&mut self) {
        self.looked = Some(Instant::now());
        self.came.clear();
        let times = topology::cpu_times().unwrap_or_default();
        let busy = |(cpu, now): (&u32, &CpuTime)| {
            let before = self.times.get(cpu)?;
            Some((*cpu, now.busy_since(before)))
        };
        self.busy = times.iter().filter_map(busy).collect();
        self.times = times;
    }
}
