//! Signals that ask a process to end, taken by one thread instead of a handler.

use std::sync::OnceLock;

use nix::sys::signal::{SigSet, Signal};

use crate::error::{Error, Result};

/// The signals that ask for an end.
const ENDS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// The signals that end the server cleanly.
#[derive(Clone, Copy, Debug)]
pub struct Signals(SigSet);

impl Signals {
    /// Blocks them in this thread and in those that it starts: call it before there are others.
    pub fn block() -> std::io::Result<Signals> {
        let mut set = SigSet::empty();
        ENDS.into_iter().for_each(|signal| set.add(signal));
        set.thread_block()?;
        // Of no use here, and nothing to die of.
        let mut others = SigSet::empty();
        for signal in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGALRM] {
            others.add(signal);
        }
        others.thread_block()?;
        Ok(Signals(set))
    }

    /// The signals themselves.
    pub fn set(&self) -> &SigSet {
        &self.0
    }

    /// Calls `each` for every signal, from a thread of its own, as long as the process lives.
    pub fn forward(self, each: impl Fn(Signal) + Send + 'static) -> std::io::Result<()> {
        let wait = move || {
            while let Ok(signal) = self.0.wait() {
                each(signal);
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
    }
}

/// What asked this command to end: see [`end_between_steps`].
static ASKED: OnceLock<Signal> = OnceLock::new();

/// From now on a signal ends this command between two of its steps, where it can take back what it
/// has half done; the second one ends it at once. Call it before there are other threads.
pub fn end_between_steps() {
    let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored(&status));
    let mut set = SigSet::empty();
    // What is ignored, as nohup(1) has it, stays so.
    let heard = ENDS.into_iter().filter(|signal| ignored >> (*signal as u32 - 1) & 1 == 0);
    heard.for_each(|signal| set.add(signal));
    if set.thread_block().is_err() {
        return;
    }
    let signals = Signals(set);
    let watched = signals.forward(move |signal| {
        if ASKED.set(signal).is_err() {
            die_of(signal);
        }
    });
    if watched.is_err() {
        // Nobody would hear them.
        let _ = set.thread_unblock();
    }
}

/// Whether this command has been asked to end.
pub fn asked_to_end() -> Option<Signal> {
    ASKED.get().copied()
}

/// An error if this command has been asked to end.
pub fn goes_on() -> Result<()> {
    asked_to_end().map_or(Ok(()), |signal| Err(Error::Stopped(signal)))
}

/// Ends this process as the signal would have: a shell's loop goes on after an exit, whatever its
/// code.
pub fn die_of(signal: Signal) {
    let mut set = SigSet::empty();
    set.add(signal);
    // To this thread, which does not block it any more.
    let died = set.thread_unblock().and_then(|()| nix::sys::signal::raise(signal));
    tracing::debug!(?died, "a signal that did not end the process");
}

/// What a shell says of a process that a signal ended.
pub fn code(signal: Signal) -> u8 {
    128 + signal as u8
}

/// The signals that are ignored, by the status of a process (proc(5)); bit 0 is signal 1.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000000001\nSigCgt:\tff\n"), 1);
        assert_eq!(ignored("SigIgn:\tnonsense\n"), 0);
        assert_eq!(ignored(""), 0);
        assert_eq!(code(Signal::SIGINT), 130);
    }
}
