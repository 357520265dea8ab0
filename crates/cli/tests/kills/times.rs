//! How long the others waited.

use std::time::Duration;

/// Waits of one kind.
#[derive(Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// The longest, milliseconds.
    pub fn slowest_ms(&self) -> f64 {
        self.0.iter().max().map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }

    /// A line of a report, milliseconds.
    pub fn line(&self, what: &str) -> String {
        let mut sorted = self.0.clone();
        sorted.sort();
        let at = |part: usize| {
            let at = sorted.len().saturating_sub(1) * part / 100;
            sorted.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        let (half, most, all) = (at(50), at(99), at(100));
        format!("{what:24} n={:<6} p50={half:<8.2} p99={most:<8.2} max={all:.2} ms", self.0.len())
    }
}
