//! What goes wrong again and again is logged now and then: whoever reads a damaged block in a loop
//! must not fill the disk that holds the log.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time in which the same words are logged once.
const PAUSE: Duration = Duration::from_secs(10);
/// Words remembered at once; of more different ones in that time only their number is logged.
const WORDS_MAX: usize = 64;

/// What was logged of late. One for all mounts of the process, as the log is.
static LATE: Mutex<Option<Late>> = Mutex::new(None);

/// Logs why a request failed, unless the same was logged a moment ago.
pub(super) fn log(text: &str) {
    let mut late = LATE.lock().unwrap_or_else(PoisonError::into_inner);
    let said = late.get_or_insert_with(Late::default).say(text, Instant::now());
    drop(late);
    match said {
        None => {}
        Some(0) => tracing::error!("{text}"),
        Some(left_out) => tracing::error!(left_out, "{text}"),
    }
}

#[derive(Debug, Default)]
struct Late {
    said: HashMap<String, Said>,
    /// Different words for which there was no room.
    unnamed: u64,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    left_out: u64,
}

impl Late {
    /// Whether `text` is to be logged now, and if so, how many messages were not since the last
    /// that was.
    fn say(&mut self, text: &str, now: Instant) -> Option<u64> {
        let is_late = |said: &Said| now.duration_since(said.at) < PAUSE;
        if let Some(said) = self.said.get_mut(text) {
            if is_late(said) {
                said.left_out += 1;
                return None;
            }
            said.at = now;
            return Some(std::mem::take(&mut said.left_out) + std::mem::take(&mut self.unnamed));
        }
        if self.said.len() >= WORDS_MAX {
            // What is forgotten here is counted, too.
            let forgotten = &mut self.unnamed;
            self.said.retain(|_, said| {
                let stays = is_late(said);
                *forgotten += if stays { 0 } else { said.left_out };
                stays
            });
        }
        if self.said.len() >= WORDS_MAX {
            self.unnamed += 1;
            return None;
        }
        self.said.insert(text.to_owned(), Said { at: now, left_out: 0 });
        Some(std::mem::take(&mut self.unnamed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_are_logged_now_and_then_with_what_was_left_out() {
        let (mut late, start) = (Late::default(), Instant::now());
        assert_eq!(late.say("block 7", start), Some(0));
        for _ in 0..1000 {
            assert_eq!(late.say("block 7", start + PAUSE / 2), None);
        }
        assert_eq!(late.say("block 8", start + PAUSE / 2), Some(0));
        assert_eq!(late.say("block 7", start + PAUSE), Some(1000));
        assert_eq!(late.say("block 7", start + PAUSE), None);
        assert_eq!(late.say("block 7", start + PAUSE * 2), Some(1));
    }

    #[test]
    fn ever_new_words_are_bounded_and_all_are_counted() {
        let (mut late, start) = (Late::default(), Instant::now());
        let mut say = |n: usize, at| late.say(&format!("block {n}"), at);
        let logged = (0..1000).filter(|&n| say(n, start).is_some()).count();
        assert_eq!(logged, WORDS_MAX);
        assert_eq!(say(0, start), None);
        // Those that had no room, and the second one of the first.
        let left_out = 1000 - WORDS_MAX as u64 + 1;
        assert_eq!(say(5000, start + PAUSE), Some(left_out));
        assert_eq!(say(5001, start + PAUSE), Some(0));
        assert!(late.said.len() <= WORDS_MAX);
    }
}
