//! The log of a mount: what its keeper and its servers say, each for itself, into one file.

use std::io::IsTerminal;

use tracing_subscriber::filter::LevelFilter;

use crate::error::{Error, Result};
use crate::output;

/// Where more or less is asked of the log, as in `NEARSIDE_LOG=debug`.
const VARIABLE: &str = "NEARSIDE_LOG";

/// An error unless what is asked of the log can be had.
pub fn judge() -> Result<()> {
    level().map(|_| ())
}

fn level() -> Result<LevelFilter> {
    match std::env::var_os(VARIABLE) {
        None => Ok(LevelFilter::INFO),
        Some(asked) => asked.to_str().and_then(parse).ok_or_else(|| {
            let asked = asked.display();
            Error::Usage(format!("{VARIABLE}={asked} is none of error, warn, info, debug, trace"))
        }),
    }
}

fn parse(level: &str) -> Option<LevelFilter> {
    match level {
        "error" => Some(LevelFilter::ERROR),
        "warn" => Some(LevelFilter::WARN),
        "info" => Some(LevelFilter::INFO),
        "debug" => Some(LevelFilter::DEBUG),
        "trace" => Some(LevelFilter::TRACE),
        _ => None,
    }
}

/// Logs to stderr, which the background keeper has pointed at the pool's log file.
pub fn start() {
    // Fails only when a log has been started already.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level().unwrap_or(LevelFilter::INFO))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && output::may_colour())
        // Else a log that cannot be written (a full disk) is told to stderr, which is that very
        // log, and the thread panics.
        .log_internal_errors(false)
        .try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words() {
        assert_eq!(parse("trace"), Some(LevelFilter::TRACE));
        assert_eq!(parse("debugg"), None);
        assert_eq!(parse(""), None);
    }
}
