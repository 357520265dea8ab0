//! How often a server that died is started again.

use std::time::{Duration, Instant};

/// A server that served for so long was killed by something else than what it began with: the next
/// one starts at once, however often that happens.
const LONG_ENOUGH: Duration = Duration::from_millis(250);
/// Time in which other deaths are counted together.
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

/// The early deaths of late.
#[derive(Debug, Default)]
pub struct Restarts {
    recent: Vec<Instant>,
    serving_since: Option<Instant>,
}

impl Restarts {
    /// A server answers from now on.
    pub fn serves(&mut self, now: Instant) {
        self.serving_since = Some(now);
    }

    /// Counts a death; gives the pause before the next start, or `None` to give up.
    pub fn died(&mut self, now: Instant) -> Option<Duration> {
        let served = self.serving_since.take().map(|since| now.duration_since(since));
        if served.is_some_and(|served| served >= LONG_ENOUGH) {
            return Some(Duration::ZERO);
        }
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
    fn early_deaths_in_a_row_end_it_and_rare_ones_do_not() {
        let start = Instant::now();
        let mut restarts = Restarts::default();
        for pause in PAUSES {
            restarts.serves(start);
            assert_eq!(restarts.died(start + LONG_ENOUGH / 2), Some(pause));
        }
        assert_eq!(restarts.died(start), None);
        let later = start + 2 * WINDOW;
        assert_eq!(restarts.died(later), Some(Duration::ZERO));
        assert_eq!(restarts.died(later + WINDOW), Some(Duration::ZERO));
    }

    #[test]
    fn servers_that_served_are_followed_at_once() {
        let mut now = Instant::now();
        let mut restarts = Restarts::default();
        for _ in 0..100 {
            restarts.serves(now);
            now += LONG_ENOUGH;
            assert_eq!(restarts.died(now), Some(Duration::ZERO));
        }
        // One that never came so far is another matter.
        restarts.died(now);
        assert_eq!(restarts.died(now), Some(PAUSES[1]));
    }
}
