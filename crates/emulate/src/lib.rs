//! Makes the engine's own accesses pay what another machine would charge.
//!
//! The engine runs as it is; each slice's mapping tells the memory of its node of every access
//! (`pmem::Charge`), and that holds the thread up for as long as the described memory would take:
//! its bandwidth for so many threads and such accesses, shared by all of them ([`Line`]), what
//! remoteness takes away, and latency. Threads say which CPU they pass for
//! (`topology::assume_cpu`). Time is stretched, so that a few CPUs play many: a copy that takes the
//! machine at hand a microsecond may stand for one that waits a hundred.
//!
//! What it is not: a model of caches, CPUs or interconnects' contention. Everything but the memory
//! of the slices, and the way of a request to a worker, costs what it costs here, and that is
//! little beside stretched time.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod line;
mod node;

pub use line::{Line, Ticket};
pub use node::Emulation;
