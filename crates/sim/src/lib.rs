//! A machine in numbers: threads on it read and write files, by one placement or another.
//!
//! ```text
//! description  machines as people describe them
//! memory     a node's memory: those who are at it share what it moves
//! workers    the workers of a node: what waits for them, and turns
//! system     how a file system places data, and who copies
//! workload   what threads do
//! setting    what is run
//! events     what is to happen, in its order
//! run        all of that, event by event
//! outcome    what came of it
//! published  what others have measured, and what a run says of it
//! latency    how long calls took
//! random     numbers that follow from a seed
//! ```
//!
//! Time is in nanoseconds of the machine, and nothing here has a clock, does I/O or draws a number
//! that does not follow from the seed: the same run has the same outcome. Who copies is decided by
//! the very code of the engine (`placement`).
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod description;
mod events;
mod latency;
mod memory;
mod outcome;
mod published;
mod random;
mod run;
mod setting;
mod system;
mod workers;
mod workload;

pub use description::{Error, KNOWN, parse};
pub use latency::Latency;
pub use outcome::{NodeOutcome, Outcome};
pub use published::{By, Compared, Published, compare, published};
pub use run::run;
pub use setting::{Refused, Setting};
pub use system::{Layout, Rule, SYSTEMS, System};
pub use workload::Workload;
