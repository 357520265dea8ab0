//! Signals that ask the server to end, taken by one thread instead of a handler.

use nix::sys::signal::{SigSet, Signal};

/// The signals that end the server cleanly.
#[derive(Clone, Copy, Debug)]
pub struct Signals(SigSet);

impl Signals {
    /// Blocks them in this thread and in those that it starts: call it before there are others.
    pub fn block() -> std::io::Result<Signals> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            set.add(signal);
        }
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
