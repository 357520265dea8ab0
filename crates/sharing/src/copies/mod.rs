//! Copies: what processes read without asking, and when they may.

mod fault;
mod process;
mod service;
mod state;

pub use fault::Fault;
pub use process::ProcessStep;
pub use service::ServiceStep;
pub use state::{Bounds, HOLE, PROCESSES, Phase, Process, Reader, Record, State, WRITES, Writer};

crate::machine::machine!(State, Bounds, PROCESSES, ProcessStep, ServiceStep, |state: &State| state
    .story
    .flaw(&state.happened()));
