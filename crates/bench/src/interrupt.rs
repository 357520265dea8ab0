//! Nothing is left behind by a run that is interrupted.
//!
//! A thread takes the signals that ask a process to end, removes the scratch directories and ends
//! it. Mounts are in a namespace of the row's own and go with it (`door`).

use crate::options::Options;
use crate::scratch;
use nix::sys::signal::{SigSet, Signal};
use std::sync::Once;

/// From now on such a signal removes what was made in the directories of `options`.
///
/// The signals are blocked in this thread and in those that it starts from now on.
pub fn clean_up_after(options: &Options) {
    static ONCE: Once = Once::new();
    let (dir, disk) = (options.dir().to_path_buf(), options.disk());
    ONCE.call_once(|| {
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        // without it, an interrupted run leaves its directories to the next one
        if signals.thread_block().is_err() {
            return;
        }
        let wait = move || {
            if let Ok(signal) = signals.wait() {
                scratch::end_all(&[&dir, &disk]);
                std::process::exit(128 + signal as i32);
            }
        };
        if std::thread::Builder::new().name("interrupt".to_owned()).spawn(wait).is_err() {
            let _ = signals.thread_unblock();
        }
    });
}
