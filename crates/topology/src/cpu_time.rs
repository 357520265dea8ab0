//! What CPUs have done with their time, as the kernel counts it (`/proc/stat`).

use crate::CPU_LIMIT;
use crate::{Error, Result};
use std::collections::HashMap;
use std::path::Path;

const PATH: &str = "/proc/stat";
/// Of the columns behind a CPU's name, the two in which it had nothing to do: idle, and that while
/// somebody waited for a device.
const IDLE: [usize; 2] = [3, 4];
/// Columns that are time of its own: what guests had is in the first two, too.
const COLUMNS: usize = 8;

/// What a CPU has done with its time since the system began, in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTime {
    busy: u64,
    idle: u64,
}

impl CpuTime {
    /// The part of the time since then for which it was busy.
    pub fn busy_since(&self, before: &CpuTime) -> f32 {
        let busy = self.busy.saturating_sub(before.busy);
        // a kernel may take idle time back
        let idle = self.idle.saturating_sub(before.idle);
        if busy + idle == 0 { 0.0 } else { busy as f32 / (busy + idle) as f32 }
    }
}

/// What each CPU that is online has done with its time.
pub fn cpu_times() -> Result<HashMap<u32, CpuTime>> {
    let text = std::fs::read_to_string(PATH);
    let text = text.map_err(|source| Error::Read { path: Path::new(PATH).into(), source })?;
    Ok(text.lines().filter_map(time_of).collect())
}

/// A line of a CPU: what is no such line is passed over.
fn time_of(line: &str) -> Option<(u32, CpuTime)> {
    let mut words = line.strip_prefix("cpu")?.split(' ');
    let cpu = words.next()?.parse().ok().filter(|cpu| *cpu < CPU_LIMIT)?;
    let mut time = CpuTime::default();
    for (column, word) in words.take(COLUMNS).enumerate() {
        let ticks = word.parse::<u64>().ok()?;
        let sum = if IDLE.contains(&column) { &mut time.idle } else { &mut time.busy };
        *sum = sum.saturating_add(ticks);
    }
    Some((cpu, time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_what_a_cpu_did() {
        let (cpu, then) = time_of("cpu3 100 0 50 800 50 1 2 3 99 99").unwrap();
        assert_eq!((cpu, then), (3, CpuTime { busy: 156, idle: 850 }));
        let (_, now) = time_of("cpu3 130 0 50 810 50 1 2 3 99 99").unwrap();
        assert_eq!(now.busy_since(&then), 0.75);
        assert_eq!(then.busy_since(&then), 0.0);
        assert_eq!(then.busy_since(&now), 0.0, "time that goes back");
        for odd in ["cpu 1 2 3 4", "cpu99999999 1", "cpu1 x", "cpux 1 2", "intr 5", ""] {
            assert_eq!(time_of(odd), None, "{odd}");
        }
    }

    #[test]
    fn every_cpu_that_may_be_used_is_told_of() {
        let times = cpu_times().unwrap();
        assert!(crate::allowed_cpus().unwrap().iter().all(|cpu| times.contains_key(cpu)));
    }
}
