//! How far a command is: one line on a terminal, for what takes longer than a second.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::size::show;

/// What takes no longer says nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(200);
/// Columns of the bar.
const BAR_COLUMNS: u64 = 20;

/// A line that says how far a command is, until it is dropped.
pub struct Bar {
    state: Arc<State>,
    drawing: Option<(Sender<()>, JoinHandle<()>)>,
}

#[derive(Default)]
struct State {
    done: AtomicU64,
    /// 0: nobody knows.
    of: AtomicU64,
}

impl Bar {
    /// A line that says `what` is being done. Nothing is drawn where stderr is no terminal.
    pub fn new(what: &'static str) -> Bar {
        let state = Arc::new(State::default());
        let drawing = std::io::stderr().is_terminal().then(|| draw_in_thread(what, state.clone()));
        Bar { state, drawing: drawing.flatten() }
    }

    /// So many bytes are done, of so many.
    pub fn set(&self, done: u64, of: u64) {
        self.state.done.store(done, Ordering::Relaxed);
        self.state.of.store(of, Ordering::Relaxed);
    }

    /// So many more bytes are done.
    pub fn add(&self, bytes: u64) {
        self.state.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many more bytes are to be done.
    pub fn expect(&self, bytes: u64) {
        self.state.of.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.drawing.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// A command that cannot have one more thread goes on without the line.
fn draw_in_thread(what: &'static str, state: Arc<State>) -> Option<(Sender<()>, JoinHandle<()>)> {
    let (stop, stopped) = channel::<()>();
    let began = Instant::now();
    let draw = move || {
        let mut drawn = false;
        let mut pause = PATIENCE;
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            // A terminal that went away is no reason to end.
            let line = line(what, &state, began.elapsed());
            let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
            drawn = true;
            pause = PAUSE;
        }
        if drawn {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    };
    let spawned = std::thread::Builder::new().name("progress".to_owned()).spawn(draw);
    spawned.ok().map(|thread| (stop, thread))
}

fn line(what: &str, state: &State, since: Duration) -> String {
    let (done, of) = (state.done.load(Ordering::Relaxed), state.of.load(Ordering::Relaxed));
    let seconds = since.as_secs();
    if done == 0 && of == 0 {
        return format!("{what}: {seconds} s");
    }
    let rate = show((done as f64 / since.as_secs_f64().max(0.001)) as u64);
    if of == 0 {
        return format!("{what}: {}, {rate}/s, {seconds} s", show(done));
    }
    let part = (done.min(of) as f64 / of as f64 * BAR_COLUMNS as f64) as u64;
    let (full, empty) = ("#".repeat(part as usize), "-".repeat((BAR_COLUMNS - part) as usize));
    format!("{what}: [{full}{empty}] {} of {}, {rate}/s, {seconds} s", show(done), show(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_known() {
        let bar = Bar { state: Arc::default(), drawing: None };
        let said = |bar: &Bar| line("copying", &bar.state, Duration::from_secs(4));
        assert_eq!(said(&bar), "copying: 4 s");
        bar.add(1 << 20);
        assert_eq!(said(&bar), "copying: 1 MiB, 256 KiB/s, 4 s");
        bar.expect(4 << 20);
        assert!(said(&bar).contains("[#####---------------] 1 MiB of 4 MiB"), "{}", said(&bar));
        // A file that grew while it was copied.
        bar.set(9, 8);
        assert!(said(&bar).contains(&format!("[{}]", "#".repeat(20))), "{}", said(&bar));
    }
}
