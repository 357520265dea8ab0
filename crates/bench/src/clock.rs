//! Wall time, and CPU time of this thread and of all others of the process.

use crate::error::{Result, io};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two looks at whether the background is at rest.
const LOOK: Duration = Duration::from_millis(2);
/// CPU time between two looks below which it is.
const REST_NS: u64 = 50_000;
/// Looks before it is taken to be at rest anyway.
const LOOKS_MAX: usize = 5000;

fn cpu_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of the process's other threads, ns.
pub fn others_ns() -> u64 {
    cpu_ns(ClockId::ProcessCPUTime).saturating_sub(cpu_ns(ClockId::ThreadCPUTime))
}

/// CPU time of this thread, ns.
pub fn thread_ns() -> u64 {
    cpu_ns(ClockId::ThreadCPUTime)
}

/// CPU time of this process's threads with this name, ns.
pub fn named_ns(name: &str) -> Result<u64> {
    threads_ns(Path::new("/proc/self"), Some(name))
}

/// CPU time of the threads, all or those with a name, of the process that is this directory of
/// proc(5), ns.
pub fn threads_ns(process: &Path, name: Option<&str>) -> Result<u64> {
    let tasks = process.join("task");
    let mut sum = 0;
    for task in std::fs::read_dir(&tasks).map_err(io(&tasks))?.flatten() {
        let text = |file: &str| std::fs::read_to_string(task.path().join(file));
        // a thread that has ended since is none of those that are asked for
        let Ok(found) = text("comm") else { continue };
        if name.is_none_or(|name| found.trim_end() == name) {
            // proc(5): time on a CPU, time waited for one, turns
            let time = text("schedstat").map_err(io(&task.path()))?;
            sum += time.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(sum)
}

/// Waits until no other thread of the process does anything.
pub fn rest() {
    for _ in 0..LOOKS_MAX {
        let before = others_ns();
        std::thread::sleep(LOOK);
        // the two clocks are read one after the other: the difference may fall a little
        if others_ns().saturating_sub(before) < REST_NS {
            return;
        }
    }
}

/// What one turn took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// Operations.
    pub count: u64,
    /// Time of the caller, ns.
    pub wall_ns: u64,
    /// CPU time of the caller, ns.
    pub own_cpu_ns: u64,
    /// CPU time of all other threads until they rested, ns.
    pub others_ns: u64,
}

impl Turn {
    /// Times `run`, which does `count` operations, and waits until the background rests.
    pub fn time<E>(
        count: u64,
        run: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Turn, E> {
        let (others, own) = (others_ns(), thread_ns());
        let start = Instant::now();
        run()?;
        let wall_ns = start.elapsed().as_nanos() as u64;
        let own_cpu_ns = thread_ns() - own;
        rest();
        Ok(Turn { count, wall_ns, own_cpu_ns, others_ns: others_ns().saturating_sub(others) })
    }

    /// Two turns as one.
    pub fn and(self, other: Turn) -> Turn {
        Turn {
            count: self.count + other.count,
            wall_ns: self.wall_ns + other.wall_ns,
            own_cpu_ns: self.own_cpu_ns + other.own_cpu_ns,
            others_ns: self.others_ns + other.others_ns,
        }
    }

    /// Caller's time of one operation, ns.
    pub fn caller_ns(&self) -> f64 {
        self.wall_ns as f64 / self.count as f64
    }

    /// The background's CPU time for one operation, ns.
    pub fn background_ns(&self) -> f64 {
        self.others_ns as f64 / self.count as f64
    }

    /// Everything that one operation took, ns.
    pub fn whole_ns(&self) -> f64 {
        self.caller_ns() + self.background_ns()
    }

    /// CPU time that one operation took, in all threads, ns.
    pub fn cpu_ns(&self) -> f64 {
        (self.own_cpu_ns + self.others_ns) as f64 / self.count as f64
    }
}
