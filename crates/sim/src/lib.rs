//! A machine in numbers: threads on it read and write files, by one placement or another.
//!
//! ```text
//! description  machines as people describe them
//! memory     a node's memory: those who are at it share what it moves
//! workers    the workers of a node: what waits for them, and turns
//! cpus       the CPUs of a node: who is there and has none waits
//! movers     who moves data to a node
//! system     how a file system places data, and who copies
//! workload   what threads do
//! trace      what threads of a real pool did
//! threads    what each does next
//! files      where the bytes of files are
//! setting    what is run
//! events     what is to happen, in its order
//! run        all of that, event by event
//! outcome    what came of it
//! runs       many of them at once
//! personality  programs that file systems are measured with
//! program    programs as people describe them
//! paper      what three papers show
//! published  what others have measured, and what a run says of it
//! fit        a machine's numbers from that
//! latency    how long calls took
//! random     numbers that follow from a seed
//! ```
//!
//! Time is in nanoseconds of the machine, and nothing here has a clock, does I/O or draws a number
//! that does not follow from the seed: the same run has the same outcome. Who copies is decided by
//! the very code of the engine (`placement`).
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod cpus;
mod description;
mod events;
mod files;
mod fit;
mod latency;
mod memory;
mod movers;
mod outcome;
mod paper;
mod personality;
mod program;
mod published;
mod random;
mod run;
mod runs;
mod setting;
mod system;
mod threads;
mod trace;
mod workers;
mod workload;

pub use description::{Error, KNOWN, parse};
pub use fit::{Fit, LeftOut, Number, fit, leave_one_out};
pub use latency::Latency;
pub use outcome::{NodeOutcome, Outcome};
pub use paper::{Figure, Headline, PAPERS, Paper, paper};
pub use personality::Personality;
pub use program::{known_workloads, parse_workload};
pub use published::{By, Compared, Model, Published, compare, published};
pub use run::run;
pub use setting::{Refused, Setting, THREADS_MAX};
pub use system::{Layout, Moves, Rule, SYSTEMS, System};
pub use trace::{Trace, TraceError, TraceText, TracedCall, TracedFile, TracedThread};
pub use workload::{Made, Step, Workload};
