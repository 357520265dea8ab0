//! What the engine costs, beside the floor of the same run.
//!
//! Each row of the table compares one call of the engine with the least that the hardware could
//! take for it (the floor), with what another file system takes (the peer), or with a limit that
//! the project set itself. How a row is measured:
//!
//! - ours and the floor take turns in rounds, each long enough to hold a checkpoint; printed are
//!   medians over the rounds, and the spread of the rounds' ratios;
//! - *ours* is the caller's time plus the CPU time of every other thread of the process: what the
//!   background does for a call is part of the call's cost. The next turn begins only when the
//!   background is at rest, so that the floor never pays for it;
//! - the log wraps at least 3 times, the file is at least 8 times the log, and the pool is
//!   measured 50 % and 90 % full: the row's figure is that of the worse of the two;
//! - the floor works on a mapping of the same size on the same kind of file, with the same dice;
//!   all pages of both mappings are touched before.
//!
//! What it is not: a load generator, or a comparison of machines.
#![forbid(unsafe_code)]

mod bare;
mod bare_names;
mod caller;
mod clock;
mod deck;
mod dice;
mod door;
mod duel;
mod engine;
mod error;
mod interrupt;
mod lab;
#[cfg(any(test, feature = "lock-trace"))]
mod lock_model;
mod looped;
#[cfg(feature = "lock-trace")]
mod metadata;
mod options;
mod peer;
mod picture;
mod piped;
mod remote;
mod row;
mod rows;
mod scratch;
mod service;
mod sharing;
mod stage;
mod stats;
mod study;
mod tiered;
mod ycsb;

pub use error::{Error, Result};
#[cfg(feature = "lock-trace")]
pub use metadata::metadata;
pub use options::Options;
pub use picture::{Line, Words, draw};
pub use row::{Against, Fill, Row, Spread, table};
pub use rows::names;
pub use stage::machine;
pub use study::{Study, study};

/// Measures what `options` ask for, in the order of [`names`].
///
/// # Errors
/// `UnknownRow` for a name that is none, and what the engine or the kernel said.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    run_each(options, &mut |_| {})
}

/// The same, and shows each row as soon as it is there.
///
/// # Errors
/// Those of [`run`].
pub fn run_each(options: &Options, show: &mut dyn FnMut(&Row)) -> Result<Vec<Row>> {
    caller::be_caller_if_asked();
    interrupt::clean_up_after(options);
    let mut done = Vec::new();
    for (_, measure) in rows::chosen(options)? {
        let row = measure(options)?;
        show(&row);
        done.push(row);
    }
    Ok(done)
}
