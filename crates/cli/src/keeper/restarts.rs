//! How often a server that died is started again.

use std::time::{Duration, Instant};

/// Time in which deaths are counted together.
const WINDOW: Duration = Duration::from_secs(60);
/// Pause before each start in that time: none before the first, for somebody waits. After the last
/// the keeper gives up: whatever kills the server does so every time.
const PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(8),
];

/// The deaths of late.
#[derive(Debug, Default)]
pub struct Restarts {
    recent: Vec<Instant>,
}

impl Restarts {
    /// Counts a death; gives the pause before the next start, or `None` to give up.
    pub fn died(&mut self, now: Instant) -> Option<Duration> {
        self.recent.retain(|at| now.duration_since(*at) < WINDOW);
        let pause = PAUSES.get(self.recent.len()).copied();
        self.recent.push(now);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_in_a_row_end_it_and_rare_ones_do_not() {
        let start = Instant::now();
        let mut restarts = Restarts::default();
        for pause in PAUSES {
            assert_eq!(restarts.died(start), Some(pause));
        }
        assert_eq!(restarts.died(start), None);
        let later = start + WINDOW;
        assert_eq!(restarts.died(later), Some(Duration::ZERO));
        assert_eq!(restarts.died(later + WINDOW), Some(Duration::ZERO));
    }
}
