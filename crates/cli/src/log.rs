//! The log of a mount: what its keeper and its servers say, each for itself, into one file.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::output;

/// Where more or less is asked of the log, as in `NEARSIDE_LOG=debug`.
const VARIABLE: &str = "NEARSIDE_LOG";
/// What is logged otherwise.
const DEFAULT: &str = "info";

/// Logs to stderr, which the background keeper has pointed at the pool's log file.
pub fn start() {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    // Fails only when a log has been started already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && output::may_colour())
        // Else a log that cannot be written (a full disk) is told to stderr, which is that very
        // log, and the thread panics.
        .log_internal_errors(false)
        .try_init();
}
