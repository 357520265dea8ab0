//! The read cache: what a process has read, and reads again by itself.
//!
//! A range of two pages, which each write fills as a whole and each read reads as a whole. Each
//! process has a writing thread, which needs the lease of both pages; a thread that reads by
//! asking, and keeps what it was told; and one that reads what was kept. The service has a door of
//! its own that writes without a lease.

mod fault;
mod process;
mod service;
mod state;

pub use fault::Fault;
pub use process::ProcessStep;
pub use service::ServiceStep;
pub use state::{
    Asker, Bounds, PAGES, PROCESSES, Phase, Process, RangeUse, Reader, State, Told, WRITES, Writer,
};

crate::machine::machine!(State, Bounds, PROCESSES, ProcessStep, ServiceStep, |state: &State| state
    .story
    .flaw(&state.happened()));
