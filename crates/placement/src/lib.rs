//! Which way an access takes to its data: observations in, decision and reason out.
//!
//! The engine asks it for each access that is large enough to matter, or whose node has limits, and
//! does what it says. It does no I/O, has no clock and keeps no state but what its caller hands it,
//! so that a simulator runs the very same code.
//!
//! Four ways: the caller copies, or a worker of the data's node ([`Policy`]); the thread goes to
//! its data ([`ThreadRule`]), or the data to its readers ([`DataRule`]). [`Costs`] says what
//! accesses take where that is weighed, [`Levers`] what of it is carried out.
//!
//! A *node* here is the memory that a slice lies on. What its memory likes is measured
//! (`nearside calibrate`), never taken from a table; without a measurement a node has no limit, and
//! only large pieces on other nodes are delegated.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod calibration;
mod costs;
mod data;
mod levers;
mod machine;
mod policy;
mod thread;

pub use calibration::{Calibration, Place, Point};
pub use costs::Costs;
pub use data::{Copying, DataRule, Heat, Rests, WINDOW_NS, Weigh};
pub use levers::{Lever, Levers};
pub use machine::{Class, Curve, Machine, MachineAccess};
pub use policy::{
    Access, BLOCK_BYTES, Decision, Kind, LARGE_BYTES, NO_LIMIT, PIECE_BYTES, Policy, Reason,
    SHORT_BYTES, Side, THOUGHT_BYTES, Taken, Way,
};
pub use thread::{Room, Stays, ThreadRule, Trail};
