//! Regions of attached processes: copies that are loaded from without a look at anything.
//!
//! One page. Each process has a thread that commits to it under a lease, and stores what it
//! committed into its copy by itself; one that loads from the copy; and one that serves its faults.
//! The service has a door that writes without a lease and stores into the copies; and another one
//! may own the pool, upon which processes hide what they have, and have copies made anew.
//!
//! A load promises less than a read: what had returned is seen, to whomever, what never happened is
//! not, and no process goes back in time.

mod fault;
mod process;
mod service;
mod state;

pub use fault::Fault;
pub use process::ProcessStep;
pub use service::ServiceStep;
pub use state::{Bounds, Flaw, PROCESSES, Phase, Process, RangeUse, State, WRITES, Writer};

crate::machine::machine!(State, Bounds, PROCESSES, ProcessStep, ServiceStep, |state: &State| state
    .wrong);
